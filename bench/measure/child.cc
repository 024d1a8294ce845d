#include "bench/measure/child.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>

namespace intact::bench {
namespace {

Error Failed(const std::string& why) { return {INTACT_UNSUPPORTED, "child process: " + why}; }

bool WriteAll(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

std::string ReadAll(int file) {
  std::string text;
  std::array<char, 4096> buffer = {};
  for (;;) {
    const ssize_t count = read(file, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(buffer.data(), static_cast<size_t>(count));
  }
}

/// {"result": …} or {"error": …}.
std::string Answer(const std::function<nlohmann::json()>& work) {
  nlohmann::json answer;
  try {
    answer["result"] = work();
  } catch (const std::exception& exception) {
    answer["error"] = exception.what();
  }
  return answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

Result<nlohmann::json> RunInChild(const std::function<nlohmann::json()>& work) {
  std::array<int, 2> ends = {};
  if (pipe(ends.data()) != 0) return Failed(std::strerror(errno));
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    std::signal(SIGPIPE, SIG_DFL);  // without a parent there is nothing left to do
    // Not exit(), which would flush a copy of the parent's buffered output.
    _exit(WriteAll(ends[1], Answer(work)) ? 0 : 1);
  }
  close(ends[1]);
  const std::string text = child < 0 ? "" : ReadAll(ends[0]);
  close(ends[0]);
  if (child < 0) return Failed(std::strerror(errno));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) return Failed(fmt::format("ended by signal {}", WTERMSIG(status)));
  if (WEXITSTATUS(status) != 0) return Failed(fmt::format("ended with status {}", WEXITSTATUS(status)));
  nlohmann::json answer = nlohmann::json::parse(text, nullptr, false);
  if (!answer.is_object()) return Failed("its answer is not a JSON object");
  if (answer.contains("error")) return Failed(answer["error"].get<std::string>());
  return answer["result"];
}

}  // namespace intact::bench
