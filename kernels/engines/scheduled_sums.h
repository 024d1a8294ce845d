// Tiles of C from scheduled weights (schedule.h): the common part of the engines that run schedules.
// ScheduledEngine packs rows of A for this class. PlanarEngine finds the rows in planar bands.
//
//   RunTile ─► panels with accumulators in one buffer ─► windows of depth: one scheduled kernel call for each
//   panel ─► tile epilogue
//
// A tile has several register blocks side by side, so that the branch predictor learns the exits of the loops
// over a strip's groups in the first block.
#ifndef INTACT_KERNELS_ENGINES_SCHEDULED_SUMS_H_
#define INTACT_KERNELS_ENGINES_SCHEDULED_SUMS_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/codegen/scheduled_kernel.h"
#include "kernels/codegen/tile_epilogue.h"
#include "kernels/engines/cost_table.h"
#include "kernels/engines/engine.h"
#include "kernels/weights/lazy_schedule.h"
#include "kernels/weights/schedule.h"

namespace intact::kernels {

/// A way to run a schedule: a register block and its costs.
struct StripVariant {
  int columns;
  int vectors;
  const StripCosts* costs;  // in Costs(), for one row of a vector
  int blocks = 1;           // register blocks in a tile
};

class ScheduledSums {
 public:
  static constexpr int kMaxTileRows = 128;  // a whole number of vectors

  /// The destinations of a tile's rows.
  struct TileRows {
    static constexpr int32_t kDropped = -1;  // a row between two lines of a planar band

    int64_t count = 0;
    bool is_adjacent = true;                // rows of C are adjacent, and no row is dropped
    std::array<int32_t, kMaxTileRows> row;  // the row of C, or kDropped
    std::array<uint8_t*, kMaxTileRows> c;   // the row's column 0; filled up to whole vectors

    /// The row of C to which row i is stored, or kDropped.
    int64_t At(int64_t i) const { return i < count ? row[static_cast<size_t>(i)] : kDropped; }
    void Add(int32_t first, int64_t rows, uint8_t* to, int64_t stride) {
      int32_t* const to_row = row.data() + count;
      uint8_t** const to_c = c.data() + count;
      for (int32_t i = 0; i < rows; ++i) to_row[i] = first + i;
      for (int64_t i = 0; i < rows; ++i) to_c[i] = to + i * stride;
      count += rows;
    }
    void AddDropped(int64_t rows, uint8_t* to) {
      if (rows > 0) is_adjacent = false;
      std::fill_n(row.data() + count, rows, kDropped);
      std::fill_n(c.data() + count, rows, to);
      count += rows;
    }
    /// Sets the destination of the last vector's missing rows to `to`.
    void FillVector(int lanes, uint8_t* to) {
      std::fill_n(c.data() + count, RoundUp(count, lanes) - count, to);
    }
  };

  /// `data` must outlive this object.
  ScheduledSums(const KernelData& data, core::Isa isa) : ScheduledSums(data, isa, data.problem.range.high) {}

  /// Chooses the cheapest of `variants` by the cost model, for the activation range. The last variant must
  /// have strips of one column. `spec`: common to all variants. `like`: the sums of these weights for other
  /// extents of a convolution's input, or null. Its variant is chosen, and it must outlive Build().
  Error Choose(std::span<const StripVariant> variants, const ScheduleSpec& spec, const ScheduledSums* like);
  using Schedule = std::shared_ptr<const LazyScheduleOf<ScheduledWeights>>;
  /// Makes the schedule for `spec`. `like`: the schedule for other extents, or null.
  using MakeSchedule = std::function<Result<Schedule>(const ScheduleSpec& spec, const Schedule& like)>;
  /// Makes the schedule and generates kernels. Call Choose() first. Before Build(), only Cost() may be called.
  Error Build(const MakeSchedule& make);
  /// Finds the schedules. RunTile() needs them. Thread-safe. OUT_OF_MEMORY.
  Error FindSchedule(int threads) const {
    if (fallback_ != nullptr) RETURN_IF_ERROR(fallback_->FindSchedule(threads));
    return schedule_->Find(threads);
  }

