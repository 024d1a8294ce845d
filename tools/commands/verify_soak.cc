#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "jit/code_memory.h"
#include "support/resident.h"
#include "tools/console/commands.h"
#include "tools/console/interruption.h"
#include "tools/console/progress.h"
#include "tools/console/terminal.h"
#include "verify/studies/soak.h"

namespace intact::tools {
namespace {

using Clock = std::chrono::steady_clock;

struct SoakArguments {
  double seconds = 60;
  verify::SoakOptions soak;
};

std::string ToText(const verify::SoakState& state, double seconds) {
  const jit::CodeUsage code = jit::GetCodeUsage();
  const double resident = static_cast<double>(support::ResidentBytes()) / 1e6;
  return fmt::format(
      "{:.0f} s: {} runs, {} of kept plans, {} forks, {} plans kept, {:.1f} MB resident, {} functions of {} "
      "bytes, {} differences, digest {:016x}",
      seconds, state.runs, state.kept_runs, state.forks, state.plans, resident, code.functions, code.bytes,
      state.differences, state.digest);
}

int Soak(const SoakArguments& arguments) {
  CatchInterruptions();
  const Clock::time_point start = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  const bool has_end = arguments.soak.most_runs > 0;
  const double step = has_end ? kLineSeconds : std::max(kLineSeconds, arguments.seconds / 60);
  double next_line = step;
  const verify::SoakState state = verify::RunSoak(arguments.soak, [&](const verify::SoakState& now) {
    if (seconds() >= next_line) {
      PrintError("{}\n", ToText(now, seconds()));
      next_line += step;
    }
    return !IsInterrupted() && (has_end || seconds() < arguments.seconds);
  });
  for (const verify::SoakFailure& failure : state.failures) {
    Print("FAILED: {}: {}\n", failure.problem, failure.reason);
  }
  Print("{}{}\n", IsInterrupted() ? "interrupted after " : "", ToText(state, seconds()));
  return state.differences == 0 ? kParity : kDifference;
}

}  // namespace

void AddVerifySoak(CLI::App* verify, Command* command) {
  auto arguments = std::make_shared<SoakArguments>();
  CLI::App* soak = verify->add_subcommand(
      "soak", "random plans, threads and forks for as long as asked: memory, differences and a digest");
  CLI::Option* const seconds =
      soak->add_option("--seconds", arguments->seconds, "how long to run")->capture_default_str();
  seconds->check(Between(0.1, 1e7));
  soak->add_option("--runs", arguments->soak.most_runs,
                   "how many runs, instead of --seconds; seed and number decide the digest, on any machine")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->excludes(seconds);
  soak->add_option("--threads", arguments->soak.workers, "threads that create and run plans at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  AddSeedOption(soak, &arguments->soak.seed, "seed of all random choices");
  soak->callback([arguments, command] { *command = [arguments] { return Soak(*arguments); }; });
}

}  // namespace intact::tools
