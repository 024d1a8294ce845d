// The C ABI of grouped weights (include/intact/grouped.h).
#include <intact/grouped.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/api/guard.h"
#include "kernels/codegen/dispatch.h"
#include "kernels/plans/grouped_plan.h"
#include "kernels/problem/checks.h"
#include "kernels/problem/grouped_problem.h"
#include "kernels/runtime/whole_file.h"
#include "kernels/weights/grouped_certificate.h"
#include "kernels/weights/grouped_file.h"
#include "kernels/weights/pack_file.h"

struct intact_grouped {
  intact_grouped_desc desc;  // its pointers are not used
  std::unique_ptr<intact::kernels::GroupedPlan> plan;
};

namespace {

using intact::Error;
using intact::Result;
using namespace intact::kernels;  // NOLINT(google-build-using-namespace): this file is their C ABI

void Print(const char* what, const intact_grouped& grouped, const std::string& more, int64_t m,
           const Stopwatch& watch) {
  const GroupedPlan& plan = *grouped.plan;
  std::fprintf(stderr, "intact: %s n=%lld k=%lld group=%lld %s%s %.1f us\n", what,
               static_cast<long long>(plan.problem().n), static_cast<long long>(plan.problem().k),
               static_cast<long long>(plan.problem().group), plan.engine().KernelName(m).c_str(),
               more.c_str(), watch.Microseconds());
}

// Makes a plan from a descriptor of this version.
Error Create(const intact_grouped_desc& desc, const void* b, intact_grouped** grouped) {
  const Stopwatch watch;
  ASSIGN_OR_RETURN(GroupedProblem problem, CheckGrouped(desc));
  ASSIGN_OR_RETURN(const GroupedWeightView weights, CheckGroupedWeights(desc, problem, b));
  ASSIGN_OR_RETURN(const intact::core::IsaSet permitted, PermittedIsas(desc.max_isa));
  ASSIGN_OR_RETURN(const intact::core::Isa isa, ChooseIsa(permitted));
  ASSIGN_OR_RETURN(auto plan, GroupedPlan::Create(std::move(problem), weights, isa));
  *grouped = new intact_grouped{desc, std::move(plan)};
  PrintIfVerbose([&] { Print("plan", **grouped, "", 1, watch); });
  return {};
}

// `owner` keeps the image alive; without it, the plan copies what it needs.
Error Load(const void* image, size_t size, const std::shared_ptr<const void>& owner, int32_t max_isa,
           intact_grouped** grouped) {
  const Stopwatch watch;
  ASSIGN_OR_RETURN(GroupedImage read, ReadGroupedImage(image, size, owner));
  read.desc.max_isa = max_isa;
  ASSIGN_OR_RETURN(const intact::core::IsaSet permitted, PermittedIsas(max_isa));
  ASSIGN_OR_RETURN(const intact::core::Isa isa, ChooseIsa(permitted));
  const bool are_for_isa =
      isa != intact::core::Isa::kPortable && read.weights->AreFor(read.problem, VectorIsa(isa));
  if (!are_for_isa || MayExceedInt32(read.problem)) {
    GroupedColumns columns(read.problem);
    read.weights->Unpack(&columns);
    read.desc.b_scales = columns.scales.data();
    if (read.problem.has_b_zero_points) read.desc.b_zero_points = columns.zero_points.data();
    if (read.problem.has_b_minimums) read.desc.b_minimums = columns.minimums.data();
    return Create(read.desc, columns.weights.data(), grouped);
  }
  RETURN_IF_ERROR(read.weights->Check(read.problem));
  if (owner == nullptr) RETURN_IF_ERROR(read.weights->Copy());
  ASSIGN_OR_RETURN(auto plan, GroupedPlan::Create(std::move(read.problem), std::move(read.weights), isa));
  *grouped = new intact_grouped{read.desc, std::move(plan)};
  PrintIfVerbose([&] { Print("plan", **grouped, "", 1, watch); });
  return {};
}

Result<std::vector<uint8_t>> ImageOf(const intact_grouped& grouped) {
  const GroupedPlan& plan = *grouped.plan;
  ASSIGN_OR_RETURN(const std::shared_ptr<const GroupedWeights> weights, plan.engine().Weights());
  return WriteGroupedImage(grouped.desc, plan.problem(), *weights);
}

// The weights of `grouped`, dense.
Result<std::vector<uint8_t>> WeightsOf(const intact_grouped& grouped) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const GroupedWeights> packed, grouped.plan->engine().Weights());
  GroupedColumns columns(grouped.plan->problem());
  packed->Unpack(&columns);
  return std::move(columns.weights);
}

