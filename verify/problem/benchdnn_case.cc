// Reads commands of benchdnn: options, descriptors and batch files.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "support/printable.h"
#include "verify/problem/benchdnn.h"
#include "verify/problem/line.h"

namespace intact::verify {
namespace {

constexpr size_t kMaxCombinations = 100'000;  // of the values of options, for one descriptor
constexpr size_t kMaxCases = 1'000'000;
constexpr int kMaxBatchDepth = 16;

constexpr std::array<std::string_view, 3> kDrivers = {"matmul", "conv", "deconv"};

// Options that change what is computed. Each value is a list, separated by commas. The second word is the default,
// if it may be spelled out.
constexpr std::array<std::pair<std::string_view, std::string_view>, 23> kOptions = {{
    {"dt", "f32"},
    {"stag", "any"},
    {"wtag", "any"},
    {"dtag", "any"},
    {"strides", "::"},
    {"bia-dt", "undef"},
    {"bia_mask", "2"},
    {"dir", "FWD_B"},
    {"mb", "0"},
    {"cfg", ""},
    {"match", ""},
    {"start", "0"},
    {"encoding", ""},
    {"grouped", ""},
    {"attr-scales", ""},
    {"attr-zero-points", ""},
    {"attr-post-ops", ""},
    {"attr-dropout", ""},
    {"attr-rounding-mode", ""},
    {"attr-precomputed-reductions", ""},
    {"attr-fpmath", "strict"},
    {"attr-acc-mode", "strict"},
    {"bia_dt", "undef"},  // an older name of bia-dt
}};

// Options that change how a problem is run, checked or reported.
constexpr std::array<std::string_view, 32> kIgnored = {"runtime_dims_masks",
                                                       "alg",
                                                       "skip-impl",
                                                       "impl",
                                                       "mode",
                                                       "mode-modifier",
                                                       "attr-scratchpad",
                                                       "attr-deterministic",
                                                       "engine",
                                                       "allow-enum-tags-only",
                                                       "perf-template",
                                                       "cpu-isa-hints",
                                                       "ctx-init",
                                                       "ctx-exe",
                                                       "fast-ref",
                                                       "memory-kind",
                                                       "stream-kind",
                                                       "mem-check",
                                                       "canonical",
                                                       "repeats-per-prb",
                                                       "summary",
                                                       "verbose",
                                                       "execution-mode",
                                                       "attr-same-pd-check",
                                                       "check-ref-impl",
                                                       "cold-cache",
                                                       "fix-times-per-prb",
                                                       "max-ms-per-prb",
                                                       "num-streams",
                                                       "buffer-prefix",
                                                       "global-impl",
                                                       "global-skip-impl"};

// The words of a batch file. "#" at the beginning of a word begins a comment. A word that ends with "\" continues
// in the next word.
std::vector<std::string> WordsOfBatch(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  bool continues = false;
  for (std::string word; stream >> word;) {
    if (word.front() == '#') {
      std::getline(stream, word);
      continue;
    }
    if (word == "\\") {  // after a space: the next word continues the last one
      continues = true;
      continue;
    }
    if (continues && !words.empty()) {
      word = words.back() + word;
      words.pop_back();
    }
    continues = word.back() == '\\';
    if (continues) word.pop_back();
    words.push_back(word);
  }
  return words;
}

// benchdnn's state: options hold for all descriptors that follow.
class Reader {
 public:
  Error ReadWords(const std::vector<std::string>& words, int depth) {
    for (const std::string& word : words) RETURN_IF_ERROR(ReadWord(word, depth));
    return {};
  }
  std::vector<BenchdnnCase> TakeCases() { return std::move(cases_); }

 private:
  Error ReadWord(const std::string& word, int depth) {
    if (word.starts_with("--batch=")) return ReadBatch(word.substr(word.find('=') + 1), depth);
    if (word == "--reset") {
      options_.clear();
      return {};
    }
    if (word.starts_with("--")) return ReadOption(word);
    if (word.starts_with("-v")) return {};
    if (word.starts_with("-"))
      return Invalid(fmt::format("'{}': expected an option with --", support::Excerpt(word)));
    return AddCases(word);
  }

