#include <fmt/format.h>

#include <memory>

#include "tools/commands.h"
#include "verify/layer_check.h"
#include "verify/problem.h"
#include "verify/report_terminal.h"
#include "verify/targets/intact_target.h"

namespace intact::tools {
namespace {

int Replay(const std::string& line) {
  const Result<verify::Problem> problem = verify::Problem::Parse(line);
  if (!problem) return Fail("replay: " + problem.error().message);
  const Result<verify::Comparison> comparison =
      verify::Verify(verify::IntactTarget(), verify::Materialize(*problem), verify::RunOptionsOf(*problem));
  if (!comparison) return Fail("replay: " + comparison.error().message);
  fmt::print("{}\n{}", problem->ToString(), verify::ToText(*comparison, verify::kMaxDifferencesListed));
  const intact_isa isa = problem->isa == INTACT_ISA_ANY ? verify::BestIsa() : problem->isa;
  if (verify::ModelOf(problem->mode, isa) == reference::Model::kExact) {
    return comparison->Parity() ? kParity : kDifference;
  }
  fmt::print("  {:<30} {} outputs differ\n", "against the triple model", comparison->off_triple);
  return comparison->off_triple == 0 ? kParity : kDifference;
}

}  // namespace

void AddVerifyReplay(CLI::App* verify, Command* command) {
  auto line = std::make_shared<std::string>();
  CLI::App* replay =
      verify->add_subcommand("replay", "run one problem again, from the line that a failure printed");
  replay
      ->add_option("LINE", *line,
                   "e.g. 'gemm u8s8s32 m=5 n=16 k=64 fill=bait seed=7 mode=saturating isa=avx2'")
      ->required();
  replay->callback([line, command] { *command = [line] { return Replay(*line); }; });
}

}  // namespace intact::tools
