// Exact GEMM without VNNI, from scheduled weights (schedule.h): rows of A fill the vectors' lanes, weights
// are broadcast.
//
//   RunRange ─► blocks of rows (A packed) ─► chunks of panels (their schedule in half of L2) ─► tiles of
//   rows (scheduled_sums.h)
#ifndef INTACT_KERNELS_ENGINES_SCHEDULED_ENGINE_H_
#define INTACT_KERNELS_ENGINES_SCHEDULED_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/engines/engine.h"
#include "kernels/engines/scheduled_sums.h"

namespace intact::kernels {

class ScheduledEngine final : public Engine {
 public:
  /// `like`: the sums of these weights for other extents of a convolution's input, or null. `like` must
  /// outlive Build(). Before Build(), only Cost() may be called. `data` must outlive the engine.
  static Result<std::unique_ptr<ScheduledEngine>> Create(const GemmData& data, core::Isa isa,
                                                         const ScheduledSums* like);
  /// Makes the schedule, or uses the schedule of `like`. May be called only once.
  Error Build();

  EngineId id() const override { return {EngineId::Kind::kScheduled}; }
  EngineTile tile() const override {
    return {sums_.tile_rows(), kPanelColumns, sums_.strip_columns(), sums_.lanes(), 1};
  }
  std::string KernelName() const override { return sums_.kernel_name(); }
  Error FindSchedule(int threads) const override { return sums_.FindSchedule(threads); }
  std::shared_ptr<const LazySchedule> panel_source() const override { return sums_.schedule(); }
  ScheduleStatistics statistics() const override { return sums_.schedule()->statistics(); }
  double Cost(int64_t m) const override { return sums_.Cost(m, PackingCost()); }
  int64_t packed_bytes() const override { return sums_.packed_bytes(); }
  int64_t WholeRows(int64_t m) const override { return m / sums_.lanes() * sums_.lanes(); }
  int64_t ScratchBytes(int64_t rows) const override;
  Error PrepareRows(int64_t rows, bool or_fewer) const override { return sums_.PrepareRows(rows, or_fewer); }
  void RunRange(const RunBuffers& buffers, const Range& range, uint8_t* scratch) const noexcept override {
    RunRange(sums_, buffers, range, scratch);
  }
  const ScheduledSums& sums() const { return sums_; }

 private:
  ScheduledEngine(const GemmData& data, core::Isa isa) : data_(data), sums_(data, isa) {}
  /// The cost of packing a quad of a row, on average.
  double PackingCost() const {
    const double taps = Costs().layout.packed_tap * static_cast<double>(data_.taps().count() - 1);
    return sums_.costs().packed_quad + taps / static_cast<double>(CeilDivide(data_.k, kQuad));
  }
  int64_t RowsPerBlock(const ScheduledSums& sums) const;
  int64_t ScratchBytes(const ScheduledSums& sums, int64_t rows) const;
  void RunRange(const ScheduledSums& sums, const RunBuffers& buffers, const Range& range,
                uint8_t* scratch) const noexcept;
  uint8_t Pack(const ScheduledSums& sums, RowCursor* cursor, int64_t rows, bool is_paired,
               uint8_t* panel) const noexcept;
  void RunBlock(const ScheduledSums& sums, const RunBuffers& buffers, const Range& range,
                const uint8_t* panels, bool is_paired, uint8_t* scratch) const noexcept;

  const GemmData& data_;
  ScheduledSums sums_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_ENGINES_SCHEDULED_ENGINE_H_
