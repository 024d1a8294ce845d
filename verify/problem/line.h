// What problem lines have in common: words, keys with their fields, and the names of values.
#ifndef INTACT_VERIFY_PROBLEM_LINE_H_
#define INTACT_VERIFY_PROBLEM_LINE_H_

#include <fmt/format.h>
#include <intact/target.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <functional>
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

/// A key of a line: how to print its field of a problem P, how to read it, and what a target needs to run it.
template <class P>
struct FieldOf {
  std::string_view key;
  std::function<std::string(const P&)> print;
  std::function<std::optional<Error>(std::string_view, P*)> read;
  bool required = false;
  // Bits of features. A target that lacks one of them runs problems in which the field has its default.
  uint64_t needs = 0;
  template <class... Features>
  FieldOf Needs(Features... features) const {
    FieldOf field = *this;
    field.needs = (INTACT_TARGET_BIT(features) | ...);
    return field;
  }
};

/// A field that is a number. `Of` is P or its base.
template <class P, class T, class Of>
FieldOf<P> NumberField(std::string_view key, T Of::*member) {
  return {key, [member](const P& p) { return fmt::format("{}", p.*member); },
          [key, member](std::string_view text, P* p) -> std::optional<Error> {
            ASSIGN_OR_RETURN(const int64_t value, NumberOf(key, text));
            if (!std::in_range<T>(value)) return Invalid(fmt::format("{}: {} is out of range", key, text));
            p->*member = static_cast<T>(value);
            return std::nullopt;
          }};
}

/// A field whose value has one of `names`, which stay in memory.
template <class P, class E, class Of, class Names>
FieldOf<P> ChoiceField(std::string_view key, E Of::*member, const Names& names) {
  return {key, [member, &names](const P& p) { return std::string(NameOf(names, p.*member)); },
          [key, member, &names](std::string_view text, P* p) -> std::optional<Error> {
            ASSIGN_OR_RETURN(p->*member, ValueOf(names, key, text));
            return std::nullopt;
          }};
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

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_LINE_H_
