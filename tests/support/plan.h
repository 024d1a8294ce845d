// Plans by the C ABI, for tests that need more than verify::IntactTarget offers.
#ifndef INTACT_TESTS_SUPPORT_PLAN_H_
#define INTACT_TESTS_SUPPORT_PLAN_H_

#include <intact/intact.h>

#include <cstdint>
#include <intact/intact.hpp>
#include <memory>
#include <string>
#include <vector>

#include "core/types.h"
#include "reference/contract/gemm.h"
#include "verify/problem/problem.h"
#include "verify/targets/intact_target.h"

namespace intact::tests {

struct Destroy {
  void operator()(intact_gemm* gemm) const noexcept { intact_gemm_destroy(gemm); }
};
using Plan = std::unique_ptr<intact_gemm, Destroy>;

inline Error LastError(intact_status status) { return {status, intact_last_error()}; }

/// Creates the plan of `problem` for its tensors `gemm`.
inline Result<Plan> CreatePlan(const verify::Problem& problem, const reference::Gemm& gemm) {
  intact_gemm* handle = nullptr;
  const GemmDesc desc = verify::DescOf(gemm, verify::RunOptionsOf(problem));
  const intact_status status =
      intact_gemm_create(&desc, &desc.linear, gemm.has_runtime_b ? nullptr : gemm.b.data(), &handle);
  if (status != INTACT_OK) return LastError(status);
  return Plan(handle);
}

inline Result<Plan> LoadPlan(const std::string& path, intact_isa max_isa) {
  intact_gemm* handle = nullptr;
  const intact_status status = intact_gemm_load(path.c_str(), max_isa, &handle);
  if (status != INTACT_OK) return LastError(status);
  return Plan(handle);
}

/// Runs the plan on the activations of `gemm`, and returns the output bytes.
inline Result<std::vector<uint8_t>> RunPlan(const Plan& plan, const reference::Gemm& gemm,
                                            int32_t threads = 1) {
  std::vector<uint8_t> c(static_cast<size_t>(gemm.m * gemm.n * core::BytesOf(gemm.c_type)));
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = gemm.m;
  args.a = gemm.a.data();
  args.c = c.data();
  if (gemm.HasResidual()) args.residual = gemm.residual.data();
  args.threads = threads;
  const intact_status status = intact_gemm_run(plan.get(), &args);
  if (status != INTACT_OK) return LastError(status);
  return c;
}

}  // namespace intact::tests

#endif  // INTACT_TESTS_SUPPORT_PLAN_H_
