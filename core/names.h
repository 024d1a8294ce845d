// Tables of names: a value of an enumeration in each row.
#ifndef INTACT_CORE_NAMES_H_
#define INTACT_CORE_NAMES_H_

#include <algorithm>
#include <iterator>
#include <string_view>

namespace intact {

template <class E>
struct Name {
  std::string_view text;
  E value;
};

/// The name of `value` in `names`, a range of Name<E>; "unknown" if `value` has none.
template <class Names, class E>
constexpr std::string_view NameOf(const Names& names, E value) {
  const auto found = std::find_if(std::begin(names), std::end(names),
                                  [value](const Name<E>& name) { return name.value == value; });
  return found == std::end(names) ? std::string_view("unknown") : found->text;
}

}  // namespace intact
#endif  // INTACT_CORE_NAMES_H_