  Error ReadOption(const std::string& word) {
    const size_t equals = word.find('=');
    std::string name = word.substr(2, std::min(equals, word.size()) - 2);
    if (equals == std::string::npos) {
      if (std::ranges::find(kDrivers, name) == kDrivers.end()) {
        return Invalid(fmt::format("'{}': expected --matmul, --conv or --deconv, or an option with a value",
                                   support::Excerpt(word)));
      }
      driver_ = name;
      return {};
    }
    if (std::ranges::find(kIgnored, name) != kIgnored.end()) return {};
    const auto* const option =
        std::ranges::find(kOptions, std::string_view(name), [](const auto& row) { return row.first; });
    if (option == kOptions.end()) {
      return Invalid(
          fmt::format("'{}': option --{} is unknown", support::Excerpt(word), support::Excerpt(name)));
    }
    if (name == "bia_dt") name = "bia-dt";
    std::vector<std::string>& values = options_[name];
    values.clear();
    for (const std::string_view value : SplitAt(',', std::string_view(word).substr(equals + 1))) {
      values.emplace_back(value == option->second ? "" : value);
    }
    return {};
  }

  // Adds a case for each combination of the options' values.
  Error AddCases(const std::string& descriptor) {
    if (driver_.empty()) {
      return Invalid(
          fmt::format("'{}': expected --matmul, --conv or --deconv before it", support::Excerpt(descriptor)));
    }
    std::vector<BenchdnnCase> cases = {{driver_, {}, descriptor}};
    for (const auto& [name, values] : options_) {
      if (cases.size() * values.size() > kMaxCombinations) {
        return Invalid(fmt::format("'{}': the options have more than {} combinations",
                                   support::Excerpt(descriptor), kMaxCombinations));
      }
      std::vector<BenchdnnCase> longer;
      for (const BenchdnnCase& one : cases) {
        for (const std::string& value : values) {
          longer.push_back(one);
          if (!value.empty()) longer.back().options.insert({name, value});
        }
      }
      cases = std::move(longer);
    }
    if (cases_.size() + cases.size() > kMaxCases) {
      return Invalid(
          fmt::format("'{}': the lines have more than {} problems", support::Excerpt(descriptor), kMaxCases));
    }
    std::set<std::string> seen;
    for (BenchdnnCase& one : cases) {
      if (one.Option("bia-dt").empty()) one.options.erase("bia_mask");
      if (seen.insert(one.ToString()).second) cases_.push_back(std::move(one));
    }
    return {};
  }

  Error ReadBatch(const std::string& name, int depth) {
    if (depth == kMaxBatchDepth) {
      return Invalid(fmt::format("--batch={}: batch files are nested more than {} deep",
                                 support::Excerpt(name), kMaxBatchDepth));
    }
    std::vector<std::filesystem::path> paths = {name};
    for (const std::filesystem::path& folder : folders_) paths.push_back(folder / name);
    for (const std::filesystem::path& path : paths) {
      std::error_code error;
      if (!std::filesystem::is_regular_file(path, error)) continue;
      std::ifstream file(path);
      if (!file) continue;
      const std::filesystem::path folder = path.parent_path();
      if (std::ranges::find(folders_, folder) == folders_.end()) folders_.push_back(folder);
      return ReadWords(WordsOfBatch({std::istreambuf_iterator<char>(file), {}}), depth + 1);
    }
    return Invalid(
        fmt::format("--batch={}: no such file, also not beside earlier batch files", support::Excerpt(name)));
  }

  std::string driver_;
  std::map<std::string, std::vector<std::string>> options_;
  std::vector<std::filesystem::path> folders_;
  std::vector<BenchdnnCase> cases_;
};

}  // namespace

std::string_view BenchdnnCase::Option(std::string_view name) const {
  const auto found = options.find(name);
  return found == options.end() ? std::string_view() : found->second;
}

std::string BenchdnnCase::ToString() const {
  std::string line = "--" + driver;
  for (const auto& [name, value] : options) line += fmt::format(" --{}={}", name, value);
  return line + " " + descriptor;
}

Result<std::vector<BenchdnnCase>> ReadBenchdnn(std::string_view command) {
  const std::vector<std::string_view> views = WordsOf(command);
  std::vector<std::string> words(views.begin(), views.end());
  if (!words.empty() && std::filesystem::path(words[0]).filename() == "benchdnn") words.erase(words.begin());
  Reader reader;
  RETURN_IF_ERROR(reader.ReadWords(words, 0));
  std::vector<BenchdnnCase> cases = reader.TakeCases();
  if (cases.empty()) return Invalid("the line has no problem such as 128x768:768x64 or ic64ih56oc64kh3ph1");
  return cases;
}

}  // namespace intact::verify
