// The C ABI, except for convolutions: reads structs of any version, translates statuses and messages.
// Exceptions do not leave it.
#include <intact/intact.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/isas.h"
#include "core/result.h"
#include "jit/isa.h"
#include "kernels/api/bound.h"
#include "kernels/api/calls.h"
#include "kernels/api/guard.h"
#include "kernels/codegen/dispatch.h"
#include "kernels/plans/gemm_plan.h"
#include "kernels/problem/checks.h"

struct intact_gemm {
  std::unique_ptr<intact::kernels::GemmPlan> plan;
};

namespace {

using intact::Error;
using intact::Result;
using namespace intact::kernels;  // NOLINT(google-build-using-namespace): this file is their C ABI

// A fixed buffer: reporting that memory ran out must not need memory.
thread_local char last_error[512] = "";

void PrintTuned(const GemmPlan& plan, int64_t m, const Tuned& tuned) {
  std::fprintf(stderr, "intact: tune m=%lld n=%lld k=%lld %s\n", static_cast<long long>(m),
               static_cast<long long>(plan.weights().n()), static_cast<long long>(plan.weights().k()),
               TextOf(tuned).c_str());
}

// UNSUPPORTED for a plan with runtime B: `what` ("tune") needs the plan's own weights.
Error CheckHasWeights(const GemmPlan& plan, const char* what) {
  if (!plan.problem().has_runtime_b) return {};
  return {INTACT_UNSUPPORTED,
          std::string("each run gives the plan's B (runtime_b): there is nothing to ") + what};
}

}  // namespace

template <>
struct intact::kernels::Kind<intact_gemm> {
  static constexpr const char* kName = "gemm";
  static constexpr intact_gemm_args kArgs = INTACT_GEMM_ARGS_INIT;
  static constexpr bool kKeepsImage = true;
  static constexpr auto Load = LoadGemm;
  static constexpr auto CheckHasWeights = ::CheckHasWeights;
  static void PrintPlan(const GemmPlan& plan, const Stopwatch& watch) {
    std::fprintf(stderr, "intact: plan n=%lld k=%lld %s mode=%s %.1f us\n",
                 static_cast<long long>(plan.weights().n()), static_cast<long long>(plan.weights().k()),
                 plan.kernel_name().c_str(), ModeName(plan.problem().mode), watch.Microseconds());
  }
  static void PrintRun(const GemmPlan& plan, const intact_gemm_args& args, const std::string& how,
                       const Stopwatch& watch) {
    std::fprintf(stderr, "intact: run m=%lld n=%lld k=%lld %s mode=%s %s %.1f us\n",
                 static_cast<long long>(args.m), static_cast<long long>(plan.weights().n()),
                 static_cast<long long>(plan.weights().k()), plan.KernelNameFor(args).c_str(),
                 ModeName(plan.problem().mode), how.c_str(), watch.Microseconds());
  }
};

namespace intact::kernels {

intact_status ReportStatus(intact_status status, const char* message) noexcept {
  if (*message == '\0') {
    *last_error = '\0';  // after each successful call
  } else {
    std::snprintf(last_error, sizeof(last_error), "%s", message);
  }
  return status;
}

intact_certificate ToStruct(const Certificate& certificate, intact_type a_type,
                            const ScheduleStatistics& schedule, int32_t pairing) {
  const int shift = ActivationShift(a_type);
  return {sizeof(intact_certificate),
          certificate.range.low - shift,
          certificate.range.high - shift,
          certificate.pairs,
          certificate.failing_pairs,
          certificate.worst_column,
          certificate.worst_column_failing_pairs,
          certificate.accumulator_min,
          certificate.accumulator_max,
          static_cast<int64_t>(certificate.panel_failing_pairs.size()),
          schedule.quads,
          schedule.items,
          schedule.groups,
          pairing,
          0};
}

std::string TextOf(const Tuned& tuned) {
  std::array<char, 512> text = {};
  std::snprintf(text.data(), text.size(), "%s %.1f us, the fastest of %d; by the model %s %.1f us",
                tuned.kernel.c_str(), tuned.microseconds, tuned.candidates, tuned.model_kernel.c_str(),
                tuned.model_microseconds);
  return text.data();
}

void WriteTuned(const Tuned& tuned, intact_tune_info* info) {
  if (info == nullptr) return;
  intact_tune_info made = INTACT_TUNE_INFO_INIT;
  made.microseconds = tuned.microseconds;
  made.model_microseconds = tuned.model_microseconds;
  made.candidates = tuned.candidates;
  std::snprintf(made.kernel, sizeof(made.kernel), "%s", tuned.kernel.c_str());
  std::snprintf(made.model_kernel, sizeof(made.model_kernel), "%s", tuned.model_kernel.c_str());
  WriteStruct(made, info);
}

bool IsVerbose() {
  static const bool kVerbose = [] {
    const char* value = std::getenv("INTACT_VERBOSE");
    return value != nullptr && *value != '\0' && *value != '0';
  }();
  return kVerbose;
}

}  // namespace intact::kernels

