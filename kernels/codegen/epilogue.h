// Emits the code after accumulation, for one row of int32 accumulators: weight zero points and the
// requantization of the contract (include/intact/intact.h). This is the only place where kernels turn
// accumulators into outputs, so the bytes are the same on every ISA.
//
//   y     accumulator [− zb[n]·Σ_k a[m,k], zero point and activations as kernels see them: operands.h. If
//                      all columns have one zb, the row's values contain the product]
//                     [− za[m]·Σ_k (b[k,n] − zb[n]), if rows have zero points; za in a_type]
//   s32   y
//   f32   f = min(max(float(y)·scale [+ bias] [+ float(r − zr)·residual_scale], lo), hi)
//   half  f, rounded: a float of two bytes
//   8-bit max(saturate(rne(min(f, hi)) + zero_point), lowest)
//         fixed point: min(max(saturate(v + zero_point), lowest), highest)
//
// scale is scales[n], or the row's scale times scales[n], rounded.
//
// For 8-bit outputs, lo and hi are the activation's bounds clamped to [type_min − zp, type_max − zp]. The
// type's bounds are integers and rounding is monotonic, so clamping before rounding equals clamping after it.
// The upper bound is applied before rounding, because a larger value could not be converted to int32. The
// lower bound, lowest = rne(lo) + zero_point, is applied to bytes after packing. Values that are too low are
// converted to the least int32, and packing saturates this value. If f is known to lie within int32, the
// upper bound is applied after packing too. If zero point and bounds change nothing, packing suffices. With
// fixed point, v is an int32, so both bounds are applied after packing. A residual can make a NaN, so the
// lower bound is then also applied before rounding: max(NaN, lo) is lo.
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

/// What is known about an 8-bit output. This knowledge saves instructions.
enum class KnownOutput : uint8_t {
  kNothing,
  kFitsInt32,  // f lies within int32
  kSaturates,  // f lies within int32, the zero point is 0, and the bounds are the bounds of the type
};

/// How an epilogue is emitted. No variant changes a byte of C.
struct EpilogueVariant {
  // Stores are non-temporal. This pays if C is larger than L2, because ordinary stores read each line of C
  // first. Vectors must be whole, aligned cache lines. A store fence is needed before other threads may read.
  bool streams = false;
  // Rows, scales and bias are four quartered vectors (Emitter::OrderQuarters()). Packing 8-bit outputs puts
  // the vectors in order. Rows have no residual.
  bool is_quartered = false;
  KnownOutput known = KnownOutput::kNothing;  // always kNothing with an f32 residual
  // The vectors of a row, and the columns of its last vector, if masks leave out the others (zmm registers); 0 if C
  // has all columns.
  int masked_vectors = 0, last_columns = 0;
  // For float outputs: whether f may be below lo (or NaN), and whether it may be above hi.
  bool is_bounded_below = true, is_bounded_above = true;
  auto operator<=>(const EpilogueVariant&) const = default;
};

/// Values of a row of A.
struct RowValues {
  int32_t sum;         // Σ_k of the row as kernels see it; times zb, with has_one_b_zero_point
  int32_t zero_point;  // in a_type
  float scale;
};

/// The properties of the problem that the generated code depends on.
struct EpilogueSpec {
  intact_type c_type = INTACT_S32;
  Scaling scaling;                    // not read with s32 output
  bool has_b_zero_points = false;     // needs sums of rows
  bool has_one_b_zero_point = false;  // with has_b_zero_points: one for all columns
  bool has_row_zero_points = false;   // needs sums of columns
  bool has_row_scales = false;
  bool has_run_scale = false;               // each run computes the scales of columns; NaNs if A has no scale
  intact_type residual = INTACT_TYPE_NONE;  // u8, s8 or f32; s32 outputs have none
  EpilogueVariant variant;
  auto operator<=>(const EpilogueSpec&) const = default;
  bool has_residual() const { return residual != INTACT_TYPE_NONE; }
  bool MayBeNan() const { return has_residual() || has_row_scales || has_run_scale; }
  bool is_fixed() const { return scaling.fixed_point != INTACT_FIXED_POINT_NONE; }
  bool has_row_values() const { return has_b_zero_points || has_row_zero_points || has_row_scales; }
  /// Bytes from the values of a row to the values of the next row: whole RowValues, or only their sums.
  int row_value_bytes() const {
    return static_cast<int>(has_row_zero_points || has_row_scales ? sizeof(RowValues) : sizeof(int32_t));
  }
  std::string Name() const;  // "s32", "u8_bias", "s32_zb_streamed", "u8_plus_s8", "bf16_za_rows"
};

