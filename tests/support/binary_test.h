// Runs a real binary (INTACT_BINARY) like a user or a CI job, and checks the exit status and the one line on
// stderr that reports an error.
#ifndef INTACT_TESTS_SUPPORT_BINARY_TEST_H_
#define INTACT_TESTS_SUPPORT_BINARY_TEST_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/temp_path.h"

namespace intact::tests {

struct Outcome {
  int status = -1;
  std::string out, err;
};

/// A pipe without a reader. Children inherit its other end as descriptor 9.
class UnreadPipe {
 public:
  UnreadPipe() {
    std::array<int, 2> ends = {};
    EXPECT_EQ(pipe(ends.data()), 0);
    EXPECT_EQ(dup2(ends[1], kDescriptor), kDescriptor);
    for (const int end : ends) close(end);
  }
  ~UnreadPipe() { close(kDescriptor); }
  UnreadPipe(const UnreadPipe&) = delete;
  UnreadPipe& operator=(const UnreadPipe&) = delete;

  static constexpr const char* kName = "&9";  // in shell syntax

 private:
  static constexpr int kDescriptor = 9;
};

class BinaryTest : public testing::Test {
 public:
  ~BinaryTest() override { std::filesystem::remove_all(folder_); }

 protected:
  BinaryTest() { std::filesystem::create_directories(folder_); }

  static std::string Contents(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }

  Outcome Run(const std::string& arguments, const std::string& environment = "") const {
    return RunInto("'" + folder_ + "/out'", arguments, environment);
  }

  /// Run() with standard output and standard error redirected to `out` and `err`, in shell syntax.
  Outcome RunInto(const std::string& out, const std::string& arguments, const std::string& environment = "",
                  const std::string& err = "") const {
    const std::string command = "unset COLUMNS; LC_ALL=C.UTF-8 " + environment + " '" INTACT_BINARY "' " +
                                arguments + " >" + out + " 2>" +
                                (err.empty() ? "'" + folder_ + "/err'" : err) + " </dev/null";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, Contents(folder_ + "/out"),
            Contents(folder_ + "/err")};
  }

  /// Run() of a sweep with a long --time; sends it `signal` so many seconds after its random problems have begun.
  Outcome RunUntilRandom(const std::string& arguments, const std::string& signal, int seconds = 0) const {
    return Run(arguments, R"(sh -c '"$0" "$@" & until grep -q "random problems for" ')" + folder_ +
                              "/err' || ! kill -0 $!; do sleep 0.1; done; sleep " + std::to_string(seconds) +
                              "; kill -" + signal + " $!; wait $!'");
  }

  /// Expects status 2, one line on stderr that contains `words`, and no file at the path of --json.
  void ExpectBadInput(const std::string& arguments, const std::string& words,
                      const std::string& environment = "") {
    SCOPED_TRACE(arguments);
    const Outcome outcome = Run(arguments, environment);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, testing::HasSubstr(words));
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ + "/x.json"));
  }

  /// Expects status 2, and one line that reports it, if standard output is full or closed.
  void ExpectLostOutput(const std::string& arguments) {
    SCOPED_TRACE(arguments);
    for (const char* out : {"/dev/full", "&-"}) {
      const Outcome outcome = RunInto(out, arguments);
      EXPECT_EQ(outcome.status, 2) << out;
      EXPECT_THAT(outcome.err, testing::HasSubstr("standard output: cannot be written: ")) << out;
      EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
      for (const char* err : {"/dev/full", "&-"}) {
        EXPECT_EQ(RunInto(out, arguments, "", err).status, 2) << out << " " << err;
      }
    }
  }

  /// Expects `status`, as with a working stderr, if stderr is full, closed or a pipe without a reader.
  void ExpectLostErrors(const std::string& arguments, int status) {
    SCOPED_TRACE(arguments);
    const UnreadPipe unread;
    for (const char* err : {"/dev/full", "&-", UnreadPipe::kName}) {
      EXPECT_EQ(RunInto("'" + folder_ + "/out'", arguments, "", err).status, status) << err;
    }
  }

  /// A folder of this test, removed after it.
  const std::string folder_ = TempPath();
};

}  // namespace intact::tests
#endif  // INTACT_TESTS_SUPPORT_BINARY_TEST_H_
