#include "kernels/runtime/aligned_buffer.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace intact::kernels {
namespace {

// Whether the system keeps memory for the page; it may have unmapped the page.
bool IsKept(uintptr_t page, size_t bytes) {
  unsigned char is_resident = 0;
  return mincore(reinterpret_cast<void*>(page), bytes, &is_resident) == 0 && (is_resident & 1) != 0;
}

TEST(AlignedBuffer, ReturnsReleasedPages) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  AlignedBuffer<int8_t> buffer, next;  // memory behind `buffer` stays allocated
  ASSERT_TRUE(buffer.Resize(16 * page) && next.Resize(16 * page));
  std::memset(buffer.data(), 1, buffer.bytes());
  std::memset(next.data(), 1, next.bytes());
  const uintptr_t within = (reinterpret_cast<uintptr_t>(buffer.data()) + page) / page * page + page;
  ASSERT_TRUE(IsKept(within, page));
  buffer.Release();
  EXPECT_EQ(buffer.size(), 0u);
  EXPECT_FALSE(IsKept(within, page));
  for (const int8_t value : {next[0], next[next.size() - 1]}) EXPECT_EQ(value, 1);
  buffer.Release();
}

}  // namespace
}  // namespace intact::kernels