extern "C" {

const char* intact_version(void) { return INTACT_VERSION_STRING; }

const char* intact_last_error(void) { return last_error; }

const char* intact_status_name(int32_t status) {
  switch (status) {
    case INTACT_OK:
      return "ok";
    case INTACT_INVALID_ARGUMENT:
      return "invalid argument";
    case INTACT_UNSUPPORTED:
      return "unsupported";
    case INTACT_OVERFLOW:
      return "overflow";
    case INTACT_CODEGEN_FAILED:
      return "code generation failed";
    case INTACT_OUT_OF_MEMORY:
      return "out of memory";
  }
  return "unknown status";
}

const char* intact_isa_name(int32_t isa) {
  if (isa == INTACT_ISA_ANY) return "any";
  const std::optional<intact::core::Isa> known = intact::core::IsaOf(isa);
  return known ? intact::core::ToString(*known).data() : nullptr;
}

int32_t intact_isa_available(int32_t isa) {
  const std::optional<intact::core::Isa> known = intact::core::IsaOf(isa);
  if (!known) return 0;
  int is_available = 0;
  // Keeps the message of an earlier call: this function cannot fail.
  try {
    const intact::Result<intact::core::IsaSet> permitted = intact::jit::PermittedIsas();
    is_available = permitted && permitted->Has(*known) && intact::kernels::HasKernels(*known) ? 1 : 0;
  } catch (const std::exception&) {
    is_available = 0;
  }
  return is_available;
}

intact_status intact_gemm_create(const intact_gemm_desc* desc, const intact_linear_desc* linear,
                                 const void* b, intact_gemm** gemm) {
  return CreateCall("create", gemm,
                    [&] { return MakePlanOf(desc, intact_gemm_desc(INTACT_GEMM_DESC_INIT), linear, b); });
}

intact_status intact_gemm_prepare(const intact_gemm* gemm, const intact_gemm_args* args,
                                  intact_run_info* info) {
  return PrepareCall(gemm, args, info);
}

intact_status intact_gemm_tune(intact_gemm* gemm, int64_t m, double milliseconds, intact_tune_info* info) {
  return GuardCall<intact_gemm>("tune", gemm, [&]() -> Error {
    RETURN_IF_ERROR(CheckRows(m, 1));
    RETURN_IF_ERROR(CheckTuning(milliseconds, info));
    RETURN_IF_ERROR(CheckHasWeights(*gemm->plan, "tune"));
    ASSIGN_OR_RETURN(const Tuned tuned, gemm->plan->Tune(m, BudgetOf(milliseconds)));
    PrintIfVerbose([&] { PrintTuned(*gemm->plan, m, tuned); });
    WriteTuned(tuned, info);
    return {};
  });
}

intact_status intact_gemm_run(const intact_gemm* gemm, const intact_gemm_args* args) {
  return RunCall(gemm, args);
}

intact_status intact_gemm_bind(const intact_gemm* gemm, const intact_gemm_args* args, intact_bound** bound) {
  return BindCall(gemm, args, bound);
}

intact_status intact_gemm_run_part(const intact_gemm* gemm, const intact_gemm_args* args, int32_t part,
                                   int32_t parts) {
  return RunPartCall(gemm, args, part, parts);
}

intact_status intact_gemm_query(const intact_gemm* gemm, intact_gemm_info* info) {
  return FillCall("query", gemm, "info", info, INTACT_GEMM_INFO_INIT, [&](intact_gemm_info* made) -> Error {
    const GemmPlan& plan = *gemm->plan;
    const LinearProblem& problem = plan.problem();
    made->n = plan.weights().n();
    made->k = plan.weights().k();
    made->a_type = problem.a_type;
    made->b_type = problem.b_type;
    made->c_type = problem.output.c_type;
    made->residual_type = problem.output.residual_type;
    made->isa = static_cast<int32_t>(plan.isa());
    made->mode = problem.mode;
    made->kernel = plan.kernel_name().c_str();
    made->packed_bytes = plan.packed_bytes();
    made->accumulator_min = plan.weights().certificate().accumulator_min;
    made->accumulator_max = plan.weights().certificate().accumulator_max;
    made->a_quantization = plan.problem().a_quantization;
    made->a_source_type = plan.problem().a_source_type;
    return {};
  });
}

intact_status intact_gemm_certificate(const intact_gemm* gemm, intact_certificate* certificate) {
  return FillCall("certificate", gemm, "certificate", certificate, INTACT_CERTIFICATE_INIT,
                  [&](intact_certificate* made) -> Error {
                    RETURN_IF_ERROR(CheckHasWeights(*gemm->plan, "certify"));
                    const LinearWeights& weights = gemm->plan->weights();
                    *made = ToStruct(weights.certificate(), weights.problem().a_type,
                                     gemm->plan->schedule_statistics(), INTACT_PAIRING_WITHIN_TAP);
                    return {};
                  });
}

intact_status intact_gemm_panel_certificates(const intact_gemm* gemm, int64_t first, int64_t count,
                                             intact_panel_certificate* panels) {
  return GuardCall<intact_gemm>("panel_certificates", gemm, [&]() -> Error {
    if (panels == nullptr) return NullArgument("panels");
    RETURN_IF_ERROR(CheckHasWeights(*gemm->plan, "certify"));
    const LinearWeights& weights = gemm->plan->weights();
    const std::vector<int64_t>& failing_pairs = weights.certificate().panel_failing_pairs;
    const auto size = static_cast<int64_t>(failing_pairs.size());
    RETURN_IF_ERROR(CheckElements(first, count, size, "panels"));
    if (count == 0) return {};
    ASSIGN_OR_RETURN(const auto packed, weights.Panels());
    for (int64_t i = 0; i < count; ++i) {
      panels[i] = {failing_pairs[static_cast<size_t>(first + i)],
                   SafeDepthQuads(*packed, first + i, weights.problem().range)};
    }
    return {};
  });
}

intact_status intact_gemm_failing_pairs(const intact_gemm* gemm, int64_t first, int64_t count,
                                        intact_failing_pair* pairs, int64_t* written) {
  const auto list = [&]() -> Result<std::vector<FailingPair>> {
    RETURN_IF_ERROR(CheckHasWeights(*gemm->plan, "certify"));
    const LinearWeights& weights = gemm->plan->weights();
    ASSIGN_OR_RETURN(const auto packed, weights.Panels());
    return ListFailingPairs(*packed, weights.problem().range, first, count);
  };
  return FailingPairsCall(gemm, first, count, pairs, written, list,
                          [](const FailingPair& pair) { return ToStruct(pair); });
}

intact_status intact_gemm_save(const intact_gemm* gemm, const char* path) { return SaveCall(gemm, path); }

intact_status intact_gemm_save_memory(const intact_gemm* gemm, void* data, size_t* size) {
  return SaveMemoryCall(gemm, data, size);
}

intact_status intact_gemm_load(const char* path, int32_t max_isa, intact_gemm** gemm) {
  return LoadCall(path, max_isa, gemm);
}

intact_status intact_gemm_load_memory(const void* data, size_t size, int32_t max_isa, intact_gemm** gemm) {
  return LoadMemoryCall(data, size, max_isa, gemm);
}

void intact_gemm_destroy(intact_gemm* gemm) { delete gemm; }

}  // extern "C"
