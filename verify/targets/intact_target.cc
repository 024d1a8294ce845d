#include "verify/targets/intact_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "verify/guarded_matrix.h"

namespace intact::verify {
namespace {

Error Failed(std::string message) { return Error{INTACT_CODEGEN_FAILED, std::move(message)}; }

template <class T>
const T* DataOrNull(const std::vector<T>& values) {
  return values.empty() ? nullptr : values.data();
}

intact_linear_desc LinearDescOf(const reference::Operation& operation, const RunOptions& options) {
  intact_linear_desc desc = INTACT_LINEAR_DESC_INIT;
  desc.a_type = operation.a_type;
  desc.b_type = operation.b_type;
  desc.c_type = operation.c_type;
  desc.mode = options.mode;
  desc.max_isa = options.isa;
  desc.a_zero_point = operation.a_zero_point;
  desc.c_zero_point = operation.c_zero_point;
  desc.b_zero_points = DataOrNull(operation.b_zero_points);
  desc.b_zero_point_count = static_cast<int64_t>(operation.b_zero_points.size());
  desc.bias_s32 = DataOrNull(operation.bias_s32);
  desc.bias_f32 = DataOrNull(operation.bias_f32);
  desc.scales = DataOrNull(operation.scales);
  desc.scale_count = static_cast<int64_t>(operation.scales.size());
  desc.activation = operation.activation;
  desc.clamp_min = operation.clamp_min;
  desc.clamp_max = operation.clamp_max;
  if (options.declared_min > 0 || options.declared < 255) {
    const int32_t lowest = operation.a_type == INTACT_S8 ? -128 : 0;
    desc.a_min = lowest + options.declared_min;
    desc.a_max = lowest + options.declared;
  }
  desc.range_check = options.range_check;
  desc.residual_type = operation.residual_type;
  desc.residual_scale = operation.residual_scale;
  desc.residual_zero_point = operation.residual_zero_point;
  return desc;
}

// The plan of `Desc` for exactly options.isa. `b` ends at a guard page while it is read.
template <class Plan, class Desc>
Result<Plan> CreateExactly(const Desc& desc, const std::vector<int8_t>& weights, const RunOptions& options) {
  if (options.isa != INTACT_ISA_ANY && intact_isa_available(options.isa) == 0) {
    return Error{INTACT_UNSUPPORTED,
                 fmt::format("{} is not available on this machine", intact_isa_name(options.isa))};
  }
  Result<GuardedMatrix> b = GuardedMatrix::Allocate(1, std::ssize(weights), std::ssize(weights));
  if (!b) return b.error();
  b->Load(reinterpret_cast<const uint8_t*>(weights.data()));
  Result<Plan> plan = Plan::Create(desc, b->data());
  if (!plan) return plan;
  const auto info = plan->Info();
  if (options.isa != INTACT_ISA_ANY && info.isa != options.isa) {
    return Error{INTACT_UNSUPPORTED, fmt::format("asked for {}, the plan chose {}",
                                                 intact_isa_name(options.isa), intact_isa_name(info.isa))};
  }
  if (info.mode != options.mode) return Failed("the plan has another mode than asked for");
  return plan;
}

// Rows of a tensor, `stride` elements apart; pixels of channels are rows as well.
struct Rows {
  int64_t count, elements, stride;
  Result<GuardedMatrix> Allocate(int64_t element_size) const {
    return GuardedMatrix::Allocate(count, elements * element_size, stride * element_size);
  }
};

Rows InputOf(const reference::Gemm& gemm, int64_t pad) { return {gemm.m, gemm.k, gemm.k + pad}; }
Rows InputOf(const reference::Conv& conv, int64_t pad) {
  const int64_t channels = conv.geometry.input_channels;
  return {conv.geometry.InputPixels(), channels, channels + pad};
}
Rows OutputOf(const reference::Gemm& gemm, int64_t pad) { return {gemm.m, gemm.n, gemm.n + pad}; }
Rows OutputOf(const reference::Conv& conv, int64_t pad) {
  const int64_t channels = conv.geometry.output_channels;
  return {conv.geometry.OutputPixels(), channels, channels + pad};
}

// Calls run(arguments), which returns an Error, on guarded tensors.
template <class Operation, class Run>
Result<std::vector<uint8_t>> RunBetweenGuards(const Operation& operation, const RunOptions& options,
                                              const Run& run) {
  Result<GuardedMatrix> a = InputOf(operation, options.a_pad).Allocate(1);
  if (!a) return a.error();
  Result<GuardedMatrix> c =
      OutputOf(operation, options.c_pad).Allocate(reference::ElementSize(operation.c_type));
  if (!c) return c.error();
  a->Load(operation.a.data());
  Buffers buffers{a->data(), c->data()};
  std::optional<GuardedMatrix> residual;
  if (operation.residual_type != INTACT_TYPE_NONE && options.in_place) {
    c->Write(operation.residual.data());
    buffers.residual = buffers.c;
  } else if (operation.residual_type != INTACT_TYPE_NONE) {
    Result<GuardedMatrix> matrix =
        OutputOf(operation, options.res_pad).Allocate(reference::ElementSize(operation.residual_type));
    if (!matrix) return matrix.error();
    residual = std::move(*matrix);
    residual->Load(operation.residual.data());
    buffers.residual = residual->data();
  }
  const Error error = run(ArgsOf(operation, options, buffers));
  if (error.status != INTACT_OK) return error;
  if (const std::optional<std::string> stray = c->StrayWrite()) {
    return Failed(fmt::format("wrote outside C: {}", *stray));
  }
  return c->Dense();
}

Error StatusError(intact_status status) { return {status, intact_last_error()}; }

// An error of RunGuarded() with the name of the kernel.
template <class Plan>
Result<std::vector<uint8_t>> Named(Result<std::vector<uint8_t>> output, const Plan& plan) {
  if (output || output.error().status != INTACT_CODEGEN_FAILED) return output;
  return Failed(fmt::format("kernel {} {}", plan.Info().kernel, output.error().message));
}

}  // namespace

GemmDesc DescOf(const reference::Gemm& gemm, const RunOptions& options) {
  GemmDesc desc = MakeGemmDesc();
  desc.linear = LinearDescOf(gemm, options);
  desc.n = gemm.n;
  desc.k = gemm.k;
  desc.usual_m = options.usual_m;
  return desc;
}

ConvDesc DescOf(const reference::Conv& conv, const RunOptions& options) {
  const reference::ConvGeometry& geometry = conv.geometry;
  ConvDesc desc = MakeConvDesc();
  desc.linear = LinearDescOf(conv, options);
  desc.spatial_dims = geometry.dims;
  desc.input_channels = geometry.input_channels;
  desc.output_channels = geometry.output_channels;
  desc.groups = geometry.groups;
  desc.transposed = geometry.IsTransposed() ? 1 : 0;
  const auto axes = std::span(geometry.axes).last(static_cast<size_t>(geometry.dims));
  for (size_t i = 0; i < axes.size(); ++i) {
    desc.input[i] = options.open_extents ? INTACT_ANY_EXTENT : axes[i].input;
    desc.kernel[i] = axes[i].kernel;
    desc.stride[i] = axes[i].stride;
    desc.dilation[i] = axes[i].dilation;
    desc.pad_begin[i] = axes[i].pad_begin;
    desc.pad_end[i] = axes[i].pad_end;
    desc.output_pad[i] = axes[i].output_pad;
  }
  return desc;
}

Result<Gemm> CreatePlan(const reference::Gemm& gemm, const RunOptions& options) {
  return CreateExactly<Gemm>(DescOf(gemm, options), gemm.b, options);
}

Result<Conv> CreatePlan(const reference::Conv& conv, const RunOptions& options) {
  return CreateExactly<Conv>(DescOf(conv, options), conv.b, options);
}

intact_gemm_args ArgsOf(const reference::Gemm& gemm, const RunOptions& options, const Buffers& buffers) {
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = gemm.m;
  args.a = buffers.a;
  args.a_stride = gemm.k + options.a_pad;
  args.c = buffers.c;
  args.c_stride = gemm.n + options.c_pad;
  args.residual = buffers.residual;
  args.residual_stride = gemm.n + (options.in_place ? options.c_pad : options.res_pad);
  args.threads = options.threads;
  return args;
}

intact_conv_args ArgsOf(const reference::Conv& conv, const RunOptions& options, const Buffers& buffers) {
  const reference::ConvGeometry& geometry = conv.geometry;
  intact_conv_args args = INTACT_CONV_ARGS_INIT;
  args.batch = geometry.batch;
  const auto axes = std::span(geometry.axes).last(static_cast<size_t>(geometry.dims));
  for (size_t i = 0; options.open_extents && i < axes.size(); ++i) args.input[i] = axes[i].input;
  args.a = buffers.a;
  args.a_stride = geometry.input_channels + options.a_pad;
  args.c = buffers.c;
  args.c_stride = geometry.output_channels + options.c_pad;
  args.residual = buffers.residual;
  args.residual_stride = geometry.output_channels + (options.in_place ? options.c_pad : options.res_pad);
  args.threads = options.threads;
  return args;
}

Result<std::vector<uint8_t>> RunGuarded(const reference::Gemm& gemm, const RunOptions& options,
                                        const std::function<Error(const intact_gemm_args&)>& run) {
  return RunBetweenGuards(gemm, options, run);
}

Result<std::vector<uint8_t>> RunGuarded(const reference::Conv& conv, const RunOptions& options,
                                        const std::function<Error(const intact_conv_args&)>& run) {
  return RunBetweenGuards(conv, options, run);
}

namespace {

// A plan as options ask for it, with the memory that a loaded one's weights stay in.
template <class Plan>
struct KeptPlan {
  std::optional<GuardedMatrix> image;
  Result<Plan> plan = Error{};
};

// Saves the plan and loads it again, from memory that ends at a guard page.
template <class Plan>
Error Reload(const RunOptions& options, KeptPlan<Plan>* kept) {
  const Result<std::vector<uint8_t>> bytes = kept->plan->SaveMemory();
  if (!bytes) return bytes.error();
  Result<GuardedMatrix> image = GuardedMatrix::Allocate(1, std::ssize(*bytes), std::ssize(*bytes));
  if (!image) return image.error();
  image->Load(bytes->data());
  kept->plan = Plan::LoadMemory(image->data(), bytes->size(), options.isa);
  kept->image = std::move(*image);
  return kept->plan ? Error() : kept->plan.error();
}

template <class Plan, class Operation>
Error Make(const Operation& operation, const RunOptions& options, KeptPlan<Plan>* kept) {
  kept->plan = CreatePlan(operation, options);
  if (!kept->plan) return kept->plan.error();
  return options.saved ? Reload(options, kept) : Error();
}

intact_status Prepare(const Gemm& plan, const intact_gemm_args& args, intact_run_info* info) {
  return intact_gemm_prepare(plan.handle(), &args, info);
}
intact_status Prepare(const Conv& plan, const intact_conv_args& args, intact_run_info* info) {
  return intact_conv_prepare(plan.handle(), &args, info);
}
intact_status RunOnce(const Gemm& plan, const intact_gemm_args& args) {
  return intact_gemm_run(plan.handle(), &args);
}
intact_status RunOnce(const Conv& plan, const intact_conv_args& args) {
  return intact_conv_run(plan.handle(), &args);
}

// In scratch that ends at a guard page, if it is to be the caller's.
template <class Plan, class Args>
Error RunAs(const Plan& plan, Args args, const RunOptions& options) {
  if (!options.own_scratch) return StatusError(RunOnce(plan, args));
  intact_run_info info = INTACT_RUN_INFO_INIT;
  Error error = StatusError(Prepare(plan, args, &info));
  if (!error.ok()) return error;
  const auto bytes = static_cast<int64_t>(info.scratch_bytes);
  Result<GuardedMatrix> scratch = GuardedMatrix::Allocate(1, bytes, bytes);
  if (!scratch) return scratch.error();
  args.scratch = scratch->data();
  args.scratch_bytes = info.scratch_bytes;
  error = StatusError(RunOnce(plan, args));
  if (!error.ok()) return error;
  const std::optional<std::string> stray = scratch->StrayWrite();
  return stray ? Failed(fmt::format("wrote outside its scratch: {}", *stray)) : Error();
}

template <class Plan, class Operation>
class HeldOperation : public HeldPlan {
 public:
  HeldOperation(Operation operation, const RunOptions& options)
      : operation_(std::move(operation)), options_(options) {}

