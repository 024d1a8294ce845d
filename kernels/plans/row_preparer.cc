#include "kernels/plans/row_preparer.h"

#include <cmath>

#include "kernels/runtime/threads.h"

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

// Whole blocks of most engines that stay in half of L2, where the engine then finds them; and few enough to
// bound the memory for the values.
int64_t RowPreparer::PieceRows() const {
  constexpr int kUnit = 192;
  return std::min(RowsPerBlock(data_.k, kUnit), RowValues::kRows);
}

// A line more than the row, so that the rows of a tile do not meet in the same sets of L1.
int64_t RowPreparer::QuantizedStride() const { return RoundUp(data_.k, 64) + 64; }

RowMap RowPreparer::RowsOf(const intact_gemm_args& args) const {
  return RowMap(static_cast<const uint8_t*>(args.a),
                (args.a_stride == 0 ? data_.k : args.a_stride) * data_.problem.a_bytes());
}

void RowPreparer::Prepare(const Range& piece, uint8_t* quantized, RowValues* values,
                          RunBuffers* buffers) const noexcept {
  if (data_.problem.IsDynamic()) {
    buffers->a = Quantize(buffers->rows(), buffers->tensor, piece, quantized, values);
  } else if (data_.problem.a_quantization != INTACT_QUANTIZATION_STATIC) {
    CopyGiven(*buffers, piece, values);
  }
  if (data_.epilogue.has_b_zero_points) {
    row_sums_.Sum(buffers->rows(), piece.row_begin, piece.row_end, data_.taps(), values->sums.data());
  }
}

RowMap RowPreparer::Quantize(const RowMap& source, const RowQuantization& tensor, const Range& piece,
                             uint8_t* quantized, RowValues* values) const noexcept {
  const int64_t stride = QuantizedStride();
  RowMap rows(quantized, stride);
  rows.origin -= static_cast<uintptr_t>(piece.row_begin * stride);
  RowCursor cursor(source, piece.row_begin);
  for (size_t i = 0; i < static_cast<size_t>(piece.row_end - piece.row_begin); ++i, quantized += stride) {
    const uint8_t* const x = cursor.Next();
    const bool is_by_rows = data_.problem.a_quantization == INTACT_QUANTIZATION_DYNAMIC_ROWS;
    const RowQuantization how = is_by_rows ? quantizer_.Choose(quantizer_.Scan(x, data_.k)) : tensor;
    quantizer_.Quantize(x, data_.k, how, quantized);
    values->zero_points[i] = how.zero_point;
    values->scales[i] = how.scale;
  }
  return rows;
}

void RowPreparer::CopyGiven(const RunBuffers& buffers, const Range& piece, RowValues* values) const noexcept {
  const int64_t rows = piece.row_end - piece.row_begin;
  const bool has_one = data_.problem.a_quantization == INTACT_QUANTIZATION_TENSOR;
  const auto copy = [&](const auto* from, auto* to) {
    has_one ? std::fill_n(to, rows, *from) : std::copy_n(from + piece.row_begin, rows, to);
  };
  if (buffers.given_zero_points == nullptr) {
    std::fill_n(values->zero_points.begin(), rows, 0);
  } else {
    copy(buffers.given_zero_points, values->zero_points.data());
  }
  if (buffers.given_scales != nullptr) copy(buffers.given_scales, values->scales.data());
}

void RowPreparer::FillWithoutScale(const RowValues& values, const OutputMap& output,
                                   const Range& piece) const noexcept {
  for (int64_t row = piece.row_begin; row < piece.row_end; ++row) {
    if (!std::isnan(values.scales[static_cast<size_t>(row - piece.row_begin)])) continue;
    FillWithNan(output, {row, row + 1, piece.column_begin, piece.column_end}, data_);
  }
}

RowQuantization RowPreparer::FindTensor(const Batch& batch, int threads) const {
  if (data_.problem.a_quantization != INTACT_QUANTIZATION_DYNAMIC_TENSOR) return {};
  return FindQuantization(quantizer_, batch.rows(), threads, [&](int64_t row, int64_t end) {
    NumberRange range;
    while (row < end) {
      const RowMap rows = RowsOf(batch.Item(row / batch.m()));
      const int64_t item_end = std::min(end, (row / batch.m() + 1) * batch.m());
      for (RowCursor cursor(rows, row % batch.m()); row < item_end; ++row) {
        range.Add(quantizer_.Scan(cursor.Next(), data_.k));
      }
    }
    return range;
  });
}

}  // namespace intact::kernels
