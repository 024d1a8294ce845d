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

}  // namespace

Result<Gemm> CreatePlan(const reference::Gemm& gemm, const RunOptions& options) {
  if (options.isa != INTACT_ISA_ANY && intact_isa_available(options.isa) == 0) {
    return Error{INTACT_UNSUPPORTED,
                 fmt::format("{} is not available on this machine", intact_isa_name(options.isa))};
  }
  Result<GuardedMatrix> b = GuardedMatrix::Allocate(gemm.k, gemm.n, gemm.n);
  if (!b) return b.error();
  b->Load(reinterpret_cast<const uint8_t*>(gemm.b.data()));
  Result<Gemm> plan = Gemm::Create(DescOf(gemm, options), b->data());
  if (!plan) return plan;
  const intact_gemm_info info = plan->Info();
  if (options.isa != INTACT_ISA_ANY && info.isa != options.isa) {
    return Error{INTACT_UNSUPPORTED, fmt::format("asked for {}, the plan chose {}",
                                                 intact_isa_name(options.isa), intact_isa_name(info.isa))};
  }
  if (info.mode != options.mode) return Failed("the plan has another mode than asked for");
  return plan;
}

GemmDesc DescOf(const reference::Gemm& gemm, const RunOptions& options) {
  GemmDesc desc = MakeGemmDesc();
  desc.n = gemm.n;
  desc.k = gemm.k;
  desc.a_type = gemm.a_type;
  desc.b_type = gemm.b_type;
  desc.c_type = gemm.c_type;
  desc.mode = options.mode;
  desc.max_isa = options.isa;
  desc.a_zero_point = gemm.a_zero_point;
  desc.c_zero_point = gemm.c_zero_point;
  desc.b_zero_points = DataOrNull(gemm.b_zero_points);
  desc.b_zero_point_count = static_cast<int64_t>(gemm.b_zero_points.size());
  desc.bias_s32 = DataOrNull(gemm.bias_s32);
  desc.bias_f32 = DataOrNull(gemm.bias_f32);
  desc.scales = DataOrNull(gemm.scales);
  desc.scale_count = static_cast<int64_t>(gemm.scales.size());
  desc.activation = gemm.activation;
  desc.clamp_min = gemm.clamp_min;
  desc.clamp_max = gemm.clamp_max;
  if (options.declared_min > 0 || options.declared < 255) {
    const int32_t lowest = gemm.a_type == INTACT_S8 ? -128 : 0;
    desc.a_min = lowest + options.declared_min;
    desc.a_max = lowest + options.declared;
  }
  desc.range_check = options.range_check;
  desc.residual_type = gemm.residual_type;
  desc.residual_scale = gemm.residual_scale;
  desc.residual_zero_point = gemm.residual_zero_point;
  return desc;
}

Result<std::vector<uint8_t>> RunGuarded(const reference::Gemm& gemm, const RunOptions& options,
                                        const std::function<Error(const intact_gemm_args&)>& run) {
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = gemm.m;
  args.a_stride = gemm.k + options.a_pad;
  args.c_stride = gemm.n + options.c_pad;
  args.threads = options.threads;
  const int64_t size = reference::ElementSize(gemm.c_type);
  Result<GuardedMatrix> a = GuardedMatrix::Allocate(gemm.m, gemm.k, args.a_stride);
  if (!a) return a.error();
  Result<GuardedMatrix> c = GuardedMatrix::Allocate(gemm.m, gemm.n * size, args.c_stride * size);
  if (!c) return c.error();
  a->Load(gemm.a.data());
  args.a = a->data();
  args.c = c->data();
  std::optional<GuardedMatrix> residual;
  if (gemm.residual_type != INTACT_TYPE_NONE && options.in_place) {
    c->Write(gemm.residual.data());
    args.residual = args.c;
    args.residual_stride = args.c_stride;
  } else if (gemm.residual_type != INTACT_TYPE_NONE) {
    const int64_t bytes = reference::ElementSize(gemm.residual_type);
    args.residual_stride = gemm.n + options.res_pad;
    Result<GuardedMatrix> matrix =
        GuardedMatrix::Allocate(gemm.m, gemm.n * bytes, args.residual_stride * bytes);
    if (!matrix) return matrix.error();
    residual = std::move(*matrix);
    residual->Load(gemm.residual.data());
    args.residual = residual->data();
  }

  const Error error = run(args);
  if (error.status != INTACT_OK) return error;
  if (const std::optional<std::string> stray = c->StrayWrite()) {
    return Failed(fmt::format("wrote outside C: {}", *stray));
  }
  return c->Dense();
}

Result<std::vector<uint8_t>> IntactTarget::Run(const reference::Gemm& gemm, const RunOptions& options) const {
  const Result<Gemm> plan = CreatePlan(gemm, options);
  if (!plan) return plan.error();
  Result<std::vector<uint8_t>> output = RunGuarded(gemm, options, [&](const intact_gemm_args& args) {
    const intact_status status = intact_gemm_run(plan->handle(), &args);
    return Error{status, intact_last_error()};
  });
  if (output || output.error().status != INTACT_CODEGEN_FAILED) return output;
  return Failed(fmt::format("kernel {} {}", plan->Info().kernel, output.error().message));
}

}  // namespace intact::verify
