// `verify sweep --time`: random problems after the standard ones.
#ifndef INTACT_TOOLS_COMMANDS_RANDOM_SWEEP_H_
#define INTACT_TOOLS_COMMANDS_RANDOM_SWEEP_H_

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <intact/intact.hpp>
#include <span>

#include "verify/sweep/random_sweep.h"

namespace intact::tools {

struct RandomSweepChoice {
  double seconds = 0;  // of the whole sweep; 0: standard problems only
  verify::RandomSweepOptions options;

  void AddOptions(CLI::App* sweep);
  /// Continues a sweep that began at `start` with random problems, on these ISAs, with progress on stderr.
  /// Ends when the time is over or the user interrupts it.
  Result<verify::RandomSweepResult> Run(std::chrono::steady_clock::time_point start,
                                        std::span<const intact_isa> isas, bool emulate) const;
  /// Continues a target's sweep in the same way.
  verify::RandomSweepResult Run(std::chrono::steady_clock::time_point start, const verify::Target& target,
                                const verify::Takes& takes) const;
};

}  // namespace intact::tools
#endif  // INTACT_TOOLS_COMMANDS_RANDOM_SWEEP_H_
