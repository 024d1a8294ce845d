// What runs find out about rows of A before an engine reads them: their sums, where weights have zero points;
// their scales and zero points, where these are not the plan's; and with dynamic quantization the rows of 8
// bits themselves.
#ifndef INTACT_KERNELS_PLANS_ROW_PREPARER_H_
#define INTACT_KERNELS_PLANS_ROW_PREPARER_H_

#include <intact/intact.h>

#include <algorithm>
#include <cstdint>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/codegen/quantizer.h"
#include "kernels/codegen/row_sums.h"
#include "kernels/engines/engine.h"
#include "kernels/plans/batch.h"
#include "kernels/plans/tensor_quantization.h"

namespace intact::kernels {

class RowPreparer {
 public:
  /// `data` outlives the preparer.
  explicit RowPreparer(const GemmData& data) : data_(data) {}
  Error MakeKernels(core::Isa isa);

  /// Where A of a run is, before anything is quantized.
  RowMap RowsOf(const intact_gemm_args& args) const;
  /// The quantization of all rows of a batch, found by `threads` threads, where the plan wants one for all.
  RowQuantization FindTensor(const Batch& batch, int threads) const;
  /// Scratch for `m` rows; a multiple of 64.
  int64_t ScratchBytes(int64_t m) const { return ValueBytes() + QuantizedBytes(m); }
  /// Calls run(buffers, piece, scratch) for pieces of `range` one after the other, whose rows are ready;
  /// `scratch` is then what follows the preparer's own.
  template <class Run>
  void ForEachPiece(const RunBuffers& given, const Range& range, uint8_t* scratch, const Run& run) const {
    if (!data_.epilogue.has_row_values()) return run(given, range, scratch);
    RunBuffers buffers = given;
    auto* const values = reinterpret_cast<RowValues*>(scratch);
    uint8_t* const quantized = scratch + ValueBytes();
    uint8_t* const rest = quantized + QuantizedBytes(range.row_end - range.row_begin);
    buffers.row_values = values;
    Range piece = range;
    for (; piece.row_begin < range.row_end; piece.row_begin = piece.row_end) {
      piece.row_end = std::min(range.row_end, piece.row_begin + PieceRows());
      buffers.a = given.a;
      buffers.row_values_begin = piece.row_begin;
      Prepare(piece, quantized, values, &buffers);
      run(buffers, piece, rest);
      if (data_.problem.IsDynamic()) FillWithoutScale(*values, buffers.output, piece);
    }
  }

 private:
  // Scratch: what rows have of their own, then those that are quantized.
  int64_t ValueBytes() const {
    return data_.epilogue.has_row_values() ? RoundUp(static_cast<int64_t>(sizeof(RowValues)), 64) : 0;
  }
  int64_t QuantizedBytes(int64_t m) const {
    return data_.problem.IsDynamic() ? std::min(PieceRows(), m) * QuantizedStride() : 0;
  }
  /// Rows whose values are found at a time.
  int64_t PieceRows() const;
  /// Bytes from a row that was quantized to the next.
  int64_t QuantizedStride() const;
  /// Finds the values of `piece` and quantizes its rows.
  void Prepare(const Range& piece, uint8_t* quantized, RowValues* values, RunBuffers* buffers) const noexcept;
  /// Quantizes the rows of `piece`, and tells where they then are, under the same numbers.
  RowMap Quantize(const RowMap& source, const RowQuantization& tensor, const Range& piece, uint8_t* quantized,
                  RowValues* values) const noexcept;
  void CopyGiven(const RunBuffers& buffers, const Range& piece, RowValues* values) const noexcept;
  /// Stores the outputs of rows that have no scale.
  void FillWithoutScale(const RowValues& values, const OutputMap& output, const Range& piece) const noexcept;

  const GemmData& data_;
  RowSums row_sums_;     // where the epilogue has weight zero points
  Quantizer quantizer_;  // where runs quantize A
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_ROW_PREPARER_H_
