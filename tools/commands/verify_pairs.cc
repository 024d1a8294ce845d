#include <memory>

#include "support/machine.h"
#include "tools/console/commands.h"
#include "tools/console/terminal.h"
#include "verify/report/report_json.h"
#include "verify/report/report_terminal.h"
#include "verify/studies/pairs.h"

namespace intact::tools {

void AddVerifyPairs(CLI::App* verify, Command* command) {
  auto json = std::make_shared<std::string>();
  CLI::App* pairs = verify->add_subcommand("pairs", "all 2^32 inputs of one vpmaddubsw lane");
  AddJsonOption(pairs, json.get(), "write the map");
  pairs->callback([json, command] {
    *command = [json] {
      const verify::PairMap map = verify::MapAllPairs(support::UsableThreads());
      Print("{}", verify::ToText(map));
      return WriteJson(*json, verify::ToJson(map), map.Agrees() ? kParity : kDifference);
    };
  });
}

}  // namespace intact::tools
