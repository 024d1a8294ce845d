#include "reference/gemm.h"

#include <numeric>

namespace intact::reference {
namespace {

template <class T>
int64_t Sum(std::span<const T> values) noexcept {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

}  // namespace

std::vector<int8_t> FromColumns(std::span<const int8_t> columns, int64_t n, int64_t k) {
  std::vector<int8_t> b(columns.size());
  auto from = columns.begin();
  for (int64_t column = 0; column < n; ++column) {
    for (int64_t depth = 0; depth < k; ++depth) b[static_cast<size_t>(depth * n + column)] = *from++;
  }
  return b;
}

uint8_t ShiftedActivation(const Gemm& gemm, int64_t m, int64_t k) noexcept {
  // Modulo 2⁸: −128 becomes 0 and 127 becomes 255.
  return static_cast<uint8_t>(gemm.a[static_cast<size_t>(m * gemm.k + k)] + ActivationShift(gemm));
}

int8_t ShiftedWeight(const Gemm& gemm, int64_t k, int64_t n) noexcept {
  // Modulo 2⁸: 0 becomes −128 and 255 becomes 127.
  return static_cast<int8_t>(gemm.b[static_cast<size_t>(k * gemm.n + n)] + WeightShift(gemm));
}

Operands::Operands(const Gemm& gemm)
    : m(gemm.m),
      n(gemm.n),
      k(gemm.k),
      a_zero_point(gemm.a_zero_point + ActivationShift(gemm)),
      bias(gemm.bias_s32) {
  a.reserve(gemm.a.size());
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t depth = 0; depth < k; ++depth) a.push_back(ShiftedActivation(gemm, row, depth));
    row_sums.push_back(Sum(Row(row)));
  }
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
  const int64_t y =
      bias[at] - a_zero_point * centered_sum - w_zero_points[at] * row_sums[static_cast<size_t>(row)];
  return static_cast<int32_t>(static_cast<uint32_t>(y));
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

std::span<const int8_t> Operands::Column(int64_t column) const noexcept {
  return std::span(w).subspan(static_cast<size_t>(column * k), static_cast<size_t>(k));
}

std::vector<int32_t> Accumulators(const Gemm& gemm, Model model) {
  return Accumulators(Operands(gemm), model);
}

std::vector<int32_t> Accumulators(const Operands& operands, Model model) {
  return Accumulators({&operands, 1}, model);
}

std::vector<int32_t> Accumulators(std::span<const Operands> groups, Model model) {
  std::vector<int32_t> y;
  for (int64_t m = 0; m < groups.front().m; ++m) {
    for (const Operands& operands : groups) {
      for (int64_t n = 0; n < operands.n; ++n) {
        const int32_t sum = Accumulate(model, 0, operands.Row(m), operands.Column(n));
        const int32_t compensation = operands.Compensation(m, n);
        y.push_back(static_cast<int32_t>(static_cast<uint32_t>(sum) + static_cast<uint32_t>(compensation)));
      }
    }
  }
  return y;
}

}  // namespace intact::reference
