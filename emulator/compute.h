// What vector instructions compute. Each function computes a whole register of 64 bytes; the caller keeps
// the bytes that belong to the instruction's vectors. Most functions are two 256-bit instructions of AVX2.
// Functions that cross 256 bits, or that AVX2 has no instruction for, loop over elements.
#ifndef INTACT_EMULATOR_COMPUTE_H_
#define INTACT_EMULATOR_COMPUTE_H_

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "emulator/xstate.h"
#include "reference/models/operands.h"

namespace intact::emulator {

#define INTACT_AVX2 __attribute__((target("avx2")))

struct Operands {
  const Vector& first;        // the operand encoded in vvvv
  const Vector& second;       // the operand encoded in rm; for stores, in reg
  const Vector& destination;  // the destination's value before the instruction
  size_t bytes;               // size of the instruction's vectors
  uint8_t immediate;
};

using Compute = void (*)(const Operands&, Vector*);

INTACT_AVX2 inline __m256i LoadHalf(const Vector& from, size_t half) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(from.bytes.data() + 32 * half));
}

INTACT_AVX2 inline void StoreHalf(__m256i value, size_t half, Vector* to) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(to->bytes.data() + 32 * half), value);
}

/// Computes from two sources, by a 256-bit operation of AVX2.
template <auto kOperation>
INTACT_AVX2 void Halves(const Operands& in, Vector* out) {
  for (size_t half = 0; half < 2; ++half) {
    StoreHalf(kOperation(LoadHalf(in.first, half), LoadHalf(in.second, half)), half, out);
  }
}

/// Computes from one source.
template <auto kOperation>
INTACT_AVX2 void HalvesOfOne(const Operands& in, Vector* out) {
  for (size_t half = 0; half < 2; ++half) {
    StoreHalf(kOperation(LoadHalf(in.second, half)), half, out);
  }
}

/// Shifts by the immediate.
template <auto kOperation>
INTACT_AVX2 void ShiftByImmediate(const Operands& in, Vector* out) {
  const __m128i count = _mm_cvtsi32_si128(in.immediate);
  for (size_t half = 0; half < 2; ++half) {
    StoreHalf(kOperation(LoadHalf(in.second, half), count), half, out);
  }
}

/// Shifts by the low 64 bits of the second source.
template <auto kOperation>
INTACT_AVX2 void ShiftByVector(const Operands& in, Vector* out) {
  const __m128i count = _mm_load_si128(reinterpret_cast<const __m128i*>(in.second.bytes.data()));
  for (size_t half = 0; half < 2; ++half) {
    StoreHalf(kOperation(LoadHalf(in.first, half), count), half, out);
  }
}

template <class Element>
using Elements = std::array<Element, 64 / sizeof(Element)>;

template <class Element>
Elements<Element> Of(const Vector& vector) {
  Elements<Element> elements;
  std::memcpy(elements.data(), vector.bytes.data(), sizeof(elements));
  return elements;
}

template <class Element>
void Put(const Elements<Element>& elements, Vector* out) {
  std::memcpy(out->bytes.data(), elements.data(), sizeof(elements));
}

