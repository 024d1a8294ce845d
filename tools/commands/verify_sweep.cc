#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "core/isas.h"
#include "core/result.h"
#include "emulator/emulator.h"
#include "support/counted.h"
#include "support/deadline.h"
#include "support/machine.h"
#include "support/origin.h"
#include "support/output_file.h"
#include "tools/commands/random_sweep.h"
#include "tools/console/commands.h"
#include "tools/console/progress.h"
#include "tools/console/target_option.h"
#include "tools/console/terminal.h"
#include "verify/explain/audit.h"
#include "verify/report/expected_failures.h"
#include "verify/report/report_json.h"
#include "verify/report/report_junit.h"
#include "verify/report/report_terminal.h"
#include "verify/report/sweep_file.h"
#include "verify/sweep/shard.h"
#include "verify/targets/intact_target.h"

namespace intact::tools {
std::vector<intact_isa> IsasHere(intact_isa isa) {
  std::vector<intact_isa> isas;
  for (const intact_isa candidate : core::kIsaLadder) {
    if (intact_isa_available(candidate) == 0) continue;
    if (isa == INTACT_ISA_ANY || isa == candidate) isas.push_back(candidate);
  }
  return isas;
}

namespace {

/// Outcomes that are known already, and the function that keeps new ones.
struct Memory {
  verify::SweepOutcomes known;
  verify::SweepRecorder record = [](const verify::SweepOutcome&) { return std::nullopt; };
};

/// `emulate`: also in the emulator, whose faults are errors. No outcome is recorded after a fault.
Result<verify::SweepResult> RunSweep(std::span<const verify::Problem> problems, const verify::Target& target,
                                     bool emulate, const Memory& memory, const std::string& step,
                                     const support::Deadline& deadline) {
  std::optional<emulator::ScopedEmulator> emulator;
  if (emulate) emulator.emplace();
  const auto record = [&](const verify::SweepOutcome& outcome) -> std::optional<Error> {
    Error fault = EmulateOption::TakeFault();
    if (!fault.ok()) return fault;
    return memory.record(outcome);
  };
  return verify::RunSweep(problems, target, memory.known, record, ReportProgress(step), deadline);
}

}  // namespace

Result<verify::SweepResult> SweepThisMachine(intact_isa isa, std::span<const intact_mode> modes,
                                             verify::Effort effort, bool emulate,
                                             const support::Deadline& deadline) {
  const std::vector<verify::Problem> problems = verify::SweepProblems(IsasHere(isa), modes, effort);
  return RunSweep(problems, verify::IntactTarget(), emulate, {}, "sweep", deadline);
}

verify::Effort EffortOf(bool quick) { return quick ? verify::Effort::kQuick : verify::Effort::kStandard; }

namespace {

struct SweepOptions {
  bool is_grouped = false;  // `verify grouped`
  uint64_t seed = 1;        // of its problems
  RunChoice choice;
  TargetOption target;
  bool quick = false;
  bool quiet = false;
  EmulateOption emulate;
  std::string shard = "1/1";
  std::string journal;
  RandomSweepChoice random;
  std::string expected_failures;
  std::string json;
  std::string junit;
  std::string reproduce;
};

/// "failure_"; or "failure_3of40_" if other shards may write to this folder.
std::string ReproducerPrefix(const verify::Shard& shard) {
  return shard.count == 1 ? "failure_" : fmt::format("failure_{}of{}_", shard.index, shard.count);
}

/// Whether `name` is `prefix`, an optional "r", a number and ".c".
bool IsReproducer(std::string_view name, std::string_view prefix) {
  constexpr std::string_view kSuffix = ".c", kDigits = "0123456789";
  if (!name.starts_with(prefix) || !name.ends_with(kSuffix)) return false;
  name.remove_prefix(prefix.size());
  if (name.starts_with('r')) name.remove_prefix(1);
  return name.size() > kSuffix.size() && name.find_first_not_of(kDigits) == name.size() - kSuffix.size();
}

/// Removes an earlier run's C files from the folder. Otherwise they would be taken for files of this run.
Error ClearReproducers(const SweepOptions& options, const verify::Shard& shard) {
  const auto refused = [](const std::string& what) {
    return Error{INTACT_INVALID_ARGUMENT, "--reproduce: " + what};
  };
  const std::string prefix = ReproducerPrefix(shard);
  if (const std::optional<Error> error =
          support::WhyNotWritable(fmt::format("{}/{}1.c", options.reproduce, prefix))) {
    return refused(error->message);
  }
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(options.reproduce, error)) {
    if (!IsReproducer(entry.path().filename().string(), prefix)) continue;
    if (!std::filesystem::remove(entry.path(), error)) {
      return refused(fmt::format("{}: {}", entry.path().string(), error.message()));
    }
  }
  return {};
}

/// Writes a C file for each failure that was minimised, numbered as in the report. `prefix`: of the files'
/// names. `written`: the file of each line that has one already.
Error WriteReproducers(const SweepOptions& options, const std::string& prefix, const verify::Target& target,
                       const std::vector<verify::SweepFailure>& failures,
                       std::map<std::string, std::string>* written) {
  for (size_t i = 0; i < failures.size(); ++i) {
    const std::string& line = failures[i].minimised;
    const Result<verify::Problem> problem = verify::Problem::Parse(line);
    if (!problem) continue;
    const std::string file = fmt::format("{}/{}{}.c", options.reproduce, prefix, i + 1);
    if (const auto same = written->find(line); same != written->end()) {
      Print("no file {}: it would equal {}\n", file, same->second);
      continue;
    }
    Error error = options.target.WriteReproducer(target, *problem, file);
    if (error.ok()) {
      Print("wrote {}: {}\n", file, line);
      written->emplace(line, file);
    } else if (error.status == INTACT_UNSUPPORTED) {
      Print("no file {}: a C file would not show it: {}\n", file, error.message);
    } else {
      return error;
    }
  }
  return {};
}

/// Writes the C files of --reproduce, if it is given. `random`: of the random problems; or nullptr.
Error WriteReproducers(const SweepOptions& options, const verify::Shard& shard, const verify::Target& target,
                       const verify::SweepResult& sweep, const verify::SweepResult* random) {
  if (options.reproduce.empty()) return {};
  const std::string prefix = ReproducerPrefix(shard);
  std::map<std::string, std::string> written;
  Error error = WriteReproducers(options, prefix, target, sweep.failures, &written);
  if (!error.ok() || random == nullptr) return error;
  return WriteReproducers(options, prefix + "r", target, random->failures, &written);
}

/// The run that the user asks for, without its problems.
Result<verify::SweepRun> DescribeRun(const SweepOptions& options, const verify::Target& target) {
  const Result<verify::Shard> shard = verify::ParseShard(options.shard);
  if (!shard) return Error{shard.error().status, "--shard: " + shard.error().message};
  verify::SweepRun run;
  run.version = intact_version();
  run.build = support::FileDigest("/proc/self/exe");
  run.machine = support::DescribeMachine();
  run.target.name = target.Name();
  run.isas = IsasHere(options.choice.isa);
  if (options.target.IsPlugin()) {
    ASSIGN_OR_RETURN(const TargetOption::Plugin plugin, options.target.Find());
    run.target.text = options.target.text;
    run.target.options = plugin.options;
    run.target.deadline = options.target.deadline;
    run.target.build = support::FileDigest(plugin.file);
    run.target.takes = verify::TakesOf(target);
    run.isas = {INTACT_ISA_ANY};
  }
  run.mode = options.choice.mode;
  run.effort = EffortOf(options.quick);
  if (options.is_grouped) run.grouped_seed = options.seed;
  run.emulated = options.emulate.on;
  run.shard = *shard;
  return run;
}

/// Runs the problems of the run's shard that its journal does not know.
Result<verify::SweepResult> RunShard(const SweepOptions& options, const verify::SweepRun& run,
                                     std::span<const verify::Problem> problems, const verify::Target& target,
                                     const support::Deadline& deadline) {
  const std::string step = options.target.IsPlugin() ? target.Name()
                           : options.is_grouped      ? "grouped"
                                                     : "sweep";
  if (options.journal.empty())
    return RunSweep(problems, target, options.emulate.IsOurs(), {}, step, deadline);
  ASSIGN_OR_RETURN(support::Journal journal, support::Journal::Open(options.journal));
  ASSIGN_OR_RETURN(verify::SweepOutcomes known, verify::Resume(options.journal, run, &journal));
  if (!known.empty()) {
    PrintProgress(fmt::format("{}: {} of {} done", options.journal, known.size(),
                              support::Counted(problems.size(), "problem")));
  }
  const auto record = [&](const verify::SweepOutcome& outcome) { return verify::Append(outcome, &journal); };
  return RunSweep(problems, target, options.emulate.IsOurs(), {std::move(known), record}, step, deadline);
}

/// Writes --junit, if it is given.
Error WriteJunit(const SweepOptions& options, const std::unique_ptr<verify::Target>& target,
                 const verify::SweepResult& sweep, std::span<const std::string> expected,
                 const verify::SweepResult* random) {
  if (options.junit.empty()) return {};
  const std::string suite =
      fmt::format("intact verify {}: {}", options.is_grouped ? "grouped" : "sweep", target->Name());
  return support::WriteFile(options.junit, verify::ToJunit(suite, sweep, expected, random)).value_or(Error{});
}

/// The list of --expected-failures, if it is given.
Result<std::optional<verify::ExpectedFailures>> ReadExpected(const SweepOptions& options) {
  if (options.expected_failures.empty()) return std::optional<verify::ExpectedFailures>();
  Result<verify::ExpectedFailures> expected = verify::ExpectedFailures::Read(options.expected_failures);
  if (!expected) return Error{expected.error().status, "--expected-failures: " + expected.error().message};
  return std::optional(std::move(*expected));
}

/// Goes on with random problems, which differ from shard to shard.
Result<verify::RandomSweepResult> SweepOn(const SweepOptions& options, const verify::SweepRun& run,
                                          const verify::Target& target, const support::Deadline& deadline) {
  RandomSweepChoice choice = options.random;
  choice.options.stream = static_cast<uint64_t>(run.shard.index);
  choice.options.mode = run.mode;
  if (run.target.takes) return choice.Run(deadline, target, *run.target.takes);
  return choice.Run(deadline, run.isas, options.emulate.IsOurs());
}

int Sweep(SweepOptions options) {
  const support::Deadline deadline = options.random.time.Start();
  if (options.quiet) SilenceProgress();
  std::string held;  // with --quiet: what is printed only if the sweep does not pass
  const auto print = [&](const std::string& text) { options.quiet ? void(held += text) : Print("{}", text); };
  options.emulate.Prepare(options.target.IsPlugin());
  Result<std::optional<verify::ExpectedFailures>> expected = ReadExpected(options);
  if (!expected) return Fail(expected.error());
  if (!options.journal.empty() && !options.json.empty() && AreOneFile(options.journal, options.json)) {
    return Fail("--journal and --json are one file; expected two");
  }
  if (const int status = options.choice.Resolve(&options.emulate); status != kParity) return status;
  const Result<std::unique_ptr<verify::Target>> target =
      options.target.Open(options.choice, options.emulate.on);
  if (!target) return Fail(target.error());
  if (options.is_grouped && (*target)->Features().grouped == 0) return Fail(NoGroupedWeights(options.target));
  Result<verify::SweepRun> run = DescribeRun(options, **target);
  if (!run) return Fail(run.error());
  const verify::FittedProblems fitted = run->Fitted();
  const std::vector<verify::Problem>& problems = fitted.problems;
  if (problems.empty()) {
    return Fail(
        options.target.IsPlugin()
            ? "verify sweep: nothing to run: the target takes none of the sweep's combinations of types"
            : "verify sweep: nothing to run: this CPU has no ISA that kernels use");
  }
  run->Describe(problems);
  const verify::Shard& shard = run->shard;
  if (shard.count > run->problems) {
    return Fail(fmt::format("--shard: {}: the sweep has {}; expected no more shards than that",
                            shard.ToString(), support::Counted(run->problems, "problem")));
  }
  const std::vector<verify::Problem> part = verify::ProblemsOf(problems, shard);
  if (!options.reproduce.empty()) {  // before the work, not after it
    if (const Error error = ClearReproducers(options, shard); !error.ok()) return Fail(error);
  }
  Result<verify::SweepResult> sweep = RunShard(options, *run, part, **target, deadline);
  if (!sweep) return Fail(sweep.error());
  const bool is_whole = shard.count == 1;
  if (!is_whole) {
    print(fmt::format("shard {}: {} of {}\n", shard.ToString(), part.size(),
                      support::Counted(problems.size(), "problem")));
  }
  support::Json json = verify::ToJson(*run, *sweep);  // what happened, whatever was expected
  if (*expected) (*expected)->Apply(&*sweep);
  print(verify::ToText(fitted, "") + verify::ToText(*sweep, options.target.text) +
        (*expected ? (*expected)->ToText() : ""));
  std::optional<verify::RandomSweepResult> random;
  if (deadline.IsSet() && !options.is_grouped && !sweep->IsOutOfTime()) {
    Result<verify::RandomSweepResult> result = SweepOn(options, *run, **target, deadline);
    if (!result) return Fail(result.error());
    random = std::move(*result);
    print(verify::ToText(*random, options.target.text));
    json["random"] = verify::ToJson(*random);
  }
  const verify::SweepResult* others = random ? &random->sweep : nullptr;
  const std::vector<std::string> met = *expected ? (*expected)->Met() : std::vector<std::string>();
  const verify::SweepVerdict verdict = sweep->VerdictWith(others);
  if (StatusOf(verdict) != kParity) Print("{}", held);
  if (const Error error = WriteJunit(options, *target, *sweep, met, others); !error.ok()) return Fail(error);
  // `verify merge` checks whether each cell of the whole sweep ran something.
  const bool is_for_merge = !is_whole && verdict == verify::SweepVerdict::kNothingCompared;
  if (is_whole || sweep->IsOutOfTime()) Print("{}", verify::VerdictText(*sweep, others));
  const int status = WriteJson(options.json, json, is_for_merge ? kParity : StatusOf(verdict));
  if (const Error error = WriteReproducers(options, shard, **target, *sweep, others); !error.ok()) {
    return Fail(error);
  }
  return status;
}

}  // namespace

