// The one place that prints for people. It adapts the text to its destination:
//
//   characters   of the locale (LC_ALL, LC_CTYPE, LANG): UTF-8, or ASCII in its place, such as "x" for "×"
//   lines        at most as long as the terminal is wide (COLUMNS, else the terminal's own width). A longer
//                line is broken between words, and continues indented. Without COLUMNS, lines of a file may
//                have any length
//
// Nothing here throws if the stream is closed or full; std::ferror() reports that afterwards.
#ifndef INTACT_TOOLS_CONSOLE_TERMINAL_H_
#define INTACT_TOOLS_CONSOLE_TERMINAL_H_

#include <fmt/format.h>

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace intact::tools {

/// `text` with the punctuation and symbols of this project's texts in ASCII. Text from users, such as names
/// of files, does not change.
std::string ToAscii(std::string_view text);

/// `text` with lines of at most `width` characters.
std::string Wrap(std::string_view text, size_t width);

/// Writes `text`, adapted, to `stream`.
void Write(std::FILE* stream, std::string_view text);

/// Writes to standard output.
template <class... Args>
void Print(fmt::format_string<Args...> format, Args&&... args) {
  Write(stdout, fmt::format(format, std::forward<Args>(args)...));
}

/// Writes to standard error.
template <class... Args>
void PrintError(fmt::format_string<Args...> format, Args&&... args) {
  Write(stderr, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace intact::tools
#endif  // INTACT_TOOLS_CONSOLE_TERMINAL_H_
