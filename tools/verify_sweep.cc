#include <memory>
#include <vector>

#include "tools/commands.h"
#include "tools/progress.h"
#include "tools/terminal.h"
#include "verify/audit.h"
#include "verify/report_json.h"
#include "verify/report_terminal.h"
#include "verify/targets/intact_target.h"

namespace intact::tools {

verify::SweepResult SweepThisMachine(intact_isa isa, std::span<const intact_mode> modes,
                                     verify::Effort effort) {
  std::vector<intact_isa> isas;
  for (const intact_isa candidate : verify::kIsaLadder) {
    if (intact_isa_available(candidate) == 0) continue;
    if (isa == INTACT_ISA_ANY || isa == candidate) isas.push_back(candidate);
  }
  const std::vector<verify::Problem> problems = verify::SweepProblems(isas, modes, effort);
  return verify::RunSweep(problems, verify::IntactTarget(), ReportProgress("sweep"));
}

verify::Effort EffortOf(bool quick) { return quick ? verify::Effort::kQuick : verify::Effort::kStandard; }

namespace {

struct SweepOptions {
  RunChoice choice;
  bool quick = false;
  std::string json;
};

int Sweep(SweepOptions options) {
  if (const int status = options.choice.Resolve(); status != kParity) return status;
  const std::vector<intact_mode> modes = {options.choice.mode};
  const verify::SweepResult sweep = SweepThisMachine(options.choice.isa, modes, EffortOf(options.quick));
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
  AddJsonOption(sweep, &options->json, "write counts, failures and digests");
  sweep->callback([options, command] { *command = [options] { return Sweep(*options); }; });
}

}  // namespace intact::tools
