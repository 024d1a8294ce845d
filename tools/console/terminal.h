// The one place that prints for people. What is printed is made to fit where it goes:
//
//   characters   those of the locale (LC_ALL, LC_CTYPE, LANG): UTF-8, or else ASCII that stands for it, such
//                as "x" for "×"
//   lines        at most as long as the terminal is wide (COLUMNS, else what the terminal says); a longer one
//                is broken between words and goes on indented. Without COLUMNS, a file takes lines of any
//                length
//
// Nothing here throws because of the stream: it may be closed or full, which std::ferror() tells afterwards.
#ifndef INTACT_TOOLS_CONSOLE_TERMINAL_H_
#define INTACT_TOOLS_CONSOLE_TERMINAL_H_

#include <fmt/format.h>

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace intact::tools {

/// `text` with the punctuation and symbols of this project's texts in ASCII. What users bring, such as names
/// of files, stays as it is.
std::string ToAscii(std::string_view text);

/// `text` with lines of at most `width` characters.
std::string Wrap(std::string_view text, size_t width);

/// Writes `text`, made to fit, to `stream`.
void Write(std::FILE* stream, std::string_view text);

/// On standard output.
template <class... Args>
void Print(fmt::format_string<Args...> format, Args&&... args) {
  Write(stdout, fmt::format(format, std::forward<Args>(args)...));
}

/// On standard error.
template <class... Args>
void PrintError(fmt::format_string<Args...> format, Args&&... args) {
  Write(stderr, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace intact::tools
#endif  // INTACT_TOOLS_CONSOLE_TERMINAL_H_
