#include "reference/contract/gemm.h"

#include <cstddef>
#include <iterator>

#include "core/types.h"

namespace intact::reference {
namespace {

// How many of the per-item `values` belong to each item.
template <class T>
int64_t EachOf(const Gemm& gemm, const std::vector<T>& values) {
  return values.empty() ? 0 : std::ssize(values) / gemm.batch;
}

// Elements [i·size, (i + 1)·size) of `values`; empty if `values` is.
template <class T>
std::vector<T> Slice(const std::vector<T>& values, int64_t i, int64_t size) {
  if (values.empty()) return {};
  const auto begin = values.begin() + static_cast<std::ptrdiff_t>(i * size);
  return {begin, begin + static_cast<std::ptrdiff_t>(size)};
}

// a − za.
int32_t CenteredActivation(const Gemm& gemm, int64_t row, int64_t k) noexcept {
  const uint8_t a = gemm.a[static_cast<size_t>(row * gemm.k + k)];
  return core::DecodeInt8(gemm.a_type, a) - ActivationZeroPoint(gemm, row);
}

// b − zb of an item's B.
int32_t CenteredWeight(const Gemm& gemm, int64_t item, int64_t k, int64_t n) noexcept {
  const int64_t at = ((gemm.has_runtime_b ? item * gemm.k : 0) + k) * gemm.n + n;
  int32_t zero_point = 0;
  if (gemm.item_zero_points.empty()) {
    zero_point = WeightZeroPoint(gemm, n);
  } else {
    const int64_t each = EachOf(gemm, gemm.item_zero_points);
    zero_point = gemm.item_zero_points[static_cast<size_t>(item * each + (each == 1 ? 0 : n))];
  }
  return core::DecodeInt8(gemm.b_type, static_cast<uint8_t>(gemm.b[static_cast<size_t>(at)])) - zero_point;
}

}  // namespace

std::vector<int8_t> FromColumns(std::span<const int8_t> columns, int64_t n, int64_t k) {
  std::vector<int8_t> b(columns.size());
  auto from = columns.begin();
  for (auto item = b.begin(); item != b.end(); item += n * k) {
    for (int64_t column = 0; column < n; ++column) {
      for (int64_t depth = 0; depth < k; ++depth) item[depth * n + column] = *from++;
    }
  }
  return b;
}

Gemm Item(const Gemm& gemm, int64_t i) {
  Gemm item = gemm;
  item.batch = 1;
  item.has_runtime_b = false;
  item.a = Slice(gemm.a, i, gemm.m * gemm.k);
  item.a_source = Slice(gemm.a_source, i, gemm.m * gemm.k * core::BytesOf(gemm.a_source_type));
  item.a_zero_points = Slice(gemm.a_zero_points, i, gemm.m);
  item.a_scales = Slice(gemm.a_scales, i, gemm.m);
  item.residual = Slice(gemm.residual, i, gemm.m * gemm.n * core::BytesOf(gemm.residual_type()));
  if (!gemm.has_runtime_b) return item;
  item.b = Slice(gemm.b, i, gemm.k * gemm.n);
  const int64_t zero_points = EachOf(gemm, gemm.item_zero_points), scales = EachOf(gemm, gemm.item_scales);
  if (zero_points != 0) item.b_zero_points = Slice(gemm.item_zero_points, i, zero_points);
  if (scales != 0) item.scales = Slice(gemm.item_scales, i, scales);
  item.item_zero_points.clear();
  item.item_scales.clear();
  return item;
}

std::vector<int32_t> Multiply(const Gemm& gemm) {
  std::vector<int32_t> y;
  for (int64_t row = 0; row < gemm.rows(); ++row) {
    for (int64_t n = 0; n < gemm.n; ++n) {
      int64_t sum = gemm.bias_s32.empty() ? 0 : gemm.bias_s32[static_cast<size_t>(n)];
      for (int64_t k = 0; k < gemm.k; ++k)
        sum += int64_t{CenteredActivation(gemm, row, k)} * CenteredWeight(gemm, row / gemm.m, k, n);
      y.push_back(static_cast<int32_t>(static_cast<uint32_t>(sum)));
    }
  }
  return y;
}

std::vector<uint8_t> Outputs(const Gemm& gemm, const std::vector<int32_t>& accumulators) {
  if (!gemm.has_runtime_b) return Outputs(static_cast<const Linear&>(gemm), gemm.n, accumulators);
  std::vector<uint8_t> bytes;
  for (int64_t i = 0; i < gemm.batch; ++i) {
    const Gemm item = Item(gemm, i);
    const std::vector<uint8_t> outputs = Outputs(item, Slice(accumulators, i, gemm.m * gemm.n));
    bytes.insert(bytes.end(), outputs.begin(), outputs.end());
  }
  return bytes;
}

}  // namespace intact::reference
