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
  // FILE.so or a peer's name, then maybe ":OPTIONS"; empty: our own kernels. FILE is the longest beginning up
  // to a ':' or the end that is a file: names of files and options may have ':' in them.
  std::string text;
  double deadline = 10;  // seconds that a call may take

  // What a plug-in is loaded from.
  struct Plugin {
    std::string file, options;
  };

  void Add(CLI::App* app);
  bool IsPlugin() const { return !text.empty(); }
  /// Our own kernels, or the plug-in, in a process of its own. Errors name the option. `choice`: --isa and
  /// --mode, which choose among our own kernels alone.
  Result<std::unique_ptr<verify::Target>> Open(const RunChoice& choice) const;
  /// --deadline alone.
  static void AddDeadline(CLI::App* app, double* deadline);
  /// Of a plug-in. Errors name the option.
  Result<Plugin> Find() const;
  /// Writes `problem`, which fails on `target`, as a C file of its own to `file`. UNSUPPORTED, with a reason,
  /// if it cannot be told so (verify/sweep/reproducer.h).
  Error WriteReproducer(const verify::Target& target, const verify::Problem& problem,
                        const std::string& file) const;
};

}  // namespace intact::tools
#endif  // INTACT_TOOLS_CONSOLE_TARGET_OPTION_H_
