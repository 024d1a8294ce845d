// The C ABI: translates statuses and messages; nothing throws through it.
#include <intact/intact.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>

#include "jit/isa.h"
#include "kernels/gemm.h"

struct intact_gemm {
  std::unique_ptr<intact::kernels::GemmPlan> plan;
};

namespace {

using intact::Error;
using intact::kernels::GemmPlan;

// A fixed buffer: reporting that memory ran out must not need memory.
thread_local char last_error[512] = "";

intact_status Report(intact_status status, const char* message) {
  std::snprintf(last_error, sizeof(last_error), "%s", message);
  return status;
}

// Runs `body`, which returns an Error, and turns what it returns or throws into a status.
template <class Body>
intact_status Guard(const char* function, Body body) noexcept {
  try {
    const Error error = body();
    if (error.status == INTACT_OK) return Report(INTACT_OK, "");
    return Report(error.status, (std::string(function) + ": " + error.message).c_str());
  } catch (const std::bad_alloc&) {
    return Report(INTACT_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& exception) {
    return Report(INTACT_CODEGEN_FAILED, exception.what());
  }
}

bool IsVerbose() {
  static const bool kVerbose = [] {
    const char* value = std::getenv("INTACT_VERBOSE");
    return value != nullptr && *value != '\0' && *value != '0';
  }();
  return kVerbose;
}

const char* ModeName(intact_mode mode) { return mode == INTACT_EXACT ? "exact" : "saturating"; }

class Stopwatch {
 public:
  double Microseconds() const {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void PrintRun(const GemmPlan& plan, const intact_gemm_args& args, const Stopwatch& watch) {
  std::fprintf(stderr, "intact: run m=%lld %s mode=%s threads=%d %.1f us\n", static_cast<long long>(args.m),
               plan.kernel_name().c_str(), ModeName(plan.mode()), args.threads, watch.Microseconds());
}

Error NullArgument(const char* name) { return {INTACT_INVALID_ARGUMENT, std::string(name) + " is NULL"}; }

}  // namespace

extern "C" {

const char* intact_version(void) { return INTACT_VERSION_STRING; }

const char* intact_last_error(void) { return last_error; }

const char* intact_status_name(intact_status status) {
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

const char* intact_isa_name(intact_isa isa) {
  if (isa == INTACT_ISA_ANY) return "any";
  if (isa < INTACT_ISA_AVX2 || isa > INTACT_ISA_AMX_INT8) return nullptr;
  return intact::jit::ToString(static_cast<intact::jit::Isa>(isa)).data();
}

int intact_isa_available(intact_isa isa) {
  if (isa < INTACT_ISA_AVX2 || isa > INTACT_ISA_AMX_INT8) return 0;
  const intact::Result<intact::jit::IsaSet> permitted = intact::jit::PermittedIsas();
  return permitted && permitted->Has(static_cast<intact::jit::Isa>(isa)) ? 1 : 0;
}

intact_status intact_gemm_create(const intact_gemm_desc* desc, const void* b, intact_gemm** gemm) {
  return Guard("intact_gemm_create", [&]() -> Error {
    if (gemm == nullptr) return NullArgument("gemm");
    *gemm = nullptr;
    if (desc == nullptr) return NullArgument("desc");
    const Stopwatch watch;
    auto plan = GemmPlan::Create(*desc, b);
    if (!plan) return plan.error();
    *gemm = new intact_gemm{std::move(*plan)};
    if (IsVerbose()) {
      std::fprintf(stderr, "intact: plan n=%lld k=%lld %s mode=%s %.1f us\n", static_cast<long long>(desc->n),
                   static_cast<long long>(desc->k), (*gemm)->plan->kernel_name().c_str(),
                   ModeName(desc->mode), watch.Microseconds());
    }
    return {};
  });
}

intact_status intact_gemm_run(const intact_gemm* gemm, const intact_gemm_args* args) {
  return Guard("intact_gemm_run", [&]() -> Error {
    if (gemm == nullptr) return NullArgument("gemm");
    if (args == nullptr) return NullArgument("args");
    const Stopwatch watch;
    Error error = gemm->plan->Run(*args);
    if (IsVerbose() && error.status == INTACT_OK) PrintRun(*gemm->plan, *args, watch);
    return error;
  });
}

intact_status intact_gemm_run_part(const intact_gemm* gemm, const intact_gemm_args* args, int32_t part,
                                   int32_t parts) {
  return Guard("intact_gemm_run_part", [&]() -> Error {
    if (gemm == nullptr) return NullArgument("gemm");
    if (args == nullptr) return NullArgument("args");
    return gemm->plan->RunPart(*args, part, parts);
  });
}

intact_status intact_gemm_query(const intact_gemm* gemm, intact_gemm_info* info) {
  return Guard("intact_gemm_query", [&]() -> Error {
    if (gemm == nullptr) return NullArgument("gemm");
    if (info == nullptr) return NullArgument("info");
    if (info->struct_size != sizeof(intact_gemm_info)) {
      return {INTACT_INVALID_ARGUMENT, "info->struct_size is " + std::to_string(info->struct_size) +
                                           "; expected " + std::to_string(sizeof(intact_gemm_info))};
    }
    const GemmPlan& plan = *gemm->plan;
    *info = {sizeof(intact_gemm_info),
             static_cast<intact_isa>(plan.isa()),
             plan.mode(),
             plan.kernel_name().c_str(),
             plan.packed_bytes(),
             plan.accumulator_min(),
             plan.accumulator_max()};
    return {};
  });
}

void intact_gemm_destroy(intact_gemm* gemm) { delete gemm; }

}  // extern "C"
