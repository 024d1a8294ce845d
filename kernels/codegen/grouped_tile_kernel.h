// The kernel of grouped weights on tile registers (AMX): f[16 × panel] = fma(float(acc_g), s_g, f) for each group of depths, in
// order, as the kernels of grouped_kernel.h do for fewer rows.
//
//   A in place           weights of a panel, kBytes (grouped_weights.h)
//     16 rows × 64         16 quads × 16 columns      ─► tile of sums ─► memory ─► vectors: zero points, float, fma
//
// A step multiplies two row tiles by one group, one row tile by two groups, or one by one, with both vectors of columns: four tiles
// of sums. Meanwhile the sums of the previous step are added to f, because the vector units would otherwise
// be idle. The last step of a call is added by the next call. A group of 32 depths takes half a tile.
#ifndef INTACT_KERNELS_CODEGEN_GROUPED_TILE_KERNEL_H_
#define INTACT_KERNELS_CODEGEN_GROUPED_TILE_KERNEL_H_

#include <compare>
#include <cstdint>
#include <string>

#include "core/result.h"
#include "jit/function.h"
#include "kernels/codegen/amx_kernel.h"
#include "kernels/codegen/grouped_kernel.h"
#include "kernels/weights/grouped_weights.h"

namespace intact::kernels {

/// Whether there are tile kernels for groups of `group` depths: they are half a tile, or some tiles.
constexpr bool HasGroupedTileKernel(int64_t group) {
  return group == 32 || group == 64 || group == 128 || group == 256;
}

struct GroupedTileKernelSpec {
  GroupedLayout layout;  // of kBytes
  int group = 32;        // HasGroupedTileKernel()
  bool a_signed = false;
  bool has_group_scales = false;        // of A
  bool is_centered = false;             // weights are signed bytes without zero points (GroupedExpansionSpec)
  int row_tiles = 2, groups = 1;        // of a step; at least one of them is 1
  bool multiplies = true, adds = true;  // one of them or both
  int units() const { return row_tiles * groups; }
  auto operator<=>(const GroupedTileKernelSpec&) const = default;
  /// "grouped_s8w8f32_groups32_32rows_multiply_add_tiles_amxint8". Kernels that differ have different names.
  std::string Name() const;
};

/// Bytes of a step's sums.
inline constexpr int64_t kGroupedTileSums = 2 * GroupedLayout::kVectors * kTileBytes;

/// A call that multiplies and adds changes steps and values.
struct GroupedTileKernelArgs {
  // What is multiplied. A call that does not add multiplies one step.
  int64_t steps = 1;  // ≥ 1
  const uint8_t* a = nullptr;
  int64_t a_stride_bytes = 0;
  const uint8_t* weights = nullptr;
  // What is needed to add all steps except the last one.
  const GroupedRowValues* values = nullptr;  // of the first group
  int64_t values_stride_bytes = 0;           // from group to group
  float* f = nullptr;                        // [row][column of the panel]
  // kGroupedTileSums bytes for the sums of the first step, aligned to 64 bytes. This buffer and the buffer of
  // the finished sums take turns.
  int32_t* sums = nullptr;

  /// A step that has been multiplied before, and is added. A call that does not multiply adds only this step.
  struct Finished {
    const GroupedRowValues* values = nullptr;
    const uint8_t* weights = nullptr;
    int32_t* sums = nullptr;
    float* f = nullptr;
  } finished;
};
using GroupedTileKernelFunction = jit::Function<void(GroupedTileKernelArgs*)>;

/// ScopedTiles must have configured 16 rows and a depth of min(group, 64).
Result<GroupedTileKernelFunction> GetGroupedTileKernel(const GroupedTileKernelSpec& spec);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CODEGEN_GROUPED_TILE_KERNEL_H_
