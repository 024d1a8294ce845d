#include "kernels/plans/row_preparer.h"

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

// Whole blocks of most engines, which stay in half of L2 until the engine reads them. RowValues::kRows bounds
// the memory for the rows' values.
int64_t RowPreparer::ChunkRows() const {
  constexpr int kUnit = 192;
  return std::min(RowsPerBlock(data_.k, kUnit), RowValues::kRows);
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
  if (data_.epilogue.has_b_zero_points) {
    row_sums_.Sum(buffers->rows(), chunk.row_begin, chunk.row_end, data_.taps(), values->sums.data());
  }
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
      values->zero_points[i] = how.zero_point;
      values->scales[i] = how.scale;
    }
  }
  return rows;
}

void RowPreparer::CopyGiven(const RunBuffers& buffers, const Range& chunk, RowValues* values) const noexcept {
  const int64_t rows = chunk.row_end - chunk.row_begin;
  const bool has_one = data_.problem.a_quantization == INTACT_QUANTIZATION_TENSOR;
  const auto copy = [&](const auto* from, auto* to) {
    has_one ? std::fill_n(to, rows, *from) : std::copy_n(from + chunk.row_begin, rows, to);
  };
  if (buffers.given_zero_points == nullptr) {
    std::fill_n(values->zero_points.begin(), rows, 0);
  } else {
    copy(buffers.given_zero_points, values->zero_points.data());
  }
  if (buffers.given_scales != nullptr) copy(buffers.given_scales, values->scales.data());
}

void RowPreparer::FillWithoutScale(const RowValues& values, const OutputMap& output,
                                   const Range& chunk) const noexcept {
  for (int64_t row = chunk.row_begin; row < chunk.row_end; ++row) {
    if (!std::isnan(values.scales[static_cast<size_t>(row - chunk.row_begin)])) continue;
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
