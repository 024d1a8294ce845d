// GEMM on AMX tiles (amx_kernel.h), from the canonical B panels and from A as the caller holds it.
//
//   RunRange ─► chunks of panels (in half of L2) ─► blocks of rows ─► depth blocks (A in L1)
//            ─► blocks of 2×2 tiles: one kernel call each, which also stores the block before it
//
// A is staged, that is copied into rows that follow each other, only where tiles cannot be loaded from it in
// place: the last depths of a row, if they are no whole tile (a load would read beyond the row), and all of
// it where 32 rows at the caller's stride do not fit in L1 together, or would displace each other, and where
// rows are a convolution's pixels.
//
// If A's block outgrows L1, the depth is cut into blocks, and the sums of all but the last wait in scratch.
//
// s8 activations and s8 weights are multiplied as they are, by the instruction for their signs: no shift.
#ifndef INTACT_KERNELS_AMX_ENGINE_H_
#define INTACT_KERNELS_AMX_ENGINE_H_

#include <array>
#include <cstdint>
#include <intact/intact.hpp>
#include <memory>
#include <string>

#include "kernels/amx_kernel.h"
#include "kernels/engine.h"

namespace intact::kernels {

/// How a rectangle of C is cut.
struct AmxBlocking {
  int64_t block_rows = 0;    // 16, 32 or 64; rows that are no such block go by 32, and the rest by fewer
  int64_t depth = 0;         // of a depth block, a multiple of 64; at least k if there is one only
  bool stages_a = false;     // all of it, not the end of rows alone
  int64_t chunk_panels = 0;  // panels of B that stay in L2
  bool a_stays = false;      // A stays in L2 and B streams: the next chunk of B is prefetched, else of A
};

/// For `rows` rows of `k` depths and `panels` panels. `a_stride`: bytes between rows; 0 if no stride leads
/// from each to the next, or if they have several taps, so that tiles cannot be loaded in place.
AmxBlocking ChooseAmxBlocking(int64_t rows, int64_t panels, int64_t k, int64_t a_stride,
                              const CacheSizes& caches);

class AmxEngine final : public Engine {
 public:
  /// `data` outlives the engine.
  static Result<std::unique_ptr<Engine>> Create(const GemmData& data);

  int mr() const override { return 2 * kTileRows; }
  int nr() const override { return 2 * kPanelColumns; }
  std::string KernelName() const override { return kernel_name_; }
  int64_t packed_bytes() const override { return static_cast<int64_t>(initial_.bytes()); }
  double Cost(int64_t m) const override;
  int64_t ScratchBytes(int64_t rows) const override;
  void RunRange(const RunBuffers& buffers, const Range& range, uint8_t* scratch) const noexcept override;

 private:
  class Region;  // one RunRange()

  explicit AmxEngine(const GemmData& data) : data_(data) {}
  Error SetInitial();
  Error GenerateKernels();
  const int32_t* initial() const { return initial_.size() != 0 ? initial_.data() : data_.initial.data(); }
  /// Blocks of sums that may wait for their next depths.
  int64_t MaxBlocks() const;
  /// Scratch for an edge within a panel: C's block, and the residual's behind it.
  int64_t EdgeBytes() const;

  /// For a number of panels, and for C stored through the caches or past them.
  template <class Function>
  using PerPanels = std::array<std::array<Function, kMaxBlockTiles + 1>, 2>;

  const GemmData& data_;
  AlignedBuffer<int32_t> initial_;  // as data_.initial, without the shift that s8 activations need elsewhere
  std::string kernel_name_;
  std::array<PerPanels<AmxKernelFunction>, kMaxBlockTiles + 1> kernels_ = {};  // [row tiles][streams][panels]
  PerPanels<AmxStoreFunction> stores_ = {};                                    // [streams][panels]
  bool can_stream_ = false;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_AMX_ENGINE_H_
