// Values and words in C syntax, for files that the verifier writes.
#ifndef INTACT_SUPPORT_C_TEXT_H_
#define INTACT_SUPPORT_C_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace intact::support::c {

/// A string literal, with its quotes, of any bytes.
std::string String(std::string_view text);

/// `text` for a comment: one line that does not end the comment.
std::string Comment(std::string_view text);

/// A constant of exactly this value. A NaN keeps its bits, if gcc or clang compiles the constant.
std::string Literal(float value);
std::string Literal(int64_t value);

}  // namespace intact::support::c
#endif  // INTACT_SUPPORT_C_TEXT_H_
