// An interface to compute chunks of a convolution's output: by GEMMs of units (unit_conv.h) or by depthwise
// kernels (depthwise_conv.h). ConvPlan cuts runs into shares and chunks, and knows only this interface.
#ifndef INTACT_KERNELS_PLANS_CONV_KERNELS_H_
#define INTACT_KERNELS_PLANS_CONV_KERNELS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "kernels/engines/engine.h"
#include "kernels/runtime/blocking.h"
#include "kernels/staging/band.h"
#include "kernels/weights/schedule.h"

namespace intact::kernels {

/// The engine that tuning chose for all units of a convolution. None: the cost model chooses an engine for
/// each unit, or there are no units.
using EngineChoice = std::optional<EngineId>;

/// Decisions that are made once for all runs with one batch size, and passed to each run.
struct ConvRun {
  int64_t rows = 0;          // output pixels of the run
  int64_t chunk_rows = 0;    // maximum rows that a thread computes at a time
  int64_t run_rows = 0;      // maximum rows that an engine runs at a time
  SharedOutput output;       // how C is cut among threads
  int64_t spread_bytes = 0;  // scratch for a chunk of C and of the residual; 0: the chunk is stored in place
  bool is_by_line = false;   // lines are run one by one
  int64_t staged_bytes = 0;
  int64_t bytes = 0;                   // scratch that a part needs, aligned to 64 bytes
  std::vector<const Engine*> engines;  // [unit]
};

class ConvKernels {
 public:
  ConvKernels() = default;
  virtual ~ConvKernels() = default;
  ConvKernels(const ConvKernels&) = delete;
  ConvKernels& operator=(const ConvKernels&) = delete;

  /// The name of the main kernel.
  virtual std::string KernelName() const = 0;
  /// The name of the kernel that runs with `choice`.
  virtual std::string KernelNameOf(const EngineChoice& /*choice*/) const { return KernelName(); }
  /// Memory of the weights in all their layouts.
  virtual int64_t packed_bytes() const = 0;
  virtual ScheduleStatistics schedule_statistics() const { return {}; }
  /// See UnitPlan::DropUnreadPanels(), EngineSet::RunAllAs().
  virtual void DropUnreadPanels() {}
  virtual void RunAllAs(int64_t /*m*/) {}

  /// Whether a single line fills the tiles. Then lines can be run one by one, and outputs need no copies.
  virtual bool RunsByLine() const { return false; }
  /// Minimum rows of a chunk, unless the run has fewer.
  virtual int64_t LeastChunkRows() const { return 1; }
  /// Whether stores may bypass the caches.
  virtual bool CanStream() const { return false; }
  /// `run` has rows, chunk_rows, spread_bytes and is_by_line. Sets the other members and the steps of
  /// `output`. If a chunk of chunk_rows rows cannot be staged, lowers chunk_rows.
  virtual void Decide(const EngineChoice& choice, ConvRun* run) const = 0;
  /// The end of a chunk that begins at `row`, at most `row_end`.
  virtual int64_t ChunkEnd(int64_t /*row*/, int64_t row_end) const { return row_end; }
  /// The time of `rows` rows, on the scale of Engine::Cost().
  virtual double RowsCost(const ConvRun& run, int64_t rows) const = 0;
  /// Finds the schedules that `run` needs: see EngineSet::FindSchedules().
  virtual Error FindSchedules(const ConvRun& /*run*/, int /*threads*/) const { return {}; }
  /// Generates the kernels for chunks of `rows` rows: see Engine::PrepareRows().
  virtual Error PrepareRows(const ConvRun& /*run*/, int64_t /*rows*/, bool /*or_fewer*/) const { return {}; }
  /// Scratch for the column constants that a run computes, a multiple of 64; 0 if runs compute none.
  virtual int64_t RunColumnBytes() const = 0;
  /// Computes the column constants. `a`: the quantization of A. `to`: RunColumnBytes(), aligned to 64 bytes.
  /// The result becomes RunBuffers::columns.
  virtual const PerRunColumnConstants* MakePerRunColumnConstants(const RowQuantization& a,
                                                                 uint8_t* to) const = 0;
  /// Computes a chunk. `scratch` does not include ConvRun::spread_bytes.
  virtual void Run(const ConvInput& input, const RunBuffers& buffers, const ConvRun& run, const Range& chunk,
                   uint8_t* scratch) const = 0;
  /// The calls of Run() for a chunk, also for other values of its input: see Engine::Bind().
  virtual std::unique_ptr<BoundCalls> Bind(const ConvInput& /*input*/, const RunBuffers& /*buffers*/,
                                           const ConvRun& /*run*/, const Range& /*chunk*/,
                                           uint8_t* /*scratch*/) const {
    return nullptr;
  }

  /// The candidates for tuning. Makes their engines. These engines exist until Keep().
  virtual Result<std::vector<EngineChoice>> MakeCandidates() { return std::vector<EngineChoice>(1); }
  /// The candidate that the cost model chooses for runs of `rows` rows at a time.
  virtual EngineChoice ModelChoice(int64_t /*rows*/) const { return {}; }
  /// Makes the engines of `choice` if they do not exist, and destroys all others that MakeCandidates() made.
  /// UNSUPPORTED if no engine can run `choice`.
  virtual Error Keep(const EngineChoice& /*choice*/) { return {}; }
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_CONV_KERNELS_H_
