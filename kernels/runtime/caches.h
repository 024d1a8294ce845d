// The caches of a core, and how much of them each kind of data may take. All budgets of the library are here.
// They may add up to more than a cache, because a core runs one engine at a time.
#ifndef INTACT_KERNELS_RUNTIME_CACHES_H_
#define INTACT_KERNELS_RUNTIME_CACHES_H_

#include <cstdint>

#include "jit/topology.h"

namespace intact::kernels {

/// Sizes of the caches that one core uses, and budgets of bytes.
struct CacheSizes {
  int64_t l1d_bytes = 0;
  int64_t l2_bytes = 0;
  int64_t l3_bytes = 0;  // shared with other cores; 0 if there is none

  // ----- L1

  /// Panel engine: rows of A that L1 holds while kernels read them. Other rows are prefetched.
  int64_t TileRows() const { return l1d_bytes / 2; }
  /// Panel engine: weights of a block of columns. A larger block is read from L2 in each pass.
  int64_t StayingWeights() const { return l1d_bytes / 2; }
  /// Grouped weights on tiles: weights of a block, beside f, the sums and the rows of A that pass.
  int64_t GroupedTileWeights() const { return l1d_bytes / 4; }
  /// Runtime B that is not packed: sums of a line of columns, for all rows.
  int64_t UnpackedSums() const { return l1d_bytes / 2; }
  /// Convolutions: outputs that are written densely and then copied to their places.
  int64_t SpreadRows() const { return l1d_bytes / 2; }
  /// AMX engine: the block of A. B streams past it, and the sums are small.
  int64_t AmxRows() const { return l1d_bytes * 3 / 4; }
  /// AMX engine: the panels of a block, if A streams past them.
  int64_t AmxBlockPanels() const { return l1d_bytes * 3 / 4; }
  /// Scheduled engine: blocks of packed rows.
  int64_t ScheduledBlocks() const { return l1d_bytes / 3; }
  /// Scheduled engine: the window of A's depths. The schedule streams through the remaining quarter.
  int64_t ScheduledWindow() const { return l1d_bytes * 3 / 4; }
  /// Planar bands: lines of output. These lines exceed L1, because each line is read in order.
  int64_t PlanarLines() const { return l1d_bytes * 3 / 2; }

  // ----- L2

  /// Panel engine: a block of rows of A.
  int64_t RowBlock() const { return l2_bytes / 4; }
  /// Panel engine: columns of B that stay in L2 while a block of rows passes them.
  int64_t ColumnChunk() const { return l2_bytes / 8; }
  /// Columns of a runtime B that are packed at a time.
  int64_t RuntimeChunk() const { return l2_bytes / 4; }
  /// Grouped weights: the expanded group of a panel; a larger group is read packed.
  int64_t ExpandedWeights() const { return l2_bytes / 2; }
  /// AMX engine: panels of B in a chunk, and the sums that wait for its next depths.
  int64_t AmxPanels() const { return l2_bytes / 2; }
  /// Larger weights come from beyond L2 in each run.
  int64_t StreamedWeights() const { return l2_bytes; }
  /// Panel engine, one thread: weights that stay in L2 from run to run, beside other data.
  int64_t L2Weights() const { return l2_bytes * 3 / 4; }
  /// AMX engine: the rows of A that a share reads again for each chunk.
  int64_t AmxStayingRows() const { return l2_bytes / 2; }
  /// Scheduled engine: packed rows that each chunk of panels reads again.
  int64_t ScheduledRows() const { return l2_bytes; }
  /// Scheduled engine: panels of a chunk.
  int64_t ScheduledPanels() const { return l2_bytes / 2; }
  /// Convolutions: the lines of a band.
  int64_t BandLines() const { return l2_bytes / 4; }
  /// Convolutions: a planar band as a whole.
  int64_t WholePlanarBand() const { return l2_bytes; }
  /// Outputs of a run; larger outputs are written past the caches.
  int64_t CachedOutputs() const { return l2_bytes; }
  /// Larger A and B leave no room for outputs. Outputs larger than OutputsBesideOperands() are then written
  /// past the caches.
  int64_t FillingOperands() const { return l2_bytes * 3 / 4; }
  int64_t OutputsBesideOperands() const { return l2_bytes / 4; }

  // ----- L3

  /// Outputs of a run that L3 holds until something reads them.
  int64_t OutputsInL3() const { return l3_bytes / 2; }
};

/// The sizes assumed if a machine does not report its own.
inline constexpr CacheSizes kAssumedCaches = {32 << 10, 512 << 10};

/// The caches that a core of a machine uses; kAssumedCaches for each size that is unknown.
CacheSizes CachesOf(const jit::MachineFacts& facts) noexcept;

/// The caches of this machine, detected once.
const CacheSizes& Caches();

/// Makes Caches() return `sizes` from now on. Plans keep the sizes of their creation, so call this function
/// while no plan exists.
void SetCachesForTesting(const CacheSizes& sizes);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_RUNTIME_CACHES_H_
