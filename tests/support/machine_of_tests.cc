// Linked into every test program: plans are those of one CPU's cost table and caches on every CPU. Otherwise a
// test that says what a plan has, or needs a certain kernel to show a fault, passes on one CPU and fails on
// the next. The tables of other CPUs have tests of their own (CostTable.BytesDoNotDependOnTheTable); programs
// that tests start have the CPU's own.
#include <gtest/gtest.h>

#include "core/isas.h"
#include "jit/isa.h"
#include "kernels/engines/cost_table.h"
#include "kernels/runtime/caches.h"

namespace intact::tests {
namespace {

class MachineOfTests : public testing::Environment {
  void SetUp() override {
    // Measured on a CPU with tiles. Other tables guess when tiles are worth their set-up.
    kernels::SetCosts(kernels::CostsFor(jit::CpuKind{}, core::CappedAt(core::Isa::kAmxInt8)).costs);
    kernels::SetCachesForTesting({48 << 10, 2 << 20});
  }
};

const auto* const kMachineOfTests = testing::AddGlobalTestEnvironment(new MachineOfTests);

}  // namespace
}  // namespace intact::tests
