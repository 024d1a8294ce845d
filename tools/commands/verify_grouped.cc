#include <memory>
#include <string>

#include "core/result.h"
#include "tools/console/commands.h"
#include "tools/console/progress.h"
#include "tools/console/terminal.h"
#include "verify/sweep/grouped_sweep.h"
#include "verify/targets/grouped_target.h"

namespace intact::tools {
namespace {

struct GroupedOptions {
  std::string isa_name = "any";
  bool quick = false;
  EmulateOption emulate;
  uint64_t seed = 1;
};

int VerifyGrouped(const GroupedOptions& options) {
  if (const Error error = options.emulate.Prepare(false); !error.ok()) return Fail(error);
  const Result<intact_isa> isa = ResolveIsa(options.isa_name, &options.emulate);
  if (!isa) return Fail(isa.error());
  const Result<verify::GroupedSweepResult> sweep =
      options.emulate.Emulated([&]() -> Result<verify::GroupedSweepResult> {
        return verify::RunGroupedSweep(IsasHere(*isa), EffortOf(options.quick), options.seed,
                                       verify::IntactGroupedTarget(), ReportProgress("grouped"));
      });
  if (!sweep) return Fail(sweep.error());
  Print("{}", verify::ToText(*sweep));
  return StatusOf(sweep->Verdict());
}

}  // namespace

void AddVerifyGrouped(CLI::App* verify, Command* command) {
  auto options = std::make_shared<GroupedOptions>();
  CLI::App* grouped = verify->add_subcommand(
      "grouped", "weights with a scale for each group of depths (intact/grouped.h), against the reference");
  grouped->add_option("--isa", options->isa_name, "the kernels' ISA (default: all that are here)")
      ->type_name(IsaNames());
  grouped->add_flag("--quick", options->quick, "a fifth of the problems");
  options->emulate.Add(grouped);
  AddSeedOption(grouped, &options->seed, "seed of the problems");
  grouped->callback([options, command] { *command = [options] { return VerifyGrouped(*options); }; });
}

}  // namespace intact::tools
