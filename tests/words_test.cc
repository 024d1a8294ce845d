// Words that docs/glossary.md replaced do not come back, nor do phrases that CONTRIBUTING.md asks not to use.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace intact::tests {
namespace {

namespace fs = std::filesystem;

struct Retired {
  std::string_view word;
  std::string_view instead;
  std::string_view allowed_before = "";  // what may follow the word
};

// Parts of identifiers are words too: "triple" is found in kTriple and triple_model.
constexpr Retired kRetired[] = {
    {"triple", "maddubs sequence", " loop"},
    {"own_b", "runtime B"},
    {"ownb", "runtimeb"},
    {"given_b", "runtime B"},
    {"b_from_run", "runtime_b"},
    {"adecl", "arange"},
    {"declared range", "activation range"},
    {"skipping_initial", "skipping_compensation"},
    {"thin", "narrow, or small M"},
    {"told", "described, or reported"},
    {"tells", "describes, or reports"},
    {"of which", "a noun"},
    {"those that", "a noun"},
    {"likewise", "what is alike"},
    {"but for", "except"},
    {"as many", "a number"},
};

bool IsLetter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool IsLower(char c) { return std::islower(static_cast<unsigned char>(c)) != 0; }

std::string InLowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

// Where `phrase` ends that begins at text[at]: a space in it stands for any space, line break or mark of a comment. npos if
// another text begins there.
size_t EndOf(std::string_view phrase, std::string_view text, size_t at) {
  constexpr std::string_view kSpace = " \t\n/*#";
  for (const char c : phrase) {
    if (c != ' ') {
      if (at == text.size() || text[at++] != c) return std::string_view::npos;
      continue;
    }
    const size_t next = std::min(text.find_first_not_of(kSpace, at), text.size());
    if (next == at) return std::string_view::npos;
    at = next;
  }
  return at;
}

// Whether text[begin, end) is a word, or a part of an identifier in snake_case or CamelCase.
bool IsWord(std::string_view text, size_t begin, size_t end) {
  const bool begins =
      begin == 0 || !IsLetter(text[begin - 1]) || (!IsLower(text[begin]) && IsLower(text[begin - 1]));
  const bool is_plural =
      end < text.size() && text[end] == 's' && (end + 1 == text.size() || !IsLower(text[end + 1]));
  return begins && (end == text.size() || !IsLower(text[end]) || is_plural);
}

// Each as "LINE: 'WORD'; expected: INSTEAD".
std::vector<std::string> RetiredWordsIn(std::string_view text) {
  std::vector<std::string> found;
  const std::string lower = InLowerCase(text);
  for (const Retired& retired : kRetired) {
    const std::string_view first = retired.word.substr(0, retired.word.find(' '));
    for (size_t at = lower.find(first); at != std::string::npos; at = lower.find(first, at + 1)) {
      const size_t end = EndOf(retired.word, lower, at);
      if (end == std::string::npos || !IsWord(text, at, end)) continue;
      if (!retired.allowed_before.empty() && lower.substr(end).starts_with(retired.allowed_before)) continue;
      const auto line = 1 + std::count(lower.begin(), lower.begin() + static_cast<std::ptrdiff_t>(at), '\n');
      found.push_back(std::to_string(line) + ": '" + std::string(retired.word) +
                      "'; expected: " + std::string(retired.instead));
    }
  }
  return found;
}

bool IsText(const fs::path& path) {
  constexpr std::array<std::string_view, 9> kEndings = {".h",  ".hpp", ".cc",   ".c",    ".py",
                                                        ".md", ".sh",  ".json", ".cmake"};
  const std::string ending = path.extension().string();
  return std::find(kEndings.begin(), kEndings.end(), ending) != kEndings.end() ||
         path.filename() == "CMakeLists.txt";
}

TEST(Words, RetiredOnesStayAway) {
  const fs::path root = INTACT_SOURCE_DIR;
  std::vector<fs::path> files = {root / "README.md", root / "CONTRIBUTING.md", root / "CHANGELOG.md"};
  for (const std::string_view folder :
       {"core", "jit", "kernels", "include", "reference", "verify", "support", "emulator", "tools", "bench",
        "fuzz", "peers", "examples", "python", "integrations", "docs", "tests"}) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder)) {
      if (entry.is_regular_file() && IsText(entry.path())) files.push_back(entry.path());
    }
  }
  EXPECT_GT(files.size(), 500u);
  for (const fs::path& path : files) {
    // What others reported is quoted.
    if (path.filename() == "words_test.cc" || path.filename() == "regressions.json") continue;
    std::ifstream file(path);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    EXPECT_THAT(RetiredWordsIn(text), testing::IsEmpty()) << path;
  }
}

TEST(Words, AreFoundInIdentifiersAndInSentences) {
  for (const std::string_view text :
       {"kTriple", "the triples", "has_own_b", "TripleOf(x)", "A thin layer", "Told by", "the sums of which",
        "// the sums of\n// which", "fill=adecl"}) {
    EXPECT_THAT(RetiredWordsIn(text), testing::SizeIs(1)) << text;
  }
  for (const std::string_view text :
       {"a triple loop", "within", "nothing", "thinner", "maddubs", "foretold"}) {
    EXPECT_THAT(RetiredWordsIn(text), testing::IsEmpty()) << text;
  }
}

TEST(Glossary, HasAtMostFortyTermsInOrder) {
  std::ifstream file(fs::path(INTACT_SOURCE_DIR) / "docs/glossary.md");
  std::vector<std::string> terms;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("| ")) terms.push_back(InLowerCase(line.substr(2, line.find(" |", 2) - 2)));
  }
  ASSERT_GT(terms.size(), 1u);
  EXPECT_EQ(terms.front(), "term");
  terms.erase(terms.begin());
  EXPECT_LE(terms.size(), 40u);
  EXPECT_THAT(terms, testing::WhenSorted(testing::ElementsAreArray(terms)));
}

}  // namespace
}  // namespace intact::tests
