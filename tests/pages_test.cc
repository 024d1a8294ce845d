// The Markdown pages name files that exist.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace intact::tests {
namespace {

namespace fs = std::filesystem;

// "a/{b,c}.cc" is a/b.cc and a/c.cc; also of several braces.
std::vector<std::string> Expanded(const std::string& path) {
  const size_t open = path.find('{');
  if (open == std::string::npos) return {path};
  const size_t close = path.find('}', open);
  std::vector<std::string> all;
  for (size_t begin = open; begin != close;) {
    const size_t end = path.find_first_of(",}", begin + 1);
    const std::string one =
        path.substr(0, open) + path.substr(begin + 1, end - begin - 1) + path.substr(close + 1);
    for (std::string& whole : Expanded(one)) all.push_back(std::move(whole));
    begin = end;
  }
  return all;
}

// The files in `text` between backquotes that have a folder and a known extension, without files that programs write
// (report/…) and installed ones (share/…).
std::vector<std::string> FilesIn(const std::string& text) {
  static const std::regex kFile(R"(`([\w./{},-]+/[\w.{},-]+\.(?:cc|c|h|hpp|py|sh|md|txt|json|cmake))`)");
  std::vector<std::string> files;
  for (std::sregex_iterator found(text.begin(), text.end(), kFile), end; found != end; ++found) {
    for (std::string& file : Expanded((*found)[1])) {
      if (!file.starts_with("report/") && !file.starts_with("share/")) files.push_back(std::move(file));
    }
  }
  return files;
}

// Public headers are named as programs include them.
bool Exists(const std::string& file) {
  const fs::path tree(INTACT_SOURCE_DIR);
  return fs::exists(tree / file) || fs::exists(tree / "include" / file);
}

std::vector<fs::path> Pages() {
  std::vector<fs::path> pages;
  for (const std::string_view folder : {"", "docs"}) {
    for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(INTACT_SOURCE_DIR) / folder)) {
      if (entry.path().extension() == ".md") pages.push_back(entry.path());
    }
  }
  return pages;
}

std::string Contents(const fs::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

TEST(Pages, NameFilesThatExist) {
  size_t files = 0;
  for (const fs::path& page : Pages()) {
    for (const std::string& file : FilesIn(Contents(page))) {
      EXPECT_TRUE(Exists(file)) << page.filename() << " names " << file << ", which does not exist";
      ++files;
    }
  }
  EXPECT_GT(files, 150u);
}

// "*Suite.Test/param*" in tests/unsanitized.txt: the beginning of a test's name, or nothing of it.
TEST(Pages, UnsanitizedTestsExist) {
  std::string sources;
  for (const fs::directory_entry& entry :
       fs::recursive_directory_iterator(fs::path(INTACT_SOURCE_DIR) / "tests")) {
    if (entry.path().extension() == ".cc") sources += Contents(entry.path());
  }
  std::istringstream lines(Contents(fs::path(INTACT_SOURCE_DIR) / "tests/unsanitized.txt"));
  static const std::regex kPattern(R"((?:\*?(\w+)\.(\w*)|\*/).*: .+)");
  size_t patterns = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#")) continue;
    ++patterns;
    std::smatch found;
    ASSERT_TRUE(std::regex_match(line, found, kPattern)) << line << "; expected \"PATTERN: REASON\"";
    EXPECT_THAT(sources,
                testing::ContainsRegex("TEST(_[FP])?\\(\\w*" + found.str(1) + ",\\s+" + found.str(2)))
        << line;
  }
  EXPECT_GT(patterns, 20u);
}

TEST(Pages, FilesAreFoundInTheirText) {
  EXPECT_THAT(FilesIn("`a/b.cc` a/c.cc `d.h`, `e/{f,g}/{h,i}.py` and `report/a.json`"),
              testing::ElementsAre("a/b.cc", "e/f/h.py", "e/f/i.py", "e/g/h.py", "e/g/i.py"));
  EXPECT_FALSE(Exists("kernels/none.h"));
  EXPECT_TRUE(Exists("intact/intact.h"));
}

}  // namespace
}  // namespace intact::tests
