#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/console/commands.h"
#include "tools/console/target_option.h"
#include "tools/console/terminal.h"
#include "verify/explain/claim.h"
#include "verify/problem/problem.h"
#include "verify/report/report_terminal.h"
#include "verify/sweep/sweep.h"

namespace intact::tools {
namespace {

struct ReplayOptions {
  std::vector<std::string> lines;
  TargetOption target;
  EmulateOption emulate;
  std::string reproduce;
  TimeLimit time;
};

int Failed(const ReplayOptions& options, const verify::Target& target, const verify::Problem& problem,
           const std::string& reason) {
  Print("FAILED: {}\n", reason);
  if (options.reproduce.empty()) return kDifference;
  const Error error = options.target.WriteReproducer(target, problem, options.reproduce);
  if (!error.ok()) {
    const bool is_none = error.status == INTACT_UNSUPPORTED;
    return Fail(
        fmt::format("--reproduce: {}{}", is_none ? "a C file would not show it: " : "", error.message));
  }
  Print("wrote {}\n", options.reproduce);
  return kDifference;
}

int Replay(const ReplayOptions& options, const verify::Problem& problem) {
  RunChoice choice;
  if (!problem.grouped) choice.isa = problem.isa;
  choice.mode = problem.mode;
  const Result<std::unique_ptr<verify::Target>> target = options.target.Open(choice, options.emulate.on);
  if (!target) return Fail(target.error());
  if (problem.grouped && (*target)->Features().grouped == 0) return Fail(NoGroupedWeights(options.target));
  const Result<verify::Judgement> judgement =
      options.emulate.Emulated([&] { return verify::Judge(**target, problem); });
  const std::string printed = (*target)->Printed();
  if (!printed.empty()) PrintError("{}{}", printed, printed.ends_with('\n') ? "" : "\n");
  if (!judgement) {
    const bool is_finding = options.target.IsPlugin() && judgement.error().status != INTACT_UNSUPPORTED;
    if (!is_finding) return Fail("replay: " + judgement.error().message);
    Print("{}\n", problem.ToString());
    return Failed(options, **target, problem, judgement.error().message);
  }
  Print("{}\n{}", problem.ToString(), verify::ToText(judgement->comparison, verify::kMaxDifferencesListed));
  if (judgement->Passed()) {
    if (problem.grouped) return kParity;
    if (options.target.IsPlugin()) {
      Print("as the target claims: {}\n", verify::ClaimOf((*target)->Arithmetic(), verify::KindOf(problem)));
    } else {
      Print("as {} mode promises\n", verify::ToString(problem.mode));
    }
    return kParity;
  }
  return Failed(options, **target, problem, judgement->failure);
}

// The message for a line of our own kernels with a --target.
std::string WhyOurs(const std::string& line) {
  return fmt::format("replay: '{}': isa= and mode= choose among our own kernels; a --target has none", line);
}

// Why `isa`, of a problem line, cannot be chosen here; "" if it can.
std::string WhyNotIsa(const ReplayOptions& options, intact_isa isa) {
  if (isa == INTACT_ISA_ANY || intact_isa_available(isa) != 0) return "";
  return fmt::format("replay: isa={}: {}", intact_isa_name(isa), NotAvailable(isa, &options.emulate));
}

int ReplayLine(const ReplayOptions& options, const std::string& line) {
  const Result<verify::Problem> problem = verify::Problem::Parse(line);
  if (!problem) return Fail("replay: " + problem.error().message);
  const bool is_ours = problem->isa != INTACT_ISA_ANY || problem->mode != INTACT_EXACT;
  if (options.target.IsPlugin() && is_ours) {
    return Fail(WhyOurs(line));
  }
  if (const std::string why = WhyNotIsa(options, problem->isa); !why.empty()) return Fail(why);
  return Replay(options, *problem);
}

int ReplayAll(ReplayOptions options) {
  if (options.lines.size() > 1 && !options.reproduce.empty()) return Fail("--reproduce: takes one LINE");
  options.emulate.Prepare(options.target.IsPlugin());
  const support::Deadline deadline = options.time.Start();
  int worst = kParity;
  for (const std::string& line : options.lines) {
    const bool is_left = deadline.IsOver() && &line != &options.lines.front();
    worst = WorseOf(worst, is_left ? Missing(line) : ReplayLine(options, line));
  }
  return worst;
}

}  // namespace

void AddVerifyReplay(CLI::App* verify, Command* command) {
  auto options = std::make_shared<ReplayOptions>();
  CLI::App* replay =
      verify->add_subcommand("replay", "run problems again, from the lines that failures printed");
  replay
      ->add_option("LINE", options->lines,
                   "e.g. 'gemm u8s8s32 m=5 n=16 k=64 fill=bait seed=7 mode=saturating isa=avx2' or "
                   "'conv u8s8u8 in=28x28 c=64 o=32 kernel=3x3 pad=1x1 groups=4 za=3' or "
                   "'grouped s8u4f32 m=1 n=64 k=4096 group=128 isa=avx2'")
      ->required();
  options->target.Add(replay);
  options->emulate.Add(replay);
  AddFileOption(replay, "--reproduce", &options->reproduce,
                "if a --target fails: write the problem as a C file that does not need intact")
      ->needs("--target");
  options->time.Add(replay, "run no further line, and name the lines that are left (status 4)");
  replay->callback([options, command] { *command = [options] { return ReplayAll(*options); }; });
}

}  // namespace intact::tools
