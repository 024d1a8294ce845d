#include "float_softmax.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <stdexcept>
#include <utility>

#include "avx512.h"
#include "logarithm.h"

namespace intact::onnxruntime {
namespace {

constexpr int64_t kLanes = 16;              // of the sum
constexpr int64_t kElementsOfTask = 16384;  // fewer take about as long as waking a thread

// Exp(): the lowest argument, 1/ln 2, a number whose unit in the last place is 1, the two parts of −ln 2, and the polynomial from
// the highest degree on. The polynomial is N. Juffa's (forums.developer.nvidia.com, "A more accurate, performance-competitive
// implementation of expf()").
constexpr float kLowest = -103.9720840454f, kLog2E = 0x1.715476p0f, kRound = 0x1.8p23f;
constexpr float kLn2High = -6.93145752e-1f, kLn2Low = -1.42860677e-6f;
constexpr std::array kPolynomial = {
    0x1.694p-10f, 0x1.125edcp-7f, 0x1.555b5ap-5f, 0x1.55545p-3f, 0x1.fffff6p-2f, 1.0f, 1.0f};
constexpr float kNormal = -87.0f;  // Exp() of it is a normal number, and so is 2^m
constexpr float kLeast = std::numeric_limits<float>::lowest();

// The definition, one element after the other. It is also what computes rows with NaNs: it states which NaN an operation of two
// returns, where compilers may exchange the operands.

float Quiet(float nan) { return nan + nan; }

float Add(float a, float b) {
  if (std::isnan(a)) return Quiet(a);
  return std::isnan(b) ? Quiet(b) : a + b;
}

float Max(float a, float b) { return a > b ? a : b; }  // b if one is NaN

float Exp(float x) {
  x = Max(kLowest, x);
  const float m = std::fma(x, kLog2E, kRound) - kRound;
  const float r = std::fma(m, kLn2Low, std::fma(m, kLn2High, x));
  float p = kPolynomial[0];
  for (size_t i = 1; i < kPolynomial.size(); ++i) p = std::fma(p, r, kPolynomial[i]);
  if (std::isnan(p)) return std::isinf(m) ? m : p;  // as VSCALEFPS; without NaNs in the row m is at most 0
  return std::ldexp(p, static_cast<int>(std::min(m, 512.0f)));  // beyond 2^512 p·2^m is infinite too
}

// The order is seen only in rows with NaNs, because Max() may drop a NaN and with it all before it.
float Largest(const float* x, int64_t elements) {
  constexpr size_t kVectors = 4;
  constexpr auto kBlock = static_cast<int64_t>(kVectors) * kLanes;
  std::array<std::array<float, kLanes>, kVectors> vectors;
  for (auto& vector : vectors) vector.fill(kLeast);
  int64_t i = 0;
  for (; i + kBlock <= elements; i += kBlock)
    for (size_t j = 0; j < kBlock; ++j) {
      float& lane = vectors[j / kLanes][j % kLanes];
      lane = Max(lane, x[i + static_cast<int64_t>(j)]);
    }
  std::array<float, kLanes> lanes;
  for (size_t j = 0; j < kLanes; ++j)
    lanes[j] = Max(Max(vectors[0][j], vectors[1][j]), Max(vectors[2][j], vectors[3][j]));
  for (; i + kLanes <= elements; i += kLanes)
    for (size_t j = 0; j < kLanes; ++j) lanes[j] = Max(lanes[j], x[i + static_cast<int64_t>(j)]);
  for (size_t width = kLanes / 2; width > 0; width /= 2)
    for (size_t j = 0; j < width; ++j) lanes[j] = Max(lanes[j], lanes[j + width]);
  float largest = lanes[0];
  for (; i < elements; ++i) largest = Max(largest, x[i]);
  return largest;
}

void ComputeRow(const float* x, float* y, int64_t elements, bool is_log) {
  const float negated = -Largest(x, elements);
  std::array<float, kLanes> lanes{};
  for (int64_t i = 0; i < elements; ++i) {
    float& lane = lanes[static_cast<size_t>(i % kLanes)];
    const float e = Exp(Add(negated, x[i]));
    if (!is_log) y[i] = e;
    lane = Add(lane, e);
  }
  for (size_t j = 0; j < 8; ++j) lanes[j] = Add(lanes[j + 8], lanes[j]);
  for (size_t step = 1; step < 8; step *= 2)
    for (size_t j = 0; j < 8; j += 2 * step) lanes[j] = Add(lanes[j], lanes[j + step]);
  const float sum = lanes[0];
  const float factor = 1 / sum, logarithm = LogOf(sum);
  for (int64_t i = 0; i < elements; ++i) {
    if (is_log) {
      const float difference = Add(negated, x[i]);
      y[i] = std::isnan(difference) ? difference : difference - logarithm;
    } else {
      y[i] = std::isnan(factor) ? factor : factor * y[i];
    }
  }
}

void ComputeRows(const float* x, float* y, int64_t count, int64_t elements, bool is_log) {
  for (int64_t row = 0; row < count; ++row)
    ComputeRow(x + row * elements, y + row * elements, elements, is_log);
}

// The functions for AVX2 and AVX-512 compute `largest` in any order: without NaNs only the sign of a zero depends on it, which no
// output shows. Rows whose sum is NaN go to ComputeRow(). Short rows stay in
// registers. Lanes behind the end of a row are 0 before Exp(), whose operations are then fast.

constexpr size_t kMostVectors = 8;  // of a short row

// p·2^(m + more): `biased` has m in its last bits.
[[gnu::target("avx2,fma"), gnu::always_inline]] inline __m256 ScaleAvx2(__m256 p, __m256 biased, int more) {
  const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(biased), 23);
  return _mm256_mul_ps(
      p, _mm256_castsi256_ps(_mm256_add_epi32(exponent, _mm256_set1_epi32((127 + more) << 23))));
}

// Replaces vectors x ≤ 0 by Exp().
template <size_t kCount>
[[gnu::target("avx2,fma"), gnu::always_inline]] inline void ExpAvx2(__m256 (&x)[kCount]) {
  const __m256 round = _mm256_set1_ps(kRound), bound = _mm256_set1_ps(kNormal);
  __m256 p[kCount], biased[kCount], least = bound;
  for (size_t v = 0; v < kCount; ++v) {
    x[v] = _mm256_max_ps(_mm256_set1_ps(kLowest), x[v]);
    least = _mm256_min_ps(least, x[v]);
    biased[v] = _mm256_fmadd_ps(x[v], _mm256_set1_ps(kLog2E), round);
    const __m256 m = _mm256_sub_ps(biased[v], round);
    __m256 r = _mm256_fmadd_ps(m, _mm256_set1_ps(kLn2High), x[v]);
    r = _mm256_fmadd_ps(m, _mm256_set1_ps(kLn2Low), r);
    p[v] = _mm256_set1_ps(kPolynomial[0]);
    for (size_t i = 1; i < kPolynomial.size(); ++i)
      p[v] = _mm256_fmadd_ps(p[v], r, _mm256_set1_ps(kPolynomial[i]));
  }
  if (_mm256_movemask_ps(_mm256_cmp_ps(least, bound, _CMP_LT_OQ)) == 0) {
    for (size_t v = 0; v < kCount; ++v) x[v] = ScaleAvx2(p[v], biased[v], 0);
    return;
  }
  // The bits of a denormal number are its multiple of 2^−149. CPUs are slow at products that are denormal.
  for (size_t v = 0; v < kCount; ++v) {
    const __m256 multiple = _mm256_mul_ps(ScaleAvx2(p[v], biased[v], 64), _mm256_set1_ps(0x1p85f));
    const __m256 small = _mm256_castsi256_ps(_mm256_cvtps_epi32(multiple));
    const __m256 is_small = _mm256_cmp_ps(x[v], bound, _CMP_LT_OQ);
    x[v] = _mm256_blendv_ps(ScaleAvx2(p[v], biased[v], 0), small, is_small);
  }
}

constexpr int64_t kMostRows = 4;
int64_t RowsOfBlock(int64_t elements) { return std::clamp<int64_t>(4096 / elements, 1, kMostRows); }

[[gnu::target("avx2,fma"), gnu::always_inline]] inline float LargestAvx2(__m256 lanes) {
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}

// half[0] … half[7] to their sum.
[[gnu::target("avx2,fma"), gnu::always_inline]] inline float SumAvx2(__m256 halves) {
  halves = _mm256_hadd_ps(halves, halves);
  halves = _mm256_hadd_ps(halves, halves);
  return _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1)));
}

