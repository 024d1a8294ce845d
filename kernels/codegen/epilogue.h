// Emits all that follows accumulation: weight zero points and the requantization of the contract
// (include/intact/intact.h) for one row of int32 accumulators: the only place where kernels turn accumulators
// into outputs, so the bytes are the same on every ISA.
//
//   y     accumulator [− zb[n]·Σ_k a[m,k], zero point and activations as kernels see them: operands.h]
//                     [− za[m]·Σ_k (b[k,n] − zb[n]), where rows have zero points; this one in a_type]
//   s32   y
//   f32   f = min(max(float(y)·scale [+ bias] [+ float(r − zr)·residual_scale], lo), hi)
//   half  f, rounded: a float of two bytes
//   8-bit max(saturate(rne(min(f, hi)) + zero_point), lowest)
//         fixed point: min(max(saturate(v + zero_point), lowest), highest)
//
// where scale is scales[n], or the row's scale times scales[n], rounded.
// For 8-bit outputs lo and hi are the activation's bounds clamped to [type_min − zp, type_max − zp]. The
// type's bounds are integers and rounding is monotonic, so clamping before rounding equals clamping after it:
// above it is done before, where the conversion could leave int32 (below, it gives the least int32), and
// below after packing, a byte a value. lowest = rne(lo) + zero_point. Where f is known to lie within int32,
// above it is done after packing too, and where zero point and bounds change nothing, packing is all. With
// fixed point, v is an int32, so both bounds are applied after packing. A residual can make a NaN, so the lower
// bound is then also applied before: max(NaN, lo) is lo.
#ifndef INTACT_KERNELS_CODEGEN_EPILOGUE_H_
#define INTACT_KERNELS_CODEGEN_EPILOGUE_H_

#include <intact/intact.h>

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "core/isas.h"
#include "jit/emitters/emitter.h"
#include "kernels/problem/linear_problem.h"

namespace intact::kernels {

/// What is known of an 8-bit output, and saves instructions.
enum class KnownOutput : uint8_t {
  kNothing,
  kFitsInt32,  // f lies within int32
  kSaturates,  // that, the zero point is 0, and the bounds are the type's
};

/// How an epilogue is emitted: it changes no byte of C.
struct EpilogueVariant {
  // Non-temporal stores: C is larger than L2, so that each of its lines would be read only to be overwritten.
  // Needs vectors of a whole cache line, aligned to it, and a store fence before others may read.
  bool streams = false;
  // Rows are four vectors whose quarters are dealt (Emitter::Undeal), and so are scales and bias. Only for
  // 8-bit outputs, which packing puts in order, and without a residual, which is not dealt.
  bool is_dealt = false;
  KnownOutput known = KnownOutput::kNothing;  // which it is with an f32 residual
  // Of outputs that hold f: whether anything lies beyond lo, a NaN being one that does, and beyond hi.
  bool is_bounded_below = true, is_bounded_above = true;
  auto operator<=>(const EpilogueVariant&) const = default;
};

/// What the emitted code depends on.
struct EpilogueSpec {
  intact_type c_type = INTACT_S32;
  Scaling scaling;                   // not read with s32 output
  bool has_b_zero_points = false;    // and so rows' sums
  bool has_row_zero_points = false;  // and so columns' sums
  bool has_row_scales = false;
  bool has_run_scale = false;               // scales of columns are a run's: NaNs where A has no scale
  intact_type residual = INTACT_TYPE_NONE;  // u8, s8 or f32; not with s32 output
  EpilogueVariant variant;
  auto operator<=>(const EpilogueSpec&) const = default;
  bool has_residual() const { return residual != INTACT_TYPE_NONE; }
  bool MayBeNan() const { return has_residual() || has_row_scales || has_run_scale; }
  bool is_fixed() const { return scaling.fixed_point != INTACT_FIXED_POINT_NONE; }
  bool has_row_values() const { return has_b_zero_points || has_row_zero_points || has_row_scales; }
  std::string Name() const;  // "s32", "u8_bias", "s32_zb_streamed", "u8_plus_s8", "bf16_za_rows"
};

/// What rows of A have of their own, some adjacent rows of a run: arrays at fixed distances, so that one
/// pointer leads to all values of a row.
struct RowValues {
  static constexpr int64_t kRows = 4608;   // at most
  std::array<int32_t, kRows> sums;         // Σ_k of the row as kernels see it
  std::array<int32_t, kRows> zero_points;  // in a_type
  std::array<float, kRows> scales;
};

/// OutputBounds and ResidualScale as vectors, so that code short of registers reads them from memory.
struct alignas(64) EpilogueConstants {
  std::array<float, 16> lo, hi;
  std::array<int16_t, 32> zero_point;
  std::array<int32_t, 16> pack_order;  // for the vectors of one ISA
  std::array<uint8_t, 64> lowest, highest;
  std::array<float, 16> residual_scale;
  std::array<int32_t, 16> residual_zero_point;
  std::array<int32_t, 16> half_order;  // of the dwords of a vector whose halves were packed by themselves
  std::array<int32_t, 16> bfloat16_middle;  // a little less than half of a bfloat16's last bit
  std::array<int64_t, 8> half_product;      // of a doubled product's high half
  std::array<int32_t, 16> least, most, one, minus_one;
};
/// What is known of an output of `type`, a scaled accumulator with its bias and residual of at most
/// `largest`.
KnownOutput KnowOutput(intact_type type, const OutputBounds& bounds, double largest);
EpilogueConstants MakeEpilogueConstants(const OutputBounds& bounds, const ResidualScale& residual,
                                        core::Isa isa);

/// What the emitted code reads, for the columns of one tile. The arrays cover the tile's whole vectors; of
/// the residual too, whole vectors are read.
struct EpilogueArgs {
  const void* factors = nullptr;  // float32 scales; of fixed point int32 multipliers
  const void* addends = nullptr;  // float32 bias; of fixed point int32 shifts
  const EpilogueConstants* constants = nullptr;
  const int32_t* b_zero_points = nullptr;
  const int32_t* column_sums = nullptr;  // Σ_k (b − zb) as kernels see them
  const int32_t* row_values = nullptr;   // RowValues::sums of the tile's first row
  const uint8_t* residual = nullptr;     // at the tile's first row
  int64_t residual_stride_bytes = 0;
};

/// Column `column` of LinearProblem::Factors() or Addends(), which may be null.
inline const void* ColumnAt(const void* columns, int64_t column) {
  return columns == nullptr ? nullptr : static_cast<const uint8_t*>(columns) + 4 * column;
}

class Epilogue {
 public:
  Epilogue(const EpilogueSpec& spec, jit::Emitter& emitter) : spec_(spec), emitter_(emitter) {}

