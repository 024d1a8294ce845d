#include "kernels/codegen/short_rows.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "core/isas.h"
#include "core/types.h"
#include "jit/isa.h"
#include "kernels/codegen/number_range.h"
#include "kernels/runtime/blocking.h"

namespace intact::kernels {
namespace {

#define INTACT_AVX2 gnu::target("avx2,fma,f16c")

constexpr int kRows = ShortRows::kCount;
constexpr int kLanes = 8;      // numbers of a vector; a vector also holds the scales of this number of rows
constexpr int64_t kStep = 16;  // numbers that are quantized to one vector of bytes

// A bit for each of `count` rows.
uint32_t AllRows(int count) { return ~uint32_t{0} >> (kRows - count); }

// kLanes numbers as float32.
template <intact_type kSource>
[[INTACT_AVX2]] inline __m256 Widen(const uint8_t* x) {
  if constexpr (kSource == INTACT_F32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(x));
  } else {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
    if constexpr (kSource == INTACT_F16) return _mm256_cvtph_ps(halves);
    static_assert(kSource == INTACT_F16 || kSource == INTACT_BF16);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
}

// The last `count` numbers of a row, 1 to kLanes, then zeros.
template <intact_type kSource>
[[INTACT_AVX2]] inline __m256 WidenTail(const uint8_t* x, int64_t count) {
  if constexpr (kSource == INTACT_F32) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lanes);
    return _mm256_maskload_ps(reinterpret_cast<const float*>(x), mask);
  } else {
    std::array<uint16_t, kLanes> halves = {};
    std::memcpy(halves.data(), x, static_cast<size_t>(count) * sizeof(uint16_t));
    return Widen<kSource>(reinterpret_cast<const uint8_t*>(halves.data()));
  }
}

// The largest positive and the largest negative numbers of the lanes: see NumberRange.
struct Range {
  __m256i positive, negative;
};

// The range of a row of k numbers, `vectors` vectors, except that Range::positive may be negative. With kCopies, writes the numbers to `to` as float32, with zeros
// up to a multiple of kStep.
template <intact_type kSource, bool kCopies>
[[INTACT_AVX2, gnu::always_inline]] inline Range Scan(const uint8_t* x, int64_t k, int64_t vectors,
                                                      float* to) {
  const uint8_t* const tail = x + (vectors - 1) * kLanes * core::BytesOf(kSource);
  const __m256i last = _mm256_castps_si256(WidenTail<kSource>(tail, k - (vectors - 1) * kLanes));
  Range range = {last, last};
  for (int64_t i = 1; i < vectors; ++i) {
    const __m256 numbers = Widen<kSource>(x);
    if constexpr (kCopies) _mm256_storeu_ps(to, numbers);
    range.positive = _mm256_max_epi32(range.positive, _mm256_castps_si256(numbers));
    range.negative = _mm256_max_epu32(range.negative, _mm256_castps_si256(numbers));
    x += kLanes * core::BytesOf(kSource);
    to += kLanes;
  }
  if constexpr (!kCopies) return range;
  _mm256_storeu_ps(to, _mm256_castsi256_ps(last));
  if (vectors % 2 == 1) _mm256_storeu_ps(to + kLanes, _mm256_setzero_ps());
  return range;
}

template <bool kIsSigned>
[[INTACT_AVX2]] inline __m256i Max(__m256i a, __m256i b) {
  return kIsSigned ? _mm256_max_epi32(a, b) : _mm256_max_epu32(a, b);
}

// A vector with the largest lane of each of eight vectors.
template <bool kIsSigned>
[[INTACT_AVX2]] inline __m256i LargestOf(const __m256i* v) {
  __m256i pairs[4], fours[2];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    pairs[i] = Max<kIsSigned>(_mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]),
                              _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    fours[i] = Max<kIsSigned>(_mm256_unpacklo_epi64(pairs[2 * i], pairs[2 * i + 1]),
                              _mm256_unpackhi_epi64(pairs[2 * i], pairs[2 * i + 1]));
  }
  return Max<kIsSigned>(_mm256_permute2x128_si256(fours[0], fours[1], 0x20),
                        _mm256_permute2x128_si256(fours[0], fours[1], 0x31));
}

// What Quantizer::Choose() and Quantizer::ReciprocalOf() return for each row.
struct Scales {
  alignas(32) std::array<float, kRows> scale, high, low;
  alignas(32) std::array<int32_t, kRows> zero_point;
  uint32_t undefined_rows = 0;  // a bit for each row
};

