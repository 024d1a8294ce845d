// How many problems a sweep has.
#ifndef INTACT_VERIFY_SWEEP_EFFORT_H_
#define INTACT_VERIFY_SWEEP_EFFORT_H_

#include <cstdint>

namespace intact::verify {

enum class Effort : uint8_t {
  kQuick,     // a fifth of the standard; every tail that a block may leave
  kStandard,  // some five thousand problems per ISA and mode
  kThorough,  // four times kStandard, with other seeds
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_SWEEP_EFFORT_H_