  Error Create() { return Make(operation_, options_, &kept_); }

  Result<std::vector<uint8_t>> Run() const override {
    const auto run = [this](const auto& args) { return RunAs(*kept_.plan, args, options_); };
    return Named(RunGuarded(operation_, options_, run), *kept_.plan);
  }

 private:
  const Operation operation_;
  const RunOptions options_;
  KeptPlan<Plan> kept_;
};

template <class Plan, class Operation>
Result<std::unique_ptr<HeldPlan>> HoldPlan(Operation operation, const RunOptions& options) {
  auto held = std::make_unique<HeldOperation<Plan, Operation>>(std::move(operation), options);
  Error error = held->Create();
  if (!error.ok()) return error;
  return std::unique_ptr<HeldPlan>(std::move(held));
}

}  // namespace

Result<std::unique_ptr<HeldPlan>> Hold(reference::Gemm gemm, const RunOptions& options) {
  return HoldPlan<Gemm>(std::move(gemm), options);
}

Result<std::unique_ptr<HeldPlan>> Hold(reference::Conv conv, const RunOptions& options) {
  return HoldPlan<Conv>(std::move(conv), options);
}

Result<std::vector<uint8_t>> IntactTarget::Run(const reference::Gemm& gemm, const RunOptions& options) const {
  // Kernels go with their last plan: each plan lives until the next one is made, and neighbours share them.
  thread_local KeptPlan<Gemm> kept;
  const Error error = Make(gemm, options, &kept);
  if (!error.ok()) return error;
  const auto run = [&](const intact_gemm_args& args) { return RunAs(*kept.plan, args, options); };
  return Named(RunGuarded(gemm, options, run), *kept.plan);
}

Result<std::vector<uint8_t>> IntactTarget::RunConv(const reference::Conv& conv,
                                                   const RunOptions& options) const {
  thread_local KeptPlan<Conv> kept;  // until the next one is made, as in Run()
  const Error error = Make(conv, options, &kept);
  if (!error.ok()) return error;
  const auto run = [&](const intact_conv_args& args) { return RunAs(*kept.plan, args, options); };
  return Named(RunGuarded(conv, options, run), *kept.plan);
}

}  // namespace intact::verify
