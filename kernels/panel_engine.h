// GEMM from the canonical B panels: columns fill the vectors' lanes, rows of A are broadcast (microkernel.h).
//
//   RunRange ─► blocks of rows (A packed, in half of L2) ─► columns of nr (B panels, in L1) ─► tiles of
//   mr×nr: one microkernel call each; an edge within a vector goes through a scratch tile
#ifndef INTACT_KERNELS_PANEL_ENGINE_H_
#define INTACT_KERNELS_PANEL_ENGINE_H_

#include <cstdint>
#include <intact/intact.hpp>
#include <memory>
#include <string>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/engine.h"
#include "kernels/microkernel.h"

namespace intact::kernels {

class PanelEngine final : public Engine {
 public:
  /// `data` outlives the engine.
  static Result<std::unique_ptr<Engine>> Create(const GemmData& data, const KernelBlock& block);

  int mr() const override { return block_.mr; }
  int nr() const override { return nr_; }
  std::string KernelName() const override { return kernel_name_; }
  double Cost(int64_t m) const override;
  int64_t ScratchBytes(int64_t rows) const override;
  void RunRange(const RunBuffers& buffers, const Range& range, uint8_t* scratch) const noexcept override;

 private:
  PanelEngine(const GemmData& data, const KernelBlock& block);
  Error GenerateKernels();
  int64_t TileBytes() const { return RoundUp(int64_t{4} * block_.mr * nr_, 64); }
  /// Packed A of `rows` rows, as the dot form reads it.
  int64_t PanelBytes(int64_t rows) const;
  /// Scratch for a panel before it is widened.
  int64_t NarrowBytes() const;
  void Pack(const RunBuffers& buffers, int64_t row, int64_t rows, uint8_t* narrow,
            uint8_t* panel) const noexcept;
  void RunTile(const RunBuffers& buffers, int64_t row, int64_t rows, int64_t column, int64_t columns,
               const uint8_t* panel, uint8_t* scratch_tile) const noexcept;
  /// Whether whole vectors are whole cache lines of a 4-byte output.
  bool CanStream() const { return lanes_ == 16 && data_.element_bytes() == 4; }
  size_t Index(int64_t rows, int64_t vectors, bool streams) const {
    return static_cast<size_t>(((streams ? block_.vectors : 0) + vectors - 1) * block_.mr + rows - 1);
  }

  const GemmData& data_;
  KernelBlock block_;
  int lanes_, nr_;
  std::string kernel_name_;
  std::vector<MicrokernelFunction>
      functions_;  // [streams][vectors − 1][rows − 1]; only those that n can need are set
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PANEL_ENGINE_H_
