// `intact audit`, `intact compare`, `intact digest`, `intact operators` and `intact repair`: commands of the Python package, which reads models.
// This program finds the package and runs them.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/console/commands.h"

namespace intact::tools {
namespace {

// The current folder is removed from the search path: it may hold a folder called intact.
constexpr const char* kScript = R"(import sys
sys.path[:] = [entry for entry in sys.path if entry]
try:
    from intact._program import main
except ImportError as error:
    print(f"intact: {sys.argv[1]}: the Python package of intact cannot be loaded by {sys.executable}: {error}; "
          "set PYTHONPATH to build/release/python, install the wheel of tools/bootstrap.sh wheel with pip, or name another Python "
          "in INTACT_PYTHON", file=sys.stderr)
    sys.exit(2)
sys.argv[0] = "intact"
main()
)";

constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kCommands = {
    {{"audit", "which layers of a quantized model can saturate (Python package)"},
     {"compare", "a quantized model against its float model, layer by layer (Python package)"},
     {"digest", "run a model with the same bytes on every CPU; SHA-256 of its outputs (Python package)"},
     {"operators", "which operators of ONNX Runtime have the same bytes on every CPU (Python package)"},
     {"repair", "write a model that computes the same and cannot saturate (Python package)"}}};

}  // namespace

std::optional<int> RunPythonCommand(int argc, char** argv) {
  if (argc < 2 ||
      std::ranges::none_of(kCommands, [&](const auto& command) { return command.first == argv[1]; })) {
    return std::nullopt;
  }
  const char* const named = std::getenv("INTACT_PYTHON");
  std::string python = named != nullptr && *named != '\0' ? named : "python3";
  std::string option = "-c", script = kScript;
  std::vector<char*> words = {python.data(), option.data(), script.data()};
  words.insert(words.end(), argv + 1, argv + argc);
  words.push_back(nullptr);
  ::execvp(python.c_str(), words.data());
  return Fail(std::string(argv[1]) + ": needs Python and the Python package of intact; " + python +
              " cannot be run");
}

void AddPythonCommands(CLI::App* app) {
  for (const auto& [name, description] : kCommands)
    app->add_subcommand(std::string(name), std::string(description));
}

}  // namespace intact::tools
