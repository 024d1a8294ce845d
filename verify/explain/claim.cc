#include "verify/explain/claim.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "reference/models/arithmetic.h"
#include "verify/targets/fit.h"

namespace intact::verify {
namespace {

constexpr std::string_view kBlanks = " \t";

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// The trimmed parts between characters of `by`.
std::vector<std::string_view> Split(std::string_view text, std::string_view by) {
  std::vector<std::string_view> parts;
  for (size_t end = 0; end != std::string_view::npos;) {
    end = text.find_first_of(by);
    parts.push_back(Trimmed(text.substr(0, end)));
    if (end != std::string_view::npos) text.remove_prefix(end + 1);
  }
  return parts;
}

std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words = Split(text, kBlanks);
  std::erase(words, std::string_view());
  return words;
}

struct Claim {
  std::string_view of;  // operations; "": all
  std::string_view words;
};

std::vector<Claim> ClaimsIn(std::string_view text) {
  std::vector<Claim> claims;
  for (const std::string_view part : Split(text, "|")) {
    const size_t colon = part.find(':');
    const bool is_of_all = colon == std::string_view::npos;
    claims.push_back(is_of_all ? Claim{{}, part}
                               : Claim{Trimmed(part.substr(0, colon)), Trimmed(part.substr(colon + 1))});
  }
  return claims;
}

constexpr std::string_view kGrouped = "grouped";
constexpr std::array<std::string_view, 5> kOperations = {"gemm", "conv", "depthwise", "deconvolution",
                                                         kGrouped};

bool IsOperation(std::string_view word) { return std::ranges::find(kOperations, word) != kOperations.end(); }

// "u8s8" or "u8s8s32"
bool AreTypes(std::string_view word) {
  const auto are = [](const std::string& all) {
    const Result<Types> types = ParseTypes(all);
    return types && ToString(*types) == all;
  };
  return are(std::string(word)) || are(fmt::format("{}s32", word));
}

bool IsGrouped(const OperationKind& kind) { return kind.shape == OperationKind::Shape::kGrouped; }

// Whether each of the claim's words fits the operation, such as "gemm u8s8s32".
bool IsOf(const Claim& claim, const OperationKind& kind) {
  const std::string types = ToString(Types{kind.a_type, kind.b_type, kind.c_type});
  const bool has_types = !IsGrouped(kind);
  return std::ranges::all_of(Words(claim.of), [&](std::string_view word) {
    return word == NameOf(kind) || (has_types && AreTypes(word) && types.starts_with(word));
  });
}

}  // namespace

std::string ClaimOf(std::string_view claims, const OperationKind& kind) {
  for (const Claim& claim : ClaimsIn(claims)) {
    if (!IsOf(claim, kind)) continue;
    return IsGrouped(kind) && claim.words != "any" ? "exact" : std::string(claim.words);
  }
  return "exact";
}

std::optional<std::string> CheckClaims(std::string_view claims) {
  const std::vector<Claim> all = ClaimsIn(claims);
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& [of, words] = all[i];
    if (words != "exact" && words != "any" && !reference::ParseArithmetic(words)) {
      return fmt::format(R"(claims "{}"; expected "exact", "any" or words of `intact verify models`)", words);
    }
    const std::vector<std::string_view> of_words = Words(of);
    if (of_words.size() > 1 && std::ranges::find(of_words, kGrouped) != of_words.end()) {
      return fmt::format(R"(claims something of "{}"; expected "grouped" alone: it takes no types)", of);
    }
    if (of == kGrouped && words != "exact" && words != "any") {
      return fmt::format(R"(claims "{}" of grouped weights; expected "exact" or "any")", words);
    }
    if (of.empty() != (i + 1 == all.size())) {
      return fmt::format(R"(claims "{}"; expected operations and ":" before each claim but the last)",
                         claims);
    }
    if (of.empty()) continue;
    for (const std::string_view word : of_words) {
      if (IsOperation(word) || AreTypes(word)) continue;
      return fmt::format(R"(claims something of "{}"; expected one of {}, or types, as "u8s8" or "u8s8s32")",
                         word, fmt::join(kOperations, ", "));
    }
  }
  return std::nullopt;
}

}  // namespace intact::verify
