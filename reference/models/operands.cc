#include "reference/models/operands.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace intact::reference {
namespace {

template <class T>
int64_t Sum(std::span<const T> values) noexcept {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

// Lowered activations with 0 in the padding; empty if that changes nothing.
std::vector<uint8_t> Inside(const std::vector<uint8_t>& a, const Taps& taps) {
  std::vector<uint8_t> inside = a;
  const int64_t depths = std::ssize(a) / std::ssize(taps.outside);  // depths of a tap
  auto begin = inside.begin();
  for (const bool is_outside : taps.outside) {
    if (is_outside) std::fill_n(begin, depths, uint8_t{0});
    begin += depths;
  }
  return inside == a ? std::vector<uint8_t>() : inside;
}

}  // namespace

uint8_t ShiftedActivation(const Gemm& gemm, int64_t m, int64_t k) noexcept {
  // Modulo 2⁸: −128 becomes 0 and 127 becomes 255.
  return static_cast<uint8_t>(gemm.a[static_cast<size_t>(m * gemm.k + k)] + ActivationShift(gemm));
}

int8_t ShiftedWeight(const Gemm& gemm, int64_t k, int64_t n) noexcept {
  // Modulo 2⁸: 0 becomes −128 and 255 becomes 127.
  return static_cast<int8_t>(gemm.b[static_cast<size_t>(k * gemm.n + n)] + WeightShift(gemm));
}

namespace {

Depths OrderedDepths(const Gemm& gemm) {
  if (!gemm.taps) return DepthsOf(gemm.k);
  const Taps& taps = *gemm.taps;
  return {taps.count, taps.channels, gemm.k / taps.count, taps.height, taps.width};
}

}  // namespace

Operands::Operands(const Gemm& gemm)
    : m(gemm.rows()),
      n(gemm.n),
      k(gemm.k),
      depths(OrderedDepths(gemm)),
      a_zero_points(gemm.a_zero_points),
      bias(gemm.bias_s32) {
  if (a_zero_points.empty()) a_zero_points.assign(static_cast<size_t>(m), gemm.a_zero_point);
  for (int32_t& zero_point : a_zero_points) zero_point += ActivationShift(gemm);
  a.reserve(gemm.a.size());
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t depth = 0; depth < k; ++depth) a.push_back(ShiftedActivation(gemm, row, depth));
    row_sums.push_back(Sum(Row(row)));
  }
  if (gemm.taps && !gemm.taps->outside.empty()) a_inside = Inside(a, *gemm.taps);
  w.reserve(gemm.b.size());
  for (int64_t column = 0; column < n; ++column) {
    for (int64_t depth = 0; depth < k; ++depth) w.push_back(ShiftedWeight(gemm, depth, column));
    column_sums.push_back(Sum(Column(column)));
    w_zero_points.push_back(WeightZeroPoint(gemm, column) + WeightShift(gemm));
  }
  bias.resize(static_cast<size_t>(n));
}

int32_t Operands::Compensation(int64_t row, int64_t column) const noexcept {
  const auto at = static_cast<size_t>(column);
  const int64_t centered_sum = column_sums[at] - k * w_zero_points[at];
  const int64_t a_zero_point = a_zero_points[static_cast<size_t>(row)];
  const int64_t y =
      bias[at] - a_zero_point * centered_sum - w_zero_points[at] * row_sums[static_cast<size_t>(row)];
  return static_cast<int32_t>(static_cast<uint32_t>(y));
}

int32_t Operands::Accumulator(const Model& model, std::span<const int64_t> in_pairs, int64_t row,
                              int64_t column) const {
  if (model.AddsProducts()) {
    return SumProducts(model, bias[static_cast<size_t>(column)], Products(in_pairs, row, column));
  }
  const std::span<const int8_t> weights = Column(column);
  const std::span<const uint8_t> activations = Row(model, row);
  int64_t compensation = Compensation(row, column);
  if (activations.data() != Row(row).data()) {
    for (size_t i = 0; i < weights.size(); ++i) compensation += (Row(row)[i] - activations[i]) * weights[i];
  }
  if (model.sum == Summation::kHalvedWeights) {
    // The kernel compensates the zero point with the weights that it multiplied.
    const int64_t a_zero_point = a_zero_points[static_cast<size_t>(row)];
    for (const int8_t weight : weights) compensation -= a_zero_point * (TwiceHalf(weight) - weight);
  }
  return Accumulate(model, static_cast<int32_t>(static_cast<uint32_t>(compensation)), activations, weights,
                    in_pairs);
}

std::vector<int32_t> Operands::Products(std::span<const int64_t> in_pairs, int64_t row,
                                        int64_t column) const {
  const std::span<const uint8_t> activations = Row(row);
  const std::span<const int8_t> weights = Column(column);
  const int32_t za = a_zero_points[static_cast<size_t>(row)];
  const int32_t zw = w_zero_points[static_cast<size_t>(column)];
  std::vector<int32_t> products;
  products.reserve(in_pairs.size());
  for (const int64_t depth : in_pairs) {
    const auto at = static_cast<size_t>(depth);
    products.push_back(depth == kNoDepth ? 0 : (activations[at] - za) * (weights[at] - zw));
  }
  return products;
}

std::vector<int32_t> Operands::CenteredColumn(int64_t column) const {
  std::vector<int32_t> centered;
  centered.reserve(static_cast<size_t>(k));
  for (const int8_t weight : Column(column)) {
    centered.push_back(weight - w_zero_points[static_cast<size_t>(column)]);
  }
  return centered;
}

std::span<const uint8_t> Operands::Row(int64_t row) const noexcept {
  return std::span(a).subspan(static_cast<size_t>(row * k), static_cast<size_t>(k));
}

std::span<const uint8_t> Operands::Row(const Model& model, int64_t row) const noexcept {
  if (!model.skips_padding || a_inside.empty()) return Row(row);
  return std::span(a_inside).subspan(static_cast<size_t>(row * k), static_cast<size_t>(k));
}

std::span<const int8_t> Operands::Column(int64_t column) const noexcept {
  return std::span(w).subspan(static_cast<size_t>(column * k), static_cast<size_t>(k));
}

std::vector<int32_t> Accumulators(const Gemm& gemm, const Model& model) {
  if (!gemm.has_runtime_b) return Accumulators(Operands(gemm), model);
  std::vector<int32_t> y;
  for (int64_t i = 0; i < gemm.batch; ++i) {
    const std::vector<int32_t> item = Accumulators(Operands(Item(gemm, i)), model);
    y.insert(y.end(), item.begin(), item.end());
  }
  return y;
}

std::vector<int32_t> Accumulators(const Operands& operands, const Model& model) {
  return Accumulators({&operands, 1}, model);
}

std::vector<int32_t> Accumulators(std::span<const Operands> groups, const Model& model) {
  const std::vector<int64_t> in_pairs = InPairs(model, groups.front().depths);
  std::vector<int32_t> y;
  for (int64_t m = 0; m < groups.front().m; ++m) {
    for (const Operands& operands : groups) {
      for (int64_t n = 0; n < operands.n; ++n) y.push_back(operands.Accumulator(model, in_pairs, m, n));
    }
  }
  return y;
}

}  // namespace intact::reference
