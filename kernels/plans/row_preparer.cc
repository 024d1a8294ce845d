#include "kernels/plans/row_preparer.h"

#include <array>
#include <cmath>
#include <cstring>
#include <utility>

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

// Whole blocks of most engines, which stay in half of L2 until the engine reads them. The values of short
// rows must also stay in L1; if rows have less than a quad, their values take more memory than the rows.
int64_t RowPreparer::ChunkRows() const {
  constexpr int kUnit = 192;
  const int64_t most = data_.k < kQuad ? 2 * kUnit : 8 * kUnit;
  return std::min(RowsPerBlock(data_.k, kUnit), most);
}

bool RowPreparer::Prepare(const Range& chunk, uint8_t* copied, uint8_t* numbers, uint8_t* values,
                          RunBuffers* buffers) const noexcept {
  bool has_scales = true;
  if (data_.problem.IsDynamic()) {
    has_scales = Quantize(buffers->rows(), buffers->tensor, chunk, copied, numbers, values);
    buffers->a = RowMap::From(chunk.row_begin, copied, CopiedStride());
  } else if (buffers->IsTransposed()) {
    buffers->a = CopyTransposed(buffers->rows(), chunk.row_begin, chunk.row_end, copied, CopiedStride());
  }
  const bool has_given =
      !data_.problem.IsDynamic() && data_.problem.a_quantization != INTACT_QUANTIZATION_STATIC;
  if (has_given) CopyGiven(*buffers, chunk, values);
  if (data_.epilogue.has_b_zero_points) SumRows(buffers->rows(), chunk, values);
  return has_scales;
}

RowMap RowPreparer::CopyTransposed(const RowMap& a, int64_t row_begin, int64_t row_end, uint8_t* to,
                                   int64_t stride) const noexcept {
  Transpose(a.At(row_begin), a.depth_stride, row_end - row_begin, data_.k, data_.problem.a_bytes(), to,
            stride);
  return RowMap::From(row_begin, to, stride);
}

bool RowPreparer::AreOneRow(const RowMap& rows) const {
  return !rows.IsTransposed() && rows.stride == data_.k * data_.problem.a_bytes();
}

bool RowPreparer::Quantize(const RowMap& source, const RowQuantization& tensor, const Range& chunk,
                           uint8_t* quantized, uint8_t* numbers, uint8_t* values) const noexcept {
  const bool is_by_rows = data_.problem.a_quantization == INTACT_QUANTIZATION_DYNAMIC_ROWS;
  bool has_scales = is_by_rows || !std::isnan(tensor.scale);
  const int64_t padding = CopiedStride() - data_.k;
  if (!is_by_rows && padding < kQuad && AreOneRow(source)) {
    // A call for each short row takes longer than moving the quantized rows apart.
    const int64_t count = chunk.row_end - chunk.row_begin;
    const uint8_t* dense = quantized + count * padding;
    quantizer_.Quantize(source.At(chunk.row_begin), count * data_.k, tensor, quantized + count * padding);
    for (int64_t i = 0; i < count; ++i, quantized += CopiedStride(), dense += data_.k) {
      if (padding != 0) std::memmove(quantized, dense, static_cast<size_t>(data_.k));
      At(values, i)->zero_point = tensor.zero_point;
      At(values, i)->scale = tensor.scale;
    }
    return has_scales;
  }
  for (int64_t row = chunk.row_begin; row < chunk.row_end;) {
    const int64_t end = source.IsTransposed() ? std::min(chunk.row_end, row + NumberRows()) : chunk.row_end;
    const RowMap x_rows =
        source.IsTransposed() ? CopyTransposed(source, row, end, numbers, NumberStride()) : source;
    if (is_by_rows) {
      RowValues* const own = At(values, row - chunk.row_begin);
      has_scales &= quantizer_.QuantizeRows(x_rows, row, end, data_.k, quantized, CopiedStride(), own);
      quantized += (end - std::exchange(row, end)) * CopiedStride();
      continue;
    }
    for (RowCursor cursor(x_rows, row); row < end; ++row, quantized += CopiedStride()) {
      quantizer_.Quantize(cursor.Next(), data_.k, tensor, quantized);
      RowValues* const own = At(values, row - chunk.row_begin);
      own->zero_point = tensor.zero_point;
      own->scale = tensor.scale;
    }
  }
  return has_scales;
}

