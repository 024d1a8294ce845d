#include "kernels/engines/engine.h"

#include <limits>

#include "core/isas.h"
#include "core/types.h"
#include "kernels/runtime/caches.h"

namespace intact::kernels {
namespace {

EpilogueSpec EpilogueOf(const LinearWeights& weights, bool folds_zero_points) {
  const LinearProblem& problem = weights.problem();
  EpilogueSpec epilogue;
  epilogue.c_type = problem.output.c_type;
  epilogue.has_bias = !problem.bias_f32.empty();
  epilogue.has_b_zero_points = problem.HasWeightZeroPoints() && !folds_zero_points;
  epilogue.has_row_zero_points = problem.HasRowZeroPoints();
  epilogue.has_row_scales = problem.HasRowScales();
  epilogue.residual = problem.output.residual_type;
  const bool may_be_anything = epilogue.residual == INTACT_F32 || epilogue.has_row_scales;
  if (core::IsFloat(epilogue.c_type)) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const bool may_be_nan = epilogue.has_residual() || epilogue.has_row_scales;
    epilogue.form.is_bounded_below = problem.output.bounds.lo != -kInfinity || may_be_nan;
    epilogue.form.is_bounded_above = problem.output.bounds.hi != kInfinity;
  }
  if (may_be_anything) return epilogue;
  const double largest = weights.largest_output() + 255.0 * double{problem.output.residual.scale};
  epilogue.form.known = KnowOutput(epilogue.c_type, problem.output.bounds, largest);
  return epilogue;
}

}  // namespace

KernelData::KernelData(std::shared_ptr<const LinearWeights> given, core::Isa isa, bool folds_zero_points)
    : linear(std::move(given)),
      problem(linear->problem()),
      weights(linear->packed()),
      initial(linear->initial()),
      n(linear->n()),
      k(linear->k()),
      epilogue(EpilogueOf(*linear, folds_zero_points)),
      constants(MakeEpilogueConstants(problem.output.bounds, problem.output.residual, isa)) {}

Error UnshiftInitial(const KernelData& data, AlignedBuffer<int32_t>* initial) {
  const int64_t shift = data.a_flip();
  if (shift == 0) return {};
  if (!initial->Resize(data.initial.size())) return {INTACT_OUT_OF_MEMORY, "no memory for column sums"};
  for (size_t n = 0; n < initial->size(); ++n) {
    const ColumnParts& sums = data.linear->certificate().column_sums[n];
    const int64_t unshifted = data.initial[n] + shift * (sums.positive + sums.negative);
    (*initial)[n] = static_cast<int32_t>(static_cast<uint32_t>(unshifted));
  }
  return {};
}

bool MayStream(const OutputMap& output, int64_t rows, int64_t row_bytes) {
  constexpr int64_t kLine = 64;
  // A residual in C's place has its lines read anyway.
  return output.residual != output.c && row_bytes > Caches().CachedOutputs() / rows &&
         output.c_stride_bytes % kLine == 0 && reinterpret_cast<uintptr_t>(output.c) % kLine == 0;
}

}  // namespace intact::kernels