// Runs `run` on arguments of this version.
template <class Run>
Error WithArguments(const intact_grouped* grouped, const intact_grouped_args* args, const Run& run) {
  static constexpr intact_grouped_args kDefaults = INTACT_GROUPED_ARGS_INIT;
  if (grouped == nullptr) return Refuse([] { return NullArgument("grouped"); });
  return WithStruct("args", args, kDefaults, run);
}

}  // namespace

extern "C" {

intact_status intact_grouped_create(const intact_grouped_desc* desc, const void* b,
                                    intact_grouped** grouped) {
  return Guard("intact_grouped_create", [&]() -> Error {
    if (grouped == nullptr) return NullArgument("grouped");
    *grouped = nullptr;
    intact_grouped_desc own = INTACT_GROUPED_DESC_INIT;
    RETURN_IF_ERROR(ReadStruct("desc", desc, &own));
    return Create(own, b, grouped);
  });
}

intact_status intact_grouped_prepare(const intact_grouped* grouped, const intact_grouped_args* args,
                                     intact_run_info* info) {
  return Guard("intact_grouped_prepare", [&]() -> Error {
    return WithArguments(grouped, args, [&](const intact_grouped_args& own) -> Error {
      RETURN_IF_ERROR(CheckStructSize("info", info));
      intact_run_info made = INTACT_RUN_INFO_INIT;
      RETURN_IF_ERROR(grouped->plan->Prepare(own, &made));
      WriteStruct(made, info);
      return {};
    });
  });
}

intact_status intact_grouped_run(const intact_grouped* grouped, const intact_grouped_args* args) {
  return Guard("intact_grouped_run", [&]() -> Error {
    const Stopwatch watch;
    return WithArguments(grouped, args, [&](const intact_grouped_args& own) -> Error {
      RETURN_IF_ERROR(grouped->plan->Run(own));
      PrintIfVerbose([&] {
        const std::string more = " m=" + std::to_string(own.m) + " threads=" + std::to_string(own.threads);
        Print("run", *grouped, more, own.m, watch);
      });
      return {};
    });
  });
}

intact_status intact_grouped_run_part(const intact_grouped* grouped, const intact_grouped_args* args,
                                      int32_t part, int32_t parts) {
  return Guard("intact_grouped_run_part", [&]() -> Error {
    const Stopwatch watch;
    return WithArguments(grouped, args, [&](const intact_grouped_args& own) -> Error {
      RETURN_IF_ERROR(grouped->plan->RunPart(own, part, parts));
      PrintIfVerbose([&] {
        const std::string more =
            " m=" + std::to_string(own.m) + " part=" + std::to_string(part) + "/" + std::to_string(parts);
        Print("run", *grouped, more, own.m, watch);
      });
      return {};
    });
  });
}

intact_status intact_grouped_query(const intact_grouped* grouped, intact_grouped_info* info) {
  return Guard("intact_grouped_query", [&]() -> Error {
    if (grouped == nullptr) return NullArgument("grouped");
    RETURN_IF_ERROR(CheckStructSize("info", info));
    const GroupedPlan& plan = *grouped->plan;
    const intact_grouped_desc& desc = grouped->desc;
    intact_grouped_info made = INTACT_GROUPED_INFO_INIT;
    made.n = desc.n;
    made.k = desc.k;
    made.group = desc.group;
    made.groups = plan.problem().groups();
    made.a_source_type = desc.a_source_type;
    made.a_type = desc.a_type;
    made.a_granularity = desc.a_granularity;
    made.b_type = desc.b_type;
    made.scale_type = desc.scale_type;
    made.c_type = desc.c_type;
    made.isa = static_cast<int32_t>(plan.isa());
    made.kernel = plan.kernel_name().c_str();
    made.packed_bytes = plan.engine().packed_bytes();
    made.experts = desc.experts;
    WriteStruct(made, info);
    return {};
  });
}

intact_status intact_grouped_certificate(const intact_grouped* grouped,
                                         intact_pairs_certificate* certificate) {
  return Guard("intact_grouped_certificate", [&]() -> Error {
    if (grouped == nullptr) return NullArgument("grouped");
    RETURN_IF_ERROR(CheckStructSize("certificate", certificate));
    ASSIGN_OR_RETURN(const std::vector<uint8_t> weights, WeightsOf(*grouped));
    WriteStruct(GroupedPairs(grouped->plan->problem(), weights.data()).Certify(), certificate);
    return {};
  });
}

intact_status intact_grouped_group_certificates(const intact_grouped* grouped, int64_t first, int64_t count,
                                                intact_group_certificate* groups) {
  return Guard("intact_grouped_group_certificates", [&]() -> Error {
    if (grouped == nullptr) return NullArgument("grouped");
    if (groups == nullptr) return NullArgument("groups");
    const GroupedProblem& problem = grouped->plan->problem();
    const int64_t columns = problem.columns();
    if (first < 0 || count < 0 || first > columns || count > columns - first) {
      return InvalidArgument("first is " + std::to_string(first) + " and count is " + std::to_string(count) +
                             "; there are " + std::to_string(columns) + " columns");
    }
    ASSIGN_OR_RETURN(const std::vector<uint8_t> weights, WeightsOf(*grouped));
    const GroupedPairs pairs(problem, weights.data());
    for (int64_t n = first; n < first + count; ++n) {
      for (int64_t g = 0; g < problem.groups(); ++g) *groups++ = pairs.CertifyGroup(n, g);
    }
    return {};
  });
}

intact_status intact_grouped_failing_pairs(const intact_grouped* grouped, int64_t first, int64_t count,
                                           intact_failing_pair* pairs, int64_t* written) {
  return Guard("intact_grouped_failing_pairs", [&]() -> Error {
    if (grouped == nullptr) return NullArgument("grouped");
    RETURN_IF_ERROR(CheckListing(first, count, pairs, written));
    ASSIGN_OR_RETURN(const std::vector<uint8_t> weights, WeightsOf(*grouped));
    *written = GroupedPairs(grouped->plan->problem(), weights.data()).ListFailing(first, count, pairs);
    return {};
  });
}

intact_status intact_grouped_save(const intact_grouped* grouped, const char* path) {
  return Guard("intact_grouped_save", [&]() -> Error {
    if (grouped == nullptr) return NullArgument("grouped");
    if (path == nullptr) return NullArgument("path");
    ASSIGN_OR_RETURN(const std::vector<uint8_t> image, ImageOf(*grouped));
    return WriteWholeFile(path, image);
  });
}

intact_status intact_grouped_save_memory(const intact_grouped* grouped, void* data, size_t* size) {
  return Guard("intact_grouped_save_memory", [&]() -> Error {
    if (grouped == nullptr) return NullArgument("grouped");
    if (size == nullptr) return NullArgument("size");
    if (data == nullptr) {
      const GroupedPlan& plan = *grouped->plan;
      *size = GroupedImageBytes(grouped->desc, plan.problem(), plan.engine().packing());
      return {};
    }
    ASSIGN_OR_RETURN(const std::vector<uint8_t> image, ImageOf(*grouped));
    return SaveTo(image, data, size);
  });
}

intact_status intact_grouped_load(const char* path, int32_t max_isa, intact_grouped** grouped) {
  return Guard("intact_grouped_load", [&]() -> Error {
    if (grouped == nullptr) return NullArgument("grouped");
    *grouped = nullptr;
    if (path == nullptr) return NullArgument("path");
    ASSIGN_OR_RETURN(const MappedFile file, MapFile(path));
    Error error = Load(file.data.get(), file.size, file.data, max_isa, grouped);
    if (error.status != INTACT_OK) error.message = std::string("'") + path + "': " + error.message;
    return error;
  });
}

intact_status intact_grouped_load_memory(const void* data, size_t size, int32_t max_isa,
                                         intact_grouped** grouped) {
  return Guard("intact_grouped_load_memory", [&]() -> Error {
    if (grouped == nullptr) return NullArgument("grouped");
    *grouped = nullptr;
    if (data == nullptr) return NullArgument("data");
    if (reinterpret_cast<uintptr_t>(data) % 64 != 0) {
      return InvalidArgument("data is not aligned to 64 bytes");
    }
    return Load(data, size, nullptr, max_isa, grouped);
  });
}

void intact_grouped_destroy(intact_grouped* grouped) { delete grouped; }

}  // extern "C"