  const ScheduleCosts& costs() const { return Costs().Of(isa_).schedule; }
  int lanes() const { return lanes_; }
  int tile_rows() const { return variant_.spec.rows; }
  int strip_columns() const { return variant_.spec.strip_columns; }
  const std::string& kernel_name() const { return kernel_name_; }
  const Schedule& schedule() const { return schedule_; }
  int64_t packed_bytes() const {
    return schedule_->bytes() + (fallback_ == nullptr ? 0 : fallback_->packed_bytes());
  }
  /// See Engine::Cost(). `packing`: the cost of packing a quad of a row.
  double Cost(int64_t m, double packing) const;
  /// The sums for a tile whose largest activation is `largest`: the fallback if `largest` exceeds the
  /// activation range.
  const ScheduledSums& For(uint8_t largest) const {
    return largest > amax_ && fallback_ != nullptr ? *fallback_ : *this;
  }
  const ScheduledSums* fallback() const { return fallback_.get(); }

  /// Whether a tail of `rows` rows fills a vector twice: one copy of the rows for each column of a strip of
  /// two columns. The answer may become true at any time.
  bool ArePaired(int64_t rows) const noexcept {
    return rows != 0 && 2 * rows <= lanes_ && CanPair() && IsMade(paired_);
  }
  int block_rows() const { return variant_.vectors * lanes_; }
  int64_t PanelsPerChunk() const;
  /// Bytes of scratch that RunTile() needs for tiles of at most `rows` rows, a multiple of 64.
  int64_t ScratchBytes(int64_t rows) const { return AccumulatorBytes() + DropBytes() + EdgeBytes(rows); }
  /// The place in RunTile()'s scratch for dropped rows of C.
  uint8_t* Drop(uint8_t* scratch) const { return scratch + AccumulatorBytes(); }
  /// Generates the kernel for the last rows of a range of `rows` rows; with `or_fewer`, of any range of up to
  /// `rows` rows. See Engine::PrepareRows().
  Error PrepareRows(int64_t rows, bool or_fewer) const;
  /// Computes columns [column_begin, column_end) of `rows`. Row 0 of the tile begins at `a`. `is_paired`: whether `a`
  /// has the tail twice; ArePaired() was true before.
  void RunTile(const RunBuffers& buffers, const TileRows& rows, const uint8_t* a, bool is_paired,
               int64_t column_begin, int64_t column_end, uint8_t* scratch) const noexcept;

 private:
  struct Variant {
    ScheduleSpec spec;
    int vectors = 0;  // vectors per register block
    const StripCosts* costs = nullptr;
    double items = 0, groups = 0;  // of the schedule, per quad

