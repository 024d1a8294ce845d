// The emulator in tests: an instruction that it executes wrongly fails the test.
#ifndef INTACT_TESTS_SUPPORT_CHECKED_EMULATOR_H_
#define INTACT_TESTS_SUPPORT_CHECKED_EMULATOR_H_

#include <gtest/gtest.h>

#include "emulator/emulator.h"

namespace intact::tests {

class CheckedEmulator {
 public:
  CheckedEmulator() = default;
  ~CheckedEmulator() {
    EXPECT_EQ(emulator::ScopedEmulator::TakeFault(), "") << "an emulated instruction faulted";
  }
  CheckedEmulator(const CheckedEmulator&) = delete;
  CheckedEmulator& operator=(const CheckedEmulator&) = delete;

 private:
  emulator::ScopedEmulator emulator_;
};

}  // namespace intact::tests
#endif  // INTACT_TESTS_SUPPORT_CHECKED_EMULATOR_H_
