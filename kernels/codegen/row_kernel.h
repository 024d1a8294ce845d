// The product of one row of A with panels of B that take their turns. The microkernel reads the panels of a tile side by side.
// Here the weights come as one stream, which hardware prefetchers of some CPUs follow better than several: one loop reads all
// panels, and a call goes through all columns.
//
//   tile: a few panels. The kernel stores their outputs together
//     panel: four sums in turn hide the latency of products; then outputs move up by a register, and the panel's sum is the last
//       tap, quads: each quad of the row meets 64 adjacent bytes of B
#ifndef INTACT_KERNELS_CODEGEN_ROW_KERNEL_H_
#define INTACT_KERNELS_CODEGEN_ROW_KERNEL_H_

#include <compare>
#include <string>

#include "core/isas.h"
#include "core/result.h"
#include "jit/emitters/dot.h"
#include "kernels/codegen/epilogue.h"
#include "kernels/codegen/microkernel.h"

namespace intact::kernels {

/// VNNI on zmm registers, which are as wide as a quad of a panel.
struct RowKernelSpec {
  core::Isa isa = core::Isa::kAvx512Vnni;
  jit::DotSigns signs;
  int vectors = 1;      // panels of a tile
  bool shifts = false;  // from s8 to u8
  int ahead = 0;        // the distance in bytes at which each line of weights is fetched; 0: none is
  EpilogueSpec epilogue;
  std::string Name() const;  // "u8s8s32_row_1x64c4_vnni_avx512vnni"
  auto operator<=>(const RowKernelSpec&) const = default;
};

/// The function for `spec`. It takes the arguments of a microkernel of one row; `tap_bytes` are whole quads. But `tiles` are tiles
/// of columns, and the kernel advances the arguments from tile to tile of the row. A CODEGEN_FAILED error names the kernel.
Result<MicrokernelFunction> GetRowKernel(const RowKernelSpec& spec);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CODEGEN_ROW_KERNEL_H_
