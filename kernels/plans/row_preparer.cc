#include "kernels/plans/row_preparer.h"

#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/types.h"
#include "kernels/runtime/threads.h"
#include "kernels/staging/transpose.h"

namespace intact::kernels {
namespace {

// Outputs of rows that have no scale are NaNs, see the contract.
void FillWithNan(intact_type c_type, int64_t columns, uint8_t* c) {
  const uint32_t nan = c_type == INTACT_F32 ? 0x7fc00000 : c_type == INTACT_F16 ? 0x7e00 : 0x7fc0;
  const auto bytes = static_cast<size_t>(core::BytesOf(c_type));
  for (int64_t i = 0; i < columns; ++i, c += bytes) std::memcpy(c, &nan, bytes);
}

}  // namespace

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

RowMap RowPreparer::RowsOf(const intact_gemm_args& item) const {
  const int bytes = data_.problem.a_bytes();
  RowMap rows(static_cast<const uint8_t*>(item.a), item.a_stride * bytes);
  if (item.a_transposed != 0) rows.depth_stride = std::exchange(rows.stride, bytes);
  return rows;
}

void RowPreparer::Prepare(const Range& piece, uint8_t* copied, uint8_t* numbers, RowValues* values,
                          RunBuffers* buffers) const noexcept {
  if (data_.problem.IsDynamic()) {
    buffers->a = Quantize(buffers->rows(), buffers->tensor, piece, copied, numbers, values);
  } else if (buffers->IsTransposed()) {
    buffers->a = CopyTransposed(buffers->rows(), piece.row_begin, piece.row_end, copied, CopiedStride());
  }
  if (data_.problem.a_quantization == INTACT_QUANTIZATION_ROWS) CopyGiven(*buffers, piece, values);
  if (data_.epilogue.has_b_zero_points) {
    row_sums_.Sum(buffers->rows(), piece.row_begin, piece.row_end, data_.taps(), values->sums.data());
  }
}

RowMap RowPreparer::CopyTransposed(const RowMap& a, int64_t row_begin, int64_t row_end, uint8_t* to,
                                   int64_t stride) const noexcept {
  Transpose(a.At(row_begin), a.depth_stride, row_end - row_begin, data_.k, data_.problem.a_bytes(), to,
            stride);
  return RowMap::From(row_begin, to, stride);
}

RowMap RowPreparer::Quantize(const RowMap& source, const RowQuantization& tensor, const Range& piece,
                             uint8_t* quantized, uint8_t* numbers, RowValues* values) const noexcept {
  const bool is_by_rows = data_.problem.a_quantization == INTACT_QUANTIZATION_DYNAMIC_ROWS;
  const RowMap rows = RowMap::From(piece.row_begin, quantized, CopiedStride());
  for (int64_t row = piece.row_begin; row < piece.row_end;) {
    const int64_t end = source.IsTransposed() ? std::min(piece.row_end, row + NumberRows()) : piece.row_end;
    const RowMap x_rows =
        source.IsTransposed() ? CopyTransposed(source, row, end, numbers, NumberStride()) : source;
    for (RowCursor cursor(x_rows, row); row < end; ++row, quantized += CopiedStride()) {
      const uint8_t* const x = cursor.Next();
      const RowQuantization how = is_by_rows ? quantizer_.Choose(quantizer_.Scan(x, data_.k)) : tensor;
      quantizer_.Quantize(x, data_.k, how, quantized);
      const auto i = static_cast<size_t>(row - piece.row_begin);
      values->zero_points[i] = how.zero_point;
      values->scales[i] = how.scale;
    }
  }
  return rows;
}

void RowPreparer::CopyGiven(const RunBuffers& buffers, const Range& piece, RowValues* values) const noexcept {
  const int64_t rows = piece.row_end - piece.row_begin;
  if (buffers.given_zero_points == nullptr) {
    std::fill_n(values->zero_points.begin(), rows, 0);
  } else {
    std::copy_n(buffers.given_zero_points + piece.row_begin, rows, values->zero_points.begin());
  }
  if (buffers.given_scales == nullptr) return;
  std::copy_n(buffers.given_scales + piece.row_begin, rows, values->scales.begin());
}

void RowPreparer::FillWithoutScale(const RowValues& values, const OutputMap& output,
                                   const Range& piece) const noexcept {
  const intact_type c_type = data_.problem.output.c_type;
  if (!core::IsFloat(c_type)) return;
  for (int64_t row = piece.row_begin; row < piece.row_end; ++row) {
    if (!std::isnan(values.scales[static_cast<size_t>(row - piece.row_begin)])) continue;
    FillWithNan(c_type, piece.column_end - piece.column_begin, output.C(row, piece.column_begin));
  }
}

// Shares of many threads: each finds the range of some rows, or of some depths of a transposed A.
RowQuantization RowPreparer::FindTensor(const Batch& batch, int threads) const {
  if (data_.problem.a_quantization != INTACT_QUANTIZATION_DYNAMIC_TENSOR) return {};
  const ScopedFloatEnvironment float_environment;
  constexpr int kMostShares = 64;
  std::array<NumberRange, kMostShares> ranges;
  const int shares = std::min(threads, kMostShares);
  const bool transposed = RowsOf(batch.Item(0)).IsTransposed();
  const int64_t item_lines = transposed ? data_.k : batch.m(), numbers = transposed ? batch.m() : data_.k;
  const int64_t lines = batch.items() * item_lines;
  RunParts({shares, shares}, [&](int share, int /*thread*/) {
    const ScopedFloatEnvironment of_the_thread;
    NumberRange* const range = &ranges[static_cast<size_t>(share)];
    const int64_t end = lines * (share + 1) / shares;
    for (int64_t line = lines * share / shares; line < end;) {
      RowMap rows = RowsOf(batch.Item(line / item_lines));
      if (transposed) rows.stride = rows.depth_stride;
      const int64_t item_end = std::min(end, (line / item_lines + 1) * item_lines);
      for (RowCursor cursor(rows, line % item_lines); line < item_end; ++line) {
        range->Add(quantizer_.Scan(cursor.Next(), numbers));
      }
    }
  });
  for (int share = 1; share < shares; ++share) ranges[0].Add(ranges[static_cast<size_t>(share)]);
  return quantizer_.Choose(ranges[0]);
}

}  // namespace intact::kernels
