// A and B as kernels see them: all activations are u8 and all weights s8. s8 activations are shifted by +128,
// and u8 weights by −128. Both shifts invert the top bit. With a', b' and zero points za', zb' after these
// shifts,
//
//   Σ_k (a − za)·(b − zb) = Σ_k a'·b'  −  za'·Σ_k (b' − zb')  −  zb'·Σ_k a'
//
// Kernels compute the first sum. The second term is a constant of the column: accumulators start from this
// constant. The third term needs the sum of each row of A (row_sums.h). It is computed only if zb' is not 0
// (epilogue.h).
#ifndef INTACT_KERNELS_PROBLEM_OPERANDS_H_
#define INTACT_KERNELS_PROBLEM_OPERANDS_H_

#include <intact/intact.h>

#include <cstdint>

namespace intact::kernels {

/// Columns in a canonical panel (pack.h). Arrays with a value for each column are padded to whole panels.
inline constexpr int kPanelColumns = 16;
/// Depths in a quad (kr, "c4").
inline constexpr int kQuad = 4;

/// Number of values that an activation can have.
inline constexpr int kActivationValues = 256;

/// The bits to invert in activations of `type`, so that they are u8.
constexpr uint8_t ActivationShift(intact_type type) { return type == INTACT_S8 ? 0x80 : 0; }
/// The bits to invert in weights of `type`, so that they are s8.
constexpr uint8_t WeightShift(intact_type type) { return type == INTACT_U8 ? 0x80 : 0; }

/// A range of activations as kernels see them.
struct ActivationRange {
  int low = 0, high = 255;
  bool IsFull() const { return low == 0 && high == 255; }
  bool operator==(const ActivationRange&) const = default;
};

/// Weights as the caller holds them: element [k, n] at data[k·stride_k + n·stride_n].
struct WeightView {
  const int8_t* data = nullptr;  // u8 weights too, by their bits
  int64_t k = 0, n = 0;
  int64_t stride_k = 0, stride_n = 0;
  uint8_t shift = 0;  // WeightShift()
  /// A weight as kernels see it.
  int8_t At(int64_t row, int64_t column) const {
    return static_cast<int8_t>(data[row * stride_k + column * stride_n] ^ shift);
  }
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PROBLEM_OPERANDS_H_
