#include "verify/studies/pairs.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/in_child.h"

namespace intact::verify {
namespace {

// Only the worst weight: every activation pair, every partner.
TEST(PairMap, OneWeightByHand) {
  const PairMap map = MapPairs(127, 128, 1);
  EXPECT_EQ(map.inputs, 256 * 256 * 256);
  EXPECT_TRUE(map.Agrees());
  // Counts 127·a0 + w1·a1 > 32767 the slow way.
  ClampCount expected;
  for (int w1 = -128; w1 <= 127; ++w1) {
    for (int a0 = 0; a0 <= 255; ++a0) {
      for (int a1 = 0; a1 <= 255; ++a1) {
        expected.high += 127 * a0 + w1 * a1 > 32767;
        expected.low += 127 * a0 + w1 * a1 < -32768;
      }
    }
  }
  EXPECT_EQ(map.by_model.Within(255, 128), expected);
  EXPECT_EQ(map.by_model.Within(127, 128), ClampCount());
}

TEST(PairMap, ADisagreementIsNoticed) {
  PairMap map = MapPairs(0, 1, 1);
  EXPECT_TRUE(map.Agrees());
  map.instruction_available = true;
  map.by_instruction.At(200, 100).high += 1;
  EXPECT_FALSE(map.Agrees());
  map.by_instruction.At(200, 100).high -= 1;
  map.instruction_mismatches = 1;
  EXPECT_FALSE(map.Agrees());
}

// Only none, one or a few of the requested threads can be made.
TEST(PairMap, IsComputedOnTheThreadsThatThereAre) {
  for (const int most : {0, 2, 4}) {
    EXPECT_EQ(tests::InChild([most]() -> std::string {
                if (const std::string why = tests::LimitProcesses(most); !why.empty()) return why;
                const PairMap map = MapPairs(100, 103, 8);
                return map.Agrees() && map.inputs == 3 * 256 * 256 * 256 ? "" : "wrong";
              }),
              "")
        << most;
  }
}

#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)  // takes minutes otherwise
TEST(PairMap, AllInputs) {
  const PairMap map = MapAllPairs(2);
  EXPECT_EQ(map.inputs, int64_t{1} << 32);
  EXPECT_TRUE(map.Agrees());
  EXPECT_EQ(map.by_model.Within(255, 128), (ClampCount{74715870, 78847501}));
  EXPECT_EQ(map.by_model.Within(127, 128).Total(), 0);
  EXPECT_EQ(map.by_model.Within(128, 128).Total(), 0);
  EXPECT_EQ(map.by_model.Within(129, 128).Total(), 5);
  EXPECT_EQ(map.by_model.Within(255, 64).Total(), 0);
  EXPECT_GT(map.by_model.Within(255, 65).Total(), 0);
}
#endif

}  // namespace
}  // namespace intact::verify
