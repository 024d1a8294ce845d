// `intact audit` and `intact repair`: commands of the Python package, which reads models. This program finds and runs them.
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tools/commands.h"

namespace intact::tools {
namespace {

// The current folder may hold one called intact: it does not count.
constexpr const char* kScript = R"(import sys
sys.path[:] = [entry for entry in sys.path if entry]
try:
    from intact._program import main
except ImportError as error:
    print(f"intact: {sys.argv[1]}: the Python package of intact cannot be loaded by {sys.executable}: {error}; build it with "
          "tools/bootstrap.sh wheel and install it with pip, or name another Python in INTACT_PYTHON", file=sys.stderr)
    sys.exit(2)
sys.argv[0] = "intact"
main()
)";

int RunPython(const std::string& name, std::vector<std::string> arguments) {
  const char* const named = std::getenv("INTACT_PYTHON");
  std::string python = named != nullptr && *named != '\0' ? named : "python3";
  std::vector<std::string> words = {python, "-c", kScript, name};
  words.insert(words.end(), std::make_move_iterator(arguments.begin()),
               std::make_move_iterator(arguments.end()));
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(python.c_str(), argv.data());
  return Fail(name + ": needs Python and the Python package of intact; " + python + " cannot be run");
}

}  // namespace

void AddPythonCommands(CLI::App* app, Command* command) {
  const auto add = [&](const std::string& name, const std::string& description) {
    CLI::App* added = app->add_subcommand(name, description + " (Python package)");
    added->set_help_flag();
    added->prefix_command();
    added->callback([added, name, command] {
      *command = [name, arguments = added->remaining()] { return RunPython(name, arguments); };
    });
  };
  add("audit", "which layers of a quantized model can saturate");
  add("repair", "a model that computes the same, and cannot saturate");
}

}  // namespace intact::tools
