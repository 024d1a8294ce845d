// Plans on AMX that run every M on tiles. The library itself runs small M on AVX-512-VNNI. Convolutions with
// their own kernels are an exception.
#ifndef INTACT_TESTS_SUPPORT_TILES_TARGET_H_
#define INTACT_TESTS_SUPPORT_TILES_TARGET_H_

#include <memory>
#include <string>
#include <vector>

#include "kernels/api/create.h"
#include "kernels/codegen/dispatch.h"
#include "kernels/plans/convolution.h"
#include "kernels/plans/gemm_plan.h"
#include "verify/problem/target.h"
#include "verify/targets/intact_target.h"

namespace intact::tests {

class TilesTarget final : public verify::Target {
 public:
  std::string Name() const override { return "tiles"; }

  Result<std::vector<uint8_t>> Run(const reference::Operation& operation,
                                   const verify::RunOptions& options) const override {
    if (const auto* gemm = std::get_if<reference::Gemm>(&operation)) {
      return RunPlan<kernels::GemmPlan, intact_gemm_args>(*gemm, options);
    }
    return RunPlan<kernels::Convolution, intact_conv_args>(std::get<reference::Conv>(operation), options);
  }

 private:
  template <class Plan, class Args, class Operation>
  static Result<std::vector<uint8_t>> RunPlan(const Operation& operation, const verify::RunOptions& options) {
    const auto desc = verify::DescOf(operation, options);
    const std::vector<int8_t> weights = verify::StoredWeights(operation, options);
    Result<std::unique_ptr<Plan>> plan =
        kernels::MakePlan(desc, desc.linear, weights.empty() ? nullptr : weights.data());
    if (!plan) return plan.error();
    if (!kernels::UsesTiles((*plan)->isa())) return Error{INTACT_UNSUPPORTED, "the plan has no tiles"};
    constexpr int64_t kLargeM = 1 << 20;
    (*plan)->RunAllAs(kLargeM);
    return verify::RunGuarded(operation, options, [&](const Args& args) { return (*plan)->Run(args); });
  }
};

}  // namespace intact::tests
#endif  // INTACT_TESTS_SUPPORT_TILES_TARGET_H_
