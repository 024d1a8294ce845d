#include "reference/gemm.h"

#include <cstring>
#include <numeric>

namespace intact::reference {
namespace {

// u8×s8 instructions take s8 activations and u8 weights shifted by these, zero points included.
int32_t ActivationShift(const Gemm& gemm) noexcept { return gemm.a_type == INTACT_S8 ? 128 : 0; }
int32_t WeightShift(const Gemm& gemm) noexcept { return gemm.b_type == INTACT_U8 ? -128 : 0; }

template <class T>
int64_t Sum(std::span<const T> values) noexcept {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

template <class T>
void Store(T value, uint8_t* destination) noexcept {
  std::memcpy(destination, &value, sizeof value);
}

}  // namespace

int32_t WeightZeroPoint(const Gemm& gemm, int64_t n) noexcept {
  if (gemm.b_zero_points.empty()) return 0;
  return gemm.b_zero_points[gemm.b_zero_points.size() == 1 ? 0 : static_cast<size_t>(n)];
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
  std::vector<int32_t> y;
  y.reserve(static_cast<size_t>(operands.m * operands.n));
  for (int64_t m = 0; m < operands.m; ++m) {
    for (int64_t n = 0; n < operands.n; ++n) {
      const int32_t sum = Accumulate(model, 0, operands.Row(m), operands.Column(n));
      const int32_t compensation = operands.Compensation(m, n);
      y.push_back(static_cast<int32_t>(static_cast<uint32_t>(sum) + static_cast<uint32_t>(compensation)));
    }
  }
  return y;
}

Requantization RequantizationOf(const Gemm& gemm, int64_t n) {
  const auto column = static_cast<size_t>(n);
  Requantization q;
  q.c_type = gemm.c_type;
  if (!gemm.scales.empty()) q.scale = gemm.scales[gemm.scales.size() == 1 ? 0 : column];
  q.has_bias_f32 = !gemm.bias_f32.empty();
  if (q.has_bias_f32) q.bias_f32 = gemm.bias_f32[column];
  q.activation = gemm.activation;
  q.clamp_min = gemm.clamp_min;
  q.clamp_max = gemm.clamp_max;
  q.zero_point = gemm.c_zero_point;
  return q;
}

Requantization WithResidual(Requantization q, const Gemm& gemm, int64_t output) {
  if (gemm.residual_type == INTACT_TYPE_NONE) return q;
  const auto size = static_cast<size_t>(ElementSize(gemm.residual_type));
  const uint8_t* const element = &gemm.residual[static_cast<size_t>(output) * size];
  q.has_residual = true;
  q.residual_scale = gemm.residual_scale;
  if (gemm.residual_type == INTACT_F32) {
    std::memcpy(&q.residual, element, size);
  } else {
    const int32_t value = gemm.residual_type == INTACT_S8 ? static_cast<int8_t>(*element) : *element;
    q.residual = static_cast<float>(value - gemm.residual_zero_point);
  }
  return q;
}

int64_t ElementSize(intact_type type) noexcept { return type == INTACT_S32 || type == INTACT_F32 ? 4 : 1; }

void StoreOutput(int32_t y, const Requantization& q, uint8_t* destination) noexcept {
  switch (q.c_type) {
    case INTACT_TYPE_NONE:
      return;
    case INTACT_S32:
      return Store(y, destination);
    case INTACT_F32:
      return Store(Dequantize(y, q), destination);
    case INTACT_U8:
    case INTACT_S8:
      return Store(static_cast<uint8_t>(Requantize(y, q)), destination);
  }
}

std::vector<uint8_t> Outputs(const Gemm& gemm, const std::vector<int32_t>& accumulators) {
  std::vector<Requantization> columns;
  for (int64_t n = 0; n < gemm.n; ++n) columns.push_back(RequantizationOf(gemm, n));
  const auto size = static_cast<size_t>(ElementSize(gemm.c_type));
  std::vector<uint8_t> bytes(accumulators.size() * size);
  for (size_t i = 0; i < accumulators.size(); ++i) {
    const Requantization& column = columns[i % columns.size()];
    StoreOutput(accumulators[i], WithResidual(column, gemm, static_cast<int64_t>(i)), &bytes[i * size]);
  }
  return bytes;
}

}  // namespace intact::reference