// The elements behind the last 16 of a row: masks of the first 8 of them, and of the others.
struct TailAvx2 {
  int64_t begin, count;
  __m256i masks[2];
};

[[gnu::target("avx2,fma"), gnu::always_inline]] inline TailAvx2 MakeTailAvx2(int64_t elements) {
  const int64_t count = elements % kLanes;
  const __m256i all = _mm256_set1_epi32(static_cast<int>(count));
  return {elements - count,
          count,
          {_mm256_cmpgt_epi32(all, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
           _mm256_cmpgt_epi32(all, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))}};
}

[[gnu::target("avx2,fma"), gnu::always_inline]] inline float LargestAvx2(const float* x, int64_t elements,
                                                                         const TailAvx2& tail) {
  const __m256 least = _mm256_set1_ps(kLeast);
  __m256 lanes[2] = {least, least};
  for (int64_t i = 0; i < tail.begin; i += 16) {
    _mm_prefetch(reinterpret_cast<const char*>(x + kMostRows * elements + i), _MM_HINT_T0);
    for (int64_t v = 0; v < 2; ++v) lanes[v] = _mm256_max_ps(lanes[v], _mm256_loadu_ps(x + i + 8 * v));
  }
  for (int64_t v = 0; 8 * v < tail.count; ++v) {
    const __m256 value = _mm256_maskload_ps(x + tail.begin + 8 * v, tail.masks[v]);
    lanes[v] = _mm256_max_ps(lanes[v], _mm256_blendv_ps(least, value, _mm256_castsi256_ps(tail.masks[v])));
  }
  return LargestAvx2(_mm256_max_ps(lanes[0], lanes[1]));
}

