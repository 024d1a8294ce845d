#include "verify/studies/pairs.h"

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>

#include "reference/models/models.h"
#include "support/some_threads.h"

namespace intact::verify {
namespace {

constexpr int kLanes = 16;  // int16 lanes of a ymm register

/// The (a0, a1) whose larger element is `largest`, as adjacent bytes. Padded to whole registers with zeros,
/// which never clamp.
struct ActivationPairs {
  explicit ActivationPairs(int largest) {
    for (int other = 0; other <= largest; ++other) {
      Append(largest, other);
      if (other != largest) Append(other, largest);
    }
    count = static_cast<int>(bytes.size()) / 2;
    bytes.resize((bytes.size() + 2 * kLanes - 1) / (2 * kLanes) * (2 * kLanes));
  }
  void Append(int a0, int a1) {
    bytes.push_back(static_cast<uint8_t>(a0));
    bytes.push_back(static_cast<uint8_t>(a1));
  }
  std::vector<uint8_t> bytes;
  int count = 0;
};

std::vector<ActivationPairs> AllActivationPairs() {
  std::vector<ActivationPairs> all;
  all.reserve(ClampTable::kActivations);
  for (int largest = 0; largest < ClampTable::kActivations; ++largest) all.emplace_back(largest);
  return all;
}

ClampCount CountByModel(const ActivationPairs& pairs, int8_t w0, int8_t w1) {
  ClampCount count;
  for (int i = 0; i < pairs.count; ++i) {
    const uint8_t* a = &pairs.bytes[2 * static_cast<size_t>(i)];
    const int32_t sum = a[0] * w0 + a[1] * w1;
    const int32_t clamped = reference::Maddubs(a[0], a[1], w0, w1);
    count.high += clamped < sum ? 1 : 0;
    count.low += clamped > sum ? 1 : 0;
  }
  return count;
}

/// Minus the sum of 16 int16 lanes, which count in −1s.
[[gnu::target("avx2")]] int64_t MinusLaneSum(__m256i lanes) {
  const __m256i sums = _mm256_madd_epi16(lanes, _mm256_set1_epi16(-1));
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

/// The count by the instruction, and how many of its lanes are not the clamped sum. That sum is computed
/// independently in 32 bits: VPMADDWD of zero-extended activations and sign-extended weights.
[[gnu::target("avx2")]] ClampCount CountByInstruction(const ActivationPairs& pairs, int8_t w0, int8_t w1,
                                                      int64_t* mismatches) {
  const auto byte = [](int8_t w) { return static_cast<unsigned>(static_cast<uint8_t>(w)); };
  const auto half = [](int8_t w) { return static_cast<unsigned>(static_cast<uint16_t>(int16_t{w})); };
  const __m256i w8 = _mm256_set1_epi16(static_cast<int16_t>(byte(w0) | byte(w1) << 8));
  const __m256i w16 = _mm256_set1_epi32(static_cast<int32_t>(half(w0) | half(w1) << 16));
  const __m256i zero = _mm256_setzero_si256();
  const __m256i top = _mm256_set1_epi32(32767);
  const __m256i bottom = _mm256_set1_epi32(-32768);
  __m256i high = zero;
  __m256i low = zero;
  __m256i wrong = zero;
  for (size_t i = 0; i < pairs.bytes.size(); i += 2 * kLanes) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(&pairs.bytes[i]));
    const __m256i lanes = _mm256_maddubs_epi16(a, w8);
    // Four lanes of each half go to `first` and four to `second`; packing them restores the order.
    const __m256i first = _mm256_madd_epi16(_mm256_unpacklo_epi8(a, zero), w16);
    const __m256i second = _mm256_madd_epi16(_mm256_unpackhi_epi8(a, zero), w16);
    const __m256i lanes_first = _mm256_srai_epi32(_mm256_unpacklo_epi16(zero, lanes), 16);
    const __m256i lanes_second = _mm256_srai_epi32(_mm256_unpackhi_epi16(zero, lanes), 16);
    high = _mm256_add_epi16(high, _mm256_packs_epi32(_mm256_cmpgt_epi32(first, lanes_first),
                                                     _mm256_cmpgt_epi32(second, lanes_second)));
    low = _mm256_add_epi16(low, _mm256_packs_epi32(_mm256_cmpgt_epi32(lanes_first, first),
                                                   _mm256_cmpgt_epi32(lanes_second, second)));
    const __m256i right_first =
        _mm256_cmpeq_epi32(lanes_first, _mm256_max_epi32(_mm256_min_epi32(first, top), bottom));
    const __m256i right_second =
        _mm256_cmpeq_epi32(lanes_second, _mm256_max_epi32(_mm256_min_epi32(second, top), bottom));
    const __m256i right = _mm256_packs_epi32(right_first, right_second);
    wrong = _mm256_add_epi16(wrong, _mm256_cmpeq_epi16(right, zero));
  }
  *mismatches += MinusLaneSum(wrong);
  return {MinusLaneSum(high), MinusLaneSum(low)};
}

void MapOneWeightPair(const std::vector<ActivationPairs>& activations, int w0, int w1, PairMap* map) {
  const int magnitude = std::max(std::abs(w0), std::abs(w1));
  for (int largest = 0; largest < ClampTable::kActivations; ++largest) {
    const ActivationPairs& pairs = activations[static_cast<size_t>(largest)];
    const auto v0 = static_cast<int8_t>(w0);
    const auto v1 = static_cast<int8_t>(w1);
    map->inputs += pairs.count;
    map->by_model.At(largest, magnitude) += CountByModel(pairs, v0, v1);
    if (map->instruction_available) {
      map->by_instruction.At(largest, magnitude) +=
          CountByInstruction(pairs, v0, v1, &map->instruction_mismatches);
    }
  }
}

}  // namespace

ClampCount ClampTable::Within(int amax, int wmax) const {
  ClampCount sum;
  for (int activation = 0; activation <= amax; ++activation) {
    for (int magnitude = 0; magnitude <= wmax; ++magnitude) sum += counts_[Index(activation, magnitude)];
  }
  return sum;
}

void ClampTable::Add(const ClampTable& other) {
  for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
}

bool HasMaddubs() { return __builtin_cpu_supports("avx2") != 0; }

PairMap MapPairs(int w0_begin, int w0_end, int threads) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<ActivationPairs> activations = AllActivationPairs();
  PairMap map;
  map.instruction_available = HasMaddubs();
  std::vector<PairMap> parts(static_cast<size_t>(std::max(threads, 1)), map);
  // Each free thread takes the next weight. If no other thread can be made, the calling thread takes all.
  std::atomic<int> next = w0_begin;
  const auto run_part = [&](int part) {
    for (int w0 = next++; w0 < w0_end; w0 = next++) {
      for (int w1 = -128; w1 <= 127; ++w1) {
        MapOneWeightPair(activations, w0, w1, &parts[static_cast<size_t>(part)]);
      }
    }
  };
  {
    const auto others = support::StartSomeThreads(static_cast<int>(parts.size()) - 1,
                                                  [&](int other) { run_part(other + 1); });
    run_part(0);
  }
  for (const PairMap& part : parts) {
    map.inputs += part.inputs;
    map.by_model.Add(part.by_model);
    map.by_instruction.Add(part.by_instruction);
    map.instruction_mismatches += part.instruction_mismatches;
  }
  map.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return map;
}

PairMap MapAllPairs(int threads) { return MapPairs(-128, 128, threads); }

}  // namespace intact::verify
