#include "tools/console/terminal.h"

#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace intact::tools {
namespace {

constexpr size_t kLeastWidth = 20;  // no terminal is narrower; a smaller width is a mistake
constexpr size_t kHangingIndent = 4;

bool is_redrawn = false;  // whether standard error ends with a line of Redraw()

constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kInAscii = {{{"×", "x"},
                                                                                     {"·", "*"},
                                                                                     {"–", "-"},
                                                                                     {"−", "-"},
                                                                                     {"…", "..."},
                                                                                     {"→", "->"},
                                                                                     {"≤", "<="},
                                                                                     {"≥", ">="},
                                                                                     {"±", "+-"},
                                                                                     {"ᵀ", "^T"},
                                                                                     {"░", "-"},
                                                                                     {"▒", "+"},
                                                                                     {"▓", "%"},
                                                                                     {"█", "#"}}};

bool IsUtf8() { return std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0; }

/// The maximum width of lines on `stream`, if anything limits it.
size_t WidthOf(std::FILE* stream) {
  size_t width = 0;
  winsize size = {};
  const char* const columns = std::getenv("COLUMNS");
  if (columns != nullptr) std::from_chars(columns, columns + std::strlen(columns), width);
  if (width == 0 && ioctl(fileno(stream), TIOCGWINSZ, &size) == 0) width = size.ws_col;
  return width == 0 ? std::string_view::npos : std::max(width, kLeastWidth);
}

/// The number of bytes of the first `characters` characters of UTF-8 `text`.
size_t BytesOf(std::string_view text, size_t characters) {
  size_t bytes = 0;
  for (; bytes < text.size(); ++bytes) {
    const bool begins = (static_cast<unsigned char>(text[bytes]) & 0xc0) != 0x80;
    if (begins && characters-- == 0) break;
  }
  return bytes;
}

std::string WrapLine(std::string_view line, size_t width) {
  const size_t indent = std::min(line.find_first_not_of(' '), line.size());
  const std::string hanging(std::min(indent + kHangingIndent, width / 2), ' ');
  std::string wrapped;
  size_t begin = std::min(indent, width / 2);  // where the text that may be broken starts
  wrapped.append(begin, ' ');
  line.remove_prefix(indent);
  for (;;) {
    const size_t fits = BytesOf(line, width - begin);
    if (fits == line.size()) return wrapped.append(line);
    const size_t space = line.substr(0, fits + 1).find_last_of(' ');
    const size_t end = space == std::string_view::npos ? fits : space;
    const std::string_view part = line.substr(0, end);
    wrapped.append(part.substr(0, part.find_last_not_of(' ') + 1)).append("\n").append(hanging);
    line.remove_prefix(std::min(line.find_first_not_of(' ', end), line.size()));
    begin = hanging.size();
  }
}

}  // namespace

std::string ToAscii(std::string_view text) {
  std::string ascii;
  while (!text.empty()) {
    const auto* const known =
        std::ranges::find_if(kInAscii, [text](const auto& entry) { return text.starts_with(entry.first); });
    if (known == kInAscii.end()) {
      ascii += text.front();
      text.remove_prefix(1);
    } else {
      ascii += known->second;
      text.remove_prefix(known->first.size());
    }
  }
  return ascii;
}

std::string Wrap(std::string_view text, size_t width) {
  std::string wrapped;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    wrapped += WrapLine(text.substr(0, end), width);
    if (end < text.size()) wrapped += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return wrapped;
}

void EndRedrawnLine() {
  if (!std::exchange(is_redrawn, false)) return;
  (void)std::fputc('\n', stderr);
  (void)std::fflush(stderr);
}

void Redraw(std::string_view line) {
  is_redrawn = false;
  Write(stderr, fmt::format("\r{}", line));
  is_redrawn = true;
}

void Write(std::FILE* stream, std::string_view text) {
  EndRedrawnLine();
  const std::string fit = Wrap(IsUtf8() ? std::string(text) : ToAscii(text), WidthOf(stream));
  (void)std::fwrite(fit.data(), 1, fit.size(), stream);
}

}  // namespace intact::tools
