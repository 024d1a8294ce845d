// GEMM with columns in the vectors' lanes and broadcast rows of A (microkernel.h), from the canonical B
// panels or from weights scheduled by vectors (scheduled_vectors.h).
//
//   RunRange ─► blocks of rows (A, in a quarter of L2, but at least 128 rows)
//            ─► chunks of columns (B, in an eighth of L2; the next chunk is prefetched meanwhile)
//            ─► tiles of mr×nr: a call for each nr columns runs several tiles
//
// A is read in place if kernels can do so. BlockCost::IsStaged() lists the reasons why they cannot. Then rows
// are staged, a block at a time, with their taps joined. The wide variant stages bands, and rows without
// gaps, in one pass: it keeps their layout and widens each byte to int16. If C ends
// within a vector of columns, zmm kernels mask this vector, and other tiles at this edge go through scratch on
// the stack.
//
// Kernels for tiles of one height are generated when PrepareRows() or the first run of such a tile needs them. If
// generation fails, tiles of one row take the place of higher tiles, and of row kernels (row_kernel.h), which compute a
// range of one row. If their generation fails too, the portable
// engine computes the rows. It does not compute every block's bytes (IsPortable()). Engines of other blocks are
// created with kernels of one row.
#ifndef INTACT_KERNELS_ENGINES_PANEL_ENGINE_H_
#define INTACT_KERNELS_ENGINES_PANEL_ENGINE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "kernels/codegen/dispatch.h"
#include "kernels/codegen/microkernel.h"
#include "kernels/codegen/row_kernel.h"
#include "kernels/engines/block_cost.h"
#include "kernels/engines/engine.h"
#include "kernels/weights/lazy_schedule.h"
#include "kernels/weights/scheduled_vectors.h"

namespace intact::kernels {

class PanelEngine final : public Engine {
 public:
  using Schedule = LazyScheduleOf<ScheduledVectors>;
  /// `data` must outlive the engine. `schedule`: null for variants other than the scheduled one. `wide`:
  /// null, or the weights of the wide variant. `most_rows`: the most rows that runs are expected to have. If
  /// L1 holds these rows, no run prefetches rows of A. A CODEGEN_FAILED error names the kernel.
  static Result<std::unique_ptr<Engine>> Create(const GemmData& data, const KernelBlock& block,
                                                std::shared_ptr<const Schedule> schedule,
                                                std::shared_ptr<const WidePanels> wide, int64_t most_rows);

  EngineId id() const override { return {EngineId::Kind::kPanels, block_}; }
  EngineTile tile() const override { return {block_.mr, nr_, lanes_}; }
  std::string KernelName() const override;
  std::string KernelNameFor(int64_t m) const override;
  int64_t packed_bytes() const override {
    return static_cast<int64_t>(compensation_.bytes()) + (schedule_ == nullptr ? 0 : schedule_->bytes()) +
           (wide_ == nullptr ? 0 : wide_->bytes());
  }
  Error FindSchedule(int threads) const override {
    return schedule_ == nullptr ? Error() : schedule_->Find(threads);
  }
  std::shared_ptr<const LazySchedule> panel_source() const override { return schedule_; }
  ScheduleStatistics statistics() const override {
    return schedule_ == nullptr ? ScheduleStatistics() : schedule_->statistics();
  }
  RuntimeForm runtime_form() const override {
    return block_.packing == Packing::kCutPanels ? RuntimeForm::kCutPanels : RuntimeForm::kPanels;
  }
  double Cost(int64_t m) const override { return cost_.Of(m); }
  int64_t ScratchBytes(int64_t rows) const override;
  bool LeavesOutPadding(int64_t row_begin, int64_t row_end) const noexcept override;
  Error PrepareRows(int64_t rows, bool or_fewer) const override;
  void RunRange(const RunBuffers& buffers, const Range& range, uint8_t* scratch) const noexcept override;
  std::unique_ptr<BoundCalls> Bind(const RunBuffers& buffers, const Range& range,
                                   uint8_t* scratch) const override;

