#include "kernels/codegen/row_sums.h"

#include <emmintrin.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "core/isas.h"
#include "core/result.h"
#include "jit/code_cache.h"
#include "jit/emitters/dot.h"
#include "jit/emitters/emitter.h"
#include "kernels/weights/pack.h"

namespace intact::kernels {
namespace {

// The sum of bytes [depth, k) of a row, shifted to u8.
uint32_t SumTail(const uint8_t* a, int64_t depth, int64_t k, uint8_t shift) {
  const __m128i shift_bytes = _mm_set1_epi8(static_cast<char>(shift));
  __m128i sums = _mm_setzero_si128();
  for (; depth + 16 <= k; depth += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a + depth));
    sums = _mm_add_epi64(sums, _mm_sad_epu8(_mm_xor_si128(bytes, shift_bytes), _mm_setzero_si128()));
  }
  const __m128i both = _mm_add_epi64(sums, _mm_unpackhi_epi64(sums, sums));
  auto sum = static_cast<uint32_t>(_mm_cvtsi128_si32(both));
  for (; depth < k; ++depth) sum += static_cast<uint8_t>(a[depth] ^ shift);
  return sum;
}

}  // namespace

Result<RowSums> RowSums::Create(core::Isa isa, intact_type a_type) {
  RowSums sums;
  sums.a_type_ = a_type;
  sums.vector_bytes_ = jit::VectorBytes(isa);
  if (core::IsCompiled(isa)) return sums;
  ASSIGN_OR_RETURN(sums.function_, jit::GetFunction<Function>(Spec{isa, a_type}, Generate));
  return sums;
}

void RowSums::Sum(const RowMap& a, int64_t row_begin, int64_t row_end, const Taps& taps,
                  int32_t* sums) const noexcept {
  std::fill_n(sums, row_end - row_begin, 0);
  RowCursor cursor(a, row_begin);
  for (int64_t row = row_begin; row < row_end;) {
    const int64_t rows = std::min(row_end - row, cursor.rows_left());
    const uint8_t* const from = cursor.Skip(rows);
    for (const int64_t tap : taps.offsets) AddRows(from + tap, a.stride, rows, taps.depth, sums);
    sums += rows;
    row += rows;
  }
}

void RowSums::AddRows(const uint8_t* a, int64_t stride, int64_t rows, int64_t k,
                      int32_t* sums) const noexcept {
  const uint8_t shift = ActivationShift(a_type_);
  const int64_t vectors = function_ ? k / vector_bytes_ : 0;
  const auto add = [](int32_t* sum, uint32_t more) {
    *sum = static_cast<int32_t>(static_cast<uint32_t>(*sum) + more);
  };
  const int64_t fours = vectors == 0 ? 0 : rows / kRows;
  int64_t row = 0;
  if (fours != 0) {
    const Args args{a, stride, vectors, fours, sums};
    function_(&args);
    const int64_t depth = vectors * vector_bytes_;
    const int64_t summed = fours * kRows;
    if (depth == k) row = summed;
    for (; row < summed; ++row) add(&sums[row], SumTail(a + row * stride, depth, k, shift));
  }
  for (; row < rows; ++row) add(&sums[row], SumTail(a + row * stride, 0, k, shift));
}

}  // namespace intact::kernels