/// OutputBounds and ResidualScale as vectors. The code has too few registers, so it reads these vectors from
/// memory.
struct alignas(64) EpilogueConstants {
  std::array<float, 16> lo, hi;
  std::array<int16_t, 32> zero_point;
  std::array<int32_t, 16> pack_order;  // depends on the ISA's vector length
  std::array<uint8_t, 64> lowest, highest;
  std::array<float, 16> residual_scale;
  std::array<int32_t, 16> residual_zero_point;
  std::array<int32_t, 16> half_order;       // restores the order after a vector's halves were packed apart
  std::array<int32_t, 16> bfloat16_middle;  // a little less than half of a bfloat16's last bit
  std::array<int64_t, 8> half_product;      // rounds the high half of a doubled product
  std::array<int32_t, 16> least, most, one, minus_one;
};
/// What is known about an output of `type`, if the scaled accumulator with bias and residual has a magnitude
/// of at most `largest`.
KnownOutput KnowOutput(intact_type type, const OutputBounds& bounds, double largest);
EpilogueConstants MakeEpilogueConstants(const OutputBounds& bounds, const ResidualScale& residual,
                                        core::Isa isa);

/// Arguments of the generated code, for the columns of one tile. The arrays cover the tile's whole vectors.
/// Whole vectors of the residual are read too, except with EpilogueVariant::masked_vectors.
struct EpilogueArgs {
  const void* factors = nullptr;  // float32 scales; with fixed point, int32 multipliers
  const void* addends = nullptr;  // float32 bias; with fixed point, int32 shifts
  const EpilogueConstants* constants = nullptr;
  const int32_t* b_zero_points = nullptr;
  const int32_t* column_sums = nullptr;  // Σ_k (b − zb) as kernels see them
  const uint8_t* row_values = nullptr;   // RowValues of the tile's first row
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

  /// The most general registers that Prepare() takes.
  static constexpr int kGeneralRegisters = 4;
  /// Takes registers. `args` points to an EpilogueArgs at `offset`.
  void Prepare(const jit::Gp& args, int offset);
  /// Requantizes the tile's next row, adjacent vectors of columns, and stores it at `c`. Destroys the
  /// accumulators.
  void StoreRow(const std::vector<jit::Vec>& accumulators, const jit::Mem& c);
  /// StoreRow() for several rows with the same number of vectors. `c` points to the first row, and afterwards to
  /// the row below the last one. 8-bit outputs of rows of one or two vectors are packed together. `are_adjacent`: a row
  /// ends where the next begins, so that packed rows are stored together; then no vector is masked.
  void StoreRows(const std::vector<std::vector<jit::Vec>>& rows, const jit::Gp& c,
                 const jit::Mem& c_stride_bytes, bool are_adjacent = false);
  /// StoreRow() for a whole row of scaled values: adds the bias, applies the activation and stores. `values`
  /// are floats. Only for float outputs without fixed point, residual and values of rows.
  void StoreFloats(const std::vector<jit::Vec>& values, const jit::Mem& c);
  /// After a tile's last row: advances the arguments to the tile below.
  void Advance();
  /// After a tile of one row of `vectors` vectors: advances the arguments to the columns behind the tile, in the same row.
  void AdvanceColumns(int vectors);
  /// For quartered 8-bit outputs of rows without values. Requantizes the `accumulators` of four adjacent
  /// columns from `column` on, a vector of rows each. Packs them into the first of `vectors`: quarter q holds
  /// rows 4q to 4q + 3 of the first column, then of the next columns. Destroys the other vectors.
  void PackColumns(const std::vector<jit::Mem>& accumulators, int column,
                   const std::vector<jit::Vec>& vectors);

