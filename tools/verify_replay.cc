#include <memory>

#include "tools/commands.h"
#include "tools/terminal.h"
#include "verify/problem.h"
#include "verify/report_terminal.h"
#include "verify/sweep.h"
#include "verify/targets/intact_target.h"

namespace intact::tools {
namespace {

int Replay(const std::string& line) {
  const Result<verify::Problem> problem = verify::Problem::Parse(line);
  if (!problem) return Fail("replay: " + problem.error().message);
  const Result<verify::Judgement> judgement = verify::Judge(verify::IntactTarget(), *problem);
  if (!judgement) return Fail("replay: " + judgement.error().message);
  Print("{}\n{}", problem->ToString(), verify::ToText(judgement->comparison, verify::kMaxDifferencesListed));
  if (judgement->Passed()) {
    Print("as {} mode promises\n", verify::ToString(problem->mode));
    return kParity;
  }
  Print("FAILED: {}\n", judgement->failure);
  return kDifference;
}

}  // namespace

void AddVerifyReplay(CLI::App* verify, Command* command) {
  auto line = std::make_shared<std::string>();
  CLI::App* replay =
      verify->add_subcommand("replay", "run one problem again, from the line that a failure printed");
  replay
      ->add_option("LINE", *line,
                   "e.g. 'gemm u8s8s32 m=5 n=16 k=64 fill=bait seed=7 mode=saturating isa=avx2' or "
                   "'conv u8s8u8 in=28x28 c=64 o=32 kernel=3x3 pad=1x1 groups=4 za=3'")
      ->required();
  replay->callback([line, command] { *command = [line] { return Replay(*line); }; });
}

}  // namespace intact::tools
