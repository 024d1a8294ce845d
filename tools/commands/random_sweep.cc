#include "tools/commands/random_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "emulator/emulator.h"
#include "tools/console/commands.h"
#include "tools/console/interruption.h"
#include "tools/console/progress.h"

namespace intact::tools {
namespace {

// "1 h 05 min", "40 s"
std::string Duration(double seconds) {
  const auto whole = static_cast<int64_t>(std::max(seconds, 0.0));
  if (whole >= 3600) return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
  return whole >= 60 ? fmt::format("{} min", whole / 60) : fmt::format("{} s", whole);
}

// The time that a sweep may take. Prints lines of progress.
class Watch {
 public:
  /// `seconds`: of the whole sweep.
  Watch(const support::Deadline& deadline, double seconds)
      : deadline_(deadline), step_(std::max(kLineSeconds, seconds / 60)) {
    CatchInterruptions();
    next_line_ = deadline_.SecondsLeft() - step_;
    if (seconds >= kLineSeconds) {
      PrintProgress(fmt::format("sweep: random problems for {}; Ctrl-C ends them, with the summary",
                                Duration(deadline_.SecondsLeft())));
    }
  }

  bool GoesOn(const verify::RandomSweepResult& now) {
    if (deadline_.SecondsLeft() <= next_line_) {
      next_line_ -= step_;
      PrintProgress(fmt::format("sweep: {} random problems, {} failed, {} left", now.problems,
                                now.sweep.Failed(), Duration(deadline_.SecondsLeft())));
    }
    return !IsInterrupted() && !deadline_.IsOver();
  }

 private:
  const support::Deadline deadline_;
  const double step_;
  double next_line_;  // in seconds before the deadline
};

}  // namespace

void RandomSweepChoice::AddOptions(CLI::App* sweep) {
  CLI::Option* const limit =
      time.Add(sweep,
               "run no further problem; until then go on with random problems. Status 4: not all of the "
               "sweep's own problems were run");
  AddSeedOption(sweep, &options.seed, "seed of the random problems")->needs(limit);
}

Result<verify::RandomSweepResult> RandomSweepChoice::Run(const support::Deadline& deadline,
                                                         std::span<const intact_isa> isas,
                                                         bool emulate) const {
  std::optional<emulator::ScopedEmulator> emulator;
  if (emulate) emulator.emplace();
  Error fault;
  Watch watch(deadline, time.seconds);
  verify::RandomSweepResult result =
      verify::RunRandomSweep(options, isas, [&](const verify::RandomSweepResult& now) {
        fault = EmulateOption::TakeFault();
        return fault.ok() && watch.GoesOn(now);
      });
  if (!fault.ok()) return fault;
  return result;
}

verify::RandomSweepResult RandomSweepChoice::Run(const support::Deadline& deadline,
                                                 const verify::Target& target,
                                                 const verify::Takes& takes) const {
  Watch watch(deadline, time.seconds);
  return verify::RunRandomSweep(options, target, takes,
                                [&](const verify::RandomSweepResult& now) { return watch.GoesOn(now); });
}

}  // namespace intact::tools
