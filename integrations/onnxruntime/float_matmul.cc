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

constexpr int64_t kBlock = 128;  // D, unless N is small

// D of the definition.
int64_t BlockOf(int64_t n, int64_t k) {
  int64_t block = kBlock;
  if (n < k)
    for (int64_t width = kBlock; width > 16 && width / 2 >= n; width /= 2) block *= 2;
  return block;
}

void Multiply(const float* a, const float* b, float* c, int64_t rows, int64_t n, int64_t k, int64_t block) {
  for (int64_t m = 0; m < rows; ++m)
    for (int64_t column = 0; column < n; ++column)
      for (int64_t begin = 0; begin < k; begin += block) {
        float sum = 0;
        for (int64_t depth = begin; depth < std::min(k, begin + block); ++depth)
          sum = std::fma(a[m * k + depth], b[depth * n + column], sum);
        float& output = c[m * n + column];
        output = begin == 0 ? sum : output + sum;
      }
}

struct MasksAvx2 {
  __m256i of_half[2];  // of 16 columns
};

// A tile of kRows × 16 outputs, or fewer columns by the masks.
template <int kRows>
[[gnu::target("avx2,fma")]] void TileAvx2(const float* a, const float* b, float* c, int64_t n, int64_t k,
                                          int64_t block, const MasksAvx2& masks) {
  for (int64_t begin = 0; begin < k; begin += block) {
    __m256 sums[kRows][2];
    for (auto& row : sums) row[0] = row[1] = _mm256_setzero_ps();
    for (int64_t depth = begin; depth < std::min(k, begin + block); ++depth) {
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
        float* const to = c + row * n + 8 * half;
        if (begin > 0)
          sums[row][half] = _mm256_add_ps(_mm256_maskload_ps(to, masks.of_half[half]), sums[row][half]);
        _mm256_maskstore_ps(to, masks.of_half[half], sums[row][half]);
      }
  }
}

constexpr int kRowsAvx2 = 6;
using TileFunctionAvx2 = void (*)(const float*, const float*, float*, int64_t, int64_t, int64_t,
                                  const MasksAvx2&);
constexpr std::array<TileFunctionAvx2, kRowsAvx2> kTilesAvx2 = {TileAvx2<1>, TileAvx2<2>, TileAvx2<3>,
                                                                TileAvx2<4>, TileAvx2<5>, TileAvx2<6>};

[[gnu::target("avx2,fma")]] void MultiplyAvx2(const float* a, const float* b, float* c, int64_t rows,
                                              int64_t n, int64_t k, int64_t block) {
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  for (int64_t column = 0; column < n; column += 16) {
    const auto left = static_cast<int>(std::min<int64_t>(n - column, 16));
    const MasksAvx2 masks = {{_mm256_cmpgt_epi32(_mm256_set1_epi32(left), lanes),
                              _mm256_cmpgt_epi32(_mm256_set1_epi32(left - 8), lanes)}};
    for (int64_t row = 0; row < rows; row += kRowsAvx2) {
      const auto count = static_cast<size_t>(std::min<int64_t>(rows - row, kRowsAvx2));
      kTilesAvx2[count - 1](a + row * k, b + column, c + row * n + column, n, k, block, masks);
    }
  }
}

INTACT_BEGIN_AVX512

// A tile of kRows × 32 outputs, or fewer columns by the masks.
template <int kRows>
[[INTACT_AVX512]] void TileAvx512(const float* a, const float* b, float* c, int64_t n, int64_t k,
                                  int64_t block, __mmask16 left_mask, __mmask16 right_mask) {
  for (int64_t begin = 0; begin < k; begin += block) {
    __m512 sums[kRows][2];
    for (auto& row : sums) row[0] = row[1] = _mm512_setzero_ps();
    for (int64_t depth = begin; depth < std::min(k, begin + block); ++depth) {
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
        float* const to = c + row * n + 16 * half;
        if (begin > 0) sums[row][half] = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to), sums[row][half]);
        _mm512_mask_storeu_ps(to, mask, sums[row][half]);
      }
  }
}

template <size_t... kRows>
constexpr auto TilesAvx512(std::index_sequence<kRows...>) {
  return std::array{&TileAvx512<static_cast<int>(kRows) + 1>...};
}
constexpr int kRowsAvx512 = 12;
constexpr auto kTilesAvx512 = TilesAvx512(std::make_index_sequence<kRowsAvx512>());

