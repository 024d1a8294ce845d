// The kernels of the minimums of grouped weights: the f from which the sums of the groups start
// (include/intact/grouped.h).
//
//   f[row][column] = +0, then for g = 0, 1, …: fma(factor[g][row], minimum[g][column], f)
//
// f stays in registers while the groups of a panel pass.
#ifndef INTACT_KERNELS_CODEGEN_GROUPED_MINIMUM_KERNEL_H_
#define INTACT_KERNELS_CODEGEN_GROUPED_MINIMUM_KERNEL_H_

#include <intact/intact.h>

#include <compare>
#include <cstdint>
#include <string>

#include "core/isas.h"
#include "core/result.h"
#include "jit/function.h"

namespace intact::kernels {

struct GroupedMinimumArgs {
  const float* factors = nullptr;  // [group][row], of the first row
  int64_t factors_stride_bytes = 0;
  const uint8_t* minimums = nullptr;  // [group][panel's columns]
  float* f = nullptr;                 // [mr][panel's columns]
  int64_t groups = 0;                 // ≥ 1
};
using GroupedMinimumFunction = jit::Function<void(const GroupedMinimumArgs*)>;

struct GroupedMinimumSpec {
  core::Isa isa = core::Isa::kAvx2;
  int mr = 1;
  intact_type type = INTACT_F32;  // of the minimums: F32 or F16
  auto operator<=>(const GroupedMinimumSpec&) const = default;
  std::string Name() const;
};
/// The most rows that kernels of `isa` can have.
int LargestGroupedMinimumRows(core::Isa isa);
Result<GroupedMinimumFunction> GetGroupedMinimumKernel(const GroupedMinimumSpec& spec);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CODEGEN_GROUPED_MINIMUM_KERNEL_H_
