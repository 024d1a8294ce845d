// Repeated channels compared with a plain loop. The channels that may be read end at an unmapped page, and so
// do the bytes that may be written.
#include "kernels/staging/repeater.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "support/random.h"
#include "verify/targets/guarded_buffer.h"

namespace intact::kernels {
namespace {

void ExpectRepeated(int64_t repeats, uint8_t shift, int64_t begin, int64_t end) {
  SCOPED_TRACE(testing::Message() << "outputs " << begin << " to " << end << ", " << repeats
                                  << " of a channel, shift " << int{shift});
  const int64_t first = begin / repeats, last = (end - 1) / repeats;
  const auto channels = verify::GuardedBuffer::Allocate(static_cast<size_t>(last - first + 1));
  const auto outputs = verify::GuardedBuffer::Allocate(static_cast<size_t>(end - begin));
  ASSERT_TRUE(channels && outputs);
  support::Random random(1, 2, 3);
  for (uint8_t& channel : channels->data()) channel = static_cast<uint8_t>(random.Next());
  Repeater(repeats, shift).Copy(channels->data().data() - first, begin, end, outputs->data().data());
  EXPECT_TRUE(outputs->FrontIntact());
  for (int64_t output = begin; output < end; ++output) {
    const int expected = channels->data()[static_cast<size_t>(output / repeats - first)] ^ shift;
    ASSERT_EQ(int{outputs->data()[static_cast<size_t>(output - begin)]}, expected) << "output " << output;
  }
}

TEST(Repeater, CopiesEveryRange) {
  for (const int64_t repeats : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 40}) {
    for (const int64_t begin : {0, 1, 2, 15, 32, 33}) {
      for (const int64_t count : {1, 2, 7, 8, 31, 32, 33, 64, 100, 511, 512, 1000}) {
        ExpectRepeated(repeats, 0, begin, begin + count);
        ExpectRepeated(repeats, 0x80, begin, begin + count);
      }
    }
  }
}

}  // namespace
}  // namespace intact::kernels