[[INTACT_AVX512]] void MultiplyAvx512(const float* a, const float* b, float* c, int64_t rows, int64_t n,
                                      int64_t k, int64_t block) {
  for (int64_t column = 0; column < n; column += 32) {
    const int64_t left = std::min<int64_t>(n - column, 32);
    const auto all = static_cast<uint32_t>((uint64_t{1} << left) - 1);
    for (int64_t row = 0; row < rows; row += kRowsAvx512) {
      const auto count = static_cast<size_t>(std::min<int64_t>(rows - row, kRowsAvx512));
      kTilesAvx512[count - 1](a + row * k, b + column, c + row * n + column, n, k, block,
                              static_cast<__mmask16>(all), static_cast<__mmask16>(all >> 16));
    }
  }
}

INTACT_END_AVX512

}  // namespace

FloatMatMul::FloatMatMul(const Node& node, const Context& context)
    : function_(HasAvx512(context.settings) ? MultiplyAvx512
                : HasAvx2(context.settings) ? MultiplyAvx2
                                            : Multiply) {
  node.Type(0, {INTACT_F32});
  if (!context.settings.is_reproducible)
    throw Refusal("operator: is of floats; expected integers without the option reproducible");
  if (!DependsOnThreads(node))
    throw Refusal("operator: has the same bytes in ONNX Runtime for every number of threads");
  for (const size_t input : {size_t{0}, size_t{1}})
    if (const size_t dimensions = node.ShapeOf(input).size(); dimensions < 2)
      throw Refusal(std::string(node.Name(input)) + ": has " + std::to_string(dimensions) +
                    " dimensions; expected at least 2, known before the run");
}

bool FloatMatMul::DependsOnThreads(const Node& product) {
  const auto b = product.FindConstant(1);
  if (b && b->shape.size() == 2) return false;  // ONNX Runtime packs it once, for any number of threads
  const Shape a = product.ShapeOf(0);
  if (a.size() < 2) return true;
  const int64_t depth = product.Integer("transA", 0) != 0 ? a.front() : a.back();  // only a Gemm has transA
  return depth < 0 || depth > kMostDepthOfOneOrder;
}

std::string FloatMatMul::Kernel() const {
  return std::string("matmul_f32_") + (function_ == MultiplyAvx512 ? "avx512"
                                       : function_ == MultiplyAvx2 ? "avx2"
                                                                   : "portable");
}

void FloatMatMul::Compute(Run& run) const {
  const auto a = run.Input(0), b = run.Input(1);
  const Shape a_shape = a.GetTensorTypeAndShapeInfo().GetShape();
  const Shape b_shape = b.GetTensorTypeAndShapeInfo().GetShape();
  if (a_shape.size() < 2 || b_shape.size() < 2)
    throw std::invalid_argument("A, B: have " + std::to_string(a_shape.size()) + " and " +
                                std::to_string(b_shape.size()) + " dimensions; expected at least 2");
  const int64_t m = a_shape.end()[-2], k = a_shape.back(), n = b_shape.back();
  CheckDepth(b_shape.end()[-2], k);
  Shape shape = BroadcastItems(a_shape, b_shape);
  constexpr auto kBytes = static_cast<int64_t>(sizeof(float));
  const auto a_items = PlacesOfItems(a.GetTensorRawData(), m * k * kBytes, a_shape, shape);
  const auto b_items = PlacesOfItems(b.GetTensorRawData(), k * n * kBytes, b_shape, shape);
  shape.insert(shape.end(), {m, n});
  auto* const c = static_cast<float*>(run.Output(shape));
  const int64_t count = CountOf(shape);
  if (count == 0) return;
  if (k == 0) return std::fill_n(c, count, 0.0f), void();
  // Tasks of whole rows with enough work to wake a thread.
  constexpr int64_t kRows = 24, kWork = int64_t{1} << 16;
  const int64_t rows = std::min(m, std::max(kRows, kWork / (n * k) / kRows * kRows));
  const int64_t of_item = (m + rows - 1) / rows, block = BlockOf(n, k);
  run.ForEach(of_item * static_cast<int64_t>(a_items.size()), [&](int64_t task) {
    const auto item = static_cast<size_t>(task / of_item);
    const int64_t begin = task % of_item * rows;
    function_(static_cast<const float*>(a_items[item]) + begin * k, static_cast<const float*>(b_items[item]),
              c + (static_cast<int64_t>(item) * m + begin) * n, std::min(rows, m - begin), n, k, block);
  });
}

}  // namespace intact::onnxruntime
