#include "kernels/engines/engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "core/isas.h"
#include "core/types.h"
#include "kernels/engines/cost_table.h"
#include "kernels/runtime/caches.h"

namespace intact::kernels {
namespace {

EpilogueSpec EpilogueOf(const LinearWeights& weights, bool folds_zero_points) {
  const LinearProblem& problem = weights.problem();
  EpilogueSpec epilogue;
  epilogue.c_type = problem.output.c_type;
  epilogue.scaling = problem.ScalingOf();
  epilogue.has_b_zero_points = problem.HasWeightZeroPoints() && !folds_zero_points;
  epilogue.has_one_b_zero_point = epilogue.has_b_zero_points && problem.HasOneWeightZeroPoint();
  epilogue.has_row_zero_points = problem.HasRowZeroPoints();
  epilogue.has_row_scales = problem.HasRowScales();
  epilogue.has_run_scale = problem.has_run_scale;
  epilogue.residual = problem.output.residual_type;
  const bool may_be_anything =
      epilogue.residual == INTACT_F32 || epilogue.has_row_scales || epilogue.has_run_scale;
  if (core::IsFloat(epilogue.c_type)) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    epilogue.variant.is_bounded_below = problem.output.bounds.lo != -kInfinity || epilogue.MayBeNan();
    epilogue.variant.is_bounded_above = problem.output.bounds.hi != kInfinity;
  }
  if (may_be_anything) return epilogue;
  const double largest = weights.largest_output() + 255.0 * double{problem.output.residual.scale};
  epilogue.variant.known = KnowOutput(epilogue.c_type, problem.output.bounds, largest);
  return epilogue;
}

// to[i] = compensation[column] + zero_point·paddings[i], modulo 2³²: adds the contribution of skipped
// padding.
void AddPadding(const int32_t* compensation, uint32_t zero_point, std::span<const uint32_t> paddings,
                int32_t* to) noexcept {
  const size_t columns = paddings.size() / 3;
  for (size_t i = 0; i < paddings.size(); ++i) {
    to[i] = static_cast<int32_t>(static_cast<uint32_t>(compensation[i % columns]) + zero_point * paddings[i]);
  }
}

// `compensation` without the shift of s8 activations.
void Unshift(const KernelData& data, const int32_t* compensation, int32_t* to) noexcept {
  for (size_t n = 0; n < data.compensation.size(); ++n) {
    const ColumnParts& sums = data.linear->certificate().column_sums[n];
    const int64_t unshifted = compensation[n] + int64_t{data.a_shift()} * (sums.positive + sums.negative);
    to[n] = static_cast<int32_t>(static_cast<uint32_t>(unshifted));
  }
}

// Bytes of an array with a 4-byte value for each column, padded to whole panels: whole cache lines.
int64_t ColumnArrayBytes(const KernelData& data) { return static_cast<int64_t>(data.compensation.bytes()); }

}  // namespace

KernelData::KernelData(std::shared_ptr<const LinearWeights> given, core::Isa isa, bool folds_zero_points)
    : linear(std::move(given)),
      problem(linear->problem()),
      weights(linear->packed()),
      compensation(linear->compensation()),
      n(linear->n()),
      k(linear->k()),
      epilogue(EpilogueOf(*linear, folds_zero_points)),
      constants(MakeEpilogueConstants(problem.output.bounds, problem.output.residual, isa)) {}

PlanData PlanDataOf(std::shared_ptr<const LinearWeights> packed, Access access, core::Isa isa) {
  if (auto* const planar = std::get_if<PlanarAccess>(&access)) {
    return PlanData(std::in_place_type<PlanarData>, std::move(packed), std::move(*planar), isa);
  }
  return PlanData(std::in_place_type<GemmData>, std::move(packed), std::get<Taps>(std::move(access)), isa);
}

Error GemmData::SetSkippingCompensation() {
  const Taps& taps = taps_;
  if (taps.line_taps.empty() && !taps.HasLineEnds()) return {};
  std::vector<TapRange> ranges = {{0, taps.count()}};
  for (const TapRange& range : taps.line_taps) {
    if (std::find(ranges.begin(), ranges.end(), range) == ranges.end()) ranges.push_back(range);
  }
  for (const TapRange& range : ranges) {
    RETURN_IF_ERROR(AddSkippingCompensation(range));
  }
  return {};
}

// Padding contributes za'·Σ b' (pack.h), which is added to the column's constant.
Error GemmData::AddSkippingCompensation(const TapRange& range) {
  const Taps& taps = taps_;
  const auto zero_point = static_cast<uint32_t>(problem.ActivationZeroPoint());
  const size_t columns = compensation.size();
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
  SkippingCompensation& made = skipping_compensation.emplace_back();
  made.taps = range;
  if (!made.columns.Resize(padding.size())) return {INTACT_OUT_OF_MEMORY, "no memory for column sums"};
  AddPadding(compensation.data(), zero_point, padding, made.columns.data());
  if (!problem.has_run_zero_point) return {};
  if (!made.paddings.Resize(padding.size())) return {INTACT_OUT_OF_MEMORY, "no memory for column sums"};
  std::ranges::copy(padding, made.paddings.data());
  return {};
}

