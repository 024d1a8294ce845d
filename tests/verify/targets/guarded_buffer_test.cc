#include "verify/targets/guarded_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace intact::verify {
namespace {

// The pointer is volatile: neither the compiler nor a sanitizer may remove the access.
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

TEST_P(GuardedBufferTest, BeginsBehindAnUnmappedPage) {
  Result<GuardedBuffer> buffer = GuardedBuffer::Allocate(GetParam(), {0x5a, 61, true}, "it");
  ASSERT_TRUE(buffer) << buffer.error().message;
  const std::span<uint8_t> data = buffer->data();
  ASSERT_EQ(data.size(), GetParam());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data.data()) % 4096, 0u);
  Write(&data.front());
  Write(&data.back());
  EXPECT_DEATH(Write(data.data() - 1), "");
  EXPECT_EQ(NamedBufferAt(data.data() - 1).data, data.data());
  EXPECT_TRUE(buffer->FrontIntact() && buffer->BackIntact());
  if (data.size() % 4096 != 0) {
    Write(data.data() + data.size());
    EXPECT_FALSE(buffer->BackIntact());
  }
  buffer->MakeReadOnly();
  EXPECT_DEATH(Write(data.data() - 1), "");
  EXPECT_DEATH(Write(&data.back()), "");
}

// Adjacent mappings share no page.
TEST(NamedBuffer, IsTheOneWhosePageItIs) {
  std::vector<GuardedBuffer> buffers;
  for (const char* name : {"a", "b", "c", "d"}) {
    buffers.push_back(std::move(*GuardedBuffer::Allocate(100, {0x5a, 0, name[0] % 2 == 0}, name)));
  }
  for (const GuardedBuffer& buffer : buffers) {
    EXPECT_EQ(NamedBufferAt(buffer.data().data() - 1).data, buffer.data().data());
    EXPECT_EQ(NamedBufferAt(buffer.data().data() + 100).data, buffer.data().data());
  }
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
