#include "verify/targets/blocks.h"

#include "core/isas.h"
#include "kernels/codegen/amx_kernel.h"
#include "kernels/codegen/dispatch.h"

namespace intact::verify {
namespace {

using kernels::KernelBlock;

constexpr Block kPortable = {16, 16};
constexpr Block kTiles = {2 * kernels::kTileRows, 2 * kernels::kTileRows};

// In scheduled kernels, rows fill the lanes and columns are computed one by one.
Block BlockOf(const KernelBlock& block) {
  const int lanes = core::TraitsOf(block.isa).vectors.bytes / 4;
  if (block.dot == jit::DotKind::kScheduled) return {4 * lanes, block.mr};
  return {block.mr, block.vectors * lanes};
}

}  // namespace

std::vector<Block> BlocksOf(intact_isa isa) {
  const bool is_any = isa == INTACT_ISA_ANY;
  std::vector<Block> blocks;
  for (const KernelBlock& block : kernels::kKernels) {
    if (is_any || block.isa == kernels::VectorIsa(static_cast<core::Isa>(isa)))
      blocks.push_back(BlockOf(block));
  }
  if (is_any || isa == INTACT_ISA_AMX_INT8) blocks.push_back(kTiles);
  if (is_any || isa == INTACT_ISA_PORTABLE) blocks.push_back(kPortable);
  return blocks;
}

}  // namespace intact::verify
