// `verify sweep --time`: random problems after the standard ones.
#ifndef INTACT_TOOLS_COMMANDS_RANDOM_SWEEP_H_
#define INTACT_TOOLS_COMMANDS_RANDOM_SWEEP_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <intact/intact.hpp>
#include <span>

#include "support/deadline.h"
#include "tools/console/commands.h"
#include "verify/sweep/random_sweep.h"

namespace intact::tools {

struct RandomSweepChoice {
  TimeLimit time;  // of the whole sweep; none: standard problems only
  verify::RandomSweepOptions options;

  void AddOptions(CLI::App* sweep);
  /// Continues a sweep with random problems on these ISAs, with progress on stderr. Ends when the deadline is
  /// over or the user interrupts it.
  Result<verify::RandomSweepResult> Run(const support::Deadline& deadline, std::span<const intact_isa> isas,
                                        bool emulate) const;
  /// Continues a target's sweep in the same way.
  verify::RandomSweepResult Run(const support::Deadline& deadline, const verify::Target& target,
                                const verify::Takes& takes) const;
};

}  // namespace intact::tools
#endif  // INTACT_TOOLS_COMMANDS_RANDOM_SWEEP_H_
