// What computes chunks of a convolution's output: GEMMs of units (unit_conv.h), or depthwise kernels
// (depthwise_conv.h). ConvPlan cuts runs into shares and chunks and knows neither.
#ifndef INTACT_KERNELS_PLANS_CONV_KERNELS_H_
#define INTACT_KERNELS_PLANS_CONV_KERNELS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "kernels/engines/engine.h"
#include "kernels/runtime/blocking.h"
#include "kernels/staging/band.h"
#include "kernels/weights/schedule.h"

namespace intact::kernels {

/// The engine that all units of a convolution run, as a stopwatch chose it. None: the cost model chooses one for
/// each unit, or there are no units.
using EngineChoice = std::optional<EngineId>;

/// What is decided once for runs of a batch, and passed to all that computes them.
struct ConvRun {
  int64_t rows = 0;          // output pixels of the run
  int64_t chunk_rows = 0;    // that a thread computes at a time, at most
  int64_t run_rows = 0;      // that an engine runs at a time, at most
  SharedOutput output;       // as it is cut among threads
  int64_t spread_bytes = 0;  // of a chunk of C and the residual in scratch; 0: it lies in its places
  bool is_by_line = false;   // lines are run one by one
  int64_t staged_bytes = 0;
  int64_t bytes = 0;                   // scratch that a share needs, aligned to 64 bytes
  std::vector<const Engine*> engines;  // of the units
};

class ConvKernels {
 public:
  ConvKernels() = default;
  virtual ~ConvKernels() = default;
  ConvKernels(const ConvKernels&) = delete;
  ConvKernels& operator=(const ConvKernels&) = delete;

  /// The main kernel's name, and that of runs with another choice.
  virtual std::string KernelName() const = 0;
  virtual std::string KernelNameOf(const EngineChoice& /*choice*/) const { return KernelName(); }
  /// Memory of the weights in all variants.
  virtual int64_t packed_bytes() const = 0;
  virtual ScheduleStatistics schedule_statistics() const { return {}; }
  /// See UnitPlan::DropUnreadPanels(), EngineSet::RunAllAs().
  virtual void DropUnreadPanels() {}
  virtual void RunAllAs(int64_t /*m*/) {}

  /// Whether a line at a time fills the tiles, so that outputs need no copies to places within lines.
  virtual bool RunsByLine() const { return false; }
  /// Rows that a chunk has at least, unless the run has fewer.
  virtual int64_t LeastChunkRows() const { return 1; }
  /// Whether stores may bypass the caches.
  virtual bool CanStream() const { return false; }
  /// Completes a run whose rows, spread_bytes and is_by_line are set: the other members, the steps of `output`,
  /// and fewer rows of a chunk where more cannot be staged.
  virtual void Decide(const EngineChoice& choice, ConvRun* run) const = 0;
  /// Where a chunk ends that begins at `row`, at most `row_end`.
  virtual int64_t ChunkEnd(int64_t /*row*/, int64_t row_end) const { return row_end; }
  /// The time of `rows` rows, in the unit of Engine::Cost().
  virtual double RowsCost(const ConvRun& run, int64_t rows) const = 0;
  /// What Run() of `chunk` takes, see Share::work.
  virtual double Work(const ConvRun& run, const Range& chunk) const = 0;
  /// Scratch for what runs make of columns' constants, a multiple of 64; 0 where the plan has them all.
  virtual int64_t RunColumnBytes() const = 0;
  /// Makes them at `to`, aligned to 64 bytes, where A is quantized like this: RunBuffers::columns.
  virtual const RunColumns* MakeRunColumns(const RowQuantization& a, uint8_t* to) const = 0;
  /// Computes a chunk. `scratch`: behind what is spread.
  virtual void Run(const ConvInput& input, const RunBuffers& buffers, const ConvRun& run, const Range& chunk,
                   uint8_t* scratch) const = 0;

  /// What a stopwatch may choose from: makes the engines for it, until Keep().
  virtual Result<std::vector<EngineChoice>> MakeCandidates() { return std::vector<EngineChoice>(1); }
  /// Of these, what the cost model chooses for runs of `rows` rows at a time.
  virtual EngineChoice ModelChoice(int64_t /*rows*/) const { return {}; }
  /// Makes the engines of `choice`, if need be, and destroys all others that MakeCandidates() made. UNSUPPORTED
  /// if there is no such engine.
  virtual Error Keep(const EngineChoice& /*choice*/) { return {}; }
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_CONV_KERNELS_H_
