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

// What a GEMM's descriptor and a convolution's have in common.
GemmDesc OperationDescOf(const reference::Operation& operation, const RunOptions& options) {
  GemmDesc desc = MakeGemmDesc();
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

// Calls run(a, c), which returns a status, on guarded tensors.
template <class Run>
Result<std::vector<uint8_t>> RunBetweenGuards(const reference::Operation& operation, const Rows& input,
                                              const Rows& output, const char* kernel, Run run) {
  Result<GuardedMatrix> a = input.Allocate(1);
  if (!a) return a.error();
  const Result<GuardedMatrix> c = output.Allocate(reference::ElementSize(operation.c_type));
  if (!c) return c.error();
  a->Load(operation.a.data());
  const intact_status status = run(a->data(), c->data());
  if (status != INTACT_OK) return Error{status, intact_last_error()};
  if (const std::optional<std::string> stray = c->StrayWrite()) {
    return Failed(fmt::format("kernel {} wrote outside C: {}", kernel, *stray));
  }
  return c->Dense();
}

}  // namespace

GemmDesc DescOf(const reference::Gemm& gemm, const RunOptions& options) {
  GemmDesc desc = OperationDescOf(gemm, options);
  desc.n = gemm.n;
  desc.k = gemm.k;
  return desc;
}

ConvDesc DescOf(const reference::Conv& conv, const RunOptions& options) {
  const reference::ConvGeometry& geometry = conv.geometry;
  ConvDesc desc = MakeConvDesc();
  desc.gemm = OperationDescOf(conv, options);
  desc.spatial_dims = geometry.dims;
  desc.input_channels = geometry.input_channels;
  desc.output_channels = geometry.output_channels;
  desc.groups = geometry.groups;
  const auto axes = std::span(geometry.axes).last(static_cast<size_t>(geometry.dims));
  for (size_t i = 0; i < axes.size(); ++i) {
    desc.input[i] = axes[i].input;
    desc.kernel[i] = axes[i].kernel;
    desc.stride[i] = axes[i].stride;
    desc.dilation[i] = axes[i].dilation;
    desc.pad_begin[i] = axes[i].pad_begin;
    desc.pad_end[i] = axes[i].pad_end;
  }
  return desc;
}

Result<Gemm> CreatePlan(const reference::Gemm& gemm, const RunOptions& options) {
  return CreateExactly<Gemm>(DescOf(gemm, options), gemm.b, options);
}

Result<Conv> CreatePlan(const reference::Conv& conv, const RunOptions& options) {
  return CreateExactly<Conv>(DescOf(conv, options), conv.b, options);
}

intact_gemm_args ArgsOf(const reference::Gemm& gemm, const RunOptions& options, const void* a, void* c) {
  return {sizeof(intact_gemm_args), gemm.m,         a, gemm.k + options.a_pad, c,
          gemm.n + options.c_pad,   options.threads};
}

intact_conv_args ArgsOf(const reference::Conv& conv, const RunOptions& options, const void* a, void* c) {
  const reference::ConvGeometry& geometry = conv.geometry;
  return {sizeof(intact_conv_args),
          geometry.batch,
          a,
          geometry.input_channels + options.a_pad,
          c,
          geometry.output_channels + options.c_pad,
          options.threads};
}

Result<std::vector<uint8_t>> IntactTarget::Run(const reference::Gemm& gemm, const RunOptions& options) const {
  const Result<Gemm> plan = CreatePlan(gemm, options);
  if (!plan) return plan.error();
  return RunBetweenGuards(gemm, {gemm.m, gemm.k, gemm.k + options.a_pad},
                          {gemm.m, gemm.n, gemm.n + options.c_pad}, plan->Info().kernel,
                          [&](const void* a, void* c) {
                            const intact_gemm_args args = ArgsOf(gemm, options, a, c);
                            return intact_gemm_run(plan->handle(), &args);
                          });
}

Result<std::vector<uint8_t>> IntactTarget::RunConv(const reference::Conv& conv,
                                                   const RunOptions& options) const {
  const Result<Conv> plan = CreatePlan(conv, options);
  if (!plan) return plan.error();
  const reference::ConvGeometry& g = conv.geometry;
  return RunBetweenGuards(conv, {g.InputPixels(), g.input_channels, g.input_channels + options.a_pad},
                          {g.OutputPixels(), g.output_channels, g.output_channels + options.c_pad},
                          plan->Info().kernel,
                          [&](const void* a, void* c) { return plan->Run(ArgsOf(conv, options, a, c)); });
}

}  // namespace intact::verify