namespace {

// The options that both sweeps have.
void AddOptions(const std::shared_ptr<SweepOptions>& options, CLI::App* sweep, Command* command) {
  options->target.Add(sweep);
  sweep->add_flag("--quick", options->quick, "a fifth of the problems");
  sweep->add_flag("--quiet", options->quiet,
                  "no progress; if the sweep passes, print only the verdict, of a shard nothing");
  options->emulate.Add(sweep);
  sweep->add_option("--shard", options->shard, "run part I of N, for `verify merge`")->type_name("I/N");
  AddFileOption(sweep, "--journal", &options->journal,
                "write each outcome to FILE at once, and do not run problems whose outcome is there")
      ->check([](const std::string& file) -> std::string {  // a device keeps nothing
        std::error_code error;
        const bool is_other =
            std::filesystem::exists(file, error) && !std::filesystem::is_regular_file(file, error);
        return is_other ? file + ": cannot be written: exists and is not a regular file" : "";
      });
  AddJsonOption(sweep, &options->json, "write counts, failures and digests");
  AddFileOption(sweep, "--junit", &options->junit, "write a test for each problem, in the XML of JUnit");
  RefuseEmpty(
      sweep->add_option("--expected-failures", options->expected_failures,
                        "problem lines that are known to fail, one in each line; '#' begins a comment. Their "
                        "failures do not count; a problem of the list that passes does"))
      ->type_name("FILE");
  RefuseEmpty(
      sweep->add_option(
          "--reproduce", options->reproduce,
          "write the minimised failures of a --target as C files, failure_N.c, that do not need intact; "
          "replaces those of an earlier run"))
      ->type_name("DIR")
      ->needs("--target");
  sweep->callback([options, command] { *command = [options] { return Sweep(*options); }; });
}

}  // namespace

void AddVerifySweep(CLI::App* verify, Command* command) {
  auto options = std::make_shared<SweepOptions>();
  CLI::App* sweep = verify->add_subcommand(
      "sweep", "GEMMs around the blocks, convolutions around the edges, all fills, against the reference");
  options->choice.AddOptions(sweep);
  AddOptions(options, sweep, command);
  options->random.AddOptions(sweep);
}

void AddVerifyGrouped(CLI::App* verify, Command* command) {
  auto options = std::make_shared<SweepOptions>();
  options->is_grouped = true;
  CLI::App* grouped = verify->add_subcommand(
      "grouped",
      "a sweep of weights with a scale for each group of depths (intact/grouped.h), against the reference");
  grouped->add_option("--isa", options->choice.isa_name, "the kernels' ISA (default: all that are here)")
      ->type_name(IsaNames());
  AddOptions(options, grouped, command);
  AddSeedOption(grouped, &options->seed, "seed of the problems");
  options->random.time.Add(grouped, "run no further problem (status 4)");
}

}  // namespace intact::tools