// Sets the scales of kLanes rows from row `first` on. `largest` and `bits`: their NumberRange. Each row gets
// the results of Quantizer::Choose(), Quantizer::HasReciprocal() and Quantizer::ReciprocalOf().
[[INTACT_AVX2]] inline void Choose(intact_type a_type, __m256i largest, __m256i bits, int first,
                                   Scales* scales) {
  const __m256i smallest = _mm256_and_si256(bits, _mm256_srai_epi32(bits, 31));  // 0 if none is negative
  const __m256i infinity = _mm256_set1_epi32(0x7f800000);
  const __m256i magnitude = _mm256_and_si256(smallest, _mm256_set1_epi32(0x7fffffff));
  const __m256i is_finite =
      _mm256_and_si256(_mm256_cmpgt_epi32(infinity, largest), _mm256_cmpgt_epi32(infinity, magnitude));
  const __m256 high = _mm256_castsi256_ps(largest), low = _mm256_castsi256_ps(smallest);
  const __m256 zero = _mm256_setzero_ps(), one = _mm256_set1_ps(1);
  const bool is_signed = a_type == INTACT_S8;
  const __m256 width =
      is_signed ? _mm256_max_ps(high, _mm256_castsi256_ps(magnitude)) : _mm256_sub_ps(high, low);
  __m256 scale = _mm256_div_ps(width, _mm256_set1_ps(is_signed ? kS8Width : kU8Width));
  scale = _mm256_blendv_ps(scale, one, _mm256_cmp_ps(scale, zero, _CMP_EQ_OQ));
  __m256i zero_point = _mm256_setzero_si256();
  if (!is_signed) {
    zero_point = _mm256_cvtps_epi32(_mm256_sub_ps(zero, _mm256_div_ps(low, scale)));
    zero_point = _mm256_min_epi32(_mm256_max_epi32(zero_point, _mm256_setzero_si256()),
                                  _mm256_set1_epi32(core::HighestOf(INTACT_U8)));
  }
  const __m256 reciprocal = _mm256_div_ps(one, scale);
  // The remainder is exact. A division in double, rounded to float, gives the same quotient.
  const __m256 remainder = _mm256_fnmadd_ps(scale, reciprocal, one);
  const __m256 has_reciprocal =
      _mm256_and_ps(_mm256_cmp_ps(scale, _mm256_set1_ps(kLeastScale), _CMP_GE_OQ),
                    _mm256_cmp_ps(scale, _mm256_set1_ps(kLargestScale), _CMP_LE_OQ));
  _mm256_store_ps(scales->scale.data() + first, scale);
  _mm256_store_ps(scales->high.data() + first, reciprocal);
  _mm256_store_ps(scales->low.data() + first, _mm256_div_ps(remainder, scale));
  _mm256_store_si256(reinterpret_cast<__m256i*>(scales->zero_point.data() + first), zero_point);
  const __m256 is_defined = _mm256_and_ps(has_reciprocal, _mm256_castsi256_ps(is_finite));
  scales->undefined_rows |= (~static_cast<uint32_t>(_mm256_movemask_ps(is_defined)) & 0xff) << first;
}

[[INTACT_AVX2]] inline __m256i Quotients(__m256 numbers, __m256 high, __m256 low) {
  return _mm256_cvtps_epi32(_mm256_fmadd_ps(numbers, high, _mm256_mul_ps(numbers, low)));
}

// Writes the bytes of a row of k numbers, `vectors` vectors, rounded up to a multiple of kStep. With kIsCopy, `x` is
// what Scan() wrote.
template <bool kIsCopy>
[[INTACT_AVX2, gnu::always_inline]] inline void QuantizeRow(const uint8_t* x, int64_t k, int64_t vectors,
                                                            const Scales& scales, int row, bool is_signed,
                                                            uint8_t* a) {
  const auto place = static_cast<size_t>(row);
  const __m256 high = _mm256_broadcast_ss(&scales.high[place]), low = _mm256_broadcast_ss(&scales.low[place]);
  const __m256i zero_point = _mm256_set1_epi16(static_cast<int16_t>(scales.zero_point[place]));
  const auto numbers = [&](int64_t i) __attribute__((target("avx2,fma,f16c"), always_inline)) {
    const uint8_t* const from = x + i * kLanes * int64_t{sizeof(float)};
    if (kIsCopy || i + 1 < vectors) return Widen<INTACT_F32>(from);
    return i < vectors ? WidenTail<INTACT_F32>(from, k - i * kLanes) : _mm256_setzero_ps();
  };
  for (int64_t i = 0; i < vectors * kLanes; i += kStep) {
    const __m256i packed = _mm256_packs_epi32(Quotients(numbers(i / kLanes), high, low),
                                              Quotients(numbers(i / kLanes + 1), high, low));
    const __m256i sums = _mm256_adds_epi16(packed, zero_point);
    const __m128i first = _mm256_castsi256_si128(sums), second = _mm256_extracti128_si256(sums, 1);
    const __m128i bytes = is_signed ? _mm_packs_epi16(first, second) : _mm_packus_epi16(first, second);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(a + i), _mm_shuffle_epi32(bytes, _MM_SHUFFLE(3, 1, 2, 0)));
  }
}

