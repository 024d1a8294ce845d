// .npy files as text, for tests that need one.
#ifndef INTACT_TESTS_SUPPORT_NPY_TEXT_H_
#define INTACT_TESTS_SUPPORT_NPY_TEXT_H_

#include <fmt/format.h>

#include <string>

namespace intact::tests {

inline std::string Npy(std::string header, const std::string& elements, char major = 1) {
  header += '\n';
  std::string file = "\x93NUMPY";
  file += {major, '\0', static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)};
  if (major == 2) file += {'\0', '\0'};
  return file + header + elements;
}

inline std::string Dict(const std::string& descr, const std::string& shape,
                        const std::string& order = "False") {
  return fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}   ", descr, order, shape);
}

}  // namespace intact::tests
#endif  // INTACT_TESTS_SUPPORT_NPY_TEXT_H_
