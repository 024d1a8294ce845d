// Makes text from users fit for a message: one line, without terminal control codes.
#ifndef INTACT_SUPPORT_PRINTABLE_H_
#define INTACT_SUPPORT_PRINTABLE_H_

#include <string>
#include <string_view>

namespace intact::support {

/// `text` with control characters, and bytes that are not UTF-8, written as \x1b.
std::string Printable(std::string_view text);

/// Printable text of limited length: the first 240 bytes, then "…" and the number of bytes left out.
std::string Excerpt(std::string_view text);

}  // namespace intact::support
#endif  // INTACT_SUPPORT_PRINTABLE_H_
