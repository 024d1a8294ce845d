#include "kernels/api/create.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/codegen/dispatch.h"
#include "kernels/problem/checks.h"
#include "kernels/runtime/threads.h"
#include "kernels/weights/pack_file.h"

namespace intact::kernels {
namespace {

Result<core::Isa> ChooseIsaUnder(int32_t max_isa) {
  ASSIGN_OR_RETURN(const core::IsaSet permitted, PermittedIsas(max_isa));
  return ChooseIsa(permitted);
}

Result<std::unique_ptr<GemmPlan>> PlanOf(Result<std::shared_ptr<const LinearWeights>> weights, core::Isa isa,
                                         int64_t usual_m) {
  if (!weights) return weights.error();
  return GemmPlan::Create(std::move(*weights), isa, usual_m);
}

// Weights of a convolution: a depth for each (tap, channel of the group), dense by output channel.
WeightView ViewOf(const int8_t* weights, const ConvGeometry& geometry, uint8_t shift) {
  const int64_t k = geometry.taps() * geometry.group_inputs();
  return {weights, k, geometry.output_channels, 1, k, shift};
}

// The certificate of INTACT_PAIRING_WITHIN_TAP. `packed` and `columns` hold the same weights, as kernels see them.
Result<Certificate> CertificateOf(const ConvGeometry& geometry, const PackedWeights& packed,
                                  const WeightView& columns, ActivationRange range) {
  const int64_t inputs = geometry.group_inputs();
  const int64_t pitch = Convolution::PairPitch(geometry, INTACT_PAIRING_WITHIN_TAP);
  if (pitch == inputs) return Certify(packed, range);  // adjacent depths are pairs
  const auto copy = [&](int64_t column, int8_t* to) {
    const int8_t* from = columns.data + column * columns.stride_n;
    for (int64_t tap = 0; tap < geometry.taps(); ++tap, from += inputs, to += pitch) {
      std::copy_n(from, inputs, to);
    }
  };
  return Certify(PairedColumns{geometry.taps() * pitch, columns.n, copy}, range);
}

}  // namespace

Result<std::unique_ptr<GemmPlan>> MakePlan(const intact_gemm_desc& desc, const intact_linear_desc& linear,
                                           const void* b) {
  const ScopedFloatEnvironment float_environment;
  ASSIGN_OR_RETURN(WeightView view, CheckGemm(desc, b));
  RETURN_IF_ERROR(CheckClampBounds(linear));
  ASSIGN_OR_RETURN(LinearProblem problem, CheckLinear(linear, desc.n));
  view.shift = problem.b_shift();
  problem.has_runtime_b = desc.runtime_b != 0;
  problem.may_have_b_zero_points = problem.has_runtime_b && linear.b_zero_points != nullptr;
  ASSIGN_OR_RETURN(const core::Isa isa, ChooseIsaUnder(linear.max_isa));
  if (problem.has_runtime_b)
    return PlanOf(LinearWeights::OfRuntimeB(std::move(problem), view), isa, desc.usual_m);
  const bool pairs_saturate = PairsSaturate(isa, problem.mode);
  return PlanOf(LinearWeights::Pack(std::move(problem), view, {}, pairs_saturate), isa, desc.usual_m);
}

Result<std::unique_ptr<Convolution>> MakePlan(const intact_conv_desc& desc, const intact_linear_desc& linear,
                                              const void* weights) {
  const ScopedFloatEnvironment float_environment;
  if (weights == nullptr) return InvalidArgument("weights is NULL");
  ASSIGN_OR_RETURN(const ConvGeometry geometry, CheckGeometry(desc));
  RETURN_IF_ERROR(CheckClampBounds(linear));
  ASSIGN_OR_RETURN(LinearProblem problem, CheckConvLinear(linear, geometry.output_channels));
  ASSIGN_OR_RETURN(const core::Isa isa, ChooseIsaUnder(linear.max_isa));
  const WeightView view = ViewOf(static_cast<const int8_t*>(weights), geometry, problem.b_shift());
  return Convolution::Create(std::move(problem), geometry, view, isa);
}

Result<std::unique_ptr<GemmPlan>> LoadGemm(const void* image, size_t size, int32_t max_isa,
                                           std::shared_ptr<const void> mapping) {
  const ScopedFloatEnvironment float_environment;
  ASSIGN_OR_RETURN(const core::Isa isa, ChooseIsaUnder(max_isa));
  ASSIGN_OR_RETURN(PackContents contents, ReadPackImage(image, size));
  if (contents.conv) return InvalidArgument("it holds a convolution; expected a GEMM (use intact_conv_load)");
  ASSIGN_OR_RETURN(LinearProblem problem, CheckLinear(contents.linear, contents.weights.n));
  Certificate certificate = Certify(contents.weights, problem.range);
  RETURN_IF_ERROR(CheckHeldCertificate(contents.certificate, certificate));
  const bool pairs_saturate = PairsSaturate(isa, problem.mode);
  ASSIGN_OR_RETURN(std::unique_ptr<GemmPlan> plan,
                   PlanOf(LinearWeights::Borrow(std::move(problem), std::move(contents.weights),
                                                std::move(certificate), std::move(mapping), pairs_saturate),
                          isa, contents.usual_m));
  plan->Restore(contents.tuned);
  return plan;
}

Result<std::unique_ptr<Convolution>> LoadConvolution(const void* image, size_t size, int32_t max_isa) {
  const ScopedFloatEnvironment float_environment;
  ASSIGN_OR_RETURN(const core::Isa isa, ChooseIsaUnder(max_isa));
  ASSIGN_OR_RETURN(const PackContents contents, ReadPackImage(image, size));
  if (!contents.conv)
    return InvalidArgument("it holds a GEMM; expected a convolution (use intact_gemm_load)");
  ASSIGN_OR_RETURN(const ConvGeometry geometry, CheckGeometry(*contents.conv));
  const PackedWeights& packed = contents.weights;
  const int64_t k = geometry.taps() * geometry.group_inputs();
  if (packed.n != geometry.output_channels || packed.k != k) {
    return InvalidArgument("corrupted: the geometry does not match n and k");
  }
  ASSIGN_OR_RETURN(LinearProblem problem, CheckConvLinear(contents.linear, packed.n));
  // The weights as kernels see them: they need no shift.
  const auto weights = std::make_unique_for_overwrite<int8_t[]>(static_cast<size_t>(k * packed.n));
  CopyColumns(packed, weights.get());
  const WeightView view = ViewOf(weights.get(), geometry, 0);
  ASSIGN_OR_RETURN(const Certificate certificate, CertificateOf(geometry, packed, view, problem.range));
  RETURN_IF_ERROR(CheckHeldCertificate(contents.certificate, certificate));
  ASSIGN_OR_RETURN(std::unique_ptr<Convolution> plan,
                   Convolution::Create(std::move(problem), geometry, view, isa));
  plan->Restore(contents.tuned);
  return plan;
}

Result<std::vector<uint8_t>> ImageOf(const GemmPlan& plan) {
  const LinearWeights& weights = plan.weights();
  ASSIGN_OR_RETURN(const auto panels, weights.Panels());
  return WritePackImage(weights.problem(), std::nullopt, *panels, weights.certificate(), plan.usual_m(),
                        plan.tuned());
}

Result<std::vector<uint8_t>> ImageOf(const Convolution& plan) {
  const ConvGeometry& geometry = plan.geometry();
  const int64_t k = geometry.taps() * geometry.group_inputs();
  std::vector<int8_t> weights(static_cast<size_t>(k * geometry.output_channels));
  ASSIGN_OR_RETURN(const Convolution::CopyColumn columns, plan.ColumnsAt(geometry.group_inputs()));
  for (int64_t n = 0; n < geometry.output_channels; ++n) columns(n, &weights[static_cast<size_t>(n * k)]);
  PackedWeights packed;
  if (!PackWeights(ViewOf(weights.data(), geometry, 0), &packed)) {
    return Error{INTACT_OUT_OF_MEMORY, "no memory for packed weights"};
  }
  ASSIGN_OR_RETURN(const Certificate certificate, plan.MakeCertificate(INTACT_PAIRING_WITHIN_TAP));
  return WritePackImage(plan.problem(), DescOf(geometry), packed, certificate, 0, plan.tuned());
}

}  // namespace intact::kernels
