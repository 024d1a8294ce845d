#include "float_matmul.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "avx512.h"
#include "items.h"

namespace intact::onnxruntime {
namespace {

void Multiply(const float* a, const float* b, float* y, int64_t rows, int64_t n, int64_t k,
              const Terms& terms) {
  for (int64_t m = 0; m < rows; ++m)
    for (int64_t column = 0; column < n; ++column)
      for (int64_t begin = 0; begin < k; begin += terms.block) {
        float sum = 0;
        for (int64_t depth = begin; depth < std::min(k, begin + terms.block); ++depth)
          sum = std::fma(a[m * k + depth], b[depth * n + column], sum);
        float& output = y[m * n + column];
        output = begin == 0 && !terms.has_c ? sum * terms.alpha : std::fma(sum, terms.alpha, output);
      }
}

struct MasksAvx2 {
  __m256i of_half[2];  // of 16 columns
};

// A tile of kRows × 16 outputs, or fewer columns by the masks.
template <int kRows>
[[gnu::target("avx2,fma")]] void TileAvx2(const float* a, const float* b, float* y, int64_t n, int64_t k,
                                          const Terms& terms, const MasksAvx2& masks) {
  const __m256 alpha = _mm256_set1_ps(terms.alpha);
  for (int64_t begin = 0; begin < k; begin += terms.block) {
    __m256 sums[kRows][2];
    for (auto& row : sums) row[0] = row[1] = _mm256_setzero_ps();
    for (int64_t depth = begin; depth < std::min(k, begin + terms.block); ++depth) {
      const __m256 left = _mm256_maskload_ps(b + depth * n, masks.of_half[0]);
      const __m256 right = _mm256_maskload_ps(b + depth * n + 8, masks.of_half[1]);
      for (int row = 0; row < kRows; ++row) {
        const __m256 value = _mm256_broadcast_ss(a + row * k + depth);
        sums[row][0] = _mm256_fmadd_ps(value, left, sums[row][0]);
        sums[row][1] = _mm256_fmadd_ps(value, right, sums[row][1]);
      }
    }
    for (int row = 0; row < kRows; ++row)
      for (int half = 0; half < 2; ++half) {
        float* const to = y + row * n + 8 * half;
        const __m256 before = _mm256_maskload_ps(to, masks.of_half[half]);
        const __m256 output = begin == 0 && !terms.has_c ? _mm256_mul_ps(sums[row][half], alpha)
                                                         : _mm256_fmadd_ps(sums[row][half], alpha, before);
        _mm256_maskstore_ps(to, masks.of_half[half], output);
      }
  }
}

constexpr int kRowsAvx2 = 6;
using TileFunctionAvx2 = void (*)(const float*, const float*, float*, int64_t, int64_t, const Terms&,
                                  const MasksAvx2&);
constexpr std::array<TileFunctionAvx2, kRowsAvx2> kTilesAvx2 = {TileAvx2<1>, TileAvx2<2>, TileAvx2<3>,
                                                                TileAvx2<4>, TileAvx2<5>, TileAvx2<6>};

[[gnu::target("avx2,fma")]] void MultiplyAvx2(const float* a, const float* b, float* y, int64_t rows,
                                              int64_t n, int64_t k, const Terms& terms) {
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  for (int64_t column = 0; column < n; column += 16) {
    const auto left = static_cast<int>(std::min<int64_t>(n - column, 16));
    const MasksAvx2 masks = {{_mm256_cmpgt_epi32(_mm256_set1_epi32(left), lanes),
                              _mm256_cmpgt_epi32(_mm256_set1_epi32(left - 8), lanes)}};
    for (int64_t row = 0; row < rows; row += kRowsAvx2) {
      const auto count = static_cast<size_t>(std::min<int64_t>(rows - row, kRowsAvx2));
      kTilesAvx2[count - 1](a + row * k, b + column, y + row * n + column, n, k, terms, masks);
    }
  }
}

INTACT_BEGIN_AVX512

// A tile of kRows × 32 outputs, or fewer columns by the masks.
template <int kRows>
[[INTACT_AVX512]] void TileAvx512(const float* a, const float* b, float* y, int64_t n, int64_t k,
                                  const Terms& terms, __mmask16 left_mask, __mmask16 right_mask) {
  const __m512 alpha = _mm512_set1_ps(terms.alpha);
  for (int64_t begin = 0; begin < k; begin += terms.block) {
    __m512 sums[kRows][2];
    for (auto& row : sums) row[0] = row[1] = _mm512_setzero_ps();
    for (int64_t depth = begin; depth < std::min(k, begin + terms.block); ++depth) {
      const __m512 left = _mm512_maskz_loadu_ps(left_mask, b + depth * n);
      const __m512 right = _mm512_maskz_loadu_ps(right_mask, b + depth * n + 16);
      for (int row = 0; row < kRows; ++row) {
        const __m512 value = _mm512_set1_ps(a[row * k + depth]);
        sums[row][0] = _mm512_fmadd_ps(value, left, sums[row][0]);
        sums[row][1] = _mm512_fmadd_ps(value, right, sums[row][1]);
      }
    }
    for (int row = 0; row < kRows; ++row)
      for (int half = 0; half < 2; ++half) {
        const __mmask16 mask = half == 0 ? left_mask : right_mask;
        float* const to = y + row * n + 16 * half;
        const __m512 before = _mm512_maskz_loadu_ps(mask, to);
        const __m512 output = begin == 0 && !terms.has_c ? _mm512_mul_ps(sums[row][half], alpha)
                                                         : _mm512_fmadd_ps(sums[row][half], alpha, before);
        _mm512_mask_storeu_ps(to, mask, output);
      }
  }
}

template <size_t... kRows>
constexpr auto TilesAvx512(std::index_sequence<kRows...>) {
  return std::array{&TileAvx512<static_cast<int>(kRows) + 1>...};
}
constexpr int kRowsAvx512 = 12;
constexpr auto kTilesAvx512 = TilesAvx512(std::make_index_sequence<kRowsAvx512>());

[[INTACT_AVX512]] void MultiplyAvx512(const float* a, const float* b, float* y, int64_t rows, int64_t n,
                                      int64_t k, const Terms& terms) {
  for (int64_t column = 0; column < n; column += 32) {
    const int64_t left = std::min<int64_t>(n - column, 32);
    const auto all = static_cast<uint32_t>((uint64_t{1} << left) - 1);
    for (int64_t row = 0; row < rows; row += kRowsAvx512) {
      const auto count = static_cast<size_t>(std::min<int64_t>(rows - row, kRowsAvx512));
      kTilesAvx512[count - 1](a + row * k, b + column, y + row * n + column, n, k, terms,
                              static_cast<__mmask16>(all), static_cast<__mmask16>(all >> 16));
    }
  }
}

INTACT_END_AVX512

bool IsTransposed(const Node& node, const char* attribute) { return node.Integer(attribute, 0) != 0; }

}  // namespace

const FloatProduct& FloatProductOf(const Settings& settings) {
  static constexpr FloatProduct kPortable = {"portable", Multiply}, kAvx2 = {"avx2", MultiplyAvx2},
                                kAvx512 = {"avx512", MultiplyAvx512};
  if (HasAvx512(settings)) return kAvx512;
  return HasAvx2(settings) ? kAvx2 : kPortable;
}

int64_t FloatBlockOf(int64_t n, int64_t k) {
  int64_t block = kFloatBlock;
  if (n < k)
    for (int64_t width = kFloatBlock; width > 16 && width / 2 >= n; width /= 2) block *= 2;
  return block;
}

FloatMatMul::FloatMatMul(const Node& node, const Context& context, const std::string& type)
    : product_(FloatProductOf(context.settings)),
      is_a_transposed_(IsTransposed(node, "transA")),
      is_b_transposed_(IsTransposed(node, "transB")),
      alpha_(node.Float("alpha", 1)),
      beta_(node.Float("beta", 1)),
      has_c_(type == "Gemm" && node.Has(2) && beta_ != 0) {
  node.Type(0, {INTACT_F32});
  context.RequireReproducible();
  if (!DependsOnThreads(node))
    throw Refusal("operator: has the same bytes in ONNX Runtime for every number of threads");
  for (const char* attribute : {"transBatchA", "transBatchB"})
    if (node.Integer(attribute, 0) != 0) throw Refusal(std::string(attribute) + ": is not 0; expected 0");
  for (const size_t input : {size_t{0}, size_t{1}})
    if (const size_t dimensions = node.ShapeOf(input).size(); dimensions < 2)
      throw Refusal(std::string(node.Name(input)) + ": has " + std::to_string(dimensions) +
                    " dimensions; expected at least 2, known before the run");
  for (size_t input = 1; input < (has_c_ ? 3 : 2); ++input)
    if (const auto constant = node.FindConstant(input)) {
      const auto values = constant->As<float>();
      constants_[input - 1].emplace(constant->shape, std::vector<float>(values.begin(), values.end()));
    }
}

bool FloatMatMul::DependsOnThreads(const Node& product) {
  const auto b = product.FindConstant(1);
  if (b && b->shape.size() == 2) return false;  // ONNX Runtime packs it once, for any number of threads
  const Shape a = product.ShapeOf(0);
  if (a.size() < 2) return true;
  // ONNX Runtime has another order for one column, and cuts the depths among the threads.
  const Shape of_b = product.ShapeOf(1);
  if (of_b.empty()) return true;
  const int64_t columns = IsTransposed(product, "transB") && of_b.size() > 1 ? of_b.end()[-2] : of_b.back();
  if (of_b.size() > 1 && columns < 2) return true;
  const int64_t depth = IsTransposed(product, "transA") ? a.end()[-2] : a.back();
  return depth < 0 || depth > kMostDepthOfOneOrder;
}

std::string FloatMatMul::Kernel() const { return std::string("matmul_f32_") + product_.name; }

FloatMatMul::Operand FloatMatMul::OperandOf(const Run& run, size_t input) const {
  if (input > 0 && constants_[input - 1]) {
    const auto& [shape, data] = *constants_[input - 1];
    return {shape, data.data()};
  }
  const auto value = run.Input(input);
  return {value.GetTensorTypeAndShapeInfo().GetShape(), static_cast<const float*>(value.GetTensorRawData())};
}

FloatMatMul::Operand FloatMatMul::Transposed(Run& run, const Operand& operand) {
  Shape shape = operand.shape;
  const int64_t rows = shape.end()[-2], columns = shape.back(), count = CountOf(shape);
  auto* const data = static_cast<float*>(run.Allocate(static_cast<size_t>(count) * sizeof(float)));
  if (count > 0) run.Transpose(operand.data, data, sizeof(float), count / (rows * columns), rows, columns);
  std::swap(shape.end()[-2], shape.end()[-1]);
  return {std::move(shape), data};
}

void FloatMatMul::WriteC(const Run& run, float* y, int64_t m, int64_t n) const {
  const Operand c = OperandOf(run, 2);
  const size_t dimensions = c.shape.size();
  const int64_t rows = dimensions > 1 ? c.shape.end()[-2] : 1, columns = dimensions > 0 ? c.shape.back() : 1;
  if (dimensions > 2 || (rows != 1 && rows != m) || (columns != 1 && columns != n))
    throw std::invalid_argument("C: has " + std::to_string(rows) + " rows and " + std::to_string(columns) +
                                " columns; expected " + std::to_string(m) + " and " + std::to_string(n) +
                                ", or 1");
  for (int64_t row = 0; row < m; ++row)
    for (int64_t column = 0; column < n; ++column) {
      const float value = c.data[(rows == 1 ? 0 : row) * columns + (columns == 1 ? 0 : column)];
      y[row * n + column] = value * beta_;
    }
}

void FloatMatMul::Compute(Run& run) const {
  Operand a = OperandOf(run, 0), b = OperandOf(run, 1);
  if (a.shape.size() < 2 || b.shape.size() < 2)
    throw std::invalid_argument("A, B: have " + std::to_string(a.shape.size()) + " and " +
                                std::to_string(b.shape.size()) + " dimensions; expected at least 2");
  if (is_a_transposed_) a = Transposed(run, a);
  if (is_b_transposed_) b = Transposed(run, b);
  const int64_t m = a.shape.end()[-2], k = a.shape.back(), n = b.shape.back();
  CheckDepth(b.shape.end()[-2], k);
  Shape shape = BroadcastItems(a.shape, b.shape);
  constexpr auto kBytes = static_cast<int64_t>(sizeof(float));
  const auto a_items = PlacesOfItems(a.data, m * k * kBytes, a.shape, shape);
  const auto b_items = PlacesOfItems(b.data, k * n * kBytes, b.shape, shape);
  shape.insert(shape.end(), {m, n});
  auto* const y = static_cast<float*>(run.Output(shape));
  const int64_t count = CountOf(shape);
  if (count == 0) return;
  if (has_c_) {
    WriteC(run, y, m, n);
  } else if (k == 0) {
    std::fill_n(y, count, 0.0f);
  }
  if (k == 0) return;
  // Tasks of whole rows with enough work to wake a thread.
  constexpr int64_t kRows = 24, kWork = int64_t{1} << 16;
  const int64_t rows = std::min(m, std::max(kRows, kWork / (n * k) / kRows * kRows));
  const int64_t of_item = (m + rows - 1) / rows;
  const Terms terms{.block = FloatBlockOf(n, k), .alpha = alpha_, .has_c = has_c_};
  run.ForEach(of_item * static_cast<int64_t>(a_items.size()), [&](int64_t task) {
    const auto item = static_cast<size_t>(task / of_item);
    const int64_t begin = task % of_item * rows;
    product_.multiply(
        static_cast<const float*>(a_items[item]) + begin * k, static_cast<const float*>(b_items[item]),
        y + (static_cast<int64_t>(item) * m + begin) * n, std::min(rows, m - begin), n, k, terms);
  });
}

}  // namespace intact::onnxruntime
