#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/printable.h"
#include "tools/console/commands.h"
#include "tools/console/terminal.h"
#include "verify/problem/benchdnn.h"
#include "verify/problem/fields.h"
#include "verify/problem/line.h"

namespace intact::tools {
namespace {

// A problem line to a line of benchdnn.
int PrintBenchdnnLine(const std::string& line) {
  const Result<verify::Problem> problem = verify::Problem::Parse(line);
  if (!problem) return Fail("benchdnn: " + problem.error().message);
  const Result<verify::BenchdnnLine> converted = verify::BenchdnnLineOf(*problem);
  if (!converted) return Fail("benchdnn: " + converted.error().message);
  if (!converted->left_out.empty()) PrintError("left out: {}\n", converted->left_out);
  Print("{}\n", converted->line);
  return kParity;
}

// Lines of benchdnn that were refused for one reason.
struct Refusals {
  int64_t count = 0;
  std::string first;
};

// A command line of benchdnn to problem lines.
int PrintProblems(const std::string& command) {
  const Result<std::vector<verify::BenchdnnCase>> cases = verify::ReadBenchdnn(command);
  if (!cases) return Fail("benchdnn: " + cases.error().message);
  std::map<std::string, Refusals> refusals;
  size_t refused = 0;
  for (const verify::BenchdnnCase& one : *cases) {
    const Result<verify::Problem> problem = verify::ProblemOf(one);
    if (problem) {
      Print("{}\n", problem->ToString());
      continue;
    }
    Refusals& same = refusals[problem.error().message];
    if (same.count == 0) same.first = one.ToString();
    ++same.count;
    ++refused;
  }
  for (const auto& [reason, same] : refusals) {
    Fail(cases->size() == 1 ? "benchdnn: " + reason
                            : fmt::format("benchdnn: {} ({} of {} lines, the first: {})", reason, same.count,
                                          cases->size(), support::Printable(same.first)));
  }
  if (cases->size() > 1) {
    PrintError("{} lines: {} converted, {} refused\n", cases->size(), cases->size() - refused, refused);
  }
  return refused == 0 ? kParity : kBadInput;
}

int Convert(const std::vector<std::string>& words) {
  const std::string line = fmt::format("{}", fmt::join(words, " "));
  const std::vector<std::string_view> parts = verify::WordsOf(line);
  if (parts.empty()) return Fail("benchdnn: LINE is missing; expected a problem line or a line of benchdnn");
  const bool is_problem =
      std::ranges::find(verify::LineKinds(), parts[0], &verify::LineKind::name) != verify::LineKinds().end();
  return is_problem ? PrintBenchdnnLine(line) : PrintProblems(line);
}

}  // namespace

void AddVerifyBenchdnn(CLI::App* verify, Command* command) {
  CLI::App* benchdnn = verify->add_subcommand(
      "benchdnn",
      "LINE: prints the line of oneDNN's benchdnn for a problem line, or problem lines for a line of "
      "benchdnn, "
      "such as --matmul --dt=u8:s8:s32 128x768:768x64, or with --batch=FILE (docs/problems.md)");
  benchdnn->allow_extras();
  benchdnn->callback(
      [benchdnn, command] { *command = [words = benchdnn->remaining()] { return Convert(words); }; });
}

}  // namespace intact::tools
