#include "support/printable.h"

#include <gtest/gtest.h>

namespace intact::support {
namespace {

TEST(Printable, KeepsCharacters) {
  EXPECT_EQ(Printable("0 ~ \u00a0 \u00e4 \u20ac \ud7ff \ue000 \U0001f600 \U0010ffff"),
            "0 ~ \u00a0 \u00e4 \u20ac \ud7ff \ue000 \U0001f600 \U0010ffff");
}

TEST(Printable, WritesControlCharactersInDigits) {
  EXPECT_EQ(Printable("a\n\x1b[2J\x7f"), "a\\x0a\\x1b[2J\\x7f");
  EXPECT_EQ(Printable("\xc2\x9b"), "\\xc2\\x9b");  // U+009B, which terminals treat like ESC [
}

TEST(Printable, WritesWhatIsNotUtf8InDigits) {
  EXPECT_EQ(Printable("But got: \x80"), "But got: \\x80");
  EXPECT_EQ(Printable("\xe2\x82"), "\\xe2\\x82");    // cut short
  EXPECT_EQ(Printable("\xe2\x82 "), "\\xe2\\x82 ");  // or followed by something else
  EXPECT_EQ(Printable("\xc0\xaf \xe0\x80\xaf"), "\\xc0\\xaf \\xe0\\x80\\xaf");  // longer than necessary
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");                      // a surrogate
  EXPECT_EQ(Printable("\xf4\x90\x80\x80\xff"), "\\xf4\\x90\\x80\\x80\\xff");    // beyond U+10FFFF
}

TEST(Excerpt, IsBounded) {
  EXPECT_EQ(Excerpt("a\n"), "a\\x0a");
  const std::string long_text(5 << 20, 'x');
  EXPECT_EQ(Excerpt(long_text), std::string(240, 'x') + "… (5242640 bytes more)");
  EXPECT_EQ(Excerpt(std::string(239, 'x') + "ääx"), std::string(239, 'x') + "… (5 bytes more)");
}

}  // namespace
}  // namespace intact::support
