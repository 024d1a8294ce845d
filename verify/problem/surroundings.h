// Where a tensor lies in memory during a run, and what surrounds it. Neither may change the output.
#ifndef INTACT_VERIFY_PROBLEM_SURROUNDINGS_H_
#define INTACT_VERIFY_PROBLEM_SURROUNDINGS_H_

#include <cstddef>
#include <cstdint>

namespace intact::verify {

struct Surroundings {
  // The value of bytes that nobody has written: in the output, between rows, before and behind a tensor.
  uint8_t canary = 0xa5;
  // Bytes between the end of a tensor and the inaccessible page behind it. 0 finds every access beyond the
  // end. Other values change the tensor's alignment.
  size_t shift = 0;
  // The tensor begins right behind an inaccessible page, so that every access before the tensor faults. The
  // tensor's end is not aligned to a page.
  bool is_behind_a_page = false;
  bool operator==(const Surroundings&) const = default;
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_SURROUNDINGS_H_