// The outputs of `value`: x or, for Softmax, an exponential.
template <bool is_log>
[[gnu::target("avx2,fma"), gnu::always_inline]] inline __m256 OutputAvx2(__m256 value, __m256 first,
                                                                         __m256 second) {
  return is_log ? _mm256_sub_ps(_mm256_sub_ps(value, first), second) : _mm256_mul_ps(first, value);
}

// Adds the exponentials of the tail, which are kCount vectors. Writes them to `exponentials`, except for LogSoftmax: whole vectors,
// because reading what a masked store has just written takes long.
template <bool is_log, size_t kCount>
[[gnu::target("avx2,fma"), gnu::always_inline]] inline void AddTailAvx2(const float* x, float* exponentials,
                                                                        __m256 negated, const TailAvx2& tail,
                                                                        __m256 (&lanes)[2]) {
  __m256 e[kCount];
  for (size_t v = 0; v < kCount; ++v) {
    const __m256 difference = _mm256_add_ps(negated, _mm256_maskload_ps(x + 8 * v, tail.masks[v]));
    e[v] = _mm256_and_ps(difference, _mm256_castsi256_ps(tail.masks[v]));
  }
  ExpAvx2(e);
  for (size_t v = 0; v < kCount; ++v) {
    lanes[v] = _mm256_add_ps(lanes[v], _mm256_and_ps(e[v], _mm256_castsi256_ps(tail.masks[v])));
    if (!is_log) _mm256_storeu_ps(exponentials + 8 * v, e[v]);
  }
}

