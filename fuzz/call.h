// A fuzzed call, once its descriptor is read: what GEMMs and convolutions have in common.
#ifndef INTACT_FUZZ_CALL_H_
#define INTACT_FUZZ_CALL_H_

#include <fmt/format.h>
#include <intact/intact.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/api.h"
#include "fuzz/check.h"
#include "fuzz/input.h"
#include "fuzz/linear.h"
#include "reference/models.h"
#include "verify/compare.h"
#include "verify/guarded_buffer.h"
#include "verify/targets/intact_target.h"

namespace intact::fuzz {

/// A struct with room for all sizes that the library accepts of one.
template <class Struct>
class Versioned {
 public:
  Versioned(const Struct& value, Input* input) {
    std::memcpy(bytes_.data(), &value, sizeof value);
    const size_t size =
        input->OneIn(8) ? input->Pick({sizeof(Struct) + 1, sizeof(Struct) + 64, kMost}) : sizeof(Struct);
    SetSize(size);
    if (input->OneIn(64)) {  // an unknown field, which is set
      const size_t at = sizeof(Struct) + static_cast<size_t>(input->Integer(0, 63));
      bytes_[at] = 1;
      is_spoilt_ = at < size;
    }
    if (input->OneIn(64)) {
      SetSize(input->Pick({size_t{0}, size_t{8}, size_t{39}, kMost + 1, std::numeric_limits<size_t>::max()}));
      is_spoilt_ = true;
    }
  }
  const Struct* get() const { return reinterpret_cast<const Struct*>(bytes_.data()); }
  bool is_spoilt() const { return is_spoilt_; }

 private:
  static constexpr size_t kMost = 4096;
  void SetSize(size_t size) { std::memcpy(bytes_.data(), &size, sizeof size); }

  alignas(Struct) std::array<uint8_t, kMost> bytes_ = {};
  bool is_spoilt_ = false;
};

/// "" for an answer that a call may give which is refused.
inline std::string WrongRefusal(const char* call, intact_status status, bool is_spoilt) {
  const std::string message = intact_last_error();
  if (message.empty()) return fmt::format("{} fails with status {} and says nothing", call, int{status});
  if (message.find(call) != 0) return fmt::format("{} fails and says '{}'", call, message);
  const bool is_expected = status == INTACT_OVERFLOW || status == INTACT_UNSUPPORTED;
  if (is_expected || (is_spoilt && status == INTACT_INVALID_ARGUMENT)) return "";
  return fmt::format("status {}: {}", int{status}, message);
}

template <class Api>
struct DestroyPlan {
  void operator()(typename Api::Plan* plan) const { Api::Destroy(plan); }
};
template <class Api>
using PlanOwner = std::unique_ptr<typename Api::Plan, DestroyPlan<Api>>;

/// Kernels go with their last plan, and to generate them takes longer than all else: the plans of the last
/// calls live on, so that later ones find theirs.
template <class Api>
void Retire(PlanOwner<Api> plan) {
  static std::array<PlanOwner<Api>, 64> kept;
  static size_t next = 0;
  kept[next++ % kept.size()] = std::move(plan);
}

template <class Api>
class Call {
 public:
  using Args = typename Api::Args;
  using Operation = typename Api::Operation;

  /// `run_name` is the function that runs the plan, by which its messages begin; `operation` has its tensors.
  Call(Input* input, const char* run_name, const Operation& operation, const verify::RunOptions& options)
      : input_(*input), run_name_(run_name), operation_(operation), options_(options) {}

  /// What is wrong with what `plan` does.
  std::string Check(PlanOwner<Api> plan, const Tamper& tamper) {
    typename Api::Info info = Api::kInfo;
    if (Api::Query(plan.get(), &info) != INTACT_OK) return intact_last_error();
    if (input_.OneIn(4)) {
      std::string wrong = Reload(&plan);
      if (!wrong.empty()) return wrong;
      if (Api::Query(plan.get(), &info) != INTACT_OK) return intact_last_error();
    }
    std::string wrong;
    const auto output = verify::RunGuarded(operation_, options_, [&](const Args& args) -> Error {
      wrong = RunSpoilt(plan.get(), args);
      if (!wrong.empty()) return {INTACT_INVALID_ARGUMENT, wrong};
      return Run(plan.get(), args);
    });
    if (!output) return fmt::format("{}: {}", info.kernel, output.error().message);
    std::vector<uint8_t> actual = *output;
    if (tamper) tamper(&actual);
    const reference::Model model =
        verify::ExpectedModel(static_cast<intact_mode>(info.mode), static_cast<intact_isa>(info.isa));
    const auto expected = reference::Outputs(operation_, reference::Accumulators(operation_, model));
    const auto compared = verify::CompareBytes(operation_.c_type, expected, actual);
    if (!is_loaded_) Retire<Api>(std::move(plan));
    if (compared.differing == 0) return "";
    return fmt::format("{}: {} of {} outputs differ, the first is number {}", info.kernel, compared.differing,
                       compared.outputs, compared.first_differing);
  }

 private:
  std::string Reload(PlanOwner<Api>* plan) {
    size_t size = 0;
    if (Api::SaveMemory(plan->get(), nullptr, &size) != INTACT_OK) return intact_last_error();
    image_.resize(size + 63);
    auto* const aligned = image_.data() + (-reinterpret_cast<uintptr_t>(image_.data()) & 63);
    if (Api::SaveMemory(plan->get(), aligned, &size) != INTACT_OK) return intact_last_error();
    typename Api::Plan* loaded = nullptr;
    if (Api::LoadMemory(aligned, size, INTACT_ISA_ANY, &loaded) != INTACT_OK) return intact_last_error();
    Retire<Api>(std::exchange(*plan, PlanOwner<Api>(loaded)));
    is_loaded_ = true;
    return "";
  }

