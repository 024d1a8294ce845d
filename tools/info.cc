#include "tools/commands.h"
#include "tools/machine.h"
#include "tools/terminal.h"
#include "verify/report_terminal.h"

namespace intact::tools {

void AddInfo(CLI::App* app, Command* command) {
  CLI::App* info = app->add_subcommand("info", "CPU, caches, ISAs and what each means for int8");
  info->callback([command] {
    *command = [] {
      Print("{}", verify::ToText(DescribeMachine()));
      Print("{}", verify::ToText(DescribeIsas()));
      return kParity;
    };
  });
}

}  // namespace intact::tools
