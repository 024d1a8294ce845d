#include "support/machine.h"
#include "tools/console/commands.h"
#include "tools/console/terminal.h"
#include "verify/report/report_terminal.h"

namespace intact::tools {

void AddInfo(CLI::App* app, Command* command) {
  CLI::App* info = app->add_subcommand("info", "CPU, caches, ISAs and what each means for int8");
  info->callback([command] {
    *command = [] {
      Print("{}", verify::ToText(support::DescribeMachine()));
      Print("{}", verify::ToText(support::DescribeIsas()));
      return kParity;
    };
  });
}

}  // namespace intact::tools