  /// General registers that Prepare() takes at most.
  static constexpr int kGeneralRegisters = 4;
  /// Takes registers. `args` points to an EpilogueArgs at `offset`.
  void Prepare(const jit::Gp& args, int offset);
  /// Requantizes accumulators of the tile's next row, adjacent vectors of columns, and stores them at `c`.
  /// Destroys them. `first_vector`: of the row's columns, with which they begin if they are a part of it;
  /// rows with sums or a residual are stored whole.
  void StoreRow(const std::vector<jit::Vec>& accumulators, const jit::Gp& c, int first_vector = 0);
  /// After a tile's last row: `args` are those of the tile below.
  void Advance();
  /// For 8-bit outputs, dealt: requantizes the `accumulators` of four adjacent columns, a vector of rows
  /// each, from `column` on, and packs them into the first of `vectors`: quarter q holds rows 4q to 4q + 3 of
  /// the first column, then of the second, and so on. Destroys the others. Neither weight zero points nor a
  /// residual are for it.
  void PackColumns(const std::vector<jit::Mem>& accumulators, int column,
                   const std::vector<jit::Vec>& vectors);

 private:
  /// Subtracts what zero points ask for from a row, or from the part of it that begins with `first_vector`.
  void SubtractZeroPoints(const std::vector<jit::Vec>& accumulators, int first_vector);
  /// accumulators −= the row's value at `row_member` of RowValues × the columns' at `member` of EpilogueArgs.
  void SubtractProducts(const std::vector<jit::Vec>& accumulators, int first_vector, size_t row_member,
                        size_t member);
  /// float(y)·scale of a row, or of the part of it that begins with `first_vector`.
  void Scale(const std::vector<jit::Vec>& accumulators, int first_vector);
  /// For each accumulator: `multiply` a product of the row's value at `row_member` of RowValues and the
  /// columns' values that scales_ points to, and `use` it.
  template <class Multiply, class Use>
  void ForProducts(const std::vector<jit::Vec>& accumulators, int first_vector, size_t row_member,
                   Multiply multiply, Use use);
  /// v of fixed point, of a row, or of the part of it that begins with `first_vector`.
  void MultiplyFixed(const std::vector<jit::Vec>& accumulators, int first_vector);
  /// The steps of fixed point; `multipliers` and `shifts` are a vector or its place in memory. Each needs two
  /// free registers.
  template <class Operand>
  void ShiftLeft(const jit::Vec& y, const Operand& shifts);
  template <class Operand>
  void MultiplyHigh(const jit::Vec& y, const Operand& multipliers);
  template <class Operand>
  void ShiftRight(const jit::Vec& y, const Operand& shifts);
  void AddBias(const jit::Vec& accumulator, int vector);
  /// To a whole row.
  void AddResidual(const std::vector<jit::Vec>& accumulators);
  void LoadResidual(const jit::Vec& to, int vector);
  /// Activation, and rounding to an integer for 8-bit outputs.
  void Bound(const jit::Vec& accumulator);
  /// Packs `vectors` into the first, and bounds them.
  void PackBytes(const std::vector<jit::Vec>& vectors);
  /// Packs and stores `count` vectors from `first` on.
  void StoreBytes(const std::vector<jit::Vec>& accumulators, size_t first, size_t count, const jit::Mem& to);
  jit::Mem Constant(size_t member) const { return asmjit::x86::ptr(constants_, static_cast<int>(member)); }
  jit::Mem Argument(size_t member) const {
    return asmjit::x86::ptr(args_, offset_ + static_cast<int>(member));
  }
  /// Whether what columns have takes turns in one register: beside what rows have there is none left for
  /// each.
  bool SharesRegister() const { return spec_.has_residual() || spec_.has_row_values(); }
  void LoadColumns(size_t member);
  /// Stores half floats.
  void StoreHalves(const jit::Vec& accumulator, const jit::Mem& to);

  EpilogueSpec spec_;
  jit::Emitter& emitter_;
  jit::Gp args_;  // and where in what it points to the EpilogueArgs are
  int offset_ = 0;
  jit::Gp scales_, bias_;  // one register, for all that columns have, if SharesRegister()
  jit::Gp constants_, row_, residual_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CODEGEN_EPILOGUE_H_