Error UnshiftCompensation(const KernelData& data, AlignedBuffer<int32_t>* compensation) {
  if (data.a_shift() == 0) return {};
  if (!compensation->Resize(data.compensation.size()))
    return {INTACT_OUT_OF_MEMORY, "no memory for column sums"};
  Unshift(data, data.compensation.data(), compensation->data());
  return {};
}

// ----- constants of columns that runs make -----------------------------------------------------------------

int64_t KernelData::RunColumnBytes() const {
  const int64_t arrays =
      1 + (a_shift() != 0 ? 1 : 0) + (problem.has_run_scale ? 1 : 0) + 3 * std::ssize(skipping_compensation);
  return HasPerRunColumnConstants() ? arrays * ColumnArrayBytes(*this) : 0;
}

PerRunColumnConstants KernelData::MakePerRunColumnConstants(const RowQuantization& a,
                                                            uint8_t* to) const noexcept {
  const auto next = [&] { return std::exchange(to, to + ColumnArrayBytes(*this)); };
  PerRunColumnConstants made;
  auto* const start = reinterpret_cast<int32_t*>(next());
  linear->CompensationOf(a.zero_point, start);
  made.compensation = start;
  if (a_shift() != 0) {
    auto* const unshifted = reinterpret_cast<int32_t*>(next());
    Unshift(*this, start, unshifted);
    made.unshifted_compensation = unshifted;
  }
  made.factors = problem.Factors();
  made.has_scale = !problem.has_run_scale || !std::isnan(a.scale);
  if (problem.has_run_scale) {
    auto* const scales = reinterpret_cast<float*>(next());
    for (size_t i = 0; i < compensation.size(); ++i) scales[i] = a.scale * problem.scales[i];
    made.factors = scales;
  }
  auto* skipping = reinterpret_cast<int32_t*>(to);
  made.skipping_compensation = skipping;
  const auto zero_point = static_cast<uint32_t>(problem.ActivationZeroPoint() + a.zero_point);
  for (const SkippingCompensation& of_range : skipping_compensation) {
    if (problem.has_run_zero_point) {
      AddPadding(made.compensation, zero_point, {of_range.paddings.data(), of_range.paddings.size()},
                 skipping);
    } else {
      std::copy_n(of_range.columns.data(), of_range.columns.size(), skipping);
    }
    skipping += of_range.columns.size();
  }
  return made;
}

void FillWithNan(const OutputMap& output, const Range& range, intact_type c_type) noexcept {
  if (!core::IsFloat(c_type)) return;
  const uint32_t nan = c_type == INTACT_F32 ? 0x7fc00000 : c_type == INTACT_F16 ? 0x7e00 : 0x7fc0;
  const auto bytes = static_cast<size_t>(core::BytesOf(c_type));
  for (int64_t row = range.row_begin; row < range.row_end; ++row) {
    uint8_t* c = output.C(row, range.column_begin);
    for (int64_t i = range.column_begin; i < range.column_end; ++i, c += bytes) std::memcpy(c, &nan, bytes);
  }
}

void SetStreaming(int64_t rows, int64_t row_bytes, int64_t operand_bytes, RunBuffers* buffers) {
  constexpr int64_t kLine = 64;
  const OutputMap& output = buffers->output;
  rows = std::max<int64_t>(rows, 1);
  // If A and B alone fill the cache, lines of C leave it before anything reads them.
  const bool is_full = operand_bytes > Caches().FillingOperands();
  const int64_t most = is_full ? Caches().OutputsBesideOperands() : Caches().CachedOutputs();
  // If the residual is C itself, its lines are read anyway.
  buffers->may_stream = output.residual != output.c && row_bytes > most / rows &&
                        output.c_stride_bytes % kLine == 0 &&
                        reinterpret_cast<uintptr_t>(output.c) % kLine == 0;
  buffers->l3_holds_c = row_bytes <= Caches().OutputsInL3() / rows;
}

bool Streams(const RunBuffers& buffers, const KernelData& data, core::Isa isa, int64_t least_quads) {
  constexpr int64_t kBankBytes = 512, kPageBytes = 4096;
  if (!buffers.may_stream) return false;
  const int64_t stride = buffers.output.c_stride_bytes;
  // Memory takes lines more slowly than L3 does. But rows at a distance of pages share a set of L1.
  const double half_cycles = HalfCycles(isa) * static_cast<double>(data.weights.quads());
  const bool is_shallow = half_cycles < Costs().layout.streaming_half_cycles;
  if (buffers.l3_holds_c && is_shallow && stride % kPageBytes != 0) return false;
  const bool share_banks = stride % kBankBytes == 0 && stride % kPageBytes != 0;
  return !share_banks || data.weights.quads() >= least_quads;
}

}  // namespace intact::kernels
