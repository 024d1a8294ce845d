#include "verify/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "tests/temp_path.h"

namespace intact::verify {
namespace {

class OutputFiles : public testing::Test {
 public:
  ~OutputFiles() override { std::filesystem::remove_all(folder_); }

 protected:
  OutputFiles() { std::filesystem::remove_all(folder_); }

  std::ptrdiff_t FileCount() const {
    return std::distance(std::filesystem::directory_iterator(folder_ + "/new"), {});
  }
  std::string Contents() const {
    std::ifstream stream(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  const std::string folder_ = tests::TempPath();
  const std::string path_ = folder_ + "/new/file";
};

TEST_F(OutputFiles, AppearWhenPublished) {
  {
    Result<OutputFile> first = OutputFile::Write(path_, "first");
    Result<OutputFile> second = OutputFile::Write(path_, "second");
    ASSERT_TRUE(first) << first.error().message;
    ASSERT_TRUE(second) << second.error().message;
    EXPECT_FALSE(std::filesystem::exists(path_));
    EXPECT_FALSE(first->Publish());
    EXPECT_EQ(Contents(), "first");
  }
  EXPECT_EQ(Contents(), "first");
  EXPECT_EQ(FileCount(), 1);
}

// A pipe stands for a device, /dev/null say, which must not be lost to a failure of this test.
TEST_F(OutputFiles, DoNotReplaceWhatIsNoFile) {
  std::filesystem::create_directories(folder_ + "/new");
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const std::optional<Error> error = WriteFile(path_, "text");
  ASSERT_TRUE(error);
  EXPECT_THAT(error->message, testing::HasSubstr("file: cannot be written: is there, and not a file"));
  EXPECT_TRUE(std::filesystem::is_fifo(path_));
  EXPECT_EQ(FileCount(), 1);
  EXPECT_TRUE(WriteFile(folder_ + "/new", "text")) << "a folder";
  EXPECT_TRUE(WriteFile("", "text"));
  EXPECT_TRUE(WriteFile(folder_ + "/newer/", "text"));
}

TEST_F(OutputFiles, AreRefusedBeforeThereIsAText) {
  EXPECT_FALSE(WhyNotWritable(path_)) << "the folder is made";
  EXPECT_EQ(FileCount(), 0);
  ASSERT_FALSE(WriteFile(path_, "before"));
  EXPECT_FALSE(WhyNotWritable(path_));
  EXPECT_EQ(Contents(), "before");
  EXPECT_EQ(FileCount(), 1);
  EXPECT_TRUE(WhyNotWritable(path_ + "/x")) << "in a file";
  EXPECT_TRUE(WhyNotWritable(folder_ + "/" + std::string(250, 'x')))
      << "too long with the temporary's ending";
}

TEST_F(OutputFiles, AFullDiskIsAnError) {
  ASSERT_FALSE(WriteFile(path_, "before"));
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{4096, limit.rlim_max};
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::optional<Error> error = WriteFile(path_, std::string(100000, 'x'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, handler);
  ASSERT_TRUE(error);
  EXPECT_THAT(error->message, testing::HasSubstr("file: cannot be written: "));
  EXPECT_EQ(Contents(), "before");
  EXPECT_EQ(FileCount(), 1);
}

}  // namespace
}  // namespace intact::verify
