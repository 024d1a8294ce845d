// The pages of this process that hold generated code.
#ifndef INTACT_TESTS_SUPPORT_CODE_PAGES_H_
#define INTACT_TESTS_SUPPORT_CODE_PAGES_H_

#include <fstream>
#include <string>

namespace intact::tests {

/// The lines of /proc/self/maps whose pages are both writable and executable.
inline std::string WritableCodePages() {
  std::ifstream maps("/proc/self/maps");
  std::string range, rights, line, found;
  while (maps >> range >> rights && std::getline(maps, line)) {
    const bool is_both = rights.find('w') != std::string::npos && rights.find('x') != std::string::npos;
    if (is_both) found.append(range).append(" ").append(rights).append(line).append("\n");
  }
  return found;
}

}  // namespace intact::tests
#endif  // INTACT_TESTS_SUPPORT_CODE_PAGES_H_