void RowPreparer::CopyGiven(const RunBuffers& buffers, const Range& chunk, uint8_t* values) const noexcept {
  const bool has_one = data_.problem.a_quantization == INTACT_QUANTIZATION_TENSOR;
  for (int64_t row = chunk.row_begin; row < chunk.row_end; ++row) {
    RowValues* const own = At(values, row - chunk.row_begin);
    const int64_t i = has_one ? 0 : row;
    own->zero_point = buffers.given_zero_points == nullptr ? 0 : buffers.given_zero_points[i];
    if (buffers.given_scales != nullptr) own->scale = buffers.given_scales[i];
  }
}

void RowPreparer::SumRows(const RowMap& rows, const Range& chunk, uint8_t* values) const noexcept {
  const int32_t factor = data_.epilogue.has_one_b_zero_point ? data_.problem.WeightZeroPoint(0) : 1;
  const auto sum = [&](int64_t begin, int64_t end, int32_t* sums) {
    row_sums_.Sum(rows, begin, end, std::get<GemmData>(plan_).taps(), sums);
    for (int64_t i = 0; i < end - begin; ++i) {
      sums[i] = static_cast<int32_t>(static_cast<uint32_t>(sums[i]) * static_cast<uint32_t>(factor));
    }
  };
  if (data_.epilogue.row_value_bytes() == sizeof(int32_t)) {
    return sum(chunk.row_begin, chunk.row_end, reinterpret_cast<int32_t*>(values));
  }
  constexpr int64_t kAtOnce = 256;
  std::array<int32_t, kAtOnce> sums;
  for (int64_t row = chunk.row_begin; row < chunk.row_end; row += kAtOnce) {
    const int64_t count = std::min(chunk.row_end - row, kAtOnce);
    sum(row, row + count, sums.data());
    for (int64_t i = 0; i < count; ++i) {
      At(values, row - chunk.row_begin + i)->sum = sums[static_cast<size_t>(i)];
    }
  }
}

void RowPreparer::FillWithoutScale(uint8_t* values, const OutputMap& output,
                                   const Range& chunk) const noexcept {
  for (int64_t row = chunk.row_begin; row < chunk.row_end; ++row) {
    if (!std::isnan(At(values, row - chunk.row_begin)->scale)) continue;
    FillWithNan(output, {row, row + 1, chunk.column_begin, chunk.column_end}, data_.problem.output.c_type);
  }
}

// Lines are rows, or depths of a transposed A.
RowQuantization RowPreparer::FindTensorOf(const Batch& batch, int threads) const {
  const bool transposed = IsTransposed(batch.args());
  const int64_t item_lines = transposed ? data_.k : batch.m(), numbers = transposed ? batch.m() : data_.k;
  return FindQuantization(quantizer_, batch.items() * item_lines, threads, [&](int64_t line, int64_t end) {
    NumberRange range;
    while (line < end) {
      RowMap rows = RowsOf(batch.Item(line / item_lines), transposed);
      if (transposed) rows.stride = rows.depth_stride;
      const int64_t item_end = std::min(end, (line / item_lines + 1) * item_lines);
      if (AreOneRow(rows)) {
        range.Add(quantizer_.Scan(rows.At(line % item_lines), (item_end - line) * numbers));
        line = item_end;
        continue;
      }
      for (RowCursor cursor(rows, line % item_lines); line < item_end; ++line) {
        range.Add(quantizer_.Scan(cursor.Next(), numbers));
      }
    }
    return range;
  });
}

}  // namespace intact::kernels