  // Arguments of which one is wrong must be refused, and C be left as it was.
  std::string RunSpoilt(const typename Api::Plan* plan, const Args& good) {
    if (!input_.OneIn(4)) return "";
    Args args = good;
    SpoilOne(&args);
    const size_t bytes = OutputBytes();
    const auto* const c = static_cast<const uint8_t*>(good.c);
    const std::vector<uint8_t> before(c, c + bytes);
    const Versioned<Args> given(args, &input_);
    if (Api::Run(plan, given.get()) == INTACT_OK) return "wrong arguments are taken";
    std::string wrong = WrongRefusal(run_name_, INTACT_INVALID_ARGUMENT, true);
    if (wrong.empty() && !std::equal(before.begin(), before.end(), c)) wrong = "a refused run writes";
    return wrong;
  }

  void SpoilOne(Args* args) {
    constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
    constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
    const auto bad_stride = [&](int64_t least) {
      return input_.Pick({int64_t{-1}, kLowest, kHighest, least == 1 ? -least : least - 1, int64_t{1} << 41});
    };
    switch (input_.Byte() % 9) {
      case 0:
        return SetRows(args, input_.Pick({int64_t{0}, int64_t{-1}, kLowest, kHighest, int64_t{1} << 31}));
      case 1:
        args->a = nullptr;
        return;
      case 2:
        args->c = nullptr;
        return;
      case 3:
        args->a_stride = bad_stride(args->a_stride - options_.a_pad);
        return;
      case 4:
        args->c_stride = bad_stride(args->c_stride - options_.c_pad);
        return;
      case 5:
        args->residual = args->residual == nullptr ? args->c : nullptr;
        return;
      case 6:
        args->threads = input_.Pick({-1, std::numeric_limits<int32_t>::min()});
        return;
      case 7:
        args->scratch_bytes = 1 + static_cast<size_t>(input_.Byte());  // of no scratch
        return;
      default:
        args->scratch = &args->scratch;
        args->scratch_bytes = static_cast<size_t>(input_.Integer(0, 62));
        return;
    }
  }

  static void SetRows(intact_gemm_args* args, int64_t rows) { args->m = rows; }
  static void SetRows(intact_conv_args* args, int64_t rows) { args->batch = rows; }

  Error Run(const typename Api::Plan* plan, Args args) {
    const auto answer = [](intact_status status) {
      return Error{status, status == INTACT_OK ? "" : intact_last_error()};
    };
    intact_run_info info = INTACT_RUN_INFO_INIT;
    std::vector<verify::GuardedBuffer> scratch;
    const int32_t parts = input_.OneIn(4) ? static_cast<int32_t>(input_.Integer(1, 7)) : 0;
    if (input_.OneIn(3)) {
      if (Error error = answer(Api::Prepare(plan, &args, &info)); !error.ok()) return error;
      args.scratch_bytes = parts > 0 ? info.part_scratch_bytes : info.scratch_bytes;
      auto buffer = verify::GuardedBuffer::Allocate(args.scratch_bytes);
      if (!buffer) return buffer.error();
      args.scratch = buffer->data().data();
      scratch.push_back(std::move(*buffer));
    }
    const Versioned<Args> given = OfAnyVersion(args);
    Error error;
    for (int32_t part = 0; part < parts && error.ok(); ++part) {
      error = answer(Api::RunPart(plan, given.get(), part, parts));
    }
    if (parts == 0) error = answer(Api::Run(plan, given.get()));
    if (error.ok() && !scratch.empty() && !scratch.front().FrontIntact()) {
      return {INTACT_CODEGEN_FAILED, "wrote before its scratch"};
    }
    return error;
  }

  // `args` in a struct of this version's size or a longer one, which the library must take.
  Versioned<Args> OfAnyVersion(const Args& args) {
    Versioned<Args> given(args, &input_);
    Input plain{{}};
    return given.is_spoilt() ? Versioned<Args>(args, &plain) : given;
  }

  size_t OutputBytes() const {
    const auto element = static_cast<size_t>(reference::ElementSize(operation_.c_type));
    return OutputElements(operation_) * element;
  }
  size_t OutputElements(const reference::Gemm& gemm) const {
    return static_cast<size_t>((gemm.m - 1) * (gemm.n + options_.c_pad) + gemm.n);
  }
  size_t OutputElements(const reference::Conv& conv) const {
    const int64_t channels = conv.geometry.output_channels;
    return static_cast<size_t>((conv.geometry.OutputPixels() - 1) * (channels + options_.c_pad) + channels);
  }

  Input& input_;
  const char* run_name_;
  const Operation& operation_;
  const verify::RunOptions& options_;
  std::vector<uint8_t> image_;  // that a loaded plan's weights are in
  bool is_loaded_ = false;
};

/// How the run is to be, apart from ISA and mode; the residual of `operation` is made.
template <class Operation>
verify::RunOptions ReadOptions(Input* input, int64_t outputs, Operation* operation) {
  verify::RunOptions options;
  options.a_pad = input->Pick<int64_t>({0, 0, 1, 3, 16, 64});
  options.c_pad = input->Pick<int64_t>({0, 0, 1, 3, 16, 64});
  options.threads = input->Pick({1, 1, 2, 0, 3, 100});
  if (operation->residual_type == INTACT_TYPE_NONE) return options;
  options.res_pad = input->Pick<int64_t>({0, 1, 16});
  const int64_t element = reference::ElementSize(operation->residual_type);
  operation->residual = ReadTensor(input, outputs * element);
  options.in_place = element == reference::ElementSize(operation->c_type) && input->OneIn(2);
  return options;
}

}  // namespace intact::fuzz
#endif  // INTACT_FUZZ_CALL_H_
