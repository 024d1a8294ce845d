#include "support/printable.h"

#include <gtest/gtest.h>

namespace intact::verify {
namespace {

TEST(Printable, KeepsCharacters) {
  EXPECT_EQ(support::Printable("0 ~ \u00a0 \u00e4 \u20ac \ud7ff \ue000 \U0001f600 \U0010ffff"),
            "0 ~ \u00a0 \u00e4 \u20ac \ud7ff \ue000 \U0001f600 \U0010ffff");
}

TEST(Printable, WritesControlCharactersInDigits) {
  EXPECT_EQ(support::Printable("a\n\x1b[2J\x7f"), "a\\x0a\\x1b[2J\\x7f");
  EXPECT_EQ(support::Printable("\xc2\x9b"), "\\xc2\\x9b");  // U+009B, which terminals obey as they do ESC [
}

TEST(Printable, WritesWhatIsNotUtf8InDigits) {
  EXPECT_EQ(support::Printable("But got: \x80"), "But got: \\x80");
  EXPECT_EQ(support::Printable("\xe2\x82"), "\\xe2\\x82");    // cut short
  EXPECT_EQ(support::Printable("\xe2\x82 "), "\\xe2\\x82 ");  // or followed by something else
  EXPECT_EQ(support::Printable("\xc0\xaf \xe0\x80\xaf"),
            "\\xc0\\xaf \\xe0\\x80\\xaf");                           // longer than they need be
  EXPECT_EQ(support::Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(support::Printable("\xf4\x90\x80\x80\xff"), "\\xf4\\x90\\x80\\x80\\xff");  // beyond U+10FFFF
}

TEST(Excerpt, IsBounded) {
  EXPECT_EQ(support::Excerpt("a\n"), "a\\x0a");
  const std::string long_text(5 << 20, 'x');
  EXPECT_EQ(support::Excerpt(long_text), std::string(240, 'x') + "… (5242640 bytes more)");
  EXPECT_EQ(support::Excerpt(std::string(239, 'x') + "ääx"), std::string(239, 'x') + "… (5 bytes more)");
}

}  // namespace
}  // namespace intact::verify
