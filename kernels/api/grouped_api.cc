// The C ABI of grouped weights (include/intact/grouped.h).
#include <intact/grouped.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/operation.h"
#include "core/result.h"
#include "core/weight_format.h"
#include "kernels/api/calls.h"
#include "kernels/api/guard.h"
#include "kernels/plans/grouped_plan.h"
#include "kernels/problem/checks.h"
#include "kernels/weights/grouped_certificate.h"

struct intact_grouped {
  std::unique_ptr<intact::kernels::GroupedPlan> plan;
};

namespace {

using intact::Error;
using intact::Result;
using namespace intact::kernels;  // NOLINT(google-build-using-namespace): this file is their C ABI

void Print(const char* what, const GroupedPlan& plan, const std::string& how, int64_t m,
           const Stopwatch& watch) {
  std::fprintf(stderr, "intact: %s n=%lld k=%lld group=%lld %s%s %.1f us\n", what,
               static_cast<long long>(plan.problem().n), static_cast<long long>(plan.problem().k),
               static_cast<long long>(plan.problem().group), plan.engine().KernelName(m).c_str(), how.c_str(),
               watch.Microseconds());
}

}  // namespace

template <>
struct intact::kernels::Kind<intact_grouped> {
  static constexpr const char* kName = "grouped";
  static constexpr intact_grouped_args kArgs = INTACT_GROUPED_ARGS_INIT;
  static constexpr bool kKeepsImage = false;
  static constexpr auto Load = LoadGrouped;
  static Error CheckHasWeights(const GroupedPlan& /*plan*/, const char* /*what*/) { return {}; }
  static void PrintPlan(const GroupedPlan& plan, const Stopwatch& watch) {
    Print("plan", plan, "", 1, watch);
  }
  static void PrintRun(const GroupedPlan& plan, const intact_grouped_args& args, const std::string& how,
                       const Stopwatch& watch) {
    Print("run", plan, " m=" + std::to_string(args.m) + " " + how, args.m, watch);
  }
};

extern "C" {

intact_status intact_grouped_create(const intact_grouped_desc* desc, const void* b,
                                    intact_grouped** grouped) {
  return CreateCall("create", grouped, [&]() -> Result<std::unique_ptr<GroupedPlan>> {
    intact_grouped_desc own = INTACT_GROUPED_DESC_INIT;
    RETURN_IF_ERROR(ReadStruct("desc", desc, &own));
    return MakePlan(own, b);
  });
}

intact_status intact_grouped_prepare(const intact_grouped* grouped, const intact_grouped_args* args,
                                     intact_run_info* info) {
  return PrepareCall(grouped, args, info);
}

intact_status intact_grouped_run(const intact_grouped* grouped, const intact_grouped_args* args) {
  return RunCall(grouped, args);
}

intact_status intact_grouped_run_part(const intact_grouped* grouped, const intact_grouped_args* args,
                                      int32_t part, int32_t parts) {
  return RunPartCall(grouped, args, part, parts);
}

intact_status intact_grouped_query(const intact_grouped* grouped, intact_grouped_info* info) {
  return FillCall("query", grouped, "info", info, INTACT_GROUPED_INFO_INIT,
                  [&](intact_grouped_info* made) -> Error {
                    const GroupedPlan& plan = *grouped->plan;
                    intact::core::ForEachGroupedNumber(intact::core::kCopyField, *made, plan.problem().desc);
                    made->groups = plan.problem().groups();
                    made->isa = static_cast<int32_t>(plan.isa());
                    made->kernel = plan.kernel_name().c_str();
                    made->packed_bytes = plan.packed_bytes();
                    return {};
                  });
}

intact_status intact_grouped_certificate(const intact_grouped* grouped,
                                         intact_pairs_certificate* certificate) {
  return FillCall(
      "certificate", grouped, "certificate", certificate, INTACT_PAIRS_CERTIFICATE_INIT,
      [&](intact_pairs_certificate* made) -> Error {
        const GroupedColumns weights = grouped->plan->weights().Unpacked(grouped->plan->problem());
        *made = CertifyPairs(grouped->plan->problem(), PairsOf(grouped->plan->problem(), weights));
        return {};
      });
}

intact_status intact_grouped_group_certificates(const intact_grouped* grouped, int64_t first, int64_t count,
                                                intact_group_certificate* groups) {
  return GuardCall<intact_grouped>("group_certificates", grouped, [&]() -> Error {
    if (groups == nullptr) return NullArgument("groups");
    const GroupedProblem& problem = grouped->plan->problem();
    RETURN_IF_ERROR(CheckElements(first, count, problem.columns(), "columns"));
    const GroupedColumns weights = grouped->plan->weights().Unpacked(problem);
    const PairedColumns pairs = PairsOf(problem, weights);
    for (int64_t n = first; n < first + count; ++n, groups += problem.groups()) {
      CertifyGroups(problem, pairs, n, {groups, static_cast<size_t>(problem.groups())});
    }
    return {};
  });
}

intact_status intact_grouped_failing_pairs(const intact_grouped* grouped, int64_t first, int64_t count,
                                           intact_failing_pair* pairs, int64_t* written) {
  const auto list = [&] {
    const GroupedProblem& problem = grouped->plan->problem();
    const GroupedColumns weights = grouped->plan->weights().Unpacked(problem);
    return ListFailingPairs(PairsOf(problem, weights), kPairsRange, first, count);
  };
  return FailingPairsCall(grouped, first, count, pairs, written, list,
                          [](const FailingPair& pair) { return ToStruct(pair); });
}

intact_status intact_grouped_save(const intact_grouped* grouped, const char* path) {
  return SaveCall(grouped, path);
}

intact_status intact_grouped_save_memory(const intact_grouped* grouped, void* data, size_t* size) {
  return SaveMemoryCall(grouped, data, size);
}

intact_status intact_grouped_load(const char* path, int32_t max_isa, intact_grouped** grouped) {
  return LoadCall(path, max_isa, grouped);
}

intact_status intact_grouped_load_memory(const void* data, size_t size, int32_t max_isa,
                                         intact_grouped** grouped) {
  return LoadMemoryCall(data, size, max_isa, grouped);
}

void intact_grouped_destroy(intact_grouped* grouped) { delete grouped; }

}  // extern "C"
