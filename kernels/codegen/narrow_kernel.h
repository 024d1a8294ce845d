// The product of rows of A with few columns of B. The microkernel would broadcast each quad of a row
// to a whole vector, although few lanes have a column. Here quads and columns fill the lanes together: a narrow
// panel (pack.h) of w columns holds lanes / w quads in a vector, a *step*.
//
//   lanes of a step, w = 4    column   0  1  2  3 | 0  1  2  3 | 0  1  2  3 | 0  1  2  3
//                             quad         0      |     1      |     2      |     3
//
// If one step holds all quads of several rows, and A has no gaps, the step holds these rows side by side.
//
// Each row loads a step's quads, and a permutation repeats each quad w times. The sums of a column then lie w
// lanes apart. They are added up while the sums of several rows are transposed: a vector of outputs holds w
// columns of lanes / w rows, in the order of C. With fewer than w columns, zmm kernels move these columns together, and
// a mask leaves out the other lanes.
#ifndef INTACT_KERNELS_CODEGEN_NARROW_KERNEL_H_
#define INTACT_KERNELS_CODEGEN_NARROW_KERNEL_H_

#include <compare>
#include <cstdint>
#include <string>

#include "core/isas.h"
#include "core/result.h"
#include "jit/function.h"
#include "jit/isa.h"
#include "kernels/codegen/epilogue.h"

namespace intact::kernels {

struct NarrowKernelArgs {
  int64_t tiles = 0;           // ≥ 1
  const uint8_t* a = nullptr;  // row 0
  int64_t stride = 0;          // from a row to the next; several rows of a step have no gaps
  int64_t steps = 0;           // whole steps, of each tap if there are taps
  // NarrowKernelSpec::has_taps: the offsets of taps, in bytes from a row. At least one.
  const int64_t *taps = nullptr, *taps_end = nullptr;
  // Tail::kMasked: what a row has of the last step. A bit for each byte, read with zmm registers; ones for each
  // quad, read with ymm registers.
  uint64_t tail_bytes = 0;
  const int32_t* tail_quads = nullptr;
  // Tail::kOverlaps: the bytes of the last step that the steps before it have, and the panel of this step, with zeros
  // for these bytes.
  int64_t overlap = 0;
  const int8_t* tail_b = nullptr;
  const int8_t* b = nullptr;  // the panel; whole steps are read
  // For each lane of a vector of outputs: the constant of its column, and its factors and addends in `epilogue`.
  const int32_t* compensation = nullptr;
  uint8_t* c = nullptr;        // rows of NarrowKernelSpec::columns outputs without gaps
  int64_t c_vector_bytes = 0;  // bytes of a vector of outputs
  EpilogueArgs epilogue;
};

struct NarrowKernelSpec {
  core::Isa isa = core::Isa::kAvx2;
  int width = 1;          // of the panel: 1, 2, 4, 8 or 16, and at most the lanes
  int columns = 1;        // stored columns: `width`, or fewer with zmm registers
  int rows = 0;           // rows of a tile: 0: the lanes; or fewer, whole fours, if `width` is the lanes
  bool has_taps = false;  // whether a row is several taps, each of whole steps
  int step_rows = 1;      // rows of a step; each has quads() / step_rows quads, a power of two
  /// What follows the whole steps: nothing; a step that ends with the row; or the rest of the row, read by a mask.
  enum class Tail : uint8_t { kNone, kOverlaps, kMasked };
  Tail tail = Tail::kNone;
  bool shifts = false;    // from s8 to u8
  EpilogueSpec epilogue;  // without residual; without values of rows, unless width is the lanes
  auto operator<=>(const NarrowKernelSpec&) const = default;
  /// Lanes of a vector.
  int lanes() const { return jit::VectorBytes(isa) / 4; }
  int tile_rows() const { return rows == 0 ? lanes() : rows; }
  /// Quads of a step, and rows of a vector of outputs.
  int quads() const { return lanes() / width; }
  /// The most rows of a step, of rows of `k` activations; 1 if a step cannot hold several.
  int MostStepRows(int64_t k) const;
  std::string Name() const;
};

using NarrowFunction = jit::Function<void(NarrowKernelArgs*)>;

/// Errors: CODEGEN_FAILED, OUT_OF_MEMORY.
Result<NarrowFunction> GetNarrowKernel(const NarrowKernelSpec& spec);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CODEGEN_NARROW_KERNEL_H_