    /// The cost of one quad and one row, in a full block.
    double QuadCost() const { return costs->item * items + costs->group * groups; }
  };
  /// Makes sums for activations in [0, amax]. `fallback_` sums rows with larger activations. Without a
  /// fallback, the caller guarantees that no activation is larger.
  ScheduledSums(const KernelData& data, core::Isa isa, int amax);
  Error ChooseVariant(std::span<const StripVariant> variants, const ScheduleSpec& spec,
                      const ScheduledSums* like);
  ScheduleSpec SpecFor(const StripVariant& variant, ScheduleSpec spec) const;
  Error GenerateKernels();
  /// A kernel for tails. If it cannot be generated, runs do not try again, but PrepareRows() does.
  struct TailKernel {
    enum class State : uint8_t { kNotMade, kMade, kFailed };
    ScheduledKernelSpec spec;
    std::atomic<State> state = State::kNotMade;
    ScheduledKernelFunction function;  // written before `state` becomes kMade
  };
  ScheduledKernelSpec KernelSpec(int vectors, ScheduledKernelSpec::Rows rows) const;
  /// Generates the kernel, unless it is made.
  Error Make(TailKernel* kernel) const;
  /// Whether the kernel exists; tries to generate it the first time.
  bool IsMade(TailKernel& kernel) const noexcept {
    const auto state = kernel.state.load(std::memory_order_acquire);
    return state == TailKernel::State::kNotMade ? TryMake(&kernel) : state == TailKernel::State::kMade;
  }
  bool TryMake(TailKernel* kernel) const noexcept;
  /// The kernel for the last `tail` rows of a tile, which are at most a block and not paired. If the tail has no
  /// kernel of its own, the kernel of whole blocks also computes lanes that nobody stores.
  const ScheduledKernelFunction& KernelOf(int64_t tail) const noexcept;
  double ScheduleBytes() const;  // by the estimate
  bool IsPlanar() const { return variant_.spec.group_columns != 0; }
  bool CanPair() const;
  /// The number of panels that have accumulators at the same time: one, or with several windows the panels of
  /// a chunk.
  int64_t PanelsAtOnce() const { return windows_ == 1 ? 1 : PanelsPerChunk(); }
  // Scratch has three parts: accumulators; one row of C that takes all dropped rows; a tile of C for columns
  // that fill no whole tile. If the accumulators of one panel are enough, they lie on the stack instead.
  int64_t AccumulatorBytes() const {
    return windows_ == 1 ? 0 : PanelsAtOnce() * kPanelColumns * tile_rows() * 4;
  }
  /// Rows of a tile that are stored through scratch at a time. Rows of a planar band may need scratch for
  /// the whole tile's residual.
  int64_t EdgeRows() const { return IsPlanar() ? tile_rows() : std::min(tile_rows(), 64); }
  int64_t EdgeBytes(int64_t rows) const {
    const int64_t most = RoundUp(std::min(rows, EdgeRows()), lanes_);
    return data_.ScratchTileBytes(most, tile_columns_);
  }
  int64_t DropBytes() const { return RoundUp((data_.n + tile_columns_) * data_.element_bytes(), 64); }
  uint8_t* Edge(uint8_t* scratch) const { return Drop(scratch) + DropBytes(); }
  /// Computes the accumulators of `rows` rows, at most tile_rows().
  void Accumulate(const RunBuffers& buffers, const uint8_t* a, int64_t rows, bool is_paired,
                  int64_t panel_begin, int64_t panel_end, int32_t* accumulators) const noexcept;
  void Store(const RunBuffers& buffers, const TileRows& rows, int64_t column_begin, int64_t column_end,
             const int32_t* accumulators, uint8_t* scratch) const noexcept;
  void StoreEdge(const RunBuffers& buffers, const TileRows& rows, int64_t column, int64_t columns,
                 TileEpilogueArgs args, uint8_t* scratch) const noexcept;

  const KernelData& data_;
  core::Isa isa_;
  int amax_, lanes_;
  std::unique_ptr<ScheduledSums> fallback_;
  const ScheduledSums* like_ = nullptr;  // null after Build()
  Variant variant_;
  int tile_columns_ = 0;  // number of columns stored at a time
  int64_t windows_ = 0;
  Schedule schedule_;
  std::string kernel_name_;
  ScheduledKernelFunction kernel_;  // for whole blocks
  mutable std::mutex generating_;
  std::unique_ptr<TailKernel[]> tails_;  // [vectors − 1]: for fewer vectors than a block has
  mutable TailKernel paired_;            // for half a vector of rows and strips of two columns
  TileEpilogueFunction epilogue_;
  TileEpilogueFunction vector_epilogue_;     // for leftover columns, if tiles have several vectors
  TileEpilogueFunction streaming_epilogue_;  // if a row of a tile is a whole cache line of C
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_ENGINES_SCHEDULED_SUMS_H_
