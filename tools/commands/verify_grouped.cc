#include <memory>
#include <string>

#include "core/result.h"
#include "tools/console/commands.h"
#include "tools/console/progress.h"
#include "tools/console/target_option.h"
#include "tools/console/terminal.h"
#include "verify/sweep/grouped_sweep.h"
#include "verify/targets/grouped_target.h"

namespace intact::tools {
namespace {

struct GroupedOptions {
  std::string isa_name = "any";
  bool quick = false;
  TargetOption target;
  EmulateOption emulate;
  uint64_t seed = 1;
};

int Report(const verify::GroupedSweepResult& sweep) {
  Print("{}", verify::ToText(sweep));
  return StatusOf(sweep.Verdict());
}

int VerifyTarget(const GroupedOptions& options, intact_isa isa) {
  RunChoice choice;
  choice.isa = isa;
  const Result<std::unique_ptr<verify::Target>> target = options.target.Open(choice);
  if (!target) return Fail(target.error());
  const verify::GroupedTarget* const grouped = (*target)->AsGrouped();
  if (grouped == nullptr) return Fail(NoGroupedWeights(options.target));
  Print("{}\n", (*target)->Name());
  return Report(verify::RunGroupedSweep({{INTACT_ISA_ANY}}, EffortOf(options.quick), options.seed, *grouped,
                                        ReportProgress("grouped")));
}

int VerifyGrouped(const GroupedOptions& options) {
  if (const Error error = options.emulate.Prepare(options.target.IsPlugin()); !error.ok()) return Fail(error);
  const Result<intact_isa> isa = ResolveIsa(options.isa_name, &options.emulate);
  if (!isa) return Fail(isa.error());
  if (options.target.IsPlugin()) return VerifyTarget(options, *isa);
  const Result<verify::GroupedSweepResult> sweep =
      options.emulate.Emulated([&]() -> Result<verify::GroupedSweepResult> {
        return verify::RunGroupedSweep(IsasHere(*isa), EffortOf(options.quick), options.seed,
                                       verify::IntactGroupedTarget(), ReportProgress("grouped"));
      });
  return sweep ? Report(*sweep) : Fail(sweep.error());
}

}  // namespace

void AddVerifyGrouped(CLI::App* verify, Command* command) {
  auto options = std::make_shared<GroupedOptions>();
  CLI::App* grouped = verify->add_subcommand(
      "grouped", "weights with a scale for each group of depths (intact/grouped.h), against the reference");
  grouped->add_option("--isa", options->isa_name, "the kernels' ISA (default: all that are here)")
      ->type_name(IsaNames());
  grouped->add_flag("--quick", options->quick, "a fifth of the problems");
  options->target.Add(grouped);
  options->emulate.Add(grouped);
  AddSeedOption(grouped, &options->seed, "seed of the problems");
  grouped->callback([options, command] { *command = [options] { return VerifyGrouped(*options); }; });
}

}  // namespace intact::tools
