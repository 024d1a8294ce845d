// What problem lines are made of: words, numbers and the names of values.
#ifndef INTACT_VERIFY_PROBLEM_LINE_H_
#define INTACT_VERIFY_PROBLEM_LINE_H_

#include <fmt/format.h>
#include <intact/intact.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/isas.h"
#include "core/names.h"
#include "core/result.h"
#include "core/types.h"

namespace intact::verify {

using intact::Name;
using intact::NameOf;

/// The names of `types`.
template <size_t kCount>
constexpr std::array<Name<intact_type>, kCount> NamesOf(const std::array<intact_type, kCount>& types) {
  std::array<Name<intact_type>, kCount> names = {};
  for (size_t i = 0; i < kCount; ++i) names[i] = {core::NameOf(types[i]), types[i]};
  return names;
}

inline constexpr Name<bool> kNoYes[] = {{"no", false}, {"yes", true}};
inline constexpr auto kWeightTypes = NamesOf(core::kGroupedWeightTypes);
inline constexpr Name<intact_activation> kActivations[] = {
    {"none", INTACT_ACTIVATION_NONE}, {"relu", INTACT_ACTIVATION_RELU}, {"clamp", INTACT_ACTIVATION_CLAMP}};

/// The library's names of ISAs.
inline const std::vector<Name<intact_isa>>& Isas() {
  static const std::vector<Name<intact_isa>> kIsas = [] {
    std::vector<Name<intact_isa>> names = {{"any", INTACT_ISA_ANY}};
    for (const intact_isa isa : core::kIsaLadder) names.push_back({intact_isa_name(isa), isa});
    return names;
  }();
  return kIsas;
}

inline Error Invalid(std::string message) { return Error{INTACT_INVALID_ARGUMENT, std::move(message)}; }

inline constexpr int64_t kMaxDimension = int64_t{1} << 24;  // of m, n, k, extents and the sizes of tensors
inline constexpr int64_t kMaxExtent = int64_t{1} << 16;  // of kernels, strides, dilations, pads and batches

inline std::optional<Error> CheckRange(std::string_view key, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return std::nullopt;
  return Invalid(fmt::format("{}: {} is out of range; expected {} to {}", key, value, low, high));
}

/// Errors list the known names.
template <class Names, class E = decltype(std::begin(std::declval<const Names&>())->value)>
Result<E> ValueOf(const Names& names, std::string_view key, std::string_view text) {
  std::string known;
  for (const Name<E>& name : names) {
    if (name.text == text) return name.value;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", name.text);
  }
  return Invalid(fmt::format("{}: '{}' is unknown; expected one of {}", key, text, known));
}

inline Result<int64_t> NumberOf(std::string_view key, std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return Invalid(fmt::format("{}: '{}' is not an integer that fits 64 bits", key, text));
  }
  return value;
}

inline std::vector<std::string_view> WordsOf(std::string_view line) {
  constexpr std::string_view kSpace = " \t\r\n";
  std::vector<std::string_view> words;
  for (;;) {
    const size_t begin = line.find_first_not_of(kSpace);
    if (begin == std::string_view::npos) return words;
    line.remove_prefix(begin);
    const size_t end = std::min(line.find_first_of(kSpace), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

/// The parts of `text` between separators; one part, which may be empty, if there is no separator.
inline std::vector<std::string_view> SplitAt(char separator, std::string_view text) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_LINE_H_
