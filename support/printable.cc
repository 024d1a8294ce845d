#include "support/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace intact::support {
namespace {

// The length in bytes of the first character of `text`; 0 if it is a control character or no UTF-8 (RFC 3629,
// section 4).
size_t LengthOfCharacter(std::string_view text) {
  const auto byte = [&](size_t i) -> uint32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return lead >= ' ' && lead != 0x7f ? 1 : 0;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  const size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  uint32_t character = lead & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    character = character << 6 | (byte(i) & 0x3f);
  }
  constexpr std::array<uint32_t, 3> kLeast = {0xa0, 0x800, 0x10000};  // U+0080 to U+009F are controls
  const bool is_surrogate = character >= 0xd800 && character < 0xe000;
  return character >= kLeast.at(length - 2) && character <= 0x10ffff && !is_surrogate ? length : 0;
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string printable;
  while (!text.empty()) {
    const size_t length = LengthOfCharacter(text);
    if (length > 0) {
      printable += text.substr(0, length);
    } else {
      printable += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    }
    text.remove_prefix(length > 0 ? length : 1);
  }
  return printable;
}

std::string Excerpt(std::string_view text) {
  constexpr size_t kMost = 240;
  if (text.size() <= kMost) return Printable(text);
  size_t length = 0;
  for (size_t next = 0; next <= kMost; next += std::max<size_t>(LengthOfCharacter(text.substr(next)), 1))
    length = next;
  return fmt::format("{}… ({} bytes more)", Printable(text.substr(0, length)), text.size() - length);
}

}  // namespace intact::support