// Returns the sum of the exponentials. Writes them to `y`, and the ones of the tail to `of_tail`, except for LogSoftmax.
template <bool is_log>
[[gnu::target("avx2,fma"), gnu::always_inline]] inline float SumExpAvx2(const float* x, float* y,
                                                                        float* of_tail, float largest,
                                                                        const TailAvx2& tail) {
  const __m256 negated = _mm256_set1_ps(-largest);
  __m256 lanes[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  for (int64_t i = 0; i < tail.begin; i += 16) {
    __m256 e[] = {_mm256_add_ps(negated, _mm256_loadu_ps(x + i)),
                  _mm256_add_ps(negated, _mm256_loadu_ps(x + i + 8))};
    ExpAvx2(e);
    for (int64_t v = 0; v < 2; ++v) {
      lanes[v] = _mm256_add_ps(lanes[v], e[v]);
      if (!is_log) _mm256_storeu_ps(y + i + 8 * v, e[v]);
    }
  }
  if (tail.count > 8) {
    AddTailAvx2<is_log, 2>(x + tail.begin, of_tail, negated, tail, lanes);
  } else if (tail.count > 0) {
    AddTailAvx2<is_log, 1>(x + tail.begin, of_tail, negated, tail, lanes);
  }
  return SumAvx2(_mm256_add_ps(lanes[1], lanes[0]));
}

template <bool is_log>
[[gnu::target("avx2,fma"), gnu::always_inline]] inline void WriteAvx2(const float* x, float* y,
                                                                      const float* of_tail, float largest,
                                                                      float sum, const TailAvx2& tail) {
  const __m256 first = _mm256_set1_ps(is_log ? largest : 1 / sum);
  const __m256 second = _mm256_set1_ps(is_log ? LogOf(sum) : 0);
  const float* const values = is_log ? x : y;
  for (int64_t i = 0; i < tail.begin; i += 8)
    _mm256_storeu_ps(y + i, OutputAvx2<is_log>(_mm256_loadu_ps(values + i), first, second));
  for (int64_t v = 0; 8 * v < tail.count; ++v) {
    const __m256 value =
        is_log ? _mm256_maskload_ps(x + tail.begin + 8 * v, tail.masks[v]) : _mm256_loadu_ps(of_tail + 8 * v);
    _mm256_maskstore_ps(y + tail.begin + 8 * v, tail.masks[v], OutputAvx2<is_log>(value, first, second));
  }
}

template <bool is_log>
[[gnu::target("avx2,fma")]] void ComputeBlocksAvx2(const float* x, float* y, int64_t count,
                                                   int64_t elements) {
  const TailAvx2 tail = MakeTailAvx2(elements);
  const int64_t most_rows = RowsOfBlock(elements);
  for (int64_t begin = 0; begin < count; begin += most_rows) {
    const auto rows = static_cast<size_t>(std::min(most_rows, count - begin)),
               row = static_cast<size_t>(elements);
    const float* const from = x + begin * elements;
    float* const to = y + begin * elements;
    std::array<float, kMostRows> largest, sums;
    alignas(32) std::array<std::array<float, kLanes>, kMostRows> of_tails;
    for (size_t r = 0; r < rows; ++r) largest[r] = LargestAvx2(from + r * row, elements, tail);
    for (size_t r = 0; r < rows; ++r)
      sums[r] = SumExpAvx2<is_log>(from + r * row, to + r * row, of_tails[r].data(), largest[r], tail);
    for (size_t r = 0; r < rows; ++r) {
      if (std::isnan(sums[r])) {
        ComputeRow(from + r * row, to + r * row, elements, is_log);
      } else {
        WriteAvx2<is_log>(from + r * row, to + r * row, of_tails[r].data(), largest[r], sums[r], tail);
      }
    }
  }
}

void ComputeRowsAvx2(const float* x, float* y, int64_t count, int64_t elements, bool is_log) {
  (is_log ? ComputeBlocksAvx2<true> : ComputeBlocksAvx2<false>)(x, y, count, elements);
}

INTACT_BEGIN_AVX512

[[INTACT_AVX512, gnu::always_inline]] inline __m512 ExpAvx512(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(kLowest), x);
  const __m512 round = _mm512_set1_ps(kRound);
  const __m512 m = _mm512_sub_ps(_mm512_fmadd_ps(x, _mm512_set1_ps(kLog2E), round), round);
  __m512 r = _mm512_fmadd_ps(m, _mm512_set1_ps(kLn2High), x);
  r = _mm512_fmadd_ps(m, _mm512_set1_ps(kLn2Low), r);
  __m512 p = _mm512_set1_ps(kPolynomial[0]);
  for (size_t i = 1; i < kPolynomial.size(); ++i) p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kPolynomial[i]));
  const __mmask16 is_small = _mm512_cmp_ps_mask(x, _mm512_set1_ps(kNormal), _CMP_LT_OQ);
  if (is_small == 0) return _mm512_scalef_ps(p, m);
  // As ExpAvx2().
  const __m512i multiple = _mm512_cvtps_epi32(_mm512_scalef_ps(p, _mm512_add_ps(m, _mm512_set1_ps(149))));
  return _mm512_mask_scalef_ps(_mm512_castsi512_ps(multiple), _mm512_knot(is_small), p, m);
}

[[INTACT_AVX512, gnu::always_inline]] inline float LargestAvx512(__m512 lanes) {
  return LargestAvx2(_mm256_max_ps(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps(lanes, 1)));
}

[[INTACT_AVX512, gnu::always_inline]] inline float SumAvx512(__m512 lanes) {
  return SumAvx2(_mm256_add_ps(_mm512_extractf32x8_ps(lanes, 1), _mm512_castps512_ps256(lanes)));
}

// Of the last vector of a row.
[[INTACT_AVX512, gnu::always_inline]] inline __mmask16 TailAvx512(int64_t elements) {
  return static_cast<__mmask16>(0xffff >> (kLanes - 1 - (elements - 1) % kLanes));
}

