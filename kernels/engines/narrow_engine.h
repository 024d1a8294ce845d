// GEMM with fewer columns than lanes, and at most eight: quads, or rows and quads, fill the lanes that columns leave
// empty (narrow_kernel.h), from the canonical panel. Also columns that fill a vector.
//
//   RunRange ─► rows that lie evenly: tiles of a row for each lane, in one call if C has no gaps
//            ─► rows behind the last whole tile: a tile that ends with them
//            ─► fewer rows than a tile: copied to scratch, and multiplied there
#ifndef INTACT_KERNELS_ENGINES_NARROW_ENGINE_H_
#define INTACT_KERNELS_ENGINES_NARROW_ENGINE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/codegen/narrow_kernel.h"
#include "kernels/engines/engine.h"

namespace intact::kernels {

class NarrowEngine final : public Engine {
 public:
  /// Whether the engine can multiply rows of k activations, and n columns: B is constant, with few columns, and
  /// rows have no residual; also no values, unless the columns fill a vector.
  static bool TakesRows(const LinearProblem& problem, int64_t n, int64_t k, core::Isa isa);
  /// TakesRows() for the rows of the plan, which have one tap.
  static bool CanRun(const GemmData& data, core::Isa isa);
  /// An engine without its kernel, which only predicts costs. `data` must outlive it.
  NarrowEngine(const GemmData& data, core::Isa isa);
  /// Generates the kernel. Errors: OUT_OF_MEMORY, CODEGEN_FAILED.
  Error Build();

  EngineId id() const override { return {EngineId::Kind::kNarrow}; }
  EngineTile tile() const override { return {spec_.rows(), kPanelColumns, kPanelColumns}; }
  std::string KernelName() const override { return spec_.Name(); }
  double Cost(int64_t m) const override;
  int64_t ScratchBytes(int64_t /*rows*/) const override { return RoundUp(spec_.rows() * data_.k, 64); }
  void RunRange(const RunBuffers& buffers, const Range& range, uint8_t* scratch) const noexcept override;
  std::unique_ptr<BoundCalls> Bind(const RunBuffers& buffers, const Range& range,
                                   uint8_t* scratch) const override;

 private:
  class BoundRange;
  using Values = std::array<int32_t, 16>;  // of int32 or float32
  /// The constants of columns, for each lane of a vector of outputs.
  struct Lanes {
    alignas(64) Values compensation = {}, factors = {}, addends = {};
    EpilogueArgs epilogue;
  };

  bool MayStream() const { return spec_.columns == kPanelColumns && data_.element_bytes() == 4; }
  void SetTail();
  void SetLanes(const RunBuffers& buffers, Lanes* lanes) const noexcept;
  NarrowKernelArgs MakeArgs(const Lanes& lanes) const noexcept;
  void RunRange(const Lanes& lanes, const RunBuffers& buffers, const Range& range,
                uint8_t* scratch) const noexcept;
  const NarrowFunction& KernelFor(int64_t stride, NarrowKernelArgs* args) const noexcept;
  /// The kernel that stores these rows in C, and all its arguments; null if rows go through scratch.
  const NarrowFunction* KernelFor(const RunBuffers& buffers, const uint8_t* a, int64_t stride, int64_t row,
                                  int64_t rows, NarrowKernelArgs* args) const noexcept;
  /// Bytes that a step reads of a row.
  int64_t step_bytes() const { return int64_t{spec_.quads()} * kQuad; }
  int64_t steps() const { return CeilDivide(data_.weights.quads(), spec_.quads()); }
  /// Computes tiles of rows of A from `a` on, and stores the first `rows` of them from `row` of C on.
  void RunTiles(const RunBuffers& buffers, const uint8_t* a, int64_t stride, int64_t row, int64_t rows,
                NarrowKernelArgs args) const noexcept;

  const GemmData& data_;
  NarrowKernelSpec spec_;
  NarrowFunction kernel_;
  NarrowFunction streaming_kernel_;  // if a row of C is a line: see EpilogueVariant::streams
  // If a step holds several rows: the kernel for rows without gaps, and the panel's quads, repeated for each row.
  NarrowFunction rows_kernel_;
  int step_rows_ = 1;
  Values tail_quads_ = {};                              // see NarrowKernelArgs
  alignas(64) std::array<int8_t, 64> tail_panel_ = {};  // NarrowKernelArgs::tail_b
  alignas(64) std::array<int8_t, 64> repeated_quads_ = {};
  Lanes lanes_;  // of the plan; a run with its own constants of columns has its own
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_ENGINES_NARROW_ENGINE_H_
