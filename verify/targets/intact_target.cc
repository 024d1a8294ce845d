#include "verify/targets/intact_target.h"

#include <fmt/format.h>

#include <optional>
#include <type_traits>
#include <utility>

#include "core/result.h"
#include "verify/targets/guarded_grouped.h"
#include "verify/targets/guarded_matrix.h"

namespace intact::verify {
namespace {

Error Failed(std::string message) { return Error{INTACT_CODEGEN_FAILED, std::move(message)}; }

// Creates the plan for exactly options.isa.
template <class Plan, class Operation>
Result<Plan> CreateExactly(const Operation& operation, const RunOptions& options) {
  if (options.isa != INTACT_ISA_ANY && intact_isa_available(options.isa) == 0) {
    return Error{INTACT_UNSUPPORTED,
                 fmt::format("{} is not available on this machine", intact_isa_name(options.isa))};
  }
  Result<Plan> plan = Error{};
  Error error = CallGuarded(operation, options, [&plan](const auto& desc, const void* b) {
    plan = Plan::Create(desc, b);
    return plan ? Error() : plan.error();
  });
  if (!error.ok()) return error;
  const auto info = plan->Info();
  if (options.isa != INTACT_ISA_ANY && info.isa != options.isa) {
    return Error{INTACT_UNSUPPORTED, fmt::format("asked for {}, the plan chose {}",
                                                 intact_isa_name(options.isa), intact_isa_name(info.isa))};
  }
  if constexpr (requires { info.mode != operation.mode; }) {
    if (info.mode != operation.mode) return Failed("the plan has another mode than asked for");
  }
  return plan;
}

// Adds the kernel's name to an error of RunGuarded().
template <class Plan>
Result<std::vector<uint8_t>> Named(Result<std::vector<uint8_t>> output, const Plan& plan) {
  if (output || output.error().status != INTACT_CODEGEN_FAILED) return output;
  return Failed(fmt::format("kernel {} {}", plan.Info().kernel, output.error().message));
}

}  // namespace

Result<Gemm> CreatePlan(const reference::Gemm& gemm, const RunOptions& options) {
  return CreateExactly<Gemm>(gemm, options);
}

Result<Conv> CreatePlan(const reference::Conv& conv, const RunOptions& options) {
  return CreateExactly<Conv>(conv, options);
}

Result<Grouped> CreatePlan(const reference::Grouped& grouped, const RunOptions& options) {
  return CreateExactly<Grouped>(grouped, options);
}

namespace {

// A plan and, if it is a GEMM that was loaded, the memory that holds its weights.
template <class Plan>
struct KeptPlan {
  std::optional<GuardedMatrix> image;
  Result<Plan> plan = Error{};
};

// Saves the plan and loads it from memory that ends at a guard page.
template <class Plan>
Error Reload(const RunOptions& options, KeptPlan<Plan>* kept) {
  ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, kept->plan->SaveMemory());
  ASSIGN_OR_RETURN(GuardedMatrix image, GuardedMatrix::Allocate(1, std::ssize(bytes), std::ssize(bytes)));
  image.Load(bytes.data());
  kept->image = std::move(image);
  kept->plan = Plan::LoadMemory(kept->image->data(), bytes.size(), options.isa);
  // Plans of other kinds do not need the image: reading it ends the process.
  if constexpr (!std::is_same_v<Plan, Gemm>) kept->image.reset();
  if (!kept->plan) return kept->plan.error();
  ASSIGN_OR_RETURN(const std::vector<uint8_t> again, kept->plan->SaveMemory());
  return again == bytes ? Error() : Failed("a plan that was saved and loaded saves other bytes");
}

template <class Plan, class Operation>
Error Make(const Operation& operation, const RunOptions& options, KeptPlan<Plan>* kept) {
  kept->plan = CreatePlan(operation, options);
  if (!kept->plan) return kept->plan.error();
  return options.saved ? Reload(options, kept) : Error();
}

// Runs as a whole, or part by part, the last part first.
template <class Plan, class Args>
Error RunInParts(const Plan& plan, const Args& args, int32_t parts) {
  if (parts == 0) return plan.Run(args);
  for (int32_t part = parts - 1; part >= 0; --part) RETURN_IF_ERROR(plan.RunPart(args, part, parts));
  return {};
}

// With own_scratch, the scratch memory ends at a guard page.
template <class Plan, class Args>
Error RunAs(const Plan& plan, Args args, const RunOptions& options) {
  if (!options.own_scratch) return RunInParts(plan, args, options.parts);
  Args asked = args;
  if (options.parts != 0) asked.threads = options.parts;
  ASSIGN_OR_RETURN(const intact_run_info info, plan.Prepare(asked));
  args.scratch_bytes = options.parts == 0 ? info.scratch_bytes : info.part_scratch_bytes;
  const auto bytes = static_cast<int64_t>(args.scratch_bytes);
  ASSIGN_OR_RETURN(GuardedMatrix scratch,
                   GuardedMatrix::Allocate(1, bytes, bytes, 1, 0, options.surroundings, "scratch"));
  args.scratch = scratch.data();
  RETURN_IF_ERROR(RunInParts(plan, args, options.parts));
  const std::optional<std::string> stray = scratch.StrayWrite();
  return stray ? Failed(fmt::format("wrote outside its scratch: {}", *stray)) : Error();
}

template <class Plan, class Operation>
Result<std::vector<uint8_t>> RunPlan(const Plan& plan, const Operation& operation,
                                     const RunOptions& options) {
  const auto run = [&](const auto& args) { return RunAs(plan, args, options); };
  return Named(RunGuarded(operation, options, run), plan);
}

// A kernel is freed with the last plan that uses it. Keeping each plan until the next one is made lets
// consecutive problems share kernels.
template <class Plan, class Operation>
Result<std::vector<uint8_t>> RunOnNewPlan(const Operation& operation, const RunOptions& options) {
  thread_local KeptPlan<Plan> kept;
  RETURN_IF_ERROR(Make(operation, options, &kept));
  return RunPlan(*kept.plan, operation, options);
}

}  // namespace

Result<std::vector<uint8_t>> IntactTarget::Run(const reference::Operation& operation,
                                               const RunOptions& options) const {
  if (const auto* gemm = std::get_if<reference::Gemm>(&operation)) return RunOnNewPlan<Gemm>(*gemm, options);
  if (const auto* conv = std::get_if<reference::Conv>(&operation)) return RunOnNewPlan<Conv>(*conv, options);
  return RunOnNewPlan<Grouped>(std::get<reference::Grouped>(operation), options);
}

Result<std::vector<uint8_t>> RunOn(const Grouped& plan, const reference::Grouped& grouped,
                                   const RunOptions& options) {
  return RunPlan(plan, grouped, options);
}

}  // namespace intact::verify
