#include <intact/grouped.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/types.h"
#include "fuzz/api.h"
#include "fuzz/call.h"
#include "fuzz/pack_format.h"
#include "support/random.h"

namespace intact::fuzz {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 22;          // larger plans are not run
constexpr int64_t kMostPortableProducts = int64_t{1} << 28;  // portable code is slow

template <class Info>
bool TakesScales(const Info& info) {
  return info.c_type != INTACT_S32 && (info.a_quantization == INTACT_QUANTIZATION_ROWS ||
                                       info.a_quantization == INTACT_QUANTIZATION_TENSOR);
}

intact_gemm_args PlainArgs(const intact_gemm_info& info) {
  static constexpr std::array<float, 5> kRowScales = {1.0f, 2.0f, 0.5f, 1e-3f, 1e3f};
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = std::ssize(kRowScales);
  if (TakesScales(info)) args.a_scales = kRowScales.data();
  return args;
}
intact_conv_args PlainArgs(const intact_conv_info& info) {
  static constexpr float kScale = 0.5f;
  intact_conv_args args = INTACT_CONV_ARGS_INIT;
  args.batch = 1;
  for (int i = 0; i < info.spatial_dims; ++i)
    args.input[i] = info.input[i] == INTACT_ANY_EXTENT ? 4 : info.input[i];
  if (TakesScales(info)) args.a_scales = &kScale;
  return args;
}

// The type of A's elements in runs.
template <class Info>
int32_t InputType(const Info& info) {
  return info.a_source_type == INTACT_TYPE_NONE ? info.a_type : info.a_source_type;
}

// The numbers of elements of A and of C.
struct Sizes {
  int64_t a, c;
};
Sizes SizesOf(const intact_gemm_info& info, const intact_gemm_args& args, const intact_run_info& /*run*/) {
  return {args.m * info.k, args.m * info.n};
}
Sizes SizesOf(const intact_conv_info& info, const intact_conv_args& args, const intact_run_info& run) {
  Sizes sizes = {info.input_channels, info.output_channels};
  for (int i = 0; i < info.spatial_dims; ++i) {
    if (__builtin_mul_overflow(sizes.a, args.input[i], &sizes.a)) sizes.a = kMostElements + 1;
    if (__builtin_mul_overflow(sizes.c, run.output[i], &sizes.c)) sizes.c = kMostElements + 1;
  }
  return sizes;
}

// Runs a plan from a forged image. Whatever the image says, the run must stay within its buffers. In
// INTACT_EXACT mode `output` gets the bytes of C.
template <class Api>
std::string RunLoaded(const typename Api::Plan* plan, std::span<const uint8_t> image,
                      std::vector<uint8_t>* output) {
  typename Api::Info info = Api::kInfo;
  if (Api::Query(plan, &info) != INTACT_OK) return intact_last_error();
  auto args = PlainArgs(info);
  intact_run_info run = INTACT_RUN_INFO_INIT;
  if (Api::Prepare(plan, &args, &run) != INTACT_OK) return "";  // open extents may have no output
  const Sizes sizes = SizesOf(info, args, run);
  if (std::max(sizes.a, sizes.c) > kMostElements || run.scratch_bytes > size_t{1} << 26) return "";
  // A column has fewer weights than the image has bytes.
  const bool is_portable = info.isa == INTACT_ISA_PORTABLE;
  if (is_portable && sizes.c > kMostPortableProducts / std::ssize(image)) return "";
  const auto bytes_of = [](int64_t elements, int32_t type) {
    return static_cast<size_t>(
        elements * (type == INTACT_TYPE_NONE ? 0 : core::BytesOf(static_cast<intact_type>(type))));
  };
  auto a = verify::GuardedBuffer::Allocate(bytes_of(sizes.a, InputType(info)));
  auto c = verify::GuardedBuffer::Allocate(bytes_of(sizes.c, info.c_type));
  auto residual = verify::GuardedBuffer::Allocate(bytes_of(sizes.c, info.residual_type));
  if (!a || !c || !residual) return "";
  FillActivations(image, a->data());
  args.a = a->data().data();
  args.c = c->data().data();
  if (info.residual_type != INTACT_TYPE_NONE) args.residual = residual->data().data();
  args.threads = 1;
  if (Api::Run(plan, &args) != INTACT_OK) {
    // The zero point 0 may lie outside the plan's activation range.
    if (info.a_quantization == INTACT_QUANTIZATION_TENSOR) return "";
    return fmt::format("{}: {}", info.kernel, intact_last_error());
  }
  if (info.mode == INTACT_EXACT) output->assign(c->data().begin(), c->data().end());
  return c->FrontIntact() ? "" : fmt::format("{} wrote before C", info.kernel);
}

// Runs a plan of grouped weights from a forged image. `output` gets the bytes of C.
template <>
std::string RunLoaded<GroupedApi>(const intact_grouped* plan, std::span<const uint8_t> /*image*/,
                                  std::vector<uint8_t>* output) {
  intact_grouped_info info = GroupedApi::kInfo;
  if (intact_grouped_query(plan, &info) != INTACT_OK) return intact_last_error();
  constexpr int64_t kRows = 3;
  if (kRows * std::max(info.n, info.k) > kMostElements) return "";
  const bool is_dynamic = info.a_source_type != INTACT_TYPE_NONE;
  const auto type = static_cast<intact_type>(is_dynamic ? info.a_source_type : info.a_type);
  auto a = verify::GuardedBuffer::Allocate(static_cast<size_t>(kRows * info.k * core::BytesOf(type)));
  auto c = verify::GuardedBuffer::Allocate(
      static_cast<size_t>(kRows * info.n * core::BytesOf(static_cast<intact_type>(info.c_type))));
  if (!a || !c) return "";
  support::Random random(1, 1, 0);
  // Finite numbers of every type.
  for (uint8_t& byte : a->data()) byte = static_cast<uint8_t>(random.Integer(0, 63));
  const std::vector<float> scales(static_cast<size_t>(kRows * info.groups), 0.5f);
  std::vector<int64_t> expert_rows(static_cast<size_t>(info.experts));
  expert_rows.front() = 1;
  expert_rows.back() += kRows - 1;
  intact_grouped_args args = INTACT_GROUPED_ARGS_INIT;
  args.m = kRows;
  args.a = a->data().data();
  args.c = c->data().data();
  if (!is_dynamic) args.a_scales = scales.data();
  args.expert_rows = expert_rows.data();
  args.threads = 1;
  if (intact_grouped_run(plan, &args) != INTACT_OK) return intact_last_error();
  output->assign(c->data().begin(), c->data().end());
  return c->FrontIntact() ? "" : fmt::format("{} wrote before C", info.kernel);
}

template <class Api>
std::string Load(const char* name, std::span<const uint8_t> image, const Tamper& tamper) {
  bool is_portable_plan = false;
  std::vector<uint8_t> expected;
  for (const intact_isa isa : {INTACT_ISA_PORTABLE, INTACT_ISA_AVX2, INTACT_ISA_ANY}) {
    typename Api::Plan* loaded = nullptr;
    const intact_status status = Api::LoadMemory(image.data(), image.size(), isa, &loaded);
    PlanOwner<Api> plan(loaded);
    if (status != INTACT_OK) {
      if (loaded != nullptr) return fmt::format("{} fails and makes a plan", name);
      std::string wrong = WrongRefusal(name, status, true);
      if (!wrong.empty()) return wrong;
      // Only faults of schedules depend on the ISA.
      const std::string_view message = intact_last_error();
      if (is_portable_plan && status == INTACT_INVALID_ARGUMENT &&
          message.find("corrupted: ") == std::string_view::npos) {
        return fmt::format("a portable plan is made, but {}", message);
      }
      continue;
    }
    std::vector<uint8_t> output;
    std::string wrong = RunLoaded<Api>(plan.get(), image, &output);
    if (!wrong.empty()) return wrong;
    if (isa == INTACT_ISA_PORTABLE) {
      is_portable_plan = true;
      expected = std::move(output);
      continue;
    }
    if (tamper && isa == INTACT_ISA_AVX2 && !output.empty()) tamper(&output);
    if (!expected.empty() && !output.empty() && output != expected) {
      return fmt::format("{} for {}: other bytes than the portable plan's", name, intact_isa_name(isa));
    }
  }
  return "";
}

std::string LoadAll(std::span<const uint8_t> image, const Tamper& tamper) {
  std::string wrong = Load<GemmApi>("intact_gemm_load_memory", image, tamper);
  if (wrong.empty()) wrong = Load<ConvApi>("intact_conv_load_memory", image, tamper);
  return wrong.empty() ? Load<GroupedApi>("intact_grouped_load_memory", image, tamper) : wrong;
}

}  // namespace

std::string CheckPackFile(std::span<const uint8_t> bytes, const Tamper& tamper) {
  // The image ends at a guard page. It is aligned if its size is a multiple of 64, as file sizes are.
  auto image = verify::GuardedBuffer::Allocate(bytes.size());
  if (!image) return "";
  std::copy(bytes.begin(), bytes.end(), image->data().begin());
  std::string wrong = LoadAll(image->data(), tamper);
  if (!wrong.empty()) return wrong;
  Seal(image->data());
  return LoadAll(image->data(), tamper);
}

}  // namespace intact::fuzz
