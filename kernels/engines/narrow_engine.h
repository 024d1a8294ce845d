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
#include <vector>

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
  /// Bytes that a step reads of a row. Condition: n columns fit into a vector.
  static int64_t StepBytes(core::Isa isa, int64_t n) { return jit::VectorBytes(isa) / PanelWidth(n); }
  /// Whether the engine can multiply rows of several taps: each tap is whole steps, and a line has at least the rows of a
  /// tile. Condition: TakesRows().
  static bool TakesTaps(core::Isa isa, int64_t n, int64_t depth, int64_t line_rows);
  /// The time of a line of `rows` rows of taps, k activations in all, in half cycles.
  static double LineCost(core::Isa isa, int64_t n, int64_t k, int64_t rows);
  /// Whether the engine can run the plan.
  static bool CanRun(const GemmData& data, core::Isa isa);
  /// An engine without its kernel, which only predicts costs. `data` must outlive it.
  NarrowEngine(const GemmData& data, core::Isa isa);
  /// Generates the kernel. Errors: OUT_OF_MEMORY, CODEGEN_FAILED.
  Error Build();

  EngineId id() const override { return {EngineId::Kind::kNarrow}; }
  EngineTile tile() const override { return {spec_.tile_rows(), kPanelColumns, kPanelColumns}; }
  std::string KernelName() const override { return spec_.Name(); }
  double Cost(int64_t m) const override;
  int64_t ScratchBytes(int64_t /*rows*/) const override { return RoundUp(spec_.tile_rows() * data_.k, 64); }
  void RunRange(const RunBuffers& buffers, const Range& range, uint8_t* scratch) const noexcept override;
  std::unique_ptr<BoundCalls> Bind(const RunBuffers& buffers, const Range& range,
                                   uint8_t* scratch) const override;

 private:
  class BoundRange;
  /// The time of a row, if a step holds one row, in half cycles.
  static double RowCost(core::Isa isa, int64_t n, int64_t k);
  /// The rows of the kernel for the rows of a line behind whole tiles; 0: the last tile is a whole one.
  static int64_t TailRows(core::Isa isa, int64_t n, int64_t rows);
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
  void SetTaps(NarrowKernelArgs* args) const noexcept {
    args->taps = data_.taps().offsets.data();
    args->taps_end = args->taps + data_.taps().count();
  }
  void RunRange(const Lanes& lanes, const RunBuffers& buffers, const Range& range,
                uint8_t* scratch) const noexcept;
  const NarrowFunction& KernelFor(int64_t stride, int64_t rows, NarrowKernelArgs* args) const noexcept;
  /// The rows of the tile behind the whole tiles of `rows` rows: it ends with them.
  int64_t LastTile(int64_t rows) const {
    return rows % spec_.tile_rows() <= tail_rows_ ? tail_rows_ : spec_.tile_rows();
  }
  /// The kernel that stores these rows in C, and all its arguments; null if rows go through scratch.
  const NarrowFunction* KernelFor(const RunBuffers& buffers, const uint8_t* a, int64_t stride, int64_t row,
                                  int64_t rows, NarrowKernelArgs* args) const noexcept;
  bool has_taps() const { return data_.taps().count() > 1; }
  int64_t step_bytes() const { return StepBytes(spec_.isa, data_.n); }
  /// Computes tiles of rows of A from `a` on, and stores the first `rows` of them from `row` of C on. `args`: MakeArgs(), with
  /// the values of these rows. Arguments are not copied: a copy would wait for their stores.
  void RunTiles(const RunBuffers& buffers, const uint8_t* a, int64_t stride, int64_t row, int64_t rows,
                NarrowKernelArgs* args) const noexcept;

  const GemmData& data_;
  NarrowKernelSpec spec_;
  NarrowFunction kernel_;
  // For the rows of a line of taps behind whole tiles, if they are not too many; it has tail_rows_, or 0.
  NarrowFunction tail_kernel_;
  int64_t tail_rows_ = 0;
  NarrowFunction streaming_kernel_;  // if a row of C is a line: see EpilogueVariant::streams
  // If a step holds several rows: the kernel for rows without gaps, and the panel's quads, repeated for each row.
  NarrowFunction rows_kernel_;
  int step_rows_ = 1;
  std::vector<int64_t> joined_taps_;                    // of a row in scratch
  Values tail_quads_ = {};                              // see NarrowKernelArgs
  alignas(64) std::array<int8_t, 64> tail_panel_ = {};  // NarrowKernelArgs::tail_b
  alignas(64) std::array<int8_t, 64> repeated_quads_ = {};
  Lanes lanes_;  // of the plan; a run with its own constants of columns has its own
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_ENGINES_NARROW_ENGINE_H_