template <bool is_log>
[[INTACT_AVX512, gnu::always_inline]] inline __m512 OutputAvx512(__m512 value, __m512 first, __m512 second) {
  return is_log ? _mm512_sub_ps(_mm512_sub_ps(value, first), second) : _mm512_mul_ps(first, value);
}

template <size_t kVectors, bool is_log>
[[INTACT_AVX512]] void ShortRowsAvx512(const float* x, float* y, int64_t count, int64_t elements) {
  const __mmask16 tail = TailAvx512(elements);
  const __m512 least = _mm512_set1_ps(kLeast);
  for (int64_t row = 0; row < count; ++row, x += elements, y += elements) {
    __m512 values[kVectors];
    for (size_t v = 0; v + 1 < kVectors; ++v) values[v] = _mm512_loadu_ps(x + 16 * v);
    values[kVectors - 1] = _mm512_mask_loadu_ps(least, tail, x + 16 * (kVectors - 1));
    __m512 most = values[0];
    for (size_t v = 1; v < kVectors; ++v) most = _mm512_max_ps(most, values[v]);
    const float largest = LargestAvx512(most);
    const __m512 negated = _mm512_set1_ps(-largest);
    __m512 lanes = _mm512_setzero_ps();
    for (size_t v = 0; v < kVectors; ++v) {
      const bool is_last = v + 1 == kVectors;
      const __m512 e = ExpAvx512(_mm512_maskz_add_ps(is_last ? tail : 0xffff, negated, values[v]));
      if (!is_log) values[v] = e;
      lanes = is_last ? _mm512_mask_add_ps(lanes, tail, lanes, e) : _mm512_add_ps(lanes, e);
    }
    const float sum = SumAvx512(lanes);
    if (std::isnan(sum)) {
      ComputeRow(x, y, elements, is_log);
      continue;
    }
    const __m512 first = _mm512_set1_ps(is_log ? largest : 1 / sum);
    const __m512 second = _mm512_set1_ps(is_log ? LogOf(sum) : 0);
    for (size_t v = 0; v + 1 < kVectors; ++v)
      _mm512_storeu_ps(y + 16 * v, OutputAvx512<is_log>(values[v], first, second));
    _mm512_mask_storeu_ps(y + 16 * (kVectors - 1), tail,
                          OutputAvx512<is_log>(values[kVectors - 1], first, second));
  }
}

template <bool is_log>
[[INTACT_AVX512]] void LongRowsAvx512(const float* x, float* y, int64_t count, int64_t elements) {
  const __mmask16 tail = TailAvx512(elements);
  const int64_t last = (elements - 1) / kLanes * kLanes;  // begins the last vector
  for (int64_t row = 0; row < count; ++row, x += elements, y += elements) {
    // The last 32 elements overlap the ones before them.
    __m512 a = _mm512_loadu_ps(x + elements - 32), b = _mm512_loadu_ps(x + elements - 16);
    for (int64_t i = 0; i + 32 <= elements; i += 32) {
      _mm_prefetch(reinterpret_cast<const char*>(x + elements + i), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(x + elements + i + 16), _MM_HINT_T0);
      a = _mm512_max_ps(a, _mm512_loadu_ps(x + i));
      b = _mm512_max_ps(b, _mm512_loadu_ps(x + i + 16));
    }
    const float largest = LargestAvx512(_mm512_max_ps(a, b));
    const __m512 negated = _mm512_set1_ps(-largest);
    __m512 lanes = _mm512_setzero_ps();
    for (int64_t i = 0; i < last; i += kLanes) {
      const __m512 e = ExpAvx512(_mm512_add_ps(negated, _mm512_loadu_ps(x + i)));
      lanes = _mm512_add_ps(lanes, e);
      if (!is_log) _mm512_storeu_ps(y + i, e);
    }
    const __m512 e = ExpAvx512(_mm512_maskz_add_ps(tail, negated, _mm512_maskz_loadu_ps(tail, x + last)));
    const float sum = SumAvx512(_mm512_mask_add_ps(lanes, tail, lanes, e));
    if (std::isnan(sum)) {
      ComputeRow(x, y, elements, is_log);
      continue;
    }
    const __m512 first = _mm512_set1_ps(is_log ? largest : 1 / sum);
    const __m512 second = _mm512_set1_ps(is_log ? LogOf(sum) : 0);
    const float* const values = is_log ? x : y;
    for (int64_t i = 0; i < last; i += kLanes)
      _mm512_storeu_ps(y + i, OutputAvx512<is_log>(_mm512_loadu_ps(values + i), first, second));
    const __m512 value = is_log ? _mm512_maskz_loadu_ps(tail, x + last) : e;
    _mm512_mask_storeu_ps(y + last, tail, OutputAvx512<is_log>(value, first, second));
  }
}

