#include "tools/console/terminal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

namespace intact::tools {
namespace {

namespace fs = std::filesystem;

bool IsAscii(const std::string& text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 128; });
}

TEST(Terminal, HasAsciiForWhatIsPrinted) {
  EXPECT_EQ(ToAscii("12×(128×64) u8×s8ᵀ ≤ −1"), "12x(128x64) u8xs8^T <= -1");
  EXPECT_EQ(ToAscii("naïve"), "naïve") << "a user's";
}

TEST(Terminal, EndsALineThatWasRedrawn) {
  testing::internal::CaptureStderr();
  Redraw("sweep: 1 of 3");
  Redraw("sweep: 2 of 3");
  PrintError("first\n");
  PrintError("second\n");
  Redraw("sweep: 3 of 3");
  EndRedrawnLine();
  EndRedrawnLine();
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "\rsweep: 1 of 3\rsweep: 2 of 3\nfirst\nsecond\n\rsweep: 3 of 3\n");
}

// Any text outside comments may be printed.
TEST(Terminal, HasAsciiForAllThatSourcesHold) {
  size_t files = 0;
  for (const char* folder : {"tools", "bench", "verify"}) {
    for (const fs::directory_entry& entry :
         fs::recursive_directory_iterator(fs::path(INTACT_SOURCE_DIR) / folder)) {
      const fs::path extension = entry.path().extension();
      const bool is_table = entry.path().filename() == "terminal.cc";
      if (is_table || (extension != ".cc" && extension != ".h")) continue;
      ++files;
      std::ifstream source(entry.path());
      for (std::string line; std::getline(source, line);) {
        const std::string code = line.substr(0, line.find("//"));
        EXPECT_TRUE(IsAscii(ToAscii(code))) << entry.path() << ": " << code;
      }
    }
  }
  EXPECT_GT(files, 100u);
}

}  // namespace
}  // namespace intact::tools
