#include "kernels/codegen/row_sums.h"

#include <algorithm>

#include "kernels/problem/operands.h"

namespace intact::kernels {

Result<RowSums> RowSums::Create(core::Isa /*isa*/, intact_type a_type) {
  RowSums sums;
  sums.a_type_ = a_type;
  return sums;
}

void RowSums::Sum(const RowMap& a, int64_t row_begin, int64_t row_end, const Taps& taps,
                  int32_t* sums) const noexcept {
  std::fill_n(sums, row_end - row_begin, 0);
  RowCursor cursor(a, row_begin);
  for (int64_t row = row_begin; row < row_end; ++row, ++sums) {
    const uint8_t* const from = cursor.Next();
    for (const int64_t tap : taps.offsets) AddRows(from + tap, a.stride, 1, taps.depth, sums);
  }
}

void RowSums::AddRows(const uint8_t* a, int64_t stride, int64_t rows, int64_t k,
                      int32_t* sums) const noexcept {
  const uint8_t shift = ActivationShift(a_type_);
  for (int64_t row = 0; row < rows; ++row, a += stride) {
    auto sum = static_cast<uint32_t>(sums[row]);
    for (int64_t i = 0; i < k; ++i) sum += static_cast<uint8_t>(a[i] ^ shift);
    sums[row] = static_cast<int32_t>(sum);
  }
}

}  // namespace intact::kernels
