#include "kernels/engines/narrow_engine.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "jit/isa.h"
#include "kernels/codegen/microkernel.h"
#include "kernels/engines/cost_table.h"

namespace intact::kernels {
namespace {

constexpr int64_t kMostColumns = 8;
// Without VNNI, if outputs go through scratch.
constexpr int64_t kMostScratchQuads = 2;
// Each step reads a part of a line of each row. The sets of L1 hold fewer lines of rows 4096 bytes apart.
constexpr int64_t kMostDepth = 2048;
// The rows that are stored through scratch at a time: whole tiles.
constexpr int64_t kScratchRows = 128;

const NarrowCosts& CostsOf(core::Isa isa) {
  const VectorCosts& costs = Costs().Of(isa);
  return DotOf(isa, INTACT_EXACT) == jit::DotKind::kVnni ? costs.narrow_vnni : costs.narrow_wide;
}

}  // namespace

// Without VNNI, this engine is 1.1 to 4 times as fast as schedules up to the depth tested here, and 0.8 times as
// fast beyond (Zen 5). Columns that fill a vector leave no lanes to quads, but these kernels need no pointers to rows, and
// have more rows: with VNNI 1.06 to 1.25 times as fast as panels there, at depths of 64 to 1440. Ymm registers have no
// masks of bytes, so rows there must be whole quads, or have a whole step.
bool NarrowEngine::TakesRows(const LinearProblem& problem, int64_t n, int64_t k, core::Isa isa) {
  if (core::IsCompiled(isa) || PairsSaturate(isa, problem.mode) || problem.has_runtime_b) return false;
  if (problem.output.has_residual()) return false;
  const int64_t lanes = jit::VectorBytes(isa) / 4, width = PanelWidth(n), quads = CeilDivide(k, kQuad);
  const bool is_vnni = DotOf(isa, INTACT_EXACT) == jit::DotKind::kVnni;
  const bool is_shallow = quads * width * width <= 4 * lanes * lanes;
  if (!is_vnni && !is_shallow) return false;
  const bool is_narrow = n <= kMostColumns && width < lanes;
  const bool has_scratch = lanes == 8 && n != width && !is_vnni;
  const bool is_whole = n <= lanes && width == lanes && !(has_scratch && quads > kMostScratchQuads);
  return (is_whole || (is_narrow && !problem.HasRowValues())) && k <= kMostDepth &&
         (lanes == 16 || k % kQuad == 0 || k >= StepBytes(isa, n));
}

bool NarrowEngine::TakesTaps(core::Isa isa, int64_t n, int64_t depth, int64_t line_rows) {
  return depth % StepBytes(isa, n) == 0 && line_rows >= jit::VectorBytes(isa) / 4;
}

bool NarrowEngine::CanRun(const GemmData& data, core::Isa isa) {
  const Taps& taps = data.taps();
  if (!TakesRows(data.problem, data.n, data.k, isa) || taps.vector_step != 0 || taps.shared) return false;
  if (taps.count() > 1) return TakesTaps(isa, data.n, taps.depth, taps.line_rows);
  return taps.offsets.front() == 0 && taps.depth == data.k && !taps.HasLineEnds();
}

NarrowEngine::NarrowEngine(const GemmData& data, core::Isa isa) : data_(data) {
  spec_.isa = isa;
  spec_.width = data.weights.width;
  spec_.columns = spec_.lanes() == 16 ? static_cast<int>(data.n) : spec_.width;
  spec_.has_taps = has_taps();
  step_rows_ = has_taps() ? 1 : spec_.MostStepRows(data.k);
  for (int64_t tap = 0; tap < data.taps().count(); ++tap) joined_taps_.push_back(tap * data.taps().depth);
  if (has_taps()) tail_rows_ = TailRows(isa, data.n, data.taps().line_rows);
  const int64_t tail = data.k % step_bytes();
  std::fill_n(tail_quads_.begin(), tail / kQuad, -1);
  using Tail = NarrowKernelSpec::Tail;
  spec_.tail = tail == 0 ? Tail::kNone : data.k < step_bytes() ? Tail::kMasked : Tail::kOverlaps;
  spec_.shifts = data.a_shift() != 0;
  spec_.epilogue = data.epilogue;
}

Error NarrowEngine::Build() {
  ASSIGN_OR_RETURN(kernel_, GetNarrowKernel(spec_));
  if (MayStream()) {
    NarrowKernelSpec spec = spec_;
    spec.epilogue.variant.streams = true;
    ASSIGN_OR_RETURN(streaming_kernel_, GetNarrowKernel(spec));
  }
  if (tail_rows_ != 0) {
    NarrowKernelSpec spec = spec_;
    spec.rows = static_cast<int>(tail_rows_);
    ASSIGN_OR_RETURN(tail_kernel_, GetNarrowKernel(spec));
  }
  if (step_rows_ > 1) {
    NarrowKernelSpec spec = spec_;
    spec.step_rows = step_rows_;
    spec.tail = NarrowKernelSpec::Tail::kNone;
    ASSIGN_OR_RETURN(rows_kernel_, GetNarrowKernel(spec));
    const int64_t row_bytes = data_.weights.quads() * data_.weights.quad_bytes();
    for (size_t i = 0; i < repeated_quads_.size(); ++i) {
      repeated_quads_[i] = data_.weights.data[static_cast<int64_t>(i) % row_bytes];
    }
  }
  if (spec_.tail == NarrowKernelSpec::Tail::kOverlaps) SetTail();
  if (!data_.HasPerRunColumnConstants()) SetLanes({}, &lanes_);
  return {};
}

void NarrowEngine::SetTail() {
  const auto at = [&](int64_t depth, int column) {
    return OffsetInPanel(depth, column, data_.weights.quad_bytes());
  };
  const int64_t first = data_.k - step_bytes();
  for (int64_t depth = data_.k / step_bytes() * step_bytes(); depth < data_.k; ++depth) {
    for (int column = 0; column < spec_.width; ++column) {
      tail_panel_[static_cast<size_t>(at(depth - first, column))] = data_.weights.data[at(depth, column)];
    }
  }
}

void NarrowEngine::SetLanes(const RunBuffers& buffers, Lanes* lanes) const noexcept {
  const EpilogueArgs args = data_.EpilogueAt(buffers, buffers.row_values_begin, 0);
  const auto repeat = [&](const void* columns, Values* to) -> const void* {
    if (columns == nullptr) return nullptr;
    const auto width = static_cast<size_t>(spec_.columns);
    for (size_t i = 0; i < to->size(); i += width) {
      std::memcpy(to->data() + i, columns, std::min(width, to->size() - i) * sizeof(int32_t));
    }
    return to->data();
  };
  repeat(data_.CompensationOf(buffers), &lanes->compensation);
  lanes->epilogue = args;
  lanes->epilogue.factors = repeat(args.factors, &lanes->factors);
  lanes->epilogue.addends = repeat(args.addends, &lanes->addends);
}

double NarrowEngine::RowCost(core::Isa isa, int64_t n, int64_t k) {
  const NarrowCosts& costs = CostsOf(isa);
  const int64_t lanes = jit::VectorBytes(isa) / 4, step_bytes = StepBytes(isa, n);
  const auto steps = static_cast<double>(CeilDivide(k, step_bytes));
  if (step_bytes > kQuad) return costs.row + steps * costs.step;
  constexpr double kScratchRow = 1.5;  // an output that goes through scratch, measured with AVX2 at 65536×7×8
  const bool has_scratch = lanes == 8 && n != lanes;
  return costs.whole_row + (has_scratch ? kScratchRow : 0) + steps * costs.whole_step;
}

int64_t NarrowEngine::TailRows(core::Isa isa, int64_t n, int64_t rows) {
  const int64_t lanes = jit::VectorBytes(isa) / 4;
  const int64_t tail = PanelWidth(n) == lanes && lanes > kInFlight ? RoundUp(rows % lanes, 4) : 0;
  return tail == lanes ? 0 : tail;
}

double NarrowEngine::LineCost(core::Isa isa, int64_t n, int64_t k, int64_t rows) {
  const int64_t lanes = jit::VectorBytes(isa) / 4, last = rows % lanes, tail = TailRows(isa, n, rows);
  // A tile of few rows waits for the latency of products.
  const int64_t computed = rows - last +
                           (last == 0   ? 0
                            : tail == 0 ? lanes
                                        : std::max<int64_t>(tail, kInFlight));
  return CostsOf(isa).call * (last == 0 ? 1 : 2) + static_cast<double>(computed) * RowCost(isa, n, k);
}

// Assumes that rows of one tap have no gaps.
double NarrowEngine::Cost(int64_t m) const {
  const NarrowCosts& costs = CostsOf(spec_.isa);
  const int64_t tile = spec_.tile_rows();
  double cost = costs.run;
  if (has_taps()) {
    const int64_t line = data_.taps().line_rows, lines = m / line;
    cost += static_cast<double>(lines) * LineCost(spec_.isa, data_.n, data_.k, line);
    m -= lines * line;
  }
  cost += static_cast<double>(RoundUp(m, tile)) * RowCost(spec_.isa, data_.n, data_.k) / step_rows_;
  if (spec_.quads() == 1 && m % tile != 0) {
    // Rows behind the last whole tile take another call. Fewer rows than a tile are copied one by one, and so are their
    // outputs.
    cost += costs.call + (m < tile ? costs.copied_row * static_cast<double>(m) : 0);
  }
  // Of a vector; HalfCycles() is of 16 columns.
  const double product = HalfCycles(spec_.isa) * spec_.lanes() / kPanelColumns;
  return cost / static_cast<double>(data_.weights.quads()) / product;
}

void NarrowEngine::RunRange(const RunBuffers& buffers, const Range& range, uint8_t* scratch) const noexcept {
  if (buffers.columns == nullptr) return RunRange(lanes_, buffers, range, scratch);
  Lanes own;
  SetLanes(buffers, &own);
  RunRange(own, buffers, range, scratch);
}

NarrowKernelArgs NarrowEngine::MakeArgs(const Lanes& lanes) const noexcept {
  NarrowKernelArgs args;
  args.steps = (has_taps() ? data_.taps().depth : data_.k) / step_bytes();
  SetTaps(&args);
  args.tail_bytes = (uint64_t{1} << data_.k % step_bytes()) - 1;
  args.tail_quads = tail_quads_.data();
  args.overlap = step_bytes() - data_.k % step_bytes();
  args.tail_b = tail_panel_.data();
  args.compensation = lanes.compensation.data();
  args.c_vector_bytes = spec_.quads() * spec_.columns * data_.element_bytes();
  args.epilogue = lanes.epilogue;
  return args;
}

void NarrowEngine::RunRange(const Lanes& lanes, const RunBuffers& buffers, const Range& range,
                            uint8_t* scratch) const noexcept {
  NarrowKernelArgs args = MakeArgs(lanes);
  const int64_t tile_rows = spec_.tile_rows();
  const RowMap& rows = buffers.rows();
  RowCursor cursor(rows, range.row_begin);
  for (int64_t row = range.row_begin; row < range.row_end;) {
    const int64_t left = std::min(range.row_end - row, cursor.rows_left());
    const int64_t evenly = left / tile_rows * tile_rows;
    if (evenly != 0) {
      const uint8_t* const a = cursor.Skip(left);
      args.epilogue.row_values = data_.RowValuesAt(buffers, row);
      RunTiles(buffers, a, rows.stride, row, evenly, &args);
      if (left != evenly) {
        // The last tile computes some rows again.
        const int64_t last = left - LastTile(left);
        args.epilogue.row_values = data_.RowValuesAt(buffers, row + last);
        RunTiles(buffers, a + last * rows.stride, rows.stride, row + last, left - last, &args);
      }
      row += left;
      continue;
    }
    const int64_t copied = std::min(range.row_end - row, tile_rows);
    uint8_t* to = scratch;
    for (int64_t i = 0; i < copied; ++i) {
      const uint8_t* const from = cursor.Next();
      for (const int64_t tap : data_.taps().offsets) {
        CopyRow(from + tap, data_.taps().depth, to);
        to += data_.taps().depth;
      }
    }
    std::memset(to, 0, static_cast<size_t>((tile_rows - copied) * data_.k));
    args.taps = joined_taps_.data();
    args.taps_end = args.taps + joined_taps_.size();
    std::array<RowValues, 16> values;  // of a whole tile
    if (const uint8_t* const own = data_.RowValuesAt(buffers, row); own != nullptr) {
      std::memcpy(values.data(), own, static_cast<size_t>(copied * data_.epilogue.row_value_bytes()));
      args.epilogue.row_values = reinterpret_cast<const uint8_t*>(values.data());
    }
    RunTiles(buffers, scratch, data_.k, row, copied, &args);
    SetTaps(&args);
    row += copied;
  }
}

// Keeps the calls of RunRange() for rows that lie evenly and are stored in C. Otherwise a range has few calls, and their
// arguments are soon set.
class NarrowEngine::BoundRange final : public BoundCalls {
 public:
  BoundRange(const NarrowEngine& engine, const RunBuffers& buffers, const Range& range, uint8_t* scratch)
      : engine_(engine), buffers_(buffers), range_(range), scratch_(scratch) {
    const RowMap& rows = buffers_.rows();
    RowCursor cursor(rows, range.row_begin);
    const int64_t count = range.row_end - range.row_begin, tile_rows = engine.spec_.tile_rows();
    if (cursor.rows_left() < count || count < tile_rows || buffers_.columns != nullptr) return;
    const uint8_t* const a = cursor.Skip(count);
    Keep(a, 0, count / tile_rows * tile_rows);
    const int64_t last = count - engine.LastTile(count);
    if (count % tile_rows != 0) Keep(a + last * rows.stride, last, count - last);
  }
  void Run() const noexcept override {
    if (calls_[0].kernel == nullptr) return engine_.RunRange(buffers_, range_, scratch_);
    for (const Call& call : calls_) {
      if (call.kernel == nullptr) return;
      NarrowKernelArgs args = call.args;
      (*call.kernel)(&args);
    }
  }
  size_t count() const override { return calls_.size(); }

