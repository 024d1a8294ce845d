#include "kernels/panel_engine.h"

#include <algorithm>
#include <cstring>

namespace intact::kernels {

void CopyTile(const uint8_t* from, int64_t from_stride_bytes, int64_t rows, int64_t row_bytes, uint8_t* to,
              int64_t to_stride_bytes) noexcept {
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(to + i * to_stride_bytes, from + i * from_stride_bytes, static_cast<size_t>(row_bytes));
  }
}

PanelEngine::PanelEngine(const GemmData& data, const KernelBlock& block)
    : data_(data),
      block_(block),
      lanes_(jit::MakeRegisterFile(block.isa).vector_bytes() / 4),
      nr_(lanes_ * block.vectors) {}

Result<std::unique_ptr<Engine>> PanelEngine::Create(const GemmData& data, const KernelBlock& block) {
  std::unique_ptr<PanelEngine> engine(new PanelEngine(data, block));
  Error error = engine->GenerateKernels();
  if (error.status != INTACT_OK) return error;
  return std::unique_ptr<Engine>(std::move(engine));
}

Error PanelEngine::GenerateKernels() {
  functions_.assign(size_t{2} * block_.vectors * block_.mr, nullptr);
  const int64_t edge = (data_.n % nr_ + lanes_ - 1) / lanes_;  // vectors of the last, narrower tiles
  MicrokernelSpec spec{block_.isa, block_.dot, block_.mr, block_.vectors, data_.epilogue};
  for (const int64_t vectors : {data_.n >= nr_ ? int64_t{block_.vectors} : int64_t{0}, edge}) {
    if (vectors == 0) continue;
    spec.vectors = static_cast<int>(vectors);
    if (kernel_name_.empty()) kernel_name_ = spec.Name();
    for (int rows = 1; rows <= block_.mr; ++rows) {
      for (const bool streams : {false, true}) {
        if (streams && !CanStream()) continue;
        MicrokernelSpec variant = spec;
        variant.mr = rows;
        variant.epilogue.streams = streams;
        const Result<MicrokernelFunction> function = GetMicrokernel(variant);
        if (!function) return function.error();
        functions_[Index(rows, vectors, streams)] = *function;
      }
    }
  }
  return {};
}

double PanelEngine::Cost(int64_t m) const {
  constexpr double kWideCost = 1.4;  // measured, from M = 4 on
  return static_cast<double>(m) * (block_.dot == jit::DotKind::kWide ? kWideCost : 1.0);
}

int64_t PanelEngine::PanelBytes(int64_t rows) const {
  return ActivationPanelBytes(rows, data_.k) / kQuad * jit::ActivationQuadBytes(block_.dot);
}

int64_t PanelEngine::NarrowBytes() const {
  return block_.dot == jit::DotKind::kWide ? RoundUp(ActivationPanelBytes(block_.mr, data_.k), 64) : 0;
}

int64_t PanelEngine::ScratchBytes(int64_t rows) const {
  return TileBytes() + NarrowBytes() +
         RoundUp(PanelBytes(std::min(rows, RowsPerBlock(data_.k, block_.mr))), 64);
}

void PanelEngine::RunRange(const RunBuffers& buffers, const Range& range, uint8_t* scratch) const noexcept {
  const int64_t block_rows = RowsPerBlock(data_.k, block_.mr);
  uint8_t* const narrow = scratch + TileBytes();
  uint8_t* const panels = narrow + NarrowBytes();
  for (int64_t block = range.row_begin; block < range.row_end; block += block_rows) {
    const int64_t block_end = std::min(range.row_end, block + block_rows);
    const auto panel_at = [&](int64_t row) { return panels + PanelBytes(row - block); };
    const auto rows_at = [&](int64_t row) { return std::min<int64_t>(block_.mr, block_end - row); };
    for (int64_t row = block; row < block_end; row += block_.mr) {
      Pack(buffers, row, rows_at(row), narrow, panel_at(row));
    }
    for (int64_t column = range.column_begin; column < range.column_end; column += nr_) {
      const int64_t columns = std::min<int64_t>(nr_, range.column_end - column);
      for (int64_t row = block; row < block_end; row += block_.mr) {
        RunTile(buffers, row, rows_at(row), column, columns, panel_at(row), scratch);
      }
    }
  }
}

void PanelEngine::Pack(const RunBuffers& buffers, int64_t row, int64_t rows, uint8_t* narrow,
                       uint8_t* panel) const noexcept {
  const bool is_wide = block_.dot == jit::DotKind::kWide;
  PackActivations(buffers.a + row * buffers.a_stride, buffers.a_stride, rows, data_.k, data_.a_flip(), rows,
                  is_wide ? narrow : panel);
  if (is_wide) WidenActivations(narrow, data_.weights.quads() * rows, panel);
}

void PanelEngine::RunTile(const RunBuffers& buffers, int64_t row, int64_t rows, int64_t column,
                          int64_t columns, const uint8_t* panel, uint8_t* scratch_tile) const noexcept {
  const int64_t vectors = (columns + lanes_ - 1) / lanes_;
  const bool is_edge = columns % lanes_ != 0;
  uint8_t* const c = buffers.c + row * buffers.c_stride_bytes + column * data_.element_bytes();
  MicrokernelArgs call;
  call.a = panel;
  call.b = data_.weights.Panel(column / kPanelColumns) + column % kPanelColumns * kQuad;
  call.b_panel_stride_bytes = data_.weights.panel_stride_bytes();
  call.quads = data_.weights.quads();
  call.c = is_edge ? scratch_tile : c;
  call.c_stride_bytes = is_edge ? int64_t{nr_} * data_.element_bytes() : buffers.c_stride_bytes;
  call.initial = data_.initial.data() + column;
  call.epilogue = data_.EpilogueAt(column);
  functions_[Index(rows, vectors, buffers.may_stream && CanStream() && !is_edge)](&call);
  if (!is_edge) return;
  CopyTile(scratch_tile, call.c_stride_bytes, rows, columns * data_.element_bytes(), c,
           buffers.c_stride_bytes);
}

}  // namespace intact::kernels
