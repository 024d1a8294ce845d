// Numbers with a noun.
#ifndef INTACT_SUPPORT_COUNTED_H_
#define INTACT_SUPPORT_COUNTED_H_

#include <fmt/format.h>

#include <concepts>
#include <string>
#include <string_view>

namespace intact::support {

/// "1 layer", "2 layers", "0 layers". `noun`: in the singular; its plural ends with "s".
std::string Counted(std::integral auto number, std::string_view noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

}  // namespace intact::support
#endif  // INTACT_SUPPORT_COUNTED_H_
