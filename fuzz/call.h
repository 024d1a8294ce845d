// A fuzzed call after its descriptor is read: the code that GEMMs and convolutions share.
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

#include "core/result.h"
#include "core/types.h"
#include "fuzz/api.h"
#include "fuzz/check.h"
#include "fuzz/input.h"
#include "fuzz/linear.h"
#include "reference/models/lowering.h"
#include "reference/models/models.h"
#include "reference/models/operands.h"
#include "verify/explain/compare.h"
#include "verify/targets/guarded_buffer.h"
#include "verify/targets/intact_target.h"

namespace intact::fuzz {

/// A struct in a buffer as long as any size that the library accepts.
template <class Struct>
class Versioned {
 public:
  Versioned(const Struct& value, Input* input) {
    std::memcpy(bytes_.data(), &value, sizeof value);
    const size_t size =
        input->OneIn(8) ? input->Pick({sizeof(Struct) + 1, sizeof(Struct) + 64, kMost}) : sizeof(Struct);
    SetSize(size);
    if (input->OneIn(64)) {  // sets an unknown field
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

/// Checks the status and message of a call that failed: "", or what is wrong with them.
inline std::string WrongRefusal(const char* call, intact_status status, bool is_spoilt) {
  const std::string message = intact_last_error();
  if (message.empty()) return fmt::format("{} fails with status {}, without a message", call, int{status});
  if (message.find(call) != 0)
    return fmt::format("{} fails with '{}'; expected its name first", call, message);
  const bool is_expected = status == INTACT_OVERFLOW || status == INTACT_UNSUPPORTED;
  if (is_expected || (is_spoilt && status == INTACT_INVALID_ARGUMENT)) return "";
  return fmt::format("status {}: {}", int{status}, message);
}

/// WrongRefusal() for the creation of a plan. Sums that may wrap must never be refused.
inline std::string WrongCreation(const char* call, intact_status status, const intact_linear_desc& linear,
                                 bool is_spoilt) {
  if (status == INTACT_OVERFLOW && linear.overflow == INTACT_OVERFLOW_WRAPS)
    return "sums that may wrap are refused";
  return WrongRefusal(call, status, is_spoilt);
}

template <class Api>
struct DestroyPlan {
  void operator()(typename Api::Plan* plan) const { Api::Destroy(plan); }
};
template <class Api>
using PlanOwner = std::unique_ptr<typename Api::Plan, DestroyPlan<Api>>;

/// Keeps the plans of the last calls, because their kernels are freed with the last plan that uses them.
/// Generating kernels takes longer than all other work of a call.
template <class Api>
void Retire(PlanOwner<Api> plan) {
  static std::array<PlanOwner<Api>, 64> kept;
  static size_t next = 0;
  kept[next++ % kept.size()] = std::move(plan);
}

/// Functions that change the optional arguments of a run.
template <class Args>
struct Others {
  /// Sets the optional arguments.
  std::function<void(Args*)> amend = [](Args*) {};
  /// Makes one optional argument wrong. False if it changed no argument.
  std::function<bool(Args*)> spoil = [](Args*) { return false; };
};

template <class Api>
class Call {
 public:
  using Args = typename Api::Args;
  using Operation = typename Api::Operation;

  /// `run_name`: the function that runs the plan; its messages begin with it. `operation` has its tensors.
  Call(Input* input, const char* run_name, const Operation& operation, const verify::RunOptions& options,
       Others<Args> others = {})
      : input_(*input),
        run_name_(run_name),
        operation_(operation),
        options_(options),
        others_(std::move(others)) {}

  /// Runs `plan`, and returns "" or what is wrong.
  std::string Check(PlanOwner<Api> plan, const Tamper& tamper) {
    typename Api::Info info = Api::kInfo;
    if (Api::Query(plan.get(), &info) != INTACT_OK) return intact_last_error();
    if (input_.OneIn(4)) {
      std::string wrong = HasWeights(operation_) ? Reload(&plan) : SaveNothing(plan.get());
      if (!wrong.empty()) return wrong;
      if (Api::Query(plan.get(), &info) != INTACT_OK) return intact_last_error();
    }
    std::string wrong;
    const auto output = verify::RunGuarded(operation_, options_, [&](Args args) -> Error {
      others_.amend(&args);
      wrong = RunSpoilt(plan.get(), args);
      if (wrong.empty()) wrong = RunNothing(plan.get(), args);
      if (!wrong.empty()) return {INTACT_INVALID_ARGUMENT, wrong};
      return Run(plan.get(), args);
    });
    if (!output) return fmt::format("{}: {}", info.kernel, output.error().message);
    std::vector<uint8_t> actual = *output;
    if (tamper) tamper(&actual);
    const reference::Model model = verify::ExpectedModel(operation_, static_cast<intact_isa>(info.isa));
    const auto expected = reference::Outputs(operation_, reference::Accumulators(operation_, model));
    const auto compared = verify::CompareBytes(operation_.c_type, expected, actual);
    if (!is_loaded_) Retire<Api>(std::move(plan));
    if (compared.differing == 0) return "";
    return fmt::format("{}: {} of {} outputs differ, the first is number {}", info.kernel, compared.differing,
                       compared.outputs, compared.first_differing);
  }

 private:
  static bool HasWeights(const reference::Gemm& gemm) { return !gemm.has_runtime_b; }
  static bool HasWeights(const reference::Conv& /*conv*/) { return true; }

  // Plans without weights cannot be saved.
  std::string SaveNothing(const typename Api::Plan* plan) {
    size_t size = 0;
    return Api::SaveMemory(plan, nullptr, &size) == INTACT_UNSUPPORTED ? ""
                                                                       : "a plan without weights is saved";
  }

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

  // Makes one argument wrong. The run must refuse it and leave C unchanged.
  std::string RunSpoilt(const typename Api::Plan* plan, const Args& good) {
    if (!input_.OneIn(4)) return "";
    Args args = good;
    if (!others_.spoil(&args)) SpoilOne(&args);
    const std::vector<uint8_t> before = OutputBytes(good);
    const Versioned<Args> given(args, &input_);
    if (Api::Run(plan, given.get()) == INTACT_OK) return "a wrong argument is accepted";
    std::string wrong = WrongRefusal(run_name_, INTACT_INVALID_ARGUMENT, true);
    if (wrong.empty() && before != OutputBytes(good)) wrong = "a refused run writes";
    return wrong;
  }

  // A run without rows or items does nothing, whatever its pointers.
  std::string RunNothing(const typename Api::Plan* plan, const Args& good) {
    if (!input_.OneIn(16)) return "";
    Args args = WithoutArrays(good);
    if (!input_.OneIn(4) || !SetItems(&args, 0)) SetRows(&args, 0);
    if (input_.OneIn(2)) {
      args.a = nullptr;
      args.c = nullptr;
      args.residual = nullptr;
    }
    const std::vector<uint8_t> before = OutputBytes(good);
    intact_run_info info = INTACT_RUN_INFO_INIT;
    const bool is_part = input_.OneIn(4);
    if (Api::Prepare(plan, &args, &info) != INTACT_OK ||
        (is_part ? Api::RunPart(plan, &args, 1, 3) : Api::Run(plan, &args)) != INTACT_OK) {
      return fmt::format("a run of nothing is refused: {}", intact_last_error());
    }
    if (info.scratch_bytes + info.part_scratch_bytes != 0) return "a run of nothing needs scratch";
    return before == OutputBytes(good) ? "" : "a run of nothing writes";
  }

  void SpoilOne(Args* args) {
    constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
    constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
    const auto bad_stride = [&](int64_t least) {
      return input_.Pick({int64_t{-1}, kLowest, kHighest, least == 1 ? -least : least - 1, int64_t{1} << 41});
    };
    switch (input_.Byte() % 9) {
      case 0:
        return SetRows(args, input_.Pick({int64_t{-1}, kLowest, kHighest, int64_t{1} << 31}));
      case 1:
        DropItems(args);
        args->a = nullptr;
        return;
      case 2:
        DropItems(args);
        args->c = nullptr;
        return;
      case 3:
        args->a_stride = bad_stride(InputLayoutOf(operation_, options_).elements);
        return;
      case 4:
        args->c_stride = bad_stride(OutputOf(operation_).columns);
        return;
      case 5:
        DropItems(args);
        args->residual = operation_.HasResidual() ? nullptr : args;
        return;
      case 6:
        args->threads = input_.Pick({-1, std::numeric_limits<int32_t>::min()});
        return;
      case 7:
        args->scratch_bytes = 1 + static_cast<size_t>(input_.Byte());  // without scratch
        return;
      default:
        args->scratch = &args->scratch;
        args->scratch_bytes = static_cast<size_t>(input_.Integer(0, 62));
        return;
    }
  }

  // Drops the pointers to items. Tensors that had them are then missing.
  static void DropItems(intact_gemm_args* args) {
    args->a_items = nullptr;
    args->c_items = nullptr;
    args->residual_items = nullptr;
  }
  static void DropItems(intact_conv_args* /*args*/) {}

  static void SetRows(intact_gemm_args* args, int64_t rows) { args->m = rows; }
  static void SetRows(intact_conv_args* args, int64_t rows) { args->batch = rows; }
  // False if the call has no items.
  static bool SetItems(intact_gemm_args* args, int64_t items) {
    args->batch = items;
    return true;
  }
  static bool SetItems(intact_conv_args* /*args*/, int64_t /*items*/) { return false; }

  Error Run(const typename Api::Plan* plan, Args args) {
    const auto answer = [](intact_status status) {
      return Error{status, status == INTACT_OK ? "" : intact_last_error()};
    };
    intact_run_info info = INTACT_RUN_INFO_INIT;
    std::vector<verify::GuardedBuffer> scratch;
    const int32_t parts = input_.OneIn(4) ? static_cast<int32_t>(input_.Integer(1, 7)) : 0;
    if (input_.OneIn(3)) {
      const Args asked = WithoutArrays(args);
      RETURN_IF_ERROR(answer(Api::Prepare(plan, &asked, &info)));
      args.scratch_bytes = parts > 0 ? info.part_scratch_bytes : info.scratch_bytes;
      ASSIGN_OR_RETURN(auto buffer, verify::GuardedBuffer::Allocate(args.scratch_bytes));
      args.scratch = buffer.data().data();
      scratch.push_back(std::move(buffer));
    }
    const Versioned<Args> given = OfAnyVersion(args);
    Error error;
    for (int32_t part = 0; part < parts && error.ok(); ++part) {
      error = answer(Api::RunPart(plan, given.get(), part, parts));
    }
    if (parts == 0)
      error = answer(input_.OneIn(4) ? RunBound(plan, given.get()) : Api::Run(plan, given.get()));
    if (error.ok() && !scratch.empty() && !scratch.front().FrontIntact()) {
      return {INTACT_CODEGEN_FAILED, "wrote before its scratch"};
    }
    return error;
  }

  static intact_status RunBound(const typename Api::Plan* plan, const Args* args) {
    intact_bound* bound = nullptr;
    intact_status status = Api::Bind(plan, args, &bound);
    if (status == INTACT_OK) status = intact_bound_run(bound);
    intact_bound_destroy(bound);
    return status;
  }

  // `args` with array pointers to unmapped memory: reading them faults.
  static intact_gemm_args WithoutArrays(intact_gemm_args args) {
    Hide(&args.a_items);
    Hide(&args.c_items);
    Hide(&args.residual_items);
    Hide(&args.b_items);
    Hide(&args.a_zero_points);
    Hide(&args.a_scales);
    Hide(&args.b_scales);
    Hide(&args.b_zero_points);
    return args;
  }
  static intact_conv_args WithoutArrays(intact_conv_args args) {
    Hide(&args.a_zero_points);
    Hide(&args.a_scales);
    return args;
  }
  template <class T>
  static void Hide(T** array) {
    constexpr uintptr_t kNowhere = 64;
    if (*array != nullptr) *array = reinterpret_cast<T*>(kNowhere);  // NOLINT(performance-no-int-to-ptr)
  }

  // `args` in a struct of this version's size or of a larger size that the library must accept.
  Versioned<Args> OfAnyVersion(const Args& args) {
    Versioned<Args> given(args, &input_);
    Input plain{{}};
    return given.is_spoilt() ? Versioned<Args>(args, &plain) : given;
  }

  static int64_t RowsOfItem(const reference::Gemm& gemm) { return gemm.m; }
  static int64_t RowsOfItem(const reference::Conv& conv) { return OutputOf(conv).rows; }

  // The outputs of all items, with the bytes between rows.
  std::vector<uint8_t> OutputBytes(const intact_gemm_args& args) const {
    std::vector<uint8_t> bytes;
    const int64_t step = args.c_batch_stride == 0 ? args.m * args.c_stride : args.c_batch_stride;
    for (int64_t item = 0; item < operation_.batch; ++item) {
      const bool has_pointers = args.c_items != nullptr;
      AppendOutput(has_pointers ? args.c_items[item] : args.c, has_pointers ? 0 : item * step, &bytes);
    }
    return bytes;
  }
  std::vector<uint8_t> OutputBytes(const intact_conv_args& args) const {
    std::vector<uint8_t> bytes;
    AppendOutput(args.c, 0, &bytes);
    return bytes;
  }
  // Appends the output at `c` from element `first` on.
  void AppendOutput(const void* c, int64_t first, std::vector<uint8_t>* bytes) const {
    const int64_t element = core::BytesOf(operation_.c_type);
    const int64_t columns = OutputOf(operation_).columns;
    const int64_t elements = (RowsOfItem(operation_) - 1) * (columns + options_.c_pad) + columns;
    const auto* const from = static_cast<const uint8_t*>(c) + first * element;
    bytes->insert(bytes->end(), from, from + elements * element);
  }

  Input& input_;
  const char* run_name_;
  const Operation& operation_;
  const verify::RunOptions& options_;
  const Others<Args> others_;
  std::vector<uint8_t> image_;  // holds a loaded plan's weights
  bool is_loaded_ = false;
};

/// Reads the options of the run except ISA and mode, and the residual of `operation`.
template <class Operation>
verify::RunOptions ReadOptions(Input* input, int64_t outputs, Operation* operation) {
  verify::RunOptions options;
  options.a_pad = input->Pick<int64_t>({0, 0, 1, 3, 16, 64});
  options.c_pad = input->Pick<int64_t>({0, 0, 1, 3, 16, 64});
  options.threads = input->Pick({1, 1, 2, 0, 3, 100});
  if (!operation->HasResidual()) return options;
  options.res_pad = input->Pick<int64_t>({0, 1, 16});
  const int64_t element = core::BytesOf(operation->residual_type());
  operation->residual = ReadTensor(input, outputs * element);
  options.in_place = element == core::BytesOf(operation->c_type) && input->OneIn(2);
  return options;
}

}  // namespace intact::fuzz
#endif  // INTACT_FUZZ_CALL_H_
