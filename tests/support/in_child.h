// Runs tests in a child process, which may limit itself, crash or hang.
#ifndef INTACT_TESTS_SUPPORT_IN_CHILD_H_
#define INTACT_TESTS_SUPPORT_IN_CHILD_H_

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <string>

namespace intact::tests {

inline constexpr unsigned kDeadlineSeconds = 60;

/// Runs `body` in a child process and returns its result: "" if all is well. A child that hangs is killed.
inline std::string InChild(const std::function<std::string()>& body) {
  std::array<int, 2> ends = {};
  if (pipe(ends.data()) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    alarm(kDeadlineSeconds);
    const std::string said = body();
    (void)!write(ends[1], said.data(), said.size());
    _exit(0);
  }
  close(ends[1]);
  std::string said;
  std::array<char, 512> buffer = {};
  for (ssize_t bytes = 0; (bytes = read(ends[0], buffer.data(), buffer.size())) > 0;) {
    said.append(buffer.data(), static_cast<size_t>(bytes));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) said += "ended by signal " + std::to_string(WTERMSIG(status));
  return said;
}

/// From now on this process's user gets no thread or process beyond `most`. root has no limit, so it becomes
/// "nobody". Returns "", or why that failed.
inline std::string LimitProcesses(rlim_t most) {
  constexpr uid_t kNobody = 65534;
  const rlimit limit = {most, most};
  if (setrlimit(RLIMIT_NPROC, &limit) != 0) return "no limit";
  return geteuid() == 0 && setuid(kNobody) != 0 ? "root has no limit" : "";
}

}  // namespace intact::tests
#endif  // INTACT_TESTS_SUPPORT_IN_CHILD_H_