 private:
  struct Call {
    const NarrowFunction* kernel = nullptr;
    NarrowKernelArgs args;
  };

  void Keep(const uint8_t* a, int64_t row, int64_t rows) {
    Call& call = calls_[row == 0 ? 0 : 1];
    call.args = engine_.MakeArgs(engine_.lanes_);
    call.args.epilogue.row_values = engine_.data_.RowValuesAt(buffers_, range_.row_begin + row);
    call.kernel =
        engine_.KernelFor(buffers_, a, buffers_.rows().stride, range_.row_begin + row, rows, &call.args);
  }

  const NarrowEngine& engine_;
  RunBuffers buffers_;
  Range range_;
  uint8_t* scratch_;
  std::array<Call, 2> calls_;  // without kernels: RunRange()
};

std::unique_ptr<BoundCalls> NarrowEngine::Bind(const RunBuffers& buffers, const Range& range,
                                               uint8_t* scratch) const {
  if (range.row_end - range.row_begin > kMostBoundRows || buffers.may_stream) return nullptr;
  return std::make_unique<BoundRange>(*this, buffers, range, scratch);
}

// The kernel for whole tiles, or for a tile of `rows` rows, at a distance of `stride`.
const NarrowFunction& NarrowEngine::KernelFor(int64_t stride, int64_t rows,
                                              NarrowKernelArgs* args) const noexcept {
  args->stride = stride;
  args->tiles = CeilDivide(rows, spec_.tile_rows());
  args->b = data_.weights.data;
  if (rows == tail_rows_) return tail_kernel_;
  if (step_rows_ == 1 || stride != data_.k) return kernel_;
  args->b = repeated_quads_.data();
  return rows_kernel_;
}

const NarrowFunction* NarrowEngine::KernelFor(const RunBuffers& buffers, const uint8_t* a, int64_t stride,
                                              int64_t row, int64_t rows,
                                              NarrowKernelArgs* args) const noexcept {
  const int64_t row_bytes = int64_t{spec_.columns} * data_.element_bytes();
  const bool is_dense = data_.n == spec_.columns && buffers.output.c_stride_bytes == row_bytes;
  if (!is_dense || (rows % spec_.tile_rows() != 0 && rows != tail_rows_)) return nullptr;
  const NarrowFunction& kernel = KernelFor(stride, rows, args);
  args->a = a;
  args->c = buffers.output.C(row, 0);
  const bool streams = MayStream() && rows != tail_rows_ && Streams(buffers, data_, spec_.isa, 0);
  return streams ? &streaming_kernel_ : &kernel;
}

void NarrowEngine::RunTiles(const RunBuffers& buffers, const uint8_t* a, int64_t stride, int64_t row,
                            int64_t rows, NarrowKernelArgs* args) const noexcept {
  if (const NarrowFunction* const kernel = KernelFor(buffers, a, stride, row, rows, args);
      kernel != nullptr) {
    (*kernel)(args);
    return;
  }
  alignas(64) std::array<uint8_t, ScratchTile::Bytes(kScratchRows, kPanelColumns, 4)> bytes;
  for (int64_t done = 0; done < rows; done += kScratchRows) {
    const int64_t some = std::min(rows - done, kScratchRows);
    const ScratchTile tile(buffers.output, some, spec_.columns, bytes.data());
    const NarrowFunction& kernel = KernelFor(stride, some, args);
    args->a = a + done * stride;
    args->c = tile.map().c;
    kernel(args);
    tile.Store(row + done, 0, data_.n);
    if (args->epilogue.row_values != nullptr) {
      args->epilogue.row_values += some * data_.epilogue.row_value_bytes();
    }
  }
}

}  // namespace intact::kernels