 private:
  using ByStores = std::array<MicrokernelFunction, 2>;  // ordinary stores; EpilogueVariant::streams
  /// The kernels for tiles of one height, at the begin, middle or end of a line of rows; null: not needed.
  struct Kernels {
    ByStores whole, prefetching;  // for whole blocks of columns
    ByStores edge;
  };
  /// The kernels for tiles of one height, or row kernels.
  struct Height {
    enum class State : uint8_t { kNotMade, kMade, kFailed };
    std::atomic<State> state = State::kNotMade;
    std::array<Kernels, 4> at_line;      // written before `state` becomes kMade
    std::vector<int64_t> pixel_offsets;  // for MicrokernelArgs::pixel_offsets
    Kernels& At(LineEnds line) { return at_line[size_t{line.begins} | size_t{line.ends} << 1]; }
    const Kernels& At(LineEnds line) const { return const_cast<Height*>(this)->At(line); }
  };
  /// Tiles that one kernel runs.
  struct Tiles {
    int64_t row_begin = 0;
    int64_t rows = 0;  // rows of each tile
    int64_t count = 0;
    int64_t gap = 0;  // rows between a tile and the next
    LineEnds line;
    const SkippingCompensation* compensation = nullptr;  // null: KernelData::compensation
    const Kernels* kernels = nullptr;                    // null: kernels could not be generated

    int64_t all_rows() const { return rows * count; }
    bool IsLike(const Tiles& other) const {
      return rows == other.rows && line == other.line && compensation == other.compensation;
    }
  };
  /// What is done with each call of a kernel, instead of the call. `rows`: the rows of all its tiles.
  class Calls {
   public:
    virtual ~Calls() = default;
    virtual void Call(const MicrokernelFunction& kernel, int64_t rows, MicrokernelArgs* call) = 0;
    /// RunEdge() of these arguments.
    virtual void CallEdge(const Tiles& tiles, int64_t column, int64_t columns, MicrokernelArgs* call) = 0;
    /// There is no kernel for tiles.
    virtual void LackKernel() = 0;
  };
  static void Call(const MicrokernelFunction& kernel, int64_t rows, MicrokernelArgs* call, Calls* calls) {
    if (calls == nullptr) {
      kernel(call);
    } else {
      calls->Call(kernel, rows, call);
    }
  }
  /// The height of row kernels (row_kernel.h), which compute a range of one row.
  static constexpr int64_t kRowKernel = 0;
  class TileCutter;
  class Recorder;
  class PrefetchRegion;

  /// The rows that kernels read, and their taps.
  struct Input {
    RowMap rows;
    std::span<const int64_t> taps;
    int64_t tap_bytes = 0;
  };

