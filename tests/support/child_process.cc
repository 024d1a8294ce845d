// Work of tests in another process, because INTACT_MAX_ISA is read only once:
//
//   child_process isa                  prints the ISA of a plan, or why there is none
//   child_process save PACK PROBLEM    saves the plan of a problem's line
//   child_process run PACK PROBLEM     loads it and writes its output bytes to PACK.out
#include <cstdio>
#include <fstream>
#include <string>

#include "tests/support/plan.h"

namespace intact::tests {
namespace {

int Fail(const Error& error) {
  std::puts(error.message.c_str());
  return 1;
}

int PrintIsa() {
  const auto problem = verify::Problem::Parse("gemm u8s8s32 m=1 n=1 k=1");
  const reference::Gemm gemm = verify::MaterializeGemm(*problem);
  const Result<Plan> plan = CreatePlan(*problem, gemm);
  if (!plan) return Fail(plan.error());
  intact_gemm_info info = INTACT_GEMM_INFO_INIT;
  intact_gemm_query(plan->get(), &info);
  std::puts(intact_isa_name(info.isa));
  return 0;
}

int Save(const std::string& pack, const verify::Problem& problem) {
  const Result<Plan> plan = CreatePlan(problem, verify::MaterializeGemm(problem));
  if (!plan) return Fail(plan.error());
  const intact_status status = intact_gemm_save(plan->get(), pack.c_str());
  return status == INTACT_OK ? 0 : Fail(LastError(status));
}

int Run(const std::string& pack, const verify::Problem& problem) {
  const Result<Plan> plan = LoadPlan(pack, INTACT_ISA_ANY);
  if (!plan) return Fail(plan.error());
  const auto output = RunPlan(*plan, verify::MaterializeGemm(problem));
  if (!output) return Fail(output.error());
  std::ofstream(pack + ".out", std::ios::binary)
      .write(reinterpret_cast<const char*>(output->data()), std::ssize(*output));
  return 0;
}

int Main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "isa") return PrintIsa();
  if (argc != 4) return Fail({INTACT_INVALID_ARGUMENT, "usage: child_process isa | save|run PACK PROBLEM"});
  const Result<verify::Problem> problem = verify::Problem::Parse(argv[3]);
  if (!problem) return Fail(problem.error());
  return (std::string(argv[1]) == "save" ? Save : Run)(argv[2], *problem);
}

}  // namespace
}  // namespace intact::tests

int main(int argc, char** argv) { return intact::tests::Main(argc, argv); }
