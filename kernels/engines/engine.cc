#include "kernels/engines/engine.h"

#include <algorithm>
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
  epilogue.scaling = problem.ScalingOf();
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

Error GemmData::SetSkippingInitial() {
  if (IsPlanar()) return {};
  const Taps& taps = this->taps();
  if (taps.line_taps.empty() && !taps.HasLineEnds()) return {};
  std::vector<TapRange> ranges = {{0, taps.count()}};
  for (const TapRange& range : taps.line_taps) {
    if (std::find(ranges.begin(), ranges.end(), range) == ranges.end()) ranges.push_back(range);
  }
  for (const TapRange& range : ranges) {
    RETURN_IF_ERROR(AddSkippingInitial(range));
  }
  return {};
}

// Padding contributes za'·Σ b' (pack.h), which the column's constant takes over.
Error GemmData::AddSkippingInitial(const TapRange& range) {
  const Taps& taps = this->taps();
  const auto zero_point = static_cast<uint32_t>(problem.ActivationZeroPoint());
  const size_t columns = initial.size();
  std::vector<uint32_t> padding(3 * columns);
  uint32_t* const rows = padding.data();
  uint32_t* const first = rows + columns;
  uint32_t* const last = first + columns;
  AddDepths(weights, 0, range.first * taps.depth, rows);
  AddDepths(weights, range.end * taps.depth, k, rows);
  std::copy_n(rows, columns, first);
  std::copy_n(rows, columns, last);
  for (int64_t tap = range.first; tap < range.end; ++tap) {
    AddDepths(weights, tap * taps.depth, tap * taps.depth + taps.head, first);
    AddDepths(weights, (tap + 1) * taps.depth - taps.tail, (tap + 1) * taps.depth, last);
  }
  SkippingInitial& made = skipping_initial.emplace_back();
  made.taps = range;
  if (!made.columns.Resize(padding.size())) return {INTACT_OUT_OF_MEMORY, "no memory for column sums"};
  for (size_t i = 0; i < padding.size(); ++i) {
    const auto start = static_cast<uint32_t>(initial[i % columns]);
    made.columns[i] = static_cast<int32_t>(start + zero_point * padding[i]);
  }
  return {};
}

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
