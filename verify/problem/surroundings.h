// Where a tensor of a run lies in memory, and what is around it. None of it may make a difference.
#ifndef INTACT_VERIFY_PROBLEM_SURROUNDINGS_H_
#define INTACT_VERIFY_PROBLEM_SURROUNDINGS_H_

#include <cstddef>
#include <cstdint>

namespace intact::verify {

struct Surroundings {
  // What memory holds that nobody has written yet: the output, what lies between rows, before and behind a
  // tensor.
  uint8_t canary = 0xa5;
  // Bytes between the end of a tensor and the page that cannot be touched: 0 finds every access beyond,
  // others move the tensor's alignment.
  size_t shift = 0;
  // The tensor begins right behind a page that cannot be touched, which finds every access before it, and
  // ends wherever it does.
  bool is_behind_a_page = false;
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_SURROUNDINGS_H_