 private:
  /// Loads the scales and the bias of a row of `width` vectors into free registers, if enough rows use them.
  void HoldColumns(size_t rows, size_t width);
  /// The values of a vector of columns: a register of `held`, or in memory if HoldColumns() held none.
  asmjit::Operand Columns(const jit::Gp& columns, const std::vector<jit::Vec>& held, size_t vector) const;
  /// The number of rows of `width` vectors that are packed together.
  size_t PackedRows(size_t width) const;
  /// Computes the outputs of the tile's next row, not yet rounded to their type.
  void Requantize(const std::vector<jit::Vec>& accumulators);
  /// Subtracts the terms of zero points. Here and below, `accumulators` are a whole row.
  void SubtractZeroPoints(const std::vector<jit::Vec>& accumulators);
  /// accumulators −= row value × column values. `row_member`: the row values' member of RowValues; `member`:
  /// the column values' member of EpilogueArgs.
  void SubtractProducts(const std::vector<jit::Vec>& accumulators, size_t row_member, size_t member);
  /// Computes float(y)·scale.
  void Scale(const std::vector<jit::Vec>& accumulators);
  /// For each accumulator: `multiply` emits the product of the row's value at `row_member` of RowValues and
  /// the columns' values at scales_, and `use` emits its use.
  template <class Multiply, class Use>
  void ForProducts(const std::vector<jit::Vec>& accumulators, size_t row_member, Multiply multiply, Use use);
  /// Computes v, the output of fixed point before the zero point is added.
  void MultiplyFixed(const std::vector<jit::Vec>& accumulators);
  /// The three steps of fixed point. `multipliers` and `shifts` are in a register or in memory. Each step
  /// needs two free registers.
  template <class Operand>
  void ShiftLeft(const jit::Vec& y, const Operand& shifts);
  template <class Operand>
  void MultiplyHigh(const jit::Vec& y, const Operand& multipliers);
  template <class Operand>
  void ShiftRight(const jit::Vec& y, const Operand& shifts);
  /// Adds the bias. Applies the activation, unless a residual comes first.
  void AddBiasAndBound(const std::vector<jit::Vec>& accumulators);
  /// Rounds to the type of outputs and stores.
  void Store(const std::vector<jit::Vec>& accumulators, const jit::Mem& c);
  /// Adds the residual to a whole row.
  void AddResidual(const std::vector<jit::Vec>& accumulators);
  void LoadResidual(const jit::Vec& to, int vector);
  /// Applies the activation; rounds 8-bit outputs to integers.
  void Bound(const jit::Vec& accumulator);
  /// Packs `vectors` into the first of them, and applies the bounds.
  void PackBytes(const std::vector<jit::Vec>& vectors);
  /// Packs and stores `count` vectors from `first` on.
  void StoreBytes(const std::vector<jit::Vec>& accumulators, size_t first, size_t count, const jit::Mem& to);
  jit::Mem Constant(size_t member) const { return asmjit::x86::ptr(constants_, static_cast<int>(member)); }
  jit::Mem Argument(size_t member) const {
    return asmjit::x86::ptr(args_, offset_ + static_cast<int>(member));
  }
  /// Whether vector number `vector` of a row is the masked one.
  bool IsMasked(int vector) const { return vector + 1 == spec_.variant.masked_vectors; }
  void LoadMasks();
  /// Stores a row, part number `part` of the packed vectors, `bytes` with the columns that C does not have.
  /// Destroys the second vector.
  void StoreMaskedPart(const jit::Mem& to, const std::vector<jit::Vec>& packed, int bytes, int part);
  /// Whether the pointers to the values of columns share one register, because the values of rows or the
  /// residual take the other register.
  bool SharesRegister() const { return spec_.has_residual() || spec_.has_row_values(); }
  void LoadColumns(size_t member);
  /// Stores half floats of vector number `vector`.
  void StoreHalves(const jit::Vec& accumulator, int vector, const jit::Mem& to);

  EpilogueSpec spec_;
  jit::Emitter& emitter_;
  jit::Gp args_;           // points to the kernel's arguments
  int offset_ = 0;         // the offset of the EpilogueArgs in these arguments
  jit::Gp scales_, bias_;  // the same register if SharesRegister()
  jit::Gp constants_, row_, residual_;
  std::vector<jit::Vec> factors_, addends_;  // of HoldColumns(); empty: read from memory
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CODEGEN_EPILOGUE_H_
