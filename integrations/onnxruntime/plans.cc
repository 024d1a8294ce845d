#include "plans.h"

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <random>

#include "node.h"

namespace intact::onnxruntime {
namespace {

// A key of a layer's content: two polynomials at random points, modulo the prime 2^61 − 1. Their words are the content's, or of
// whole blocks four random sums of products (NH), which are equal for two blocks with a probability of 2^-128. Two contents of n
// words have equal keys with a probability of about (n/2^61)^2, whatever the contents: less than 2^-67 for a gigabyte.
class ContentKey {
 public:
  void Add(const void* data, size_t bytes) {
    AddWord(bytes);
    const auto* from = static_cast<const std::byte*>(data);
    for (; bytes >= kBlockBytes; bytes -= kBlockBytes, from += kBlockBytes) {
      const std::array sums = SumsOf(from);
      AddWords(reinterpret_cast<const std::byte*>(sums.data()), sizeof sums);
    }
    AddWords(from, bytes);
  }
  template <class T>
  void Add(const std::vector<T>& values) {
    Add(values.data(), values.size() * sizeof(T));
  }
  auto operator<=>(const ContentKey&) const = default;

 private:
  static constexpr size_t kWordBytes = 7;  // a word is less than the prime
  static constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;
  static constexpr size_t kPairs = 128, kBlockBytes = kPairs * 2 * sizeof(uint32_t), kSums = 4;

  // What no content knows.
  struct Random {
    Random() {
      std::random_device device;  // takes a microsecond for each number
      std::uniform_int_distribution<uint64_t> any(0, kPrime - 1);
      for (uint64_t& point : points) point = any(device);
      std::seed_seq seed{device(), device(), device(), device(), device(), device(), device(), device()};
      std::mt19937 generator(seed);
      for (auto& of_sum : keys)
        for (uint32_t& key : of_sum) key = static_cast<uint32_t>(generator());
    }
    std::array<uint64_t, 2> points;
    std::array<std::array<uint32_t, 2 * kPairs>, kSums> keys;
  };
  static const Random& Secrets() {
    static const Random secrets;
    return secrets;
  }

  // Of each sum: the products of words i and i + kPairs, each plus its key, modulo 2^64.
  static std::array<uint64_t, kSums> SumsOf(const std::byte* block) {
    std::array<uint32_t, 2 * kPairs> words;
    std::memcpy(words.data(), block, sizeof words);
    std::array<uint64_t, kSums> sums = {};
    for (size_t s = 0; s < kSums; ++s) {
      const auto& keys = Secrets().keys[s];
      for (size_t i = 0; i < kPairs; ++i)
        sums[s] += uint64_t{words[i] + keys[i]} * uint64_t{words[i + kPairs] + keys[i + kPairs]};
    }
    return sums;
  }

  void AddWord(uint64_t word) {
    for (size_t i = 0; i < values_.size(); ++i) values_[i] = Step(values_[i], Secrets().points[i], word);
  }
  void AddWords(const std::byte* from, size_t bytes) {
    while (bytes > 0) {
      const size_t taken = std::min(bytes, kWordBytes);
      uint64_t word = 0;
      std::memcpy(&word, from, taken);
      AddWord(word);
      bytes -= taken;
      from += taken;
    }
  }

  // value · point + word, modulo the prime.
  static uint64_t Step(uint64_t value, uint64_t point, uint64_t word) {
    const auto product = static_cast<unsigned __int128>(value) * point + word;
    const uint64_t sum = (static_cast<uint64_t>(product) & kPrime) + static_cast<uint64_t>(product >> 61);
    return sum >= kPrime ? sum - kPrime : sum;
  }

