#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "emulator/emulator.h"
#include "tools/commands.h"
#include "tools/progress.h"
#include "tools/terminal.h"
#include "verify/audit.h"
#include "verify/report_json.h"
#include "verify/report_terminal.h"
#include "verify/targets/intact_target.h"

namespace intact::tools {

Result<verify::SweepResult> SweepThisMachine(intact_isa isa, std::span<const intact_mode> modes,
                                             verify::Effort effort, bool emulate) {
  std::optional<emulator::ScopedEmulator> emulator;
  if (emulate) emulator.emplace();
  std::vector<intact_isa> isas;
  for (const intact_isa candidate : verify::kIsaLadder) {
    if (intact_isa_available(candidate) == 0) continue;
    if (isa == INTACT_ISA_ANY || isa == candidate) isas.push_back(candidate);
  }
  const std::vector<verify::Problem> problems = verify::SweepProblems(isas, modes, effort);
  verify::SweepResult sweep = verify::RunSweep(problems, verify::IntactTarget(), ReportProgress("sweep"));
  const std::string fault = emulator::ScopedEmulator::TakeFault();
  if (!fault.empty()) return Error{INTACT_CODEGEN_FAILED, "--emulate: " + fault};
  return sweep;
}

void AddEmulateFlag(CLI::App* app, bool* emulate) {
  app->add_flag("--emulate", *emulate, "sweep the ISAs that this CPU lacks too, in software (with AVX2)");
}

verify::Effort EffortOf(bool quick) { return quick ? verify::Effort::kQuick : verify::Effort::kStandard; }

namespace {

struct SweepOptions {
  RunChoice choice;
  bool quick = false;
  bool emulate = false;
  std::string json;
};

int Sweep(SweepOptions options) {
  if (options.emulate) emulator::AddMissingIsas();
  if (const int status = options.choice.Resolve(); status != kParity) return status;
  const std::vector<intact_mode> modes = {options.choice.mode};
  const Result<verify::SweepResult> swept =
      SweepThisMachine(options.choice.isa, modes, EffortOf(options.quick), options.emulate);
  if (!swept) return Fail(swept.error());
  const verify::SweepResult& sweep = *swept;
  if (sweep.cells.empty()) return Fail("verify sweep: nothing to run: this CPU has no ISA that kernels use");
  Print("{}", verify::ToText(sweep));
  verify::Json json = verify::ToJson(sweep);
  for (const verify::SweepFailure& failure : sweep.failures)
    json["failures"].push_back(verify::ToJson(failure));
  return WriteJson(options.json, json, sweep.Passed() ? kParity : kDifference);
}

}  // namespace

void AddVerifySweep(CLI::App* verify, Command* command) {
  auto options = std::make_shared<SweepOptions>();
  CLI::App* sweep = verify->add_subcommand(
      "sweep", "GEMMs around the blocks, convolutions around the edges, all fills, against the reference");
  options->choice.AddOptions(sweep);
  sweep->add_flag("--quick", options->quick, "a sixth of the problems");
  AddEmulateFlag(sweep, &options->emulate);
  AddJsonOption(sweep, &options->json, "write counts, failures and digests");
  sweep->callback([options, command] { *command = [options] { return Sweep(*options); }; });
}

}  // namespace intact::tools
