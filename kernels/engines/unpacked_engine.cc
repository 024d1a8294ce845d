#include "kernels/engines/unpacked_engine.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "jit/isa.h"
#include "kernels/engines/block_cost.h"
#include "kernels/engines/cost_table.h"

namespace intact::kernels {
namespace {

constexpr std::array<uint8_t, kPanelQuadBytes> kZeros = {};  // a quad of A, and of a panel of B

}  // namespace

bool UnpackedEngine::CanRun(const GemmData& data, core::Isa isa) {
  return data.problem.has_runtime_b && !core::IsCompiled(isa) && !PairsSaturate(isa, data.problem.mode) &&
         UnpackedProduct::Exists(data.linear->layout());
}

Result<std::unique_ptr<Engine>> UnpackedEngine::Create(const GemmData& data, core::Isa isa) {
  std::unique_ptr<UnpackedEngine> engine(new UnpackedEngine(data, isa));
  MicrokernelSpec spec;
  spec.isa = VectorIsa(isa);
  spec.dot = DotOf(isa, INTACT_SATURATING);  // of zeros: nothing saturates
  spec.epilogue = data.epilogue;
  for (size_t i = 0; i < kStores.size(); ++i) {
    spec.vectors = kStores[i] * kQuad / jit::VectorBytes(spec.isa);
    ASSIGN_OR_RETURN(engine->stores_[i], GetMicrokernel(spec));
  }
  engine->kernel_name_ = "u8s8" + data.epilogue.Name() + "_gemm_unpacked_" + engine->product_.name + "_";
  engine->kernel_name_ += core::CompactName(isa);
  return std::unique_ptr<Engine>(std::move(engine));
}

double UnpackedEngine::Cost(int64_t m) const {
  const UnpackedCosts& costs = *product_.costs;
  const int64_t rows = m + (NeedsColumnSums(data_.problem) ? CeilDivide(m, kRows) : 0);
  const double outputs =
      costs.outputs * static_cast<double>(m) / static_cast<double>(CeilDivide(data_.k, kQuad));
  const double quad = costs.quad * static_cast<double>(CeilDivide(rows, UnpackedProduct::kRowsAtOnce)) +
                      costs.row * static_cast<double>(rows);
  return (quad + outputs) / HalfCycles(VectorIsa(isa_));
}

int64_t UnpackedEngine::ScratchBytes(int64_t rows) const {
  const int64_t all_rows = std::min<int64_t>(rows, kRows) + 1;
  return PaddedDepth() + all_rows * (product_.RowBytes(data_.k) + SumsStride() * 4) +
         data_.ScratchTileBytes(1, kPanelColumns);
}

void UnpackedEngine::RunRange(const RunBuffers& buffers, const Range& range,
                              uint8_t* scratch) const noexcept {
  const bool needs_sums = NeedsColumnSums(data_.problem);
  const int64_t rows_at_once = std::min<int64_t>(range.row_end - range.row_begin, kRows);
  const int64_t row_bytes = product_.RowBytes(data_.k);
  const int64_t stride = SumsStride();
  uint8_t* const padded = scratch;
  uint8_t* const staged = padded + PaddedDepth();
  auto* const sums = reinterpret_cast<int32_t*>(staged + (rows_at_once + 1) * row_bytes);
  auto* const scratch_tile = reinterpret_cast<uint8_t*>(sums + (rows_at_once + 1) * stride);
  WeightView b = data_.linear->layout();
  b.data = buffers.weights->b;
  const int64_t columns = range.column_end - range.column_begin;
  const auto depths = static_cast<size_t>(data_.k);
  std::memset(padded + depths, 0, static_cast<size_t>(PaddedDepth()) - depths);
  for (int64_t block = range.row_begin; block < range.row_end; block += rows_at_once) {
    const int64_t rows = std::min(rows_at_once, range.row_end - block);
    for (int64_t i = 0; i < rows; ++i) {
      CopyActivations(buffers.rows().At(block + i), data_.k, data_.a_shift(), padded);
      product_.stage(padded, PaddedDepth(), staged + i * row_bytes);
    }
    if (needs_sums) {
      std::memset(padded, 1, depths);
      product_.stage(padded, PaddedDepth(), staged + rows * row_bytes);
    }
    const int64_t all_rows = rows + (needs_sums ? 1 : 0);
    std::fill_n(sums, all_rows * stride, 0);
    product_.add(b, range.column_begin, range.column_end, staged, all_rows, sums, stride);
    if (needs_sums && block == range.row_begin) {
      int32_t* const column_sums = buffers.weights->own_sums + range.column_begin;
      std::copy_n(sums + rows * stride, columns, column_sums);
      std::fill_n(column_sums + columns, RoundUp(columns, kPanelColumns) - columns, 0);
      FinishColumns(*data_.linear, *buffers.weights, range.column_begin, range.column_end);
    }
    for (int64_t i = 0; i < rows; ++i) {
      int32_t* const row_sums = sums + i * stride;
      const int32_t* const compensation = buffers.columns->compensation + range.column_begin;
      for (int64_t n = 0; n < columns; ++n) {
        row_sums[n] =
            static_cast<int32_t>(static_cast<uint32_t>(row_sums[n]) + static_cast<uint32_t>(compensation[n]));
      }
      StoreRow(buffers, block + i, range, row_sums, scratch_tile);
    }
  }
}

void UnpackedEngine::StoreRow(const RunBuffers& buffers, int64_t row, const Range& range, const int32_t* sums,
                              uint8_t* scratch_tile) const noexcept {
  static constexpr int64_t kTap = 0;
  const uint8_t* const zeros = kZeros.data();
  MicrokernelArgs call;
  call.taps = &kTap;
  call.taps_end = call.taps + 1;
  call.tap_bytes = kQuad;
  for (int64_t column = range.column_begin; column < range.column_end;) {
    const int64_t left = range.column_end - column;
    const bool is_wide = left >= kStores[1];
    const int64_t columns = is_wide ? kStores[1] : std::min(left, int64_t{kStores[0]});
    call.tiles = 1;
    call.rows = &zeros;
    call.b = zeros;
    call.c = buffers.output.C(row, column);
    call.compensation = sums + column - range.column_begin;
    call.epilogue = data_.EpilogueAt(buffers, row, column);
    if (columns < kStores[0]) return StoreEdge(buffers, row, column, columns, scratch_tile, &call);
    stores_[is_wide ? 1 : 0](&call);
    column += columns;
  }
}

// Stores fewer columns than a panel.
void UnpackedEngine::StoreEdge(const RunBuffers& buffers, int64_t row, int64_t column, int64_t columns,
                               uint8_t* scratch_tile, MicrokernelArgs* call) const noexcept {
  const ScratchTile tile(buffers.output, 1, kPanelColumns, scratch_tile);
  tile.Load(row, column, columns);
  call->c = tile.map().c;
  call->epilogue.residual = tile.map().residual;
  call->epilogue.residual_stride_bytes = tile.map().residual_stride_bytes;
  stores_[0](call);
  tile.Store(row, column, columns);
}

}  // namespace intact::kernels