  PanelEngine(const GemmData& data, const KernelBlock& block, std::shared_ptr<const Schedule> schedule,
              std::shared_ptr<const WidePanels> wide, int64_t most_rows);
  /// Kernels of `rows` rows, for whole blocks of columns and for the columns behind them. Without their loops.
  MicrokernelSpec SpecFor(int rows) const;
  MicrokernelSpec EdgeSpecFor(int rows) const;
  Error GenerateHeight(int rows) const;
  bool HasRowKernel() const;
  /// For the same columns as a microkernel of one row.
  RowKernelSpec RowSpec(const MicrokernelSpec& microkernel) const;
  Error GenerateRowKernel() const;
  Error Generate(MicrokernelSpec spec, ByStores* kernels) const;
  Height& HeightOf(int64_t rows) const { return heights_[static_cast<size_t>(rows)]; }
  /// Whether there are kernels for tiles of `rows` rows; generates them the first time.
  bool HasHeight(int64_t rows) const noexcept {
    const auto state = HeightOf(rows).state.load(std::memory_order_acquire);
    return state == Height::State::kNotMade ? TryHeight(rows) : state == Height::State::kMade;
  }
  bool TryHeight(int64_t rows) const noexcept;
  /// Generates the kernels for tiles of `rows` rows if there are none.
  Error MakeHeight(int64_t rows) const;
  /// The loop of the kernel that `spec` specifies in all other members.
  MicrokernelLoop LoopFor(const MicrokernelSpec& spec, LineEnds line, bool prefetches) const;
  static bool IsInParts(const MicrokernelSpec& spec);
  int Ahead(const MicrokernelSpec& spec) const;
  /// The flags that tiles of `rows` rows may have: a tile begins a line, ends it, both, or neither.
  std::vector<LineEnds> LinesOf(int rows) const;
  void SetLineTiles();
  /// Bytes of a tap in a staged row.
  int64_t StagedTapBytes() const;
  int64_t LeastBlockRows() const;
  /// Rows that a run of `rows` rows computes in a block.
  int64_t BlockRows(int64_t rows) const;
  /// Vectors of the columns beyond whole blocks.
  int EdgeVectors() const { return static_cast<int>((data_.n % nr_ + lanes_ - 1) / lanes_); }
  /// Bytes from one staged row to the next.
  int64_t StagedStride() const;
  const uint8_t* Columns(const RunBuffers& buffers, int64_t column) const {
    if (schedule_ != nullptr) return schedule_->made().Strip(column);
    const int64_t offset = column / kPanelColumns * PanelStride();
    return (wide_ != nullptr ? wide_->data() : reinterpret_cast<const uint8_t*>(data_.PanelsOf(buffers))) +
           offset;
  }
  int64_t PanelStride() const {
    return wide_ != nullptr ? wide_->panel_stride_bytes() : data_.weights.panel_stride_bytes();
  }
  const int32_t* CompensationOf(const RunBuffers& buffers) const {
    return is_signed_ ? data_.UnshiftedCompensationOf(buffers, compensation_) : data_.CompensationOf(buffers);
  }
  int64_t ColumnBytes() const {
    if (schedule_ == nullptr) return PanelStride() / data_.weights.width;
    return CeilDivide(schedule_->estimate().items * (kQuad * lanes_ + 2), lanes_ * data_.n);
  }
  Input Stage(const RowMap& a, int64_t row_begin, int64_t row_end, uint8_t* staged) const noexcept;
  bool Widen(const RowMap& a, int64_t row_begin, int64_t row_end, uint8_t* staged,
             RowMap* rows) const noexcept;
  /// RunRange(), or its `calls` if they are not null, as in the functions below.
  void RunBy(const RunBuffers& buffers, const Range& range, uint8_t* scratch, Calls* calls) const;
  /// Computes `range` from `a`. Row i of `a` belongs to row i of C. Prefetches the columns up to `next_end`.
  void RunChunk(const RunBuffers& buffers, const Range& range, const Input& a, int64_t next_end,
                MicrokernelArgs* call, Calls* calls) const;
  /// Whether a chunk of these rows is one tile.
  bool IsTile(const Range& range) const {
    return range.row_end - range.row_begin <= block_.mr && !has_lines_ && cost_.run_rows() == 0;
  }
  void RunTile(const RunBuffers& buffers, const Range& range, const Input& a, MicrokernelArgs* call,
               Calls* calls) const;
  /// Whether a row kernel computes `range`.
  bool RunsRow(const Range& range) const {
    return has_row_kernel_ && range.row_end - range.row_begin == 1 && HasHeight(kRowKernel);
  }
  /// Whether its row is staged. Row kernels shift s8 themselves, but read whole quads.
  bool StagesRow() const { return is_staged_ && data_.taps().depth % kQuad != 0; }
  /// Whether rows are staged. `runs_row`: RunsRow().
  bool Stages(bool runs_row) const { return runs_row ? StagesRow() : is_staged_; }
  void RunRow(const RunBuffers& buffers, const Range& range, const Input& a, MicrokernelArgs* call,
              Calls* calls) const;
  /// Computes `range`, tile after tile. Prefetches shares of `region`; if `region` is null, the rows of the
  /// next tiles.
  void RunRows(const RunBuffers& buffers, const Range& range, const Input& a, PrefetchRegion* region,
               MicrokernelArgs* call, Calls* calls) const;
  /// RunRows() for rows that are cut at lines. A call runs the tiles at one place of several lines.
  void RunLines(const RunBuffers& buffers, const Range& range, const Input& a, PrefetchRegion* region,
                MicrokernelArgs* call, Calls* calls) const;
  /// The number of runs of lines from the run at `cursor` on that compute the same taps, at most `most`. 0 if
  /// no line begins there.
  int64_t EqualRuns(const RowCursor& cursor, int64_t most) const noexcept;
  void NextTiles(const RowMap& a, TileCutter* cutter, RowCursor* cursor, const uint8_t** pointers,
                 Tiles* tiles) const noexcept;
  /// Cuts `tiles` into tiles of one row, because their height has no kernels.
  void CutToRows(Tiles* tiles) const noexcept;
  /// Whether the portable engine can read the operands, and computes the same bytes.
  bool IsPortable() const {
    const bool steps_by_panels = data_.taps().vector_step == 0 || lanes_ == kPanelColumns;
    return schedule_ == nullptr && block_.packing != Packing::kCutPanels &&
           block_.dot != jit::DotKind::kMaddubs && steps_by_panels;
  }
  void RunPortably(const RunBuffers& buffers, const Range& range, const Tiles& tiles) const noexcept;
  /// Computes the columns of `range` for `tiles`, and prefetches a share of `region`.
  void RunTiles(const RunBuffers& buffers, const Range& range, const Tiles& tiles, const Input& a,
                const uint8_t* const* pointers, PrefetchRegion* region, MicrokernelArgs* call,
                Calls* calls) const;
  MicrokernelArgs MakeCall() const;
  void SetTaps(const Input& a, const SkippingCompensation* compensation, MicrokernelArgs* call) const;
  void SetTile(const RunBuffers& buffers, const Tiles& tiles, int64_t column, MicrokernelArgs* call) const;
  const SkippingCompensation* FindCompensation(const TapRange& range) const;
  void RunEdge(const RunBuffers& buffers, const Tiles& tiles, int64_t column, int64_t columns,
               MicrokernelArgs* call) const noexcept;
  /// Whether rows are so few that loading weights takes longer than multiplying.
  bool HasFewRows(const Range& range) const {
    return range.row_end - range.row_begin <= (can_fetch_own_ ? 2 : 1) * block_.mr;
  }

