// Reads NumPy's .npy files.
//
// Format versions 1.0 and 2.0 are read, with little-endian u1, i1, i4, f4 or f2 elements, in C or Fortran
// order:
//
//   "\x93NUMPY" major minor | header length (u16 in 1.0, u32 in 2.0) | header, a Python dict | elements
//
// Files come from outside, so everything in them is checked. A header cannot ask for more memory than the
// file has bytes.
#ifndef INTACT_SUPPORT_NPY_H_
#define INTACT_SUPPORT_NPY_H_

#include <intact/intact.h>

#include <cstdint>
#include <cstring>
#include <intact/intact.hpp>
#include <string>
#include <vector>

namespace intact::support {

struct NpyArray {
  intact_type type = INTACT_U8;
  std::vector<int64_t> shape;  // each ≥ 1
  std::vector<uint8_t> bytes;  // the elements, row-major

  /// The elements as T, which must match `type`.
  template <class T>
  std::vector<T> Values() const {
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    return values;
  }
};

/// "(160, 512)", as NumPy prints it.
std::string ShapeString(const std::vector<int64_t>& shape);

/// Errors are one line that names the file, what was wrong and what was expected.
Result<NpyArray> ReadNpy(const std::string& path);

/// The bytes of a regular file, or of a pipe until its end.
Result<std::vector<uint8_t>> ReadFile(const std::string& path);

}  // namespace intact::support
#endif  // INTACT_SUPPORT_NPY_H_
