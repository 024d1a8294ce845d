#include "support/output_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <thread>

#include "tests/support/in_child.h"
#include "tests/support/temp_path.h"

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
    Result<support::OutputFile> first = support::OutputFile::Write(path_, "first");
    Result<support::OutputFile> second = support::OutputFile::Write(path_, "second");
    ASSERT_TRUE(first) << first.error().message;
    ASSERT_TRUE(second) << second.error().message;
    EXPECT_FALSE(std::filesystem::exists(path_));
    EXPECT_FALSE(first->Publish());
    EXPECT_EQ(Contents(), "first");
  }
  EXPECT_EQ(Contents(), "first");
  EXPECT_EQ(FileCount(), 1);
}

TEST_F(OutputFiles, ArePipesToo) {
  std::filesystem::create_directories(folder_ + "/new");
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_FALSE(support::WhyNotWritable(path_)) << "checked without a reader";
  std::string read;
  std::thread reader([&] { read = Contents(); });
  const std::optional<Error> error = support::WriteFile(path_, "text");
  if (error) ADD_FAILURE() << error->message;
  if (error) std::ofstream(path_) << "for the reader to go on";
  reader.join();
  EXPECT_EQ(read, "text");
  EXPECT_TRUE(std::filesystem::is_fifo(path_));
  EXPECT_EQ(FileCount(), 1);
}

TEST_F(OutputFiles, AreDevicesToo) {
  for (const char* device : {"/dev/null", "/dev/full"}) {
    EXPECT_FALSE(support::WhyNotWritable(device)) << device;
    EXPECT_EQ(support::WriteFile(device, "text").has_value(), device == std::string("/dev/full")) << device;
    EXPECT_TRUE(std::filesystem::is_character_file(device));
  }
}

// The file behind a descriptor continues at its current position.
TEST_F(OutputFiles, AreDescriptorsToo) {
  std::filesystem::create_directories(folder_ + "/new");
  const int file = open(path_.c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_EQ(write(file, "before, ", 8), 8);
  for (const std::string folder : {"/proc/self/fd/", "/dev/fd/"}) {
    EXPECT_FALSE(support::WhyNotWritable(folder + std::to_string(file)));
    EXPECT_FALSE(support::WriteFile(folder + std::to_string(file), "text, "));
  }
  ASSERT_EQ(write(file, "after", 5), 5);
  close(file);
  EXPECT_EQ(Contents(), "before, text, text, after");
  EXPECT_TRUE(support::WhyNotWritable("/proc/self/fd/" + std::to_string(file))) << "it is closed";
  EXPECT_EQ(FileCount(), 1);
}

TEST_F(OutputFiles, DoNotReplaceWhatIsNoFile) {
  std::filesystem::create_directories(folder_ + "/new");
  const std::optional<Error> error = support::WriteFile(folder_ + "/new", "text");
  ASSERT_TRUE(error);
  EXPECT_THAT(error->message, testing::HasSubstr("new: cannot be written: exists and is not a regular file"));
  EXPECT_TRUE(support::WriteFile("", "text"));
  EXPECT_TRUE(support::WriteFile(folder_ + "/newer/", "text"));
}

TEST_F(OutputFiles, AreRefusedBeforeThereIsAText) {
  EXPECT_FALSE(support::WhyNotWritable(path_)) << "the folder can be made";
  EXPECT_FALSE(std::filesystem::exists(folder_)) << "and is not";
  ASSERT_FALSE(support::WriteFile(path_, "before"));
  EXPECT_FALSE(support::WhyNotWritable(path_));
  EXPECT_EQ(Contents(), "before");
  EXPECT_EQ(FileCount(), 1);
  EXPECT_TRUE(support::WhyNotWritable(path_ + "/x")) << "in a file";
  EXPECT_TRUE(support::WhyNotWritable(path_ + "/x/y"));
  EXPECT_TRUE(support::WhyNotWritable("/proc/x/y")) << "no folder can be made";
  EXPECT_TRUE(support::WhyNotWritable(folder_ + "/" + std::string(256, 'x')));
  EXPECT_TRUE(support::WhyNotWritable(folder_ + "/missing/" + std::string(256, 'x')));
}

TEST_F(OutputFiles, MayHaveTheLongestName) {
  const std::string path = folder_ + "/new/" + std::string(255, 'x');
  for (const char* text : {"new", "replaced"}) {
    EXPECT_FALSE(support::WhyNotWritable(path));
    EXPECT_FALSE(support::WriteFile(path, text));
  }
  EXPECT_EQ(FileCount(), 1);
}

mode_t RightsOf(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
}

TEST_F(OutputFiles, KeepTheRightsOfWhatTheyReplace) {
  const mode_t saved = umask(0027);
  EXPECT_FALSE(support::WriteFile(path_, "new"));
  umask(saved);
  EXPECT_EQ(RightsOf(path_), 0640u) << "a new file has the rights that the umask permits";
  for (const auto& [before, after] : {std::pair(0604u, 0604u), std::pair(06755u, 0755u)}) {
    ASSERT_EQ(chmod(path_.c_str(), before), 0);
    EXPECT_FALSE(support::WriteFile(path_, "replaced"));
    EXPECT_EQ(RightsOf(path_), after);
  }
}

TEST_F(OutputFiles, FollowSymbolicLinks) {
  std::filesystem::create_directories(folder_ + "/new");
  const std::string link = folder_ + "/link";
  std::filesystem::create_symlink("new/file", link);
  for (const char* text : {"new", "replaced"}) {
    EXPECT_FALSE(support::WhyNotWritable(link));
    EXPECT_FALSE(support::WriteFile(link, text));
    EXPECT_TRUE(std::filesystem::is_symlink(link));
    EXPECT_EQ(Contents(), text);
  }
  std::filesystem::create_symlink("loop", folder_ + "/loop");
  EXPECT_TRUE(support::WhyNotWritable(folder_ + "/loop"));
}

// In a folder like /tmp only the owner of a file may replace it.
TEST_F(OutputFiles, AreRefusedWhereTheyAreAnothersInASharedFolder) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another";
  ASSERT_FALSE(support::WriteFile(path_, "root's"));
  ASSERT_EQ(chmod(folder_.c_str(), 0755) + chmod((folder_ + "/new").c_str(), 01777), 0);
  const std::string said = tests::InChild([&]() -> std::string {
    if (setuid(65534) != 0) return "root it stays";
    if (support::WhyNotWritable(path_ + "2")) return "a new file is refused";
    const std::optional<Error> error = support::WhyNotWritable(path_);
    return error ? error->message : "not refused";
  });
  EXPECT_EQ(said, path_ + ": cannot be written: Operation not permitted");
  EXPECT_EQ(Contents(), "root's");
  EXPECT_EQ(FileCount(), 1);
}

TEST_F(OutputFiles, AFullDiskIsAnError) {
  ASSERT_FALSE(support::WriteFile(path_, "before"));
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{4096, limit.rlim_max};
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::optional<Error> error = support::WriteFile(path_, std::string(100000, 'x'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, handler);
  ASSERT_TRUE(error);
  EXPECT_THAT(error->message, testing::HasSubstr("file: cannot be written: "));
  EXPECT_EQ(Contents(), "before");
  EXPECT_EQ(FileCount(), 1);
}

}  // namespace
}  // namespace intact::verify
