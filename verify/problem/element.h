// Whether two output elements have the same bytes.
#ifndef INTACT_VERIFY_PROBLEM_ELEMENT_H_
#define INTACT_VERIFY_PROBLEM_ELEMENT_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace intact::verify {

template <class Bits>
bool AreSameBits(const uint8_t* x, const uint8_t* y) noexcept {
  Bits of_x = 0, of_y = 0;
  std::memcpy(&of_x, x, sizeof of_x);
  std::memcpy(&of_y, y, sizeof of_y);
  return of_x == of_y;
}

/// `size` is 1, 2 or 4 bytes. This function is called so often that memcmp() would be too slow.
inline bool IsSameElement(size_t size, const uint8_t* x, const uint8_t* y) noexcept {
  if (size == 1) return *x == *y;
  return size == 2 ? AreSameBits<uint16_t>(x, y) : AreSameBits<uint32_t>(x, y);
}

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_ELEMENT_H_
