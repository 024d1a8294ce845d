#include "verify/claim.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "reference/arithmetic.h"
#include "verify/fit.h"

namespace intact::verify {
namespace {

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::vector<std::string_view> Split(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  for (size_t end = 0; end != std::string_view::npos;) {
    end = text.find(by);
    const std::string_view part = Trimmed(text.substr(0, end));
    parts.push_back(part);
    if (end != std::string_view::npos) text.remove_prefix(end + 1);
  }
  return parts;
}

struct Claim {
  std::string_view of;  // operations; "" of all
  std::string_view words;
};

std::vector<Claim> ClaimsIn(std::string_view text) {
  std::vector<Claim> claims;
  for (const std::string_view part : Split(text, '|')) {
    const size_t colon = part.find(':');
    const bool is_of_all = colon == std::string_view::npos;
    claims.push_back(is_of_all ? Claim{{}, part}
                               : Claim{Trimmed(part.substr(0, colon)), Trimmed(part.substr(colon + 1))});
  }
  return claims;
}

bool IsShape(std::string_view word) { return word == "gemm" || word == "conv" || word == "depthwise"; }

// "u8s8" or "u8s8s32"
bool AreTypes(std::string_view word) { return ParseTypes(word) || ParseTypes(fmt::format("{}s32", word)); }

// Whether each word is one of the operation's, "gemm u8s8s32".
bool IsOf(const Claim& claim, std::string_view operation) {
  const std::vector<std::string_view> its = Split(operation, ' ');
  if (claim.of.empty()) return true;
  return std::ranges::all_of(Split(claim.of, ' '), [&](std::string_view word) {
    return word == its.front() || (AreTypes(word) && its.back().starts_with(word));
  });
}

}  // namespace

std::string ClaimOf(std::string_view claims, const OperationKind& kind) {
  const std::string operation = ToString(kind);
  for (const Claim& claim : ClaimsIn(claims)) {
    if (IsOf(claim, operation)) return std::string(claim.words);
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
    if (of.empty() != (i + 1 == all.size())) {
      return fmt::format(R"(claims "{}"; expected operations and ":" before each claim but the last)",
                         claims);
    }
    if (of.empty()) continue;
    for (const std::string_view word : Split(of, ' ')) {
      if (IsShape(word) || AreTypes(word)) continue;
      return fmt::format(
          R"(claims something of "{}"; expected "gemm", "conv", "depthwise" or types, as "u8s8" or "u8s8s32")",
          word);
    }
  }
  return std::nullopt;
}

}  // namespace intact::verify
