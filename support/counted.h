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

/// "all 2 outputs", "the only output".
std::string AllOf(std::integral auto number, std::string_view noun) {
  return number == 1 ? fmt::format("the only {}", noun) : "all " + Counted(number, noun);
}

/// "2 of 3 outputs differ", "1 of 3 outputs differs", "0 of 1 output differs". `is`, `are`: the verb in the singular and in the plural.
std::string PartOf(std::integral auto part, std::integral auto whole, std::string_view noun,
                   std::string_view is = "is", std::string_view are = "are") {
  return fmt::format("{} of {} {}", part, Counted(whole, noun), part == 1 || whole == 1 ? is : are);
}

}  // namespace intact::support
#endif  // INTACT_SUPPORT_COUNTED_H_
