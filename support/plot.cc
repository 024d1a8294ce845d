#include "support/plot.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "core/result.h"
#include "support/npy.h"

namespace intact::support {
namespace {

/// A new folder in the system's temporary folder. It is removed with its files.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_((std::filesystem::temp_directory_path() / "intact-plot-XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// The exit status of gnuplot, or −1 if it could not be run. Its messages are discarded.
int RunGnuplot(const std::string& script) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::string program = "gnuplot";
  std::string argument = script;
  char* arguments[] = {program.data(), argument.data(), nullptr};
  pid_t child = 0;
  const int error = posix_spawnp(&child, "gnuplot", &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (error != 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

}  // namespace

Result<std::string> PlotSvg(std::string_view name, std::string_view commands) {
  const TemporaryFolder folder;
  const std::string script = folder.path() + "/plot.gp";
  const std::string picture = folder.path() + "/plot.svg";
  std::ofstream(script) << fmt::format(
      "set terminal svg size 760,420 dynamic font 'sans-serif,13' name '{}'\n"
      "set output '{}'\n{}",
      name, picture, commands);
  if (RunGnuplot(script) != 0) {
    return Error{INTACT_UNSUPPORTED, "gnuplot is missing or failed: install gnuplot-nox for the pictures"};
  }
  ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, ReadFile(picture));
  const std::string text(bytes.begin(), bytes.end());
  const size_t start = text.find("<svg");
  if (start == std::string::npos) return Error{INTACT_UNSUPPORTED, "gnuplot wrote no SVG"};
  return text.substr(start);
}

}  // namespace intact::support
