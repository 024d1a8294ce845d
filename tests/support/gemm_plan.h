// Plans for GEMMs behind the C ABI.
#ifndef INTACT_TESTS_SUPPORT_GEMM_PLAN_H_
#define INTACT_TESTS_SUPPORT_GEMM_PLAN_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/api/create.h"
#include "reference/contract/gemm.h"
#include "verify/targets/intact_target.h"

namespace intact::tests {

/// The plan of `gemm` for `usual_m` rows; null after a failed expectation.
inline std::unique_ptr<kernels::GemmPlan> GemmPlanFor(const reference::Gemm& gemm,
                                                      const verify::RunOptions& options, int64_t usual_m) {
  GemmDesc desc = verify::DescOf(gemm, options);
  desc.usual_m = usual_m;
  auto plan = kernels::MakePlan(desc, desc.linear, gemm.b.data());
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? std::move(*plan) : nullptr;
}

}  // namespace intact::tests
#endif  // INTACT_TESTS_SUPPORT_GEMM_PLAN_H_
