#include <memory>

#include "tools/console/commands.h"
#include "tools/console/terminal.h"
#include "verify/report/report_compare.h"
#include "verify/report/report_terminal.h"

namespace intact::tools {
namespace {

struct CompareOptions {
  std::string a, b;
};

int CompareFiles(const CompareOptions& options) {
  const Result<verify::ReportDigests> a = verify::ReadDigests(options.a);
  if (!a) return Fail(a.error());
  const Result<verify::ReportDigests> b = verify::ReadDigests(options.b);
  if (!b) return Fail(b.error());
  const Result<verify::ReportComparison> comparison = verify::CompareReports(*a, *b);
  if (!comparison) return Fail(comparison.error());
  Print("A: {}, {}\nB: {}, {}\n{}", a->path, a->machine, b->path, b->machine, verify::ToText(*comparison));
  return comparison->Same() ? kParity : kDifference;
}

}  // namespace

void AddVerifyCompare(CLI::App* verify, Command* command) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* compare = verify->add_subcommand(
      "compare", "reports or sweeps of two machines or targets: equal bytes, or the problems that differ");
  RefuseEmpty(compare->add_option("A", options->a, "report.json of one, or its sweep's --json"))
      ->type_name("FILE")
      ->required();
  RefuseEmpty(compare->add_option("B", options->b, "the file of the other"))->type_name("FILE")->required();
  compare->callback([options, command] { *command = [options] { return CompareFiles(*options); }; });
}

}  // namespace intact::tools
