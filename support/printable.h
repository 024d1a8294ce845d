// Text that users bring, made fit for a message: one line, and nothing that a terminal obeys.
#ifndef INTACT_SUPPORT_PRINTABLE_H_
#define INTACT_SUPPORT_PRINTABLE_H_

#include <string>
#include <string_view>

namespace intact::support {

/// `text` with the bytes of control characters, and those that are not UTF-8, written as \x1b.
std::string Printable(std::string_view text);

/// The same of text of any length in a message: its first 240 bytes, then "…" and how many more there are.
std::string Excerpt(std::string_view text);

}  // namespace intact::support
#endif  // INTACT_SUPPORT_PRINTABLE_H_
