// The kernel of grouped weights on tile registers (AMX): f[16 × panel] = fma(float(acc_g), s_g, f) for each group of depths, in
// order, as the kernels of grouped_kernel.h do for fewer rows.
//
//   A in place           weights of a panel, kBytes (grouped_weights.h)
//     16 rows × 64         16 quads × 16 columns      ─► tile of sums ─► memory ─► vectors: zero points, float, fma
//
// The kernel passes all groups for the first 16 columns of the panel, then for the others, because the floats of 16 rows and 16
// columns fill half of the vector registers. The tile products of a group are independent of those of the next group, so the CPU
// computes them while the vector units add the sums of this group. A group of 32 depths takes half a tile.
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
  bool has_group_scales = false;  // of A
  bool is_centered = false;       // weights are signed bytes without zero points (GroupedExpansionSpec)
  auto operator<=>(const GroupedTileKernelSpec&) const = default;
  /// "grouped_s8w8f32_groups32_tiles_amxint8". Kernels that differ have different names.
  std::string Name() const;
};

/// Bytes of scratch memory of a kernel: two tiles of sums.
inline constexpr int64_t kGroupedTileSums = 2 * kTileBytes;

struct GroupedTileKernelArgs {
  /// Of 16 rows. `steps` and `constants` are not read.
  GroupedKernelArgs rows;
  int32_t* sums = nullptr;  // kGroupedTileSums bytes of scratch memory, aligned to 64 bytes
};
using GroupedTileKernelFunction = jit::Function<void(const GroupedTileKernelArgs*)>;

/// ScopedTiles must have configured 16 rows and a depth of min(group, 64).
Result<GroupedTileKernelFunction> GetGroupedTileKernel(const GroupedTileKernelSpec& spec);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CODEGEN_GROUPED_TILE_KERNEL_H_
