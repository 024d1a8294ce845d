// --target: whose kernels a command verifies.
#ifndef INTACT_TOOLS_CONSOLE_TARGET_OPTION_H_
#define INTACT_TOOLS_CONSOLE_TARGET_OPTION_H_

#include <CLI/CLI.hpp>
#include <intact/intact.hpp>
#include <memory>
#include <string>

#include "tools/console/commands.h"
#include "verify/problem/problem.h"
#include "verify/problem/target.h"

namespace intact::tools {

struct TargetOption {
  // FILE.so or a peer's name, optionally with ":OPTIONS"; empty: our own kernels. Names of files and options
  // may contain ':'. So FILE is the longest prefix, up to a ':' or the end, that is a file.
  std::string text;
  double deadline = 10;  // seconds that a call may take

  // The file and the options of a plug-in.
  struct Plugin {
    std::string file, options;
  };

  void Add(CLI::App* app);
  bool IsPlugin() const { return !text.empty(); }
  /// Our own kernels, or the plug-in in a separate process. Errors name the option. `choice`: --isa and
  /// --mode, which are only for our own kernels. `emulate`: runs a plug-in in the emulator.
  Result<std::unique_ptr<verify::Target>> Open(const RunChoice& choice, bool emulate = false) const;
  /// Adds only --deadline.
  static void AddDeadline(CLI::App* app, double* deadline);
  /// The plug-in that `text` names. Errors name the option.
  Result<Plugin> Find() const;
  /// Writes `problem`, which fails on `target`, as a complete C program to `file`. UNSUPPORTED, with a
  /// reason, if such a program would not show the failure (verify/sweep/reproducer.h).
  Error WriteReproducer(const verify::Target& target, const verify::Problem& problem,
                        const std::string& file) const;
};

/// The message for a target without grouped weights.
std::string NoGroupedWeights(const TargetOption& target);

}  // namespace intact::tools
#endif  // INTACT_TOOLS_CONSOLE_TARGET_OPTION_H_
