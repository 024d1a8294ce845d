// Prepares rows of A before an engine reads them. Computes the rows' sums, if weights have zero points.
// Collects the rows' scales and zero points, if the plan lacks them. Quantizes rows, with dynamic
// quantization. Copies the rows of a transposed A.
#ifndef INTACT_KERNELS_PLANS_ROW_PREPARER_H_
#define INTACT_KERNELS_PLANS_ROW_PREPARER_H_

#include <intact/intact.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

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
  explicit RowPreparer(const PlanData& data) : plan_(data), data_(KernelDataOf(data)) {}
  Error MakeKernels(core::Isa isa);

  /// The rows of an item's A, before they are quantized or transposed.
  RowMap RowsOf(const BatchItem& item, bool transposed) const {
    const int bytes = data_.problem.a_bytes();
    RowMap rows(static_cast<const uint8_t*>(item.a), item.a_stride * bytes);
    if (transposed) rows.depth_stride = std::exchange(rows.stride, bytes);
    return rows;
  }
  /// The common quantization of all rows of a batch, found by `threads` threads, if the plan has
  /// INTACT_QUANTIZATION_DYNAMIC_TENSOR.
  RowQuantization FindTensor(const Batch& batch, int threads) const {
    const bool finds = data_.problem.a_quantization == INTACT_QUANTIZATION_DYNAMIC_TENSOR;
    return finds ? FindTensorOf(batch, threads) : RowQuantization();
  }
  /// Scratch for `m` rows, of a transposed A or not; a multiple of 64.
  int64_t ScratchBytes(int64_t m, bool transposed) const {
    return ValueBytes(m) + CopiedBytes(m, transposed) + NumberBytes(m, transposed);
  }
  /// The number of rows of a chunk of ForEachChunk(); the last chunk may have fewer.
  int64_t ChunkRows(bool transposed) const {
    const bool prepares = data_.epilogue.has_row_values() || transposed;
    return prepares ? ChunkRows() : std::numeric_limits<int64_t>::max();
  }
  /// Calls run(buffers, chunk, scratch) for one chunk of `range` after the other, with prepared rows. run()
  /// gets the scratch that follows ScratchBytes().
  template <class Run>
  void ForEachChunk(const RunBuffers& given, const Range& range, uint8_t* scratch, const Run& run) const {
    const bool transposed = given.IsTransposed();
    if (!data_.epilogue.has_row_values() && !transposed) return run(given, range, scratch);
    RunBuffers buffers = given;
    uint8_t* const values = scratch;
    const int64_t rows = range.row_end - range.row_begin;
    uint8_t* const copied = scratch + ValueBytes(rows);
    uint8_t* const numbers = copied + CopiedBytes(rows, transposed);
    uint8_t* const free_scratch = numbers + NumberBytes(rows, transposed);
    if (data_.epilogue.has_row_values()) buffers.row_values = values;
    Range chunk = range;
    for (; chunk.row_begin < range.row_end; chunk.row_begin = chunk.row_end) {
      chunk.row_end = std::min(range.row_end, chunk.row_begin + ChunkRows());
      buffers.a = given.a;
      buffers.row_values_begin = chunk.row_begin;
      const bool has_scales = Prepare(chunk, copied, numbers, values, &buffers);
      run(buffers, chunk, free_scratch);
      if (!has_scales) FillWithoutScale(values, buffers.output, chunk);
    }
  }

 private:
  RowQuantization FindTensorOf(const Batch& batch, int threads) const;
  // Scratch has three parts: values of rows; quantized or transposed rows; numbers that are transposed before
  // they are quantized.
  int64_t ValueBytes(int64_t m) const {
    const int64_t rows = data_.epilogue.has_row_values() ? std::min(ChunkRows(), m) : 0;
    return RoundUp(rows * data_.epilogue.row_value_bytes(), 64);
  }
  int64_t CopiedBytes(int64_t m, bool transposed) const {
    const int64_t rows = data_.problem.IsDynamic() || transposed ? std::min(ChunkRows(), m) : 0;
    return RoundUp(rows * CopiedStride(), 64);
  }
  int64_t NumberBytes(int64_t m, bool transposed) const {
    const int64_t rows = data_.problem.IsDynamic() && transposed ? std::min(NumberRows(), m) : 0;
    return RoundUp(rows * NumberStride(), 64);
  }
  /// Rows that are prepared at a time.
  int64_t ChunkRows() const;
  /// Rows of numbers that are transposed at a time: a cache line of each depth.
  int64_t NumberRows() const { return 64 / data_.problem.a_bytes(); }
  /// Bytes from a copied row to the next copied row, and from a row of numbers to the next.
  int64_t CopiedStride() const { return PaddedStride(data_.k); }
  int64_t NumberStride() const { return PaddedStride(data_.k * data_.problem.a_bytes()); }
  // Whole quads. Long rows get one cache line more than the row, so that the rows of a tile map to different
  // sets of L1.
  static int64_t PaddedStride(int64_t row_bytes) {
    return row_bytes < 64 ? RoundUp(row_bytes, kQuad) : RoundUp(row_bytes, 64) + 64;
  }
  /// Collects the values of the rows of `chunk`, and quantizes or transposes them. Returns false if a quantized
  /// row has no scale.
  bool Prepare(const Range& chunk, uint8_t* copied, uint8_t* numbers, uint8_t* values,
               RunBuffers* buffers) const noexcept;
  /// Copies rows [row_begin, row_end) of a transposed A to `to`, `stride` bytes apart. Returns the copies,
  /// with unchanged row numbers.
  RowMap CopyTransposed(const RowMap& a, int64_t row_begin, int64_t row_end, uint8_t* to,
                        int64_t stride) const noexcept;
  /// Whether rows of A are adjacent: then they can be scanned, or quantized with one scale, as one row.
  bool AreOneRow(const RowMap& rows) const;
  /// Quantizes the rows of `chunk` to `quantized`, CopiedStride() bytes apart. Returns whether each row has a
  /// scale.
  bool Quantize(const RowMap& source, const RowQuantization& tensor, const Range& chunk, uint8_t* quantized,
                uint8_t* numbers, uint8_t* values) const noexcept;
  void SumRows(const RowMap& rows, const Range& chunk, uint8_t* values) const noexcept;
  void CopyGiven(const RunBuffers& buffers, const Range& chunk, uint8_t* values) const noexcept;
  /// Stores the outputs of rows that have no scale.
  void FillWithoutScale(uint8_t* values, const OutputMap& output, const Range& chunk) const noexcept;

  /// Values of row `i`, with zero points or scales.
  static RowValues* At(uint8_t* values, int64_t i) { return reinterpret_cast<RowValues*>(values) + i; }

  const PlanData& plan_;
  const KernelData& data_;
  RowSums row_sums_;     // if the epilogue has weight zero points
  Quantizer quantizer_;  // if runs quantize A
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_ROW_PREPARER_H_
