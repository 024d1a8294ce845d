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

using Clock = std::chrono::steady_clock;

// "1 h 05 min", "40 s"
std::string Duration(double seconds) {
  const auto whole = static_cast<int64_t>(std::max(seconds, 0.0));
  if (whole >= 3600) return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
  return whole >= 60 ? fmt::format("{} min", whole / 60) : fmt::format("{} s", whole);
}

// The time that a sweep may take. Prints lines of progress.
class Watch {
 public:
  Watch(Clock::time_point start, double seconds)
      : start_(start), all_(seconds), step_(std::max(kLineSeconds, all_ / 60)) {
    CatchInterruptions();
    next_line_ = Seconds() + step_;
    if (all_ >= kLineSeconds) {
      PrintProgress(fmt::format("sweep: random problems for {}; Ctrl-C ends them, with the summary",
                                Duration(all_ - Seconds())));
    }
  }

  bool GoesOn(const verify::RandomSweepResult& now) {
    if (Seconds() >= next_line_) {
      next_line_ += step_;
      PrintProgress(fmt::format("sweep: {} random problems, {} failed, {} left", now.problems,
                                now.sweep.Failed(), Duration(all_ - Seconds())));
    }
    return !IsInterrupted() && Seconds() < all_;
  }

 private:
  double Seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  const Clock::time_point start_;
  const double all_, step_;
  double next_line_ = 0;
};

}  // namespace

void RandomSweepChoice::AddOptions(CLI::App* sweep) {
  CLI::Option* const time =
      AddTimeOption(sweep, &seconds, 0.1, 1e9,
                    "go on with random problems until this time is over, and report their results");
  AddSeedOption(sweep, &options.seed, "seed of the random problems")->needs(time);
}

Result<verify::RandomSweepResult> RandomSweepChoice::Run(Clock::time_point start,
                                                         std::span<const intact_isa> isas,
                                                         bool emulate) const {
  std::optional<emulator::ScopedEmulator> emulator;
  if (emulate) emulator.emplace();
  Error fault;
  Watch watch(start, seconds);
  verify::RandomSweepResult result =
      verify::RunRandomSweep(options, isas, [&](const verify::RandomSweepResult& now) {
        fault = EmulateOption::TakeFault();
        return fault.ok() && watch.GoesOn(now);
      });
  if (!fault.ok()) return fault;
  return result;
}

verify::RandomSweepResult RandomSweepChoice::Run(Clock::time_point start, const verify::Target& target,
                                                 const verify::Takes& takes) const {
  Watch watch(start, seconds);
  return verify::RunRandomSweep(options, target, takes,
                                [&](const verify::RandomSweepResult& now) { return watch.GoesOn(now); });
}

}  // namespace intact::tools