template <size_t... kVectors>
void ComputeByLengthAvx512(const float* x, float* y, int64_t count, int64_t elements, bool is_log,
                           std::index_sequence<kVectors...>) {
  constexpr std::array kShort = {ShortRowsAvx512<kVectors + 1, false>...};
  constexpr std::array kShortLog = {ShortRowsAvx512<kVectors + 1, true>...};
  const auto vectors = static_cast<size_t>(elements + kLanes - 1) / kLanes;
  if (vectors <= kMostVectors) return (is_log ? kShortLog : kShort)[vectors - 1](x, y, count, elements);
  (is_log ? LongRowsAvx512<true> : LongRowsAvx512<false>)(x, y, count, elements);
}

void ComputeRowsAvx512(const float* x, float* y, int64_t count, int64_t elements, bool is_log) {
  ComputeByLengthAvx512(x, y, count, elements, is_log, std::make_index_sequence<kMostVectors>());
}

INTACT_END_AVX512

}  // namespace

FloatSoftmax::RowsFunction FloatSoftmax::ChooseRows(const Settings& settings) {
  if (HasAvx512(settings)) return ComputeRowsAvx512;
  return HasAvx2(settings) ? ComputeRowsAvx2 : onnxruntime::ComputeRows;
}

FloatSoftmax::FloatSoftmax(const Node& node, const Context& context, bool is_log)
    : is_log_(is_log),
      is_coerced_(node.SinceVersion() < 13),
      axis_(node.Integer("axis", is_coerced_ ? 1 : -1)),
      rows_(ChooseRows(context.settings)) {
  node.Type(0, {INTACT_F32});
  if (context.settings.is_like_avx2)
    throw Refusal("operator: is of floats; expected integers with like, which is for sums of integers");
}

std::string FloatSoftmax::Kernel() const {
  const std::string name = is_log_ ? "log_softmax_f32_" : "softmax_f32_";
  return name + (rows_ == ComputeRowsAvx512 ? "avx512" : rows_ == ComputeRowsAvx2 ? "avx2" : "portable");
}

void FloatSoftmax::ComputeRows(const Run& run, const float* x, float* y, int64_t count,
                               int64_t elements) const {
  const int64_t tasks = std::min(count, count * elements / kElementsOfTask + 1);
  run.ForEach(tasks, [&](int64_t task) {
    const int64_t begin = count * task / tasks, end = count * (task + 1) / tasks;
    rows_(x + begin * elements, y + begin * elements, end - begin, elements, is_log_);
  });
}

void FloatSoftmax::Compute(Run& run) const {
  const auto input = run.Input(0);
  const Shape shape = input.GetTensorTypeAndShapeInfo().GetShape();
  const auto* const x = static_cast<const float*>(input.GetTensorRawData());
  auto* const y = static_cast<float*>(run.Output(shape));
  const auto dimensions = static_cast<int64_t>(shape.size());
  if (axis_ < -dimensions || axis_ >= dimensions)
    throw std::invalid_argument("axis: is " + std::to_string(axis_) + " with " + std::to_string(dimensions) +
                                " dimensions; expected one of them");
  const int64_t count = CountOf(shape);
  if (count == 0) return;
  const auto axis = static_cast<size_t>(axis_ < 0 ? axis_ + dimensions : axis_);
  const std::span extents(shape);
  const int64_t inner = is_coerced_ ? 1 : CountOf(extents.subspan(axis + 1));
  const int64_t of_row = is_coerced_ ? CountOf(extents.subspan(axis)) : shape[axis];
  const int64_t rows = count / of_row;
  if (inner == 1) return ComputeRows(run, x, y, rows, of_row);
  const auto bytes = static_cast<size_t>(count) * sizeof(float);
  auto* const transposed = static_cast<float*>(run.Allocate(bytes));
  auto* const outputs = static_cast<float*>(run.Allocate(bytes));
  run.Transpose(x, transposed, sizeof(float), rows / inner, of_row, inner);
  ComputeRows(run, transposed, outputs, rows, of_row);
  run.Transpose(outputs, y, sizeof(float), rows / inner, inner, of_row);
}

}  // namespace intact::onnxruntime
