#include "support/c_text.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "support/printable.h"

namespace intact::support::c {

std::string String(std::string_view text) {
  std::string literal = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < ' ' || byte >= 0x7f) {
      literal += fmt::format("\\{:03o}", byte);  // three digits, so that the next character is not part of it
    } else {
      if (c == '"' || c == '\\' || c == '?') literal += '\\';  // "??/" would be a trigraph
      literal += c;
    }
  }
  return literal + '"';
}

std::string Comment(std::string_view text) {
  std::string comment;
  for (const char c : Printable(text)) {
    const bool meets = !comment.empty() && ((c == '/' && comment.back() == '*') ||  // the end
                                            (c == '*' && comment.back() == '/'));   // a warning
    if (meets) comment += ' ';
    comment += c;
  }
  return comment;
}

std::string Literal(float value) {
  if (std::isfinite(value)) return fmt::format("{:a}f", value);
  const char* sign = std::signbit(value) ? "-" : "";
  if (std::isinf(value)) return fmt::format("{}__builtin_inff()", sign);
  constexpr uint32_t kQuiet = 0x400000, kPayload = kQuiet - 1;
  const auto bits = std::bit_cast<uint32_t>(value);
  return fmt::format("{}__builtin_nan{}f(\"{:#x}\")", sign, (bits & kQuiet) != 0 ? "" : "s", bits & kPayload);
}

std::string Literal(int64_t value) { return fmt::format("{}", value); }

}  // namespace intact::support::c
