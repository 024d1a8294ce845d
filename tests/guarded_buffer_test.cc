#include "verify/guarded_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace intact::verify {
namespace {

// Through a volatile pointer: neither the compiler nor a sanitizer may take the access away.
void Write(const volatile uint8_t* at) { *const_cast<volatile uint8_t*>(at) = 1; }

class GuardedBufferTest : public ::testing::TestWithParam<size_t> {};

TEST_P(GuardedBufferTest, EndsAtAnUnmappedPage) {
  Result<GuardedBuffer> buffer = GuardedBuffer::Allocate(GetParam());
  ASSERT_TRUE(buffer) << buffer.error().message;
  const std::span<uint8_t> data = buffer->data();
  ASSERT_EQ(data.size(), GetParam());
  EXPECT_TRUE(std::all_of(data.begin(), data.end(), [](uint8_t b) { return b == Surroundings().canary; }));
  Write(&data.front());
  Write(&data.back());
  EXPECT_DEATH(Write(data.data() + data.size()), "");
}

TEST_P(GuardedBufferTest, FindsAWriteBeforeTheData) {
  Result<GuardedBuffer> buffer = GuardedBuffer::Allocate(GetParam());
  ASSERT_TRUE(buffer) << buffer.error().message;
  EXPECT_TRUE(buffer->FrontIntact());
  Write(buffer->data().data() - 1);
  EXPECT_FALSE(buffer->FrontIntact());
}

TEST_P(GuardedBufferTest, CanBeMadeReadOnly) {
  Result<GuardedBuffer> buffer = GuardedBuffer::Allocate(GetParam());
  ASSERT_TRUE(buffer) << buffer.error().message;
  buffer->MakeReadOnly();
  EXPECT_EQ(buffer->data().back(), Surroundings().canary);
  EXPECT_DEATH(Write(&buffer->data().back()), "");
  EXPECT_DEATH(Write(buffer->data().data() + buffer->data().size()), "");
}

INSTANTIATE_TEST_SUITE_P(Sizes, GuardedBufferTest, ::testing::Values(1, 63, 4095, 4096, 4097, 100000));

TEST(GuardedBuffer, SaysWhenThereIsNoMemory) {
  const Result<GuardedBuffer> buffer = GuardedBuffer::Allocate(size_t{1} << 60);
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().status, INTACT_OUT_OF_MEMORY);
}

}  // namespace
}  // namespace intact::verify