  const GemmData& data_;
  KernelBlock block_;
  int lanes_, nr_;
  bool is_signed_, is_staged_;
  bool pairs_rows_;     // see BlockCost::PairsRows()
  bool masks_edge_;     // masks leave out the columns of the last vector that C does not have
  bool can_stream_;     // a vector of 4-byte outputs fills one cache line
  bool can_prefetch_;   // kernels may prefetch later columns or rows
  bool can_fetch_own_;  // kernels may prefetch their own weights when M is small
  std::shared_ptr<const Schedule> schedule_;
  std::shared_ptr<const WidePanels> wide_;
  std::vector<int64_t> wide_taps_;  // Taps::offsets, counted in elements of int16
  BlockCost cost_;
  bool has_lines_;  // tiles may skip padding, depending on their place in a line
  // The heights of the tiles that skip the padding at the begin of a line, and at its end; 0 if none do. With
  // joins_ends_ one tile covers a whole line and skips both.
  int64_t begin_rows_ = 0, end_rows_ = 0;
  bool joins_ends_ = false;
  int64_t block_rows_, chunk_columns_;   // rows of A in a block, and columns of B in a chunk
  AlignedBuffer<int32_t> compensation_;  // replaces the compensation of data_ if is_signed_
  bool has_row_kernel_;                  // a row kernel computes ranges of one row
  mutable std::mutex generating_;
  mutable std::vector<Height> heights_;  // [rows], or [kRowKernel]; kernels are added under generating_
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_ENGINES_PANEL_ENGINE_H_
