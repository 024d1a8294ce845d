#include "reference/gemm.h"

#include <cstring>

namespace intact::reference {
namespace {

// u8×s8 instructions take s8 activations shifted by this, zero point included.
int32_t Shift(intact_type a_type) noexcept { return a_type == INTACT_S8 ? 128 : 0; }

uint32_t ColumnSum(std::span<const int8_t> column) noexcept {
  uint32_t sum = 0;
  for (const int8_t w : column) sum += static_cast<uint32_t>(int32_t{w});
  return sum;
}

template <class T>
void Store(T value, uint8_t* destination) noexcept {
  std::memcpy(destination, &value, sizeof value);
}

}  // namespace

uint8_t ShiftedActivation(const Gemm& gemm, int64_t m, int64_t k) noexcept {
  // Modulo 2⁸: −128 becomes 0 and 127 becomes 255.
  return static_cast<uint8_t>(gemm.a[static_cast<size_t>(m * gemm.k + k)] + Shift(gemm.a_type));
}

Operands::Operands(const Gemm& gemm) : m(gemm.m), n(gemm.n), k(gemm.k), a(gemm.a.size()), w(gemm.b.size()) {
  size_t next = 0;
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t depth = 0; depth < k; ++depth) a[next++] = ShiftedActivation(gemm, row, depth);
  }
  next = 0;
  const auto zero_point = static_cast<uint32_t>(gemm.a_zero_point + Shift(gemm.a_type));
  for (int64_t column = 0; column < n; ++column) {
    for (int64_t depth = 0; depth < k; ++depth) w[next++] = gemm.b[static_cast<size_t>(depth * n + column)];
    const int32_t bias = gemm.bias_s32.empty() ? 0 : gemm.bias_s32[static_cast<size_t>(column)];
    compensation.push_back(
        static_cast<int32_t>(static_cast<uint32_t>(bias) - zero_point * ColumnSum(Column(column))));
  }
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
      const int32_t compensation = operands.compensation[static_cast<size_t>(n)];
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

int64_t ElementSize(intact_type type) noexcept { return type == INTACT_S32 || type == INTACT_F32 ? 4 : 1; }

void StoreOutput(int32_t y, const Requantization& q, uint8_t* destination) noexcept {
  switch (q.c_type) {
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
    StoreOutput(accumulators[i], columns[i % columns.size()], &bytes[i * size]);
  }
  return bytes;
}

}  // namespace intact::reference
