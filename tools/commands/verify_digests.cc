#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/isas.h"
#include "reference/contract/version.h"
#include "support/fnv1a.h"
#include "tools/console/commands.h"
#include "tools/console/progress.h"
#include "tools/console/terminal.h"
#include "verify/report/sweep_file.h"
#include "verify/targets/intact_target.h"

namespace intact::tools {
namespace {

/// A sweep, and the digest of its outputs by the arithmetic of docs/arithmetic.md.
struct NamedSweep {
  std::string_view name;  // the words of the command that runs it
  std::optional<uint64_t> grouped_seed;
  uint64_t golden;
};
constexpr std::array kSweeps = {
    NamedSweep{"sweep --quick", std::nullopt, 0x1f7dce9575fd13b4},
    NamedSweep{"grouped --quick", 1, 0x733a0e60a7b95993},
};

/// For each ISA the FNV-1a of its outputs' digests: a line for each problem, in the order of the sweep, with the
/// problem without an ISA, a space, 16 hexadecimal digits of the output's FNV-1a, and a line feed.
std::map<intact_isa, uint64_t> DigestsOf(const verify::SweepResult& result) {
  std::map<intact_isa, std::string> lines;
  for (const verify::SweepDigest& each : result.digests) {
    Result<verify::Problem> problem = verify::Problem::Parse(each.problem);
    const intact_isa isa = problem->isa;
    problem->isa = INTACT_ISA_ANY;
    lines[isa] += fmt::format("{} {:016x}\n", problem->ToString(), each.digest);
  }
  std::map<intact_isa, uint64_t> digests;
  for (const auto& [isa, text] : lines) digests[isa] = support::Fnv1a(text);
  return digests;
}

/// Runs a sweep on `isa`, or on all ISAs that are here, and prints a line for each. Returns whether all outputs have
/// the golden digest; nothing, without a line, if the deadline was over first: a digest of a part means nothing.
std::optional<bool> RunAndPrint(const NamedSweep& named, intact_isa isa, const support::Deadline& deadline) {
  verify::SweepRun run;
  run.isas = IsasHere(isa);
  run.effort = verify::Effort::kQuick;
  run.grouped_seed = named.grouped_seed;
  const std::vector<verify::Problem> problems = run.AllProblems();
  const verify::SweepResult result =
      verify::RunSweep(problems, verify::IntactTarget(), ReportProgress(std::string(named.name)), deadline);
  if (result.IsOutOfTime())
    return result.Verdict() == verify::SweepVerdict::kFailed ? std::optional(false) : std::nullopt;
  const std::map<intact_isa, uint64_t> digests = DigestsOf(result);
  bool is_equal = true;
  for (const verify::SweepCell& cell : result.cells) {
    const auto found = digests.find(cell.isa);
    const uint64_t digest = found == digests.end() ? 0 : found->second;
    is_equal = is_equal && digest == named.golden && cell.failed == 0;
    Print("  {:<15}  {:>10}  {:<13} {:>9} {:>10}   {:016x}{}\n", named.name, reference::kArithmeticVersion,
          intact_isa_name(cell.isa), cell.problems, cell.outputs, digest,
          digest == named.golden ? "" : "  differs");
  }
  return is_equal;
}

int Digests(RunChoice* choice, const TimeLimit& time) {
  const support::Deadline deadline = time.Start();
  if (const int status = choice->Resolve(); status != kParity) return status;
  Print("  {:<15}  {:<10}  {:<13} {:>9} {:>10}   {}\n", "sweep", "arithmetic", "ISA", "problems", "outputs",
        "digest");
  bool is_equal = true, is_finished = true;
  for (const NamedSweep& named : kSweeps) {
    const std::optional<bool> equal = RunAndPrint(named, choice->isa, deadline);
    if (!equal) Unfinished(fmt::format("the digest of {}", named.name));
    is_finished = is_finished && equal.has_value();
    is_equal = is_equal && equal.value_or(true);
  }
  if (is_equal && !is_finished) return kUnfinished;
  Print("{} of intact arithmetic {}\n", is_equal ? "EQUAL: the digests" : "DIFFERENT: expected the digests",
        reference::kArithmeticVersion);
  if (is_equal) return kParity;
  for (const NamedSweep& named : kSweeps) Print("  {:<15}  {:016x}\n", named.name, named.golden);
  return kDifference;
}

}  // namespace

void AddVerifyDigests(CLI::App* verify, Command* command) {
  auto choice = std::make_shared<RunChoice>();
  CLI::App* digests = verify->add_subcommand(
      "digests", "digests of two sweeps' outputs, which are equal on every machine (docs/arithmetic.md)");
  digests->add_option("--isa", choice->isa_name, "the kernels' ISA (default: all that are here)")
      ->type_name(IsaNames());
  auto time = std::make_shared<TimeLimit>();
  time->Add(digests, "print no further digest: a part of a sweep has none (status 4)");
  digests->callback(
      [choice, time, command] { *command = [choice, time] { return Digests(choice.get(), *time); }; });
}

}  // namespace intact::tools
