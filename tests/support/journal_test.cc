#include "support/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/temp_path.h"

namespace intact::verify {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class JournalTest : public testing::Test {
 protected:
  JournalTest() { std::filesystem::create_directories(folder_); }
  ~JournalTest() override { std::filesystem::remove_all(folder_); }

  std::string Contents() const {
    std::ostringstream text;
    text << std::ifstream(path_, std::ios::binary).rdbuf();
    return text.str();
  }
  void Write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }

  const std::string folder_ = tests::TempPath();
  const std::string path_ = folder_ + "/journal";
};

TEST_F(JournalTest, KeepsItsLines) {
  {
    Result<support::Journal> journal = support::Journal::Open(path_);
    ASSERT_TRUE(journal) << journal.error().message;
    EXPECT_THAT(journal->text().lines, ElementsAre());
    EXPECT_EQ(journal->Append("one"), std::nullopt);
    EXPECT_EQ(Contents(), "one\n") << "before it is closed";
    EXPECT_EQ(journal->Append("two"), std::nullopt);
  }
  Result<support::Journal> journal = support::Journal::Open(path_);
  ASSERT_TRUE(journal);
  EXPECT_THAT(journal->text().lines, ElementsAre("one", "two"));
  EXPECT_EQ(journal->text().torn, "");
  EXPECT_EQ(journal->Append("three"), std::nullopt);
  EXPECT_EQ(Contents(), "one\ntwo\nthree\n");
}

TEST_F(JournalTest, ATornLineIsCutOffBeforeTheNext) {
  Write("one\ntw");
  {
    Result<support::Journal> journal = support::Journal::Open(path_);
    ASSERT_TRUE(journal);
    EXPECT_THAT(journal->text().lines, ElementsAre("one"));
    EXPECT_EQ(journal->text().torn, "tw");
  }
  EXPECT_EQ(Contents(), "one\ntw") << "nothing is changed by looking";
  Result<support::Journal> journal = support::Journal::Open(path_);
  ASSERT_TRUE(journal);
  EXPECT_EQ(journal->Append("x"), std::nullopt);
  EXPECT_EQ(journal->Append("y"), std::nullopt);
  EXPECT_EQ(Contents(), "one\nx\ny\n");
}

/// The error of Open() in another process; "" if it opens.
std::string RefusalElsewhere(const std::string& path) {
  const std::string answer = path + ".answer";
  const pid_t child = fork();
  if (child == 0) {
    std::ofstream(answer) << support::Journal::Open(path).error().message;
    _exit(0);
  }
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  std::string line;
  std::getline(std::ifstream(answer) >> std::ws, line);
  return line;
}

TEST_F(JournalTest, HasOneWriter) {
  {
    Result<support::Journal> first = support::Journal::Open(path_);
    ASSERT_TRUE(first);
    const support::Journal journal = std::move(*first);
    EXPECT_EQ(RefusalElsewhere(path_), path_ + ": is in use: another process writes this journal");
  }
  EXPECT_EQ(RefusalElsewhere(path_), "");
}

// For example the worker of a plug-in, which may live a moment longer than its killed parent.
TEST_F(JournalTest, AChildOfItsWriterDoesNotHoldIt) {
  std::array<int, 2> pipe_ends = {};
  ASSERT_EQ(pipe(pipe_ends.data()), 0);
  const pid_t writer = fork();
  if (writer == 0) {
    const Result<support::Journal> journal = support::Journal::Open(path_);
    if (fork() == 0) {  // waits until the test closes its end of the pipe
      close(pipe_ends[1]);
      char byte = 0;
      _exit(static_cast<int>(read(pipe_ends[0], &byte, 1)));
    }
    kill(getpid(), SIGKILL);
  }
  EXPECT_EQ(waitpid(writer, nullptr, 0), writer);
  EXPECT_EQ(RefusalElsewhere(path_), "");
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST_F(JournalTest, ErrorsNameTheFile) {
  EXPECT_EQ(support::Journal::Open(folder_).error().message, folder_ + ": cannot be opened: Is a directory");
  EXPECT_THAT(support::Journal::Open(folder_ + "/no/such").error().message,
              HasSubstr("No such file or directory"));
}

// A limit of the file's size acts like a full disk: the line is written in part.
TEST_F(JournalTest, ALineThatDoesNotFitIsTorn) {
  Write("one\n");
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  {
    Result<support::Journal> journal = support::Journal::Open(path_);
    ASSERT_TRUE(journal);
    const rlimit small = {7, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const std::optional<Error> error = journal->Append("a long line");
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->message, path_ + ": cannot be written: File too large");
    EXPECT_EQ(Contents(), "one\na l");
    EXPECT_EQ(journal->Append("two"), std::nullopt);
  }
  EXPECT_EQ(Contents(), "one\ntwo\n");
}

}  // namespace
}  // namespace intact::verify