// Writes rows of up to kStep float32, and nothing between them.
[[gnu::target("avx512f,avx512bw,avx512vl")]] void QuantizeByAvx512(const ShortRows& rows,
                                                                   const Scales& scales, bool is_signed,
                                                                   uint8_t* a, int64_t stride) {
  const auto mask = static_cast<__mmask16>((1u << rows.k) - 1);
  for (size_t row = 0; row < static_cast<size_t>(rows.count); ++row, a += stride) {
    const __m512 numbers = _mm512_maskz_loadu_ps(mask, rows.x[row]);
    const __m512 low = _mm512_mul_ps(numbers, _mm512_set1_ps(scales.low[row]));
    const __m512 quotients = _mm512_fmadd_ps(numbers, _mm512_set1_ps(scales.high[row]), low);
    const __m512i sums = _mm512_maskz_add_epi32(mask, _mm512_maskz_cvtps_epi32(mask, quotients),
                                                _mm512_set1_epi32(scales.zero_point[row]));
    const __m512i positive = _mm512_maskz_max_epi32(mask, sums, _mm512_setzero_si512());
    _mm_mask_storeu_epi8(
        a, mask,
        is_signed ? _mm512_maskz_cvtsepi32_epi8(mask, sums) : _mm512_maskz_cvtusepi32_epi8(mask, positive));
  }
}

// kVectors: the vectors of a row, so that loops over them are unrolled; or 0.
template <intact_type kSource, int64_t kVectors>
[[INTACT_AVX2]] uint32_t QuantizeFrom(const ShortRows& rows, intact_type a_type, uint8_t* a, int64_t stride,
                                      RowValues* values) {
  const int64_t k = rows.k, vectors = kVectors == 0 ? CeilDivide(k, kLanes) : kVectors;
  constexpr int64_t kLongest = ShortRows::kLongest;
  constexpr bool kCopies = kSource != INTACT_F32 || kVectors == 0;
  std::array<float, kRows * kLongest> numbers;
  __m256i largest[kRows / kLanes], bits[kRows / kLanes];
  for (int first = 0; first < rows.count; first += kLanes) {
    __m256i positive[kLanes], negative[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      const int row = std::min(first + i, rows.count - 1);
      const Range range = Scan<kSource, kCopies>(rows.x[static_cast<size_t>(row)], k, vectors,
                                                 numbers.data() + row * kLongest);
      positive[i] = range.positive;
      negative[i] = range.negative;
    }
    largest[first / kLanes] = _mm256_max_epi32(LargestOf<true>(positive), _mm256_setzero_si256());
    bits[first / kLanes] = LargestOf<false>(negative);
  }
  Scales scales;
  for (int first = 0; first < rows.count; first += kLanes) {
    Choose(a_type, largest[first / kLanes], bits[first / kLanes], first, &scales);
  }
  for (int row = 0; row < rows.count; ++row) {
    values[row].zero_point = scales.zero_point[static_cast<size_t>(row)];
    values[row].scale = scales.scale[static_cast<size_t>(row)];
  }
  const bool is_signed = a_type == INTACT_S8;
  const uint32_t undefined_rows = scales.undefined_rows & AllRows(rows.count);
  if (!kCopies && kVectors * kLanes <= kStep && rows.may_use_zmm &&
      jit::HardwareIsas().Has(core::Isa::kAvx512)) {
    QuantizeByAvx512(rows, scales, is_signed, a, stride);
    return undefined_rows;
  }
  // A row is written in whole steps. What a step writes behind its row is between rows, or a later row
  // overwrites it. A row with a step that passes the end of the last row is written elsewhere first.
  const int64_t end = (rows.count - 1) * stride + k, written = RoundUp(k, kStep);
  for (int row = 0; row < rows.count; ++row, a += stride) {
    const auto place = static_cast<size_t>(row);
    const uint8_t* const x =
        kCopies ? reinterpret_cast<const uint8_t*>(numbers.data() + row * kLongest) : rows.x[place];
    if (row * stride + written <= end) {
      QuantizeRow<kCopies>(x, k, vectors, scales, row, is_signed, a);
    } else {
      std::array<uint8_t, kLongest> whole;
      QuantizeRow<kCopies>(x, k, vectors, scales, row, is_signed, whole.data());
      std::memcpy(a, whole.data(), static_cast<size_t>(k));
    }
  }
  return undefined_rows;
}

#undef INTACT_AVX2

}  // namespace

bool ShortRows::Exist() { return jit::HardwareIsas().Has(core::Isa::kAvx2); }

uint32_t ShortRows::Quantize(intact_type source, intact_type a_type, uint8_t* a, int64_t stride,
                             RowValues* values) const noexcept {
  switch (source) {
    case INTACT_F32:
      break;
    case INTACT_F16:
      return QuantizeFrom<INTACT_F16, 0>(*this, a_type, a, stride, values);
    case INTACT_BF16:
      return QuantizeFrom<INTACT_BF16, 0>(*this, a_type, a, stride, values);
    default:
      return AllRows(count);  // not a source type
  }
  switch (CeilDivide(k, kLanes)) {
    case 1:
      return QuantizeFrom<INTACT_F32, 1>(*this, a_type, a, stride, values);
    case 2:
      return QuantizeFrom<INTACT_F32, 2>(*this, a_type, a, stride, values);
    case 3:
      return QuantizeFrom<INTACT_F32, 3>(*this, a_type, a, stride, values);
    case 4:
      return QuantizeFrom<INTACT_F32, 4>(*this, a_type, a, stride, values);
    default:
      return QuantizeFrom<INTACT_F32, 0>(*this, a_type, a, stride, values);
  }
}

}  // namespace intact::kernels
