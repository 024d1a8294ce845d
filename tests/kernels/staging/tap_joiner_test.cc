// Joined taps compared with a plain loop. The bytes that may be read and the bytes that may be written end at
// unmapped pages.
#include "kernels/staging/tap_joiner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "kernels/runtime/blocking.h"
#include "kernels/weights/pack.h"
#include "support/random.h"
#include "verify/targets/guarded_buffer.h"

namespace intact::kernels {
namespace {

void ExpectJoined(int64_t taps, int64_t tap_step, int64_t channels, int64_t output_step, int64_t outputs) {
  SCOPED_TRACE(testing::Message() << taps << " taps, " << tap_step << " pixels apart, " << channels
                                  << " channels, " << outputs << " outputs, " << output_step
                                  << " pixels apart");
  const int64_t filled = taps * channels, pitch = RoundUp(filled, kQuad);
  const int64_t read = (outputs - 1) * output_step * channels + TapJoiner::kMostSpan;
  const auto line = verify::GuardedBuffer::Allocate(static_cast<size_t>(read));
  const auto joined =
      verify::GuardedBuffer::Allocate(static_cast<size_t>(outputs * pitch + TapJoiner::kSpill));
  ASSERT_TRUE(line && joined);
  support::Random random(1, 2, 3);
  for (uint8_t& byte : line->data()) byte = static_cast<uint8_t>(random.Next());
  TapJoiner(taps, tap_step, channels, output_step, pitch)
      .Copy(line->data().data(), outputs, joined->data().data());
  EXPECT_TRUE(joined->FrontIntact());
  for (int64_t i = 0; i < outputs * pitch; ++i) {
    const int64_t byte = std::min(i % pitch, filled - 1);
    const int64_t pixel = i / pitch * output_step + byte / channels * tap_step;
    ASSERT_EQ(int{joined->data()[static_cast<size_t>(i)]},
              int{line->data()[static_cast<size_t>(pixel * channels + byte % channels)]})
        << "byte " << i;
  }
}

TEST(TapJoiner, JoinsEverySpan) {
  for (const int64_t channels : {1, 2, 3, 5}) {
    for (int64_t taps = 2; taps <= 8; ++taps) {
      for (int64_t tap_step = 2; ((taps - 1) * tap_step + 1) * channels <= TapJoiner::kMostSpan; ++tap_step) {
        for (const int64_t output_step : {1, 2, 3, 7}) {
          for (const int64_t outputs : {1, 2, 3, 4, 5, 9}) {
            ExpectJoined(taps, tap_step, channels, output_step, outputs);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace intact::kernels
