#include "verify/targets/blocks.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/api/create.h"
#include "kernels/codegen/amx_kernel.h"
#include "kernels/codegen/dispatch.h"
#include "kernels/plans/convolution.h"
#include "kernels/plans/gemm_plan.h"
#include "verify/targets/intact_target.h"

namespace intact::verify {
namespace {

using kernels::KernelBlock;

constexpr Block kPortable = {16, 16};
constexpr Block kTiles = {2 * kernels::kTileRows, 2 * kernels::kTileRows};

// Rows of scheduled kernels fill the lanes, and columns are theirs one by one.
Block BlockOf(const KernelBlock& block) {
  const int lanes = core::TraitsOf(block.isa).vectors.bytes / 4;
  if (block.dot == jit::DotKind::kScheduled) return {4 * lanes, block.mr};
  return {block.mr, block.vectors * lanes};
}

template <class Operation>
auto PlanOf(const Operation& operation, const RunOptions& options) {
  const auto desc = DescOf(operation, options);
  const std::vector<int8_t> weights = StoredWeights(operation, options);
  return kernels::MakePlan(desc, desc.linear, weights.empty() ? nullptr : weights.data());
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

Result<std::string> KernelOf(const Problem& problem) {
  RunOptions options = RunOptionsOf(problem);
  if (problem.conv) {
    options.open_extents = false;
    ASSIGN_OR_RETURN(const auto plan, PlanOf(MaterializeConv(problem), options));
    return plan->kernel_name();
  }
  ASSIGN_OR_RETURN(const auto plan, PlanOf(MaterializeGemm(problem), options));
  return plan->KernelNameFor(problem.m);
}

}  // namespace intact::verify