/// VFMADD231PS: first·second + destination, rounded once. Executes the instruction itself, so that a
/// NaN result is the hardware's.
INTACT_AVX2 inline void MultiplyAdd(const Operands& in, Vector* out) {
  for (size_t half = 0; half < 2; ++half) {
    __m256i sum = LoadHalf(in.destination, half);
    asm("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(LoadHalf(in.first, half)), "x"(LoadHalf(in.second, half)));
    StoreHalf(sum, half, out);
  }
}

/// VFMADD213PS: first·destination + second, rounded once. Executes the instruction itself too.
INTACT_AVX2 inline void MultiplyAddSecond(const Operands& in, Vector* out) {
  for (size_t half = 0; half < 2; ++half) {
    __m256i sum = LoadHalf(in.destination, half);
    asm("vfmadd213ps %2, %1, %0" : "+x"(sum) : "x"(LoadHalf(in.first, half)), "x"(LoadHalf(in.second, half)));
    StoreHalf(sum, half, out);
  }
}

inline void CopySecond(const Operands& in, Vector* out) { *out = in.second; }

/// Repeats the first kBytes bytes.
template <size_t kBytes>
INTACT_AVX2 void Repeat(const Operands& in, Vector* out) {
  for (size_t i = 0; i < out->bytes.size(); i += kBytes) {
    std::memcpy(out->bytes.data() + i, in.second.bytes.data(), kBytes);
  }
}

/// Widens the low elements.
template <class From, class To>
INTACT_AVX2 void Widen(const Operands& in, Vector* out) {
  const auto from = Of<From>(in.second);
  Elements<To> result;
  for (size_t i = 0; i < result.size(); ++i) result[i] = static_cast<To>(from[i]);
  Put(result, out);
}

/// VCVTPH2PS.
__attribute__((target("avx2,f16c"))) inline void WidenHalfFloats(const Operands& in, Vector* out) {
  for (size_t half = 0; half < 2; ++half) {
    const auto* const from = reinterpret_cast<const __m128i*>(in.second.bytes.data() + 16 * half);
    StoreHalf(_mm256_castps_si256(_mm256_cvtph_ps(_mm_load_si128(from))), half, out);
  }
}

/// VCVTPS2PH, rounding to nearest even: kernels use no other rounding.
__attribute__((target("avx2,f16c"))) inline void NarrowToHalfFloats(const Operands& in, Vector* out) {
  *out = {};
  for (size_t half = 0; half < 2; ++half) {
    const __m256 from = _mm256_castsi256_ps(LoadHalf(in.second, half));
    auto* const to = reinterpret_cast<__m128i*>(out->bytes.data() + 16 * half);
    _mm_store_si128(to, _mm256_cvtps_ph(from, _MM_FROUND_TO_NEAREST_INT));
  }
}

/// VPMOVDB and similar: narrows elements; the results fill the low part of the vector. With `kSaturates`,
/// values are clamped to the limits of the narrow type, signed or unsigned; otherwise high bits are dropped.
template <class From, class To, bool kSaturates>
INTACT_AVX2 void Narrow(const Operands& in, Vector* out) {
  const auto from = Of<From>(in.second);
  Elements<To> result = {};
  for (size_t i = 0; i < from.size(); ++i) {
    From value = from[i];
    if constexpr (kSaturates) {
      value = std::clamp<From>(value, std::numeric_limits<To>::min(), std::numeric_limits<To>::max());
    }
    result[i] = static_cast<To>(value);
  }
  Put(result, out);
}

/// Dot products of four bytes, added to int32 lanes, wrapping.
template <bool kFirstSigned, bool kSecondSigned>
INTACT_AVX2 void Dot4(const Operands& in, Vector* out) {
  const auto widen = [](auto bytes, bool is_signed) INTACT_AVX2 {
    return is_signed ? _mm256_cvtepi8_epi16(bytes) : _mm256_cvtepu8_epi16(bytes);
  };
  for (size_t half = 0; half < 2; ++half) {
    const __m256i a = LoadHalf(in.first, half), b = LoadHalf(in.second, half);
    // Each int32 is the sum of two products.
    const __m256i low = _mm256_madd_epi16(widen(_mm256_castsi256_si128(a), kFirstSigned),
                                          widen(_mm256_castsi256_si128(b), kSecondSigned));
    const __m256i high = _mm256_madd_epi16(widen(_mm256_extracti128_si256(a, 1), kFirstSigned),
                                           widen(_mm256_extracti128_si256(b, 1), kSecondSigned));
    // Horizontal sums come in the order of quarters 0 2 1 3.
    constexpr int kInOrder = 0xD8;
    const __m256i sums = _mm256_permute4x64_epi64(_mm256_hadd_epi32(low, high), kInOrder);
    StoreHalf(_mm256_add_epi32(LoadHalf(in.destination, half), sums), half, out);
  }
}

/// Copies whole 128-bit quarters. kChoose(quarter, immediate, count of quarters) returns an index of a
/// quarter; indices from the count on are in the second source.
template <auto kChoose>
void Quarters(const Operands& in, Vector* out) {
  const size_t count = in.bytes / 16;
  for (size_t i = 0; i < count; ++i) {
    const size_t chosen = kChoose(i, size_t{in.immediate}, count);
    const Vector& from = chosen < count ? in.first : in.second;
    std::memcpy(out->bytes.data() + 16 * i, from.bytes.data() + chosen % count * 16, 16);
  }
}

/// VSHUFI32X4 and VSHUFI64X2: the lower half from the first source, the upper from the second.
inline size_t ShuffledQuarter(size_t quarter, size_t immediate, size_t count) {
  const size_t bits = count / 2;  // immediate bits per quarter: 1 for 256-bit vectors, 2 for 512-bit
  const size_t index = (immediate >> (quarter * bits)) & (count - 1);
  return quarter < count / 2 ? index : count + index;
}

/// VPERM2I128. It can also set a quarter to zero.
inline void Permute2x128(const Operands& in, Vector* out) {
  for (size_t i = 0; i < 2; ++i) {
    const unsigned control = unsigned{in.immediate} >> (4 * i);
    const Vector& from = (control & 2) == 0 ? in.first : in.second;
    uint8_t* const to = out->bytes.data() + 16 * i;
    std::memcpy(to, from.bytes.data() + 16 * (control & 1), 16);
    if ((control & 8) != 0) std::memset(to, 0, 16);
  }
}

/// VPERMD, VPERMW: elements of the second source. The first source has their indices.
template <class Element>
void Permute(const Operands& in, Vector* out) {
  const auto indices = Of<Element>(in.first), from = Of<Element>(in.second);
  Elements<Element> result = {};
  const size_t count = in.bytes / sizeof(Element);
  for (size_t i = 0; i < count; ++i) result[i] = from[indices[i] % count];
  Put(result, out);
}

/// VPERMT2D and similar, or VPERMI2D with `kIndicesInDestination`: elements of two tables by indices.
template <class Element, bool kIndicesInDestination>
void Permute2(const Operands& in, Vector* out) {
  const auto indices = Of<Element>(kIndicesInDestination ? in.destination : in.first);
  const auto low = Of<Element>(kIndicesInDestination ? in.first : in.destination);
  const auto high = Of<Element>(in.second);
  Elements<Element> result = {};
  const size_t count = in.bytes / sizeof(Element);
  for (size_t i = 0; i < count; ++i) {
    const size_t index = indices[i] % (2 * count);
    result[i] = index < count ? low[index] : high[index - count];
  }
  Put(result, out);
}

/// VPERMQ by an immediate, within 256 bits.
inline void PermuteQwords(const Operands& in, Vector* out) {
  const auto from = Of<uint64_t>(in.second);
  Elements<uint64_t> result;
  for (size_t i = 0; i < result.size(); ++i) {
    result[i] = from[i / 4 * 4 + (unsigned{in.immediate} >> (2 * (i % 4)) & 3)];
  }
  Put(result, out);
}

/// VPSHUFD, within 128 bits.
inline void ShuffleDwords(const Operands& in, Vector* out) {
  const auto from = Of<uint32_t>(in.second);
  Elements<uint32_t> result;
  for (size_t i = 0; i < result.size(); ++i) {
    result[i] = from[i / 4 * 4 + (unsigned{in.immediate} >> (2 * (i % 4)) & 3)];
  }
  Put(result, out);
}

/// VPALIGNR: in each quarter, joins the second source (low) and the first source (high), and copies 16 bytes
/// from byte number `immediate` on; zeroes follow the 32 bytes.
inline void AlignRight(const Operands& in, Vector* out) {
  for (size_t i = 0; i < out->bytes.size(); ++i) {
    const size_t quarter = i / 16 * 16, index = i % 16 + in.immediate;
    out->bytes[i] = index < 16   ? in.second.bytes[quarter + index]
                    : index < 32 ? in.first.bytes[quarter + index - 16]
                                 : uint8_t{0};
  }
}

/// VPBLENDD.
inline void BlendDwords(const Operands& in, Vector* out) {
  const auto first = Of<uint32_t>(in.first), second = Of<uint32_t>(in.second);
  Elements<uint32_t> result;
  for (size_t i = 0; i < result.size(); ++i) {
    result[i] = (unsigned{in.immediate} >> (i % 8) & 1) != 0 ? second[i] : first[i];
  }
  Put(result, out);
}

/// Copies part number `immediate` of the second source. Parts have kBytes bytes.
template <size_t kBytes>
void Extract(const Operands& in, Vector* out) {
  const size_t part = in.immediate % (in.bytes / kBytes);
  std::memcpy(out->bytes.data(), in.second.bytes.data() + part * kBytes, kBytes);
}

/// Copies the first source, then replaces its part number `immediate` by the low kBytes of the second source.
template <size_t kBytes>
void Insert(const Operands& in, Vector* out) {
  *out = in.first;
  const size_t part = in.immediate % (in.bytes / kBytes);
  std::memcpy(out->bytes.data() + part * kBytes, in.second.bytes.data(), kBytes);
}

/// VPTERNLOG: each result bit is bit number 4·destination + 2·first + second of the immediate.
inline void TernaryLogic(const Operands& in, Vector* out) {
  const auto a = Of<uint64_t>(in.destination), b = Of<uint64_t>(in.first), c = Of<uint64_t>(in.second);
  Elements<uint64_t> result = {};
  for (unsigned number = 0; number < 8; ++number) {
    if ((unsigned{in.immediate} >> number & 1) == 0) continue;
    for (size_t i = 0; i < result.size(); ++i) {
      result[i] |= ((number & 4) != 0 ? a[i] : ~a[i]) & ((number & 2) != 0 ? b[i] : ~b[i]) &
                   ((number & 1) != 0 ? c[i] : ~c[i]);
    }
  }
  Put(result, out);
}

/// VPCMP: all ones in elements for which the immediate's predicate holds.
template <class Element>
INTACT_AVX2 void ComparePredicate(const Operands& in, Vector* out) {
  const auto a = Of<Element>(in.first), b = Of<Element>(in.second);
  Elements<Element> result;
  for (size_t i = 0; i < result.size(); ++i) {
    const std::array<bool, 4> holds = {a[i] == b[i], a[i] < b[i], a[i] <= b[i], false};
    const bool negated = (in.immediate & 4) != 0;
    result[i] = static_cast<Element>(holds[in.immediate & 3] != negated ? -1 : 0);
  }
  Put(result, out);
}

/// Copies the low kBytes bytes. All others become zero.
template <size_t kBytes>
void CopyLow(const Operands& in, Vector* out) {
  *out = {};
  std::memcpy(out->bytes.data(), in.second.bytes.data(), kBytes);
}

}  // namespace intact::emulator
#endif  // INTACT_EMULATOR_COMPUTE_H_