  std::array<uint64_t, 2> values_ = {1, 1};
};

// The content of a layer; `desc`: a descriptor without pointers.
template <class Desc>
ContentKey KeyOf(const Desc& desc, Linear& linear, const void* weights, size_t bytes) {
  ContentKey key;
  key.Add(&desc, sizeof desc);
  const intact_linear_desc& numbers = *linear.Complete();
  // Without pointers, and without the padding between fields, which may hold anything.
  const auto add_fields = [&](const auto& first, const void* end) {
    key.Add(&first, static_cast<size_t>(static_cast<const std::byte*>(end) -
                                        reinterpret_cast<const std::byte*>(&first)));
  };
  add_fields(numbers, &numbers.b_zero_points);
  add_fields(numbers.b_zero_point_count, &numbers.bias_s32);
  add_fields(numbers.scale_count, &numbers.multipliers);
  add_fields(numbers.fixed_point, &numbers.fixed_point + 1);
  add_fields(numbers.overflow, &numbers + 1);
  key.Add(linear.b_zero_points);
  key.Add(linear.bias_s32);
  key.Add(linear.bias_f32);
  key.Add(linear.scales);
  key.Add(weights, bytes);
  return key;
}

// The plan of a key, made by make() if no layer has it.
template <class Plan, class Make>
std::shared_ptr<const Plan> Shared(const ContentKey& key, Make make) {
  static std::mutex mutex;
  static std::map<ContentKey, std::weak_ptr<const Plan>> plans;
  const auto find = [&]() -> std::shared_ptr<const Plan> {
    const auto found = plans.find(key);
    return found == plans.end() ? nullptr : found->second.lock();
  };
  {
    const std::lock_guard lock(mutex);
    if (auto plan = find()) return plan;
  }
  std::shared_ptr<const Plan> made = make();
  const std::lock_guard lock(mutex);
  if (auto plan = find()) return plan;  // another thread was faster
  std::erase_if(plans, [](const auto& entry) { return entry.second.expired(); });
  plans[key] = made;
  return made;
}

}  // namespace

GemmPlan MakeGemmPlan(const intact_gemm_desc& desc, Linear& linear, const void* b) {
  const auto make = [&] {
    intact_gemm* plan = nullptr;
    RefuseUnlessOk(intact_gemm_create(&desc, linear.Complete(), b, &plan));
    return GemmPlan(plan, intact_gemm_destroy);
  };
  const int64_t bytes = b == nullptr ? 0 : desc.k * desc.n;
  return Shared<intact_gemm>(KeyOf(desc, linear, b, static_cast<size_t>(bytes)), make);
}

ConvPlan MakeConvPlan(const intact_conv_desc& desc, Linear& linear, std::span<const uint8_t> weights,
                      const std::function<std::vector<uint8_t>()>& reordered) {
  const auto make = [&] {
    intact_conv* plan = nullptr;
    const std::vector<uint8_t> ordered = reordered();
    RefuseUnlessOk(intact_conv_create(&desc, linear.Complete(),
                                      ordered.empty() ? weights.data() : ordered.data(), &plan));
    return ConvPlan(plan, intact_conv_destroy);
  };
  return Shared<intact_conv>(KeyOf(desc, linear, weights.data(), weights.size()), make);
}

GroupedPlan MakeGroupedPlan(const intact_grouped_desc& desc, StoredWeights stored,
                            std::span<const uint8_t> weights,
                            const std::function<std::vector<uint8_t>()>& columns) {
  const auto make = [&] {
    intact_grouped* plan = nullptr;
    const std::vector<uint8_t> reordered =
        stored == StoredWeights::kColumns ? std::vector<uint8_t>() : columns();
    RefuseUnlessOk(intact_grouped_create(
        &desc, stored == StoredWeights::kColumns ? weights.data() : reordered.data(), &plan));
    return GroupedPlan(plan, intact_grouped_destroy);
  };
  intact_grouped_desc numbers = desc;
  numbers.b_scales = numbers.b_zero_points = numbers.bias_f32 = nullptr;
  const auto n = static_cast<size_t>(desc.experts * desc.n);
  const size_t scales = n * static_cast<size_t>((desc.k + desc.group - 1) / desc.group);
  ContentKey key;
  key.Add(&numbers, sizeof numbers);
  key.Add(&stored, sizeof stored);
  key.Add(weights.data(), weights.size());
  key.Add(desc.b_scales, scales * (desc.scale_type == INTACT_F32 ? 4 : 2));
  key.Add(desc.b_zero_points, desc.b_zero_points == nullptr ? 0 : scales);
  key.Add(desc.bias_f32, desc.bias_f32 == nullptr ? 0 : n * sizeof(float));
  return Shared<intact_grouped>(key, make);
}

std::string KernelOf(const intact_gemm& plan) {
  intact_gemm_info info = INTACT_GEMM_INFO_INIT;
  Check(intact_gemm_query(&plan, &info));
  return info.kernel;
}

std::string KernelOf(const intact_conv& plan) {
  intact_conv_info info = INTACT_CONV_INFO_INIT;
  Check(intact_conv_query(&plan, &info));
  return info.kernel;
}

std::string KernelOf(const intact_grouped& plan) {
  intact_grouped_info info = INTACT_GROUPED_INFO_INIT;
  Check(intact_grouped_query(&plan, &info));
  return info.kernel;
}

}  // namespace intact::onnxruntime
