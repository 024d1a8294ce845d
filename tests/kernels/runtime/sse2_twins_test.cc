// The twins of SSE2's operations for other CPUs have the results of the instructions.
#include <emmintrin.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>

#include "tests/support/sse2_results.h"

INTACT_SSE2_RESULTS(ResultsOfInstructions)

namespace intact::tests {
namespace {

TEST(Sse2Twins, AreTheInstructions) {
  std::mt19937_64 random(1);  // NOLINT(cert-msc51-cpp): a fixed seed
  constexpr std::array<uint8_t, 4> kExtreme = {0x00, 0x7f, 0x80, 0xff};
  constexpr std::array kNumbers = {0.5f,
                                   1.5f,
                                   -2.5f,
                                   2147483520.0f,
                                   2147483648.0f,
                                   -2147483648.0f,
                                   -3e9f,
                                   1e-40f,
                                   std::numeric_limits<float>::infinity(),
                                   std::numeric_limits<float>::quiet_NaN()};
  for (int i = 0; i < 20000; ++i) {
    std::array<Sse2Operand, 2> operands;
    for (Sse2Operand& operand : operands) {
      for (uint8_t& byte : operand) {
        const uint64_t bits = random();
        byte = i % 2 == 0 ? static_cast<uint8_t>(bits) : kExtreme[bits % kExtreme.size()];
      }
    }
    if (i % 3 == 0)
      std::memcpy(operands[0].data(), &kNumbers[static_cast<size_t>(i / 3) % kNumbers.size()], 4);
    const Sse2Results expected = ResultsOfInstructions(operands[0], operands[1]);
    const Sse2Results results = ResultsOfTwins(operands[0], operands[1]);
    ASSERT_EQ(results.size(), expected.size());
    for (size_t j = 0; j < results.size(); ++j) EXPECT_EQ(results[j], expected[j]) << "operation " << j;
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace intact::tests
