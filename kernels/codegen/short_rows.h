// Quantizes short rows, each with its own scale, many rows at a time: a vector holds the ranges, the scales
// or the zero points of eight rows. For one row at a time, finding the scale takes several times as long as
// quantizing the row. The code is compiled, not generated, because only types depend on a plan.
#ifndef INTACT_KERNELS_CODEGEN_SHORT_ROWS_H_
#define INTACT_KERNELS_CODEGEN_SHORT_ROWS_H_

#include <intact/intact.h>

#include <array>
#include <cstdint>

#include "kernels/codegen/epilogue.h"

namespace intact::kernels {

struct ShortRows {
  static constexpr int kLeastCount = 4;    // of fewer rows, one at a time is faster
  static constexpr int kCount = 32;        // enough to hide the latency of divisions
  static constexpr int64_t kLongest = 64;  // numbers of a row

  /// Whether this CPU has the instructions.
  static bool Exist();

  /// Quantizes rows [0, count) as Quantizer::QuantizeRows() does, row i to a + i·stride. Sets a bit of
  /// the result for each row without a scale, and for each row with a scale that has no Quantizer::Reciprocal.
  /// The outputs of these rows are undefined.
  uint32_t Quantize(intact_type source, intact_type a_type, uint8_t* a, int64_t stride,
                    RowValues* values) const noexcept;

  std::array<const uint8_t*, kCount> x = {};  // a pointer to each row
  int count = 0;                              // 1 to kCount
  int64_t k = 0;                              // 1 to kLongest
  bool may_use_zmm = false;                   // whether the plan's ISA has 512-bit vectors
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CODEGEN_SHORT_ROWS_H_
