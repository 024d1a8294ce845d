// Where a tensor lies in memory during a run, and what surrounds it. None of it may change the output.
#ifndef INTACT_VERIFY_PROBLEM_SURROUNDINGS_H_
#define INTACT_VERIFY_PROBLEM_SURROUNDINGS_H_

#include <cstddef>
#include <cstdint>

namespace intact::verify {

struct Surroundings {
  // The byte in memory that nobody has written: the output, gaps between rows, memory before and behind a
  // tensor.
  uint8_t canary = 0xa5;
  // Bytes between the end of a tensor and the inaccessible page behind it. 0 finds every access beyond the
  // end; others change the tensor's alignment.
  size_t shift = 0;
  // The tensor begins right behind an inaccessible page, which finds every access before it. Its end is not
  // aligned to a page.
  bool is_behind_a_page = false;
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_SURROUNDINGS_H_
