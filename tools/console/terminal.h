// The one place that prints for people. It adapts the text to its destination:
//
//   characters   UTF-8 if the locale has it (LC_ALL, LC_CTYPE, LANG); else ASCII, such as "x" for "×"
//   lines        at most as long as the terminal is wide (COLUMNS, else the terminal's own width). A longer
//                line is broken between words, and continues indented. If the output is no terminal and
//                COLUMNS is not set, lines may have any length
//
// Nothing here throws if the stream is closed or full; std::ferror() reports the failure afterwards.
#ifndef INTACT_TOOLS_CONSOLE_TERMINAL_H_
#define INTACT_TOOLS_CONSOLE_TERMINAL_H_

#include <fmt/format.h>

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace intact::tools {

/// `text` with ASCII for the symbols that this project's texts use, such as "×". Other characters, such as
/// letters in names of files, do not change.
std::string ToAscii(std::string_view text);

/// `text` with lines of at most `width` characters.
std::string Wrap(std::string_view text, size_t width);

/// Writes `text`, adapted, to `stream`. Ends a redrawn line first.
void Write(std::FILE* stream, std::string_view text);

/// Writes `line` to standard error, a terminal, over the line that the last call wrote.
void Redraw(std::string_view line);
/// Ends a redrawn line, if there is one.
void EndRedrawnLine();

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
