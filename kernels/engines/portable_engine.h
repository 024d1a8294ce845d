// Compiled code for CPUs without AVX2, and for processes that may not generate code. It reads the weights and
// rows of A that other engines read, and computes the same bytes. It needs only SSE2, which every x86-64 CPU
// has.
//
//   RunRange ─► blocks of rows ─► panels of columns ─► taps ─► quads, widened to int16 a few at a time
//
// The requantization follows epilogue.h, one output at a time.
#ifndef INTACT_KERNELS_ENGINES_PORTABLE_ENGINE_H_
#define INTACT_KERNELS_ENGINES_PORTABLE_ENGINE_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "kernels/engines/engine.h"

namespace intact::kernels {

class PortableEngine final : public Engine {
 public:
  /// `data` must not be planar, and must outlive the engine.
  explicit PortableEngine(const GemmData& data) : data_(data) {}

  EngineId id() const override { return {EngineId::Kind::kPortable}; }
  EngineTile tile() const override { return {kRows, kPanelColumns, kPanelColumns}; }
  std::string KernelName() const override;
  double Cost(int64_t m) const override { return static_cast<double>(m); }
  int64_t ScratchBytes(int64_t /*rows*/) const override { return 0; }
  void RunRange(const RunBuffers& buffers, const Range& range, uint8_t* scratch) const noexcept override;

 private:
  static constexpr int kRows = 16;
  /// The accumulators of a panel's columns in one row.
  using Sums = std::array<uint32_t, kPanelColumns>;
  void AddTap(const uint8_t* const* rows, int64_t row_count, int64_t offset, const int8_t* panel,
              int64_t first_depth, Sums* sums) const noexcept;

  const GemmData& data_;
};

/// Requantizes `sums`, accumulators of adjacent columns in a row, and stores them at `c`. `args`: the
/// arguments for the first column. Needs the default floating-point environment.
void StoreOutputs(const KernelData& data, std::span<const uint32_t> sums, const EpilogueArgs& args,
                  uint8_t* c) noexcept;

/// Applies an activation to `f`. A NaN becomes the lower bound.
float ClampTo(const OutputBounds& bounds, float f) noexcept;
/// Rounds `f`, which is not a NaN, to a float type, and stores it as element `i` of `c`.
void StoreFloat(intact_type type, float f, size_t i, uint8_t* c) noexcept;

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_ENGINES_PORTABLE_ENGINE_H_
