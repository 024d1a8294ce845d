// Grouped convolution with few channels per group, on every ISA, from scheduled weights and a planar band
// (planar_band.h): positions of the band fill the vectors' lanes, weights are broadcast.
//
//   RunRange ─► tiles of positions (scheduled_sums.h)
//
// A is not packed. Positions between two lines of C are computed and dropped. All panels of a tile are
// computed one after the other, while its lines of C are in L1.
#ifndef INTACT_KERNELS_ENGINES_PLANAR_ENGINE_H_
#define INTACT_KERNELS_ENGINES_PLANAR_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/engines/engine.h"
#include "kernels/engines/scheduled_sums.h"

namespace intact::kernels {

class PlanarEngine final : public Engine {
 public:
  /// `like`: the sums that an engine of the same weights made for other input extents. The schedule of `like`
  /// is copied. Null: a new schedule is made. `data` must outlive the engine.
  static Result<std::unique_ptr<PlanarEngine>> Create(const PlanarData& data, core::Isa isa,
                                                      const ScheduledSums* like);

  EngineId id() const override { return {EngineId::Kind::kPlanar}; }
  EngineTile tile() const override {
    return {sums_.tile_rows(), kPanelColumns, sums_.strip_columns(), sums_.lanes()};
  }
  std::string KernelName() const override { return sums_.kernel_name(); }
  ScheduleStatistics statistics() const override { return sums_.schedule()->statistics(); }
  double Cost(int64_t m) const override { return sums_.Cost(m, 0); }
  int64_t packed_bytes() const override { return sums_.packed_bytes(); }
  int64_t ScratchBytes(int64_t rows) const override;
  /// `range` must lie within one band.
  void RunRange(const RunBuffers& buffers, const Range& range, uint8_t* scratch) const noexcept override;
  const ScheduledSums& sums() const { return sums_; }

 private:
  PlanarEngine(const PlanarData& data, core::Isa isa) : data_(data), sums_(data, isa) {}
  /// The destinations of band positions [position, position + positions): rows of C. A position without a row
  /// is written to `drop`.
  ScheduledSums::TileRows RowsOf(const RunBuffers& buffers, int64_t position, int64_t positions,
                                 uint8_t* drop) const noexcept;

  const PlanarData& data_;
  ScheduledSums sums_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_ENGINES_PLANAR_ENGINE_H_
