// Values and words as C has them, in files that the verifier writes.
#ifndef INTACT_SUPPORT_C_TEXT_H_
#define INTACT_SUPPORT_C_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace intact::support::c {

/// A string literal, its quotes included, of any bytes.
std::string String(std::string_view text);

/// `text` as it can stand in a comment: one line that does not end it.
std::string Comment(std::string_view text);

/// A constant of exactly that value; of a NaN, with its bits, as gcc and clang take it.
std::string Literal(float value);
std::string Literal(int64_t value);

}  // namespace intact::support::c
#endif  // INTACT_SUPPORT_C_TEXT_H_
