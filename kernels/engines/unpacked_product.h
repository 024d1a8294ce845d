// Few rows of A times a B that is not packed: the sums Σ_k a'·b' (operands.h), for a runtime B that is read
// only a few times. The code is compiled, not generated, because its instructions depend on no epilogue.
//
//   B[k][n], rows contiguous     blocks of 16 depths × 64 columns; rows are interleaved in registers, so that
//                                columns fill the lanes
//   B[n][k], columns contiguous  four columns at a time; depths fill the lanes, and each sum is added up at
//                                the end of its column
//
// Without VNNI, and with AVX-VNNI for contiguous columns, an activation is split into two halves of four
// bits, as by the split dot variant (jit/emitters/dot.h). The int16 sums of eight pairs of products are then
// exact.
#ifndef INTACT_KERNELS_ENGINES_UNPACKED_PRODUCT_H_
#define INTACT_KERNELS_ENGINES_UNPACKED_PRODUCT_H_

#include <cstdint>

#include "core/isas.h"
#include "kernels/engines/cost_table.h"
#include "kernels/problem/operands.h"
#include "kernels/runtime/blocking.h"

namespace intact::kernels {

/// The functions for one ISA and one order of B's elements.
struct UnpackedProduct {
  static constexpr int64_t kColumns = 64;    // sums are padded to whole blocks of columns
  static constexpr int64_t kDepths = 64;     // rows of A are padded to a multiple of this
  static constexpr int64_t kRowsAtOnce = 4;  // rows of A that share the work on a quad of B

  /// The functions for plans on `isa`. If this CPU lacks their instructions: the functions of the best ISA
  /// below. `b`: its strides.
  static UnpackedProduct For(core::Isa isa, const WeightView& b);
  /// Whether there are functions for the strides of `b`.
  static bool Exists(const WeightView& b) { return b.stride_k == 1 || b.stride_n == 1; }

  /// Bytes of a staged row of A.
  int64_t RowBytes(int64_t k) const { return RoundUp(k, kDepths) * depth_bytes; }
  /// Stages a row: `a` has RoundUp(k, kDepths) activations as kernels see them, the last are zeros.
  void (*stage)(const uint8_t* a, int64_t k, uint8_t* staged) noexcept = nullptr;
  /// Adds to sums[row·sums_stride + n − begin] the products of `rows` staged rows with columns [begin, end)
  /// of `b`. `begin` is a multiple of kColumns. Sums of padding columns are undefined.
  void (*add)(const WeightView& b, int64_t begin, int64_t end, const uint8_t* staged, int64_t rows,
              int32_t* sums, int64_t sums_stride) noexcept = nullptr;
  int64_t depth_bytes = 0;               // bytes of a depth in a staged row
  const UnpackedCosts* costs = nullptr;  // of Costs()
  const char* name = "";
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_ENGINES_UNPACKED_PRODUCT_H_
