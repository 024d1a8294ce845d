// `intact bench` starts intact_bench: the one beside this program, or the one that PATH finds.
#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "tools/console/commands.h"

namespace intact::tools {

int RunBench(int argc, char** argv) {
  constexpr const char* kName = "intact_bench";
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  std::vector<char*> words(argv, argv + argc);
  words.push_back(nullptr);
  if (!error) {
    for (const std::filesystem::path& program : {folder / kName, folder / "../bench" / kName}) {
      ::execv(program.c_str(), words.data());
    }
  }
  ::execvp(kName, words.data());
  return Fail("bench: needs the program intact_bench beside this program or in PATH; install intact-bench");
}

}  // namespace intact::tools
