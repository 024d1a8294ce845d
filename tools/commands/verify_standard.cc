#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/isas.h"
#include "core/result.h"
#include "emulator/emulator.h"
#include "support/deadline.h"
#include "support/machine.h"
#include "support/output_file.h"
#include "tools/console/commands.h"
#include "tools/console/progress.h"
#include "tools/console/target_option.h"
#include "tools/console/terminal.h"
#include "verify/report/report.h"
#include "verify/report/report_files.h"
#include "verify/report/report_html.h"
#include "verify/report/report_json.h"
#include "verify/report/report_terminal.h"
#include "verify/report/target_report.h"
#include "verify/sweep/grouped_sweep.h"
#include "verify/targets/intact_target.h"

namespace intact::tools {
namespace {

constexpr std::array kBothModes = {INTACT_EXACT, INTACT_SATURATING};

struct StandardOptions {
  std::string folder = "report";
  bool quick = false;
  EmulateOption emulate;
  std::vector<std::string> targets;
  double deadline = TargetOption().deadline;
  TimeLimit time;
};

// Prints each part as soon as it is known: the first after seconds, the sweep after minutes.
// When the time is over, the remaining parts are left out, and named in `missing`.
Result<verify::Report> RunAll(const StandardOptions& options) {
  const support::Deadline deadline = options.time.Start();
  const auto print = [](const std::string& text) {
    Print("{}\n", text);
    (void)std::fflush(stdout);
  };
  verify::Report report;
  const auto begins = [&](const char* part, const char* step) {
    if (deadline.IsOver()) {
      report.missing.emplace_back(part);
      return false;
    }
    ReportStep(step);
    return true;
  };
  report.origin = support::CurrentOrigin();
  report.machine = support::DescribeMachine();
  report.isas = support::DescribeIsas();
  print(verify::ToText(report.machine) + verify::ToText(report.isas));
  ReportStep("pair map: all 2^32 inputs of vpmaddubsw");
  report.pairs = verify::MapAllPairs(support::UsableThreads());
  print(verify::ToText(report.pairs));
  if (begins(verify::kSaturationMap, "saturation map")) {
    ASSIGN_OR_RETURN(report.map, verify::MapSaturation());
    print(verify::ToText(report.map));
  }
  if (begins(verify::kRamp, "ramps of the built-in layers")) {
    ASSIGN_OR_RETURN(report.ramps, verify::RunBuiltinRamps());
    print(verify::ToText(std::span<const verify::Ramp>(report.ramps)));
  }
  if (begins(verify::kReduceRange, "reduce_range of the built-in layers")) {
    report.audits = verify::AuditBuiltinLayers();
    print(verify::ToText(std::span<const verify::LayerAudit>(report.audits)));
  }
  if (begins(verify::kCost, "cost of exactness")) {
    ASSIGN_OR_RETURN(report.costs, verify::MeasureBuiltinCosts());
    print(verify::ToText(std::span<const verify::Cost>(report.costs)));
  }
  if (options.emulate.on) {  // after the measurements
    const core::IsaSet emulated = emulator::AddMissingIsas();
    for (support::IsaStatus& status : report.isas) {
      const bool is_swept =
          emulated.Has(static_cast<core::Isa>(status.isa)) && intact_isa_available(status.isa) != 0;
      if (is_swept) status.reason += "; emulated in the sweep";
    }
  }
  ASSIGN_OR_RETURN(report.sweep, SweepThisMachine(INTACT_ISA_ANY, kBothModes, EffortOf(options.quick),
                                                  options.emulate.on, deadline));
  print(verify::ToText(report.sweep));
  // A fifth of the problems: they have all values of each field.
  ASSIGN_OR_RETURN(report.grouped, options.emulate.Emulated([&]() -> Result<verify::SweepResult> {
    return verify::RunSweep(verify::GroupedSweepProblems(IsasHere(INTACT_ISA_ANY), verify::Effort::kQuick, 1),
                            verify::IntactTarget(), ReportProgress("grouped weights"), deadline);
  }));
  print(verify::ToText(report.grouped));
  return report;
}

// The text to print when all parts are there.
std::string TextOf(const verify::Report& report) { return verify::ParityText(report); }
std::string TextOf(const verify::TargetReport& report) { return verify::ToText(report); }

int ExitStatus(const verify::Report& report) {
  if (report.Parity()) return kParity;
  if (report.IsUnfinished()) return kUnfinished;
  const std::array verdicts = {report.sweep.Verdict(), report.grouped.Verdict()};
  const auto is_any = [&](verify::SweepVerdict verdict) {
    return std::ranges::find(verdicts, verdict) != verdicts.end();
  };
  return is_any(verify::SweepVerdict::kNothingCompared) && !is_any(verify::SweepVerdict::kFailed)
             ? kBadInput
             : kDifference;
}
int ExitStatus(const verify::TargetReport& report) { return StatusOf(report.Verdict()); }

// Prints the end of a report and writes its files; returns the exit status.
template <class AnyReport>
int Write(const Result<AnyReport>& report, const verify::ReportFiles& files) {
  if (!report) return Fail(report.error());
  Print("{}", TextOf(*report));
  if (const std::optional<Error> error = verify::WriteReport(ToJson(*report), ToHtml(*report), files)) {
    return Fail(*error);
  }
  Print("wrote {} and {}\n", files.json, files.html);
  return ExitStatus(*report);
}

struct NamedTarget {
  std::string name;
  std::unique_ptr<verify::Target> target;
};

// Examines the targets that can be opened.
int ExamineTargets(const StandardOptions& options, const verify::ReportFiles& files) {
  int status = kParity;
  std::vector<NamedTarget> opened;  // all of them, before the work
  for (const std::string& name : options.targets) {
    Result<std::unique_ptr<verify::Target>> target =
        TargetOption{name, options.deadline}.Open({}, options.emulate.on);
    if (target) {
      opened.push_back({name, std::move(*target)});
    } else {
      status = Fail(target.error());
    }
  }
  if (opened.empty()) return status;
  verify::TargetReport report;
  report.origin = support::CurrentOrigin();
  report.machine = support::DescribeMachine();
  constexpr std::array kIsa = {INTACT_ISA_ANY};
  constexpr std::array kMode = {INTACT_EXACT};
  const support::Deadline deadline = options.time.Start();
  const std::vector<verify::Problem> problems = verify::SweepProblems(kIsa, kMode, EffortOf(options.quick));
  for (const auto& [name, target] : opened) {
    verify::FittedProblems fitted = verify::Fit(problems, verify::TakesOf(*target));
    report.targets.push_back(verify::Examine(*target, name, fitted.problems, ReportProgress(name), deadline));
    report.targets.back().fitted = std::move(fitted);
  }
  return WorseOf(status, Write(Result<verify::TargetReport>(std::move(report)), files));
}

int Standard(const StandardOptions& options) {
  const verify::ReportFiles files(options.folder);
  for (const std::string& file : {files.json, files.html}) {  // before the work, not after it
    if (const std::optional<Error> error = support::WhyNotWritable(file)) {
      return Fail("--report: " + error->message);
    }
  }
  if (!options.targets.empty()) {
    return ExamineTargets(options, files);
  }
  return Write(RunAll(options), files);
}

}  // namespace

void AddVerifyStandard(CLI::App* verify, Command* command) {
  auto options = std::make_shared<StandardOptions>();
  RefuseEmpty(verify->add_option("--report", options->folder, "where report.json and report.html go"))
      ->type_name("DIR")
      ->capture_default_str();
  verify->add_flag("--quick", options->quick, "a fifth of the sweep's problems");
  options->emulate.Add(verify);
  RefuseEmpty(
      verify->add_option("--target", options->targets,
                         "instead of our own kernels, those of FILE.so, a plug-in (docs/targets.md), or of a "
                         "built-in peer, optionally with :OPTIONS for it; several are shown side by side"))
      ->type_name("TARGET")
      ->allow_extra_args(false);
  TargetOption::AddDeadline(verify, &options->deadline);
  options->time.Add(verify, "begin no further part of the report, and no further problem (status 4)");
  verify->callback([verify, options, command] {
    if (verify->get_subcommands().empty()) {
      *command = [options] { return Standard(*options); };
      return;
    }
    for (const char* own : {"--report", "--quick", "--emulate", "--target", "--deadline", "--time"}) {
      if (verify->count(own) == 0) continue;
      throw CLI::ValidationError(own,
                                 "before '" + verify->get_subcommands().front()->get_name() +
                                     "' it has no meaning: it belongs to the standard run, `intact verify`");
    }
  });
}

}  // namespace intact::tools
