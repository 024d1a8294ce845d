#include "kernels/plans/row_preparer.h"

#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/runtime/threads.h"
#include "kernels/staging/transpose.h"

namespace intact::kernels {

Error RowPreparer::MakeKernels(core::Isa isa) {
  const LinearProblem& problem = data_.problem;
  if (problem.IsDynamic()) {
    ASSIGN_OR_RETURN(quantizer_, Quantizer::Create(isa, problem.a_type, problem.a_source_type));
  }
  if (data_.epilogue.has_b_zero_points) {
    ASSIGN_OR_RETURN(row_sums_, RowSums::Create(isa, problem.a_type));
  }
  return {};
}

// Whole blocks of most engines, which stay in half of L2 until the engine reads them. Short rows are too many for
// that: their values would take more memory than the rows.
int64_t RowPreparer::ChunkRows() const {
  constexpr int kUnit = 192;
  const int64_t most = data_.k < 64 ? 2 * kUnit : 24 * kUnit;
  return std::min(RowsPerBlock(data_.k, kUnit), most);
}

void RowPreparer::Prepare(const Range& chunk, uint8_t* copied, uint8_t* numbers, RowValues* values,
                          RunBuffers* buffers) const noexcept {
  if (data_.problem.IsDynamic()) {
    buffers->a = Quantize(buffers->rows(), buffers->tensor, chunk, copied, numbers, values);
  } else if (buffers->IsTransposed()) {
    buffers->a = CopyTransposed(buffers->rows(), chunk.row_begin, chunk.row_end, copied, CopiedStride());
  }
  const bool has_given =
      !data_.problem.IsDynamic() && data_.problem.a_quantization != INTACT_QUANTIZATION_STATIC;
  if (has_given) CopyGiven(*buffers, chunk, values);
  if (data_.epilogue.has_b_zero_points) SumRows(buffers->rows(), chunk, values);
}

RowMap RowPreparer::CopyTransposed(const RowMap& a, int64_t row_begin, int64_t row_end, uint8_t* to,
                                   int64_t stride) const noexcept {
  Transpose(a.At(row_begin), a.depth_stride, row_end - row_begin, data_.k, data_.problem.a_bytes(), to,
            stride);
  return RowMap::From(row_begin, to, stride);
}

RowMap RowPreparer::Quantize(const RowMap& source, const RowQuantization& tensor, const Range& chunk,
                             uint8_t* quantized, uint8_t* numbers, RowValues* values) const noexcept {
  const bool is_by_rows = data_.problem.a_quantization == INTACT_QUANTIZATION_DYNAMIC_ROWS;
  const RowMap rows = RowMap::From(chunk.row_begin, quantized, CopiedStride());
  for (int64_t row = chunk.row_begin; row < chunk.row_end;) {
    const int64_t end = source.IsTransposed() ? std::min(chunk.row_end, row + NumberRows()) : chunk.row_end;
    const RowMap x_rows =
        source.IsTransposed() ? CopyTransposed(source, row, end, numbers, NumberStride()) : source;
    for (RowCursor cursor(x_rows, row); row < end; ++row, quantized += CopiedStride()) {
      const uint8_t* const x = cursor.Next();
      const RowQuantization how = is_by_rows ? quantizer_.Choose(quantizer_.Scan(x, data_.k)) : tensor;
      quantizer_.Quantize(x, data_.k, how, quantized);
      const auto i = static_cast<size_t>(row - chunk.row_begin);
      values[i].zero_point = how.zero_point;
      values[i].scale = how.scale;
    }
  }
  return rows;
}

void RowPreparer::CopyGiven(const RunBuffers& buffers, const Range& chunk, RowValues* values) const noexcept {
  const bool has_one = data_.problem.a_quantization == INTACT_QUANTIZATION_TENSOR;
  for (int64_t row = chunk.row_begin; row < chunk.row_end; ++row, ++values) {
    const int64_t i = has_one ? 0 : row;
    values->zero_point = buffers.given_zero_points == nullptr ? 0 : buffers.given_zero_points[i];
    if (buffers.given_scales != nullptr) values->scale = buffers.given_scales[i];
  }
}

void RowPreparer::SumRows(const RowMap& rows, const Range& chunk, RowValues* values) const noexcept {
  constexpr int64_t kAtOnce = 256;
  std::array<int32_t, kAtOnce> sums;
  for (int64_t row = chunk.row_begin; row < chunk.row_end; row += kAtOnce) {
    const int64_t end = std::min(chunk.row_end, row + kAtOnce);
    row_sums_.Sum(rows, row, end, data_.taps(), sums.data());
    for (int64_t i = 0; i < end - row; ++i, ++values) values->sum = sums[static_cast<size_t>(i)];
  }
}

void RowPreparer::FillWithoutScale(const RowValues* values, const OutputMap& output,
                                   const Range& chunk) const noexcept {
  for (int64_t row = chunk.row_begin; row < chunk.row_end; ++row) {
    if (!std::isnan(values[row - chunk.row_begin].scale)) continue;
    FillWithNan(output, {row, row + 1, chunk.column_begin, chunk.column_end}, data_);
  }
}

// Lines are rows, or depths of a transposed A.
RowQuantization RowPreparer::FindTensorOf(const Batch& batch, int threads) const {
  const bool transposed = batch.args().a_transposed != 0;
  const int64_t item_lines = transposed ? data_.k : batch.m(), numbers = transposed ? batch.m() : data_.k;
  return FindQuantization(quantizer_, batch.items() * item_lines, threads, [&](int64_t line, int64_t end) {
    NumberRange range;
    while (line < end) {
      RowMap rows = RowsOf(batch.Item(line / item_lines), transposed);
      if (transposed) rows.stride = rows.depth_stride;
      const int64_t item_end = std::min(end, (line / item_lines + 1) * item_lines);
      for (RowCursor cursor(rows, line % item_lines); line < item_end; ++line) {
        range.Add(quantizer_.Scan(cursor.Next(), numbers));
      }
    }
    return range;
  });
}

}  // namespace intact::kernels
