#include "fuzz/peak_memory.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace intact::fuzz {
namespace {

std::atomic<int64_t> allocated = 0;
std::atomic<int64_t> peak = 0;

void* Counted(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  const int64_t now = allocated += static_cast<int64_t>(malloc_usable_size(memory));
  if (now > peak) peak = now;
  return memory;
}

void Release(void* memory) noexcept {
  if (memory != nullptr) allocated -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

PeakMemory::PeakMemory() noexcept : before_(allocated) { peak = allocated.load(); }

int64_t PeakMemory::Bytes() const noexcept { return peak - before_; }

}  // namespace intact::fuzz

// operator new[] calls these too.
void* operator new(size_t size) { return intact::fuzz::Counted(std::malloc(std::max<size_t>(size, 1))); }
void* operator new(size_t size, const std::nothrow_t& /*nothrow*/) noexcept {
  void* const memory = std::malloc(std::max<size_t>(size, 1));
  return memory == nullptr ? nullptr : intact::fuzz::Counted(memory);
}
void* operator new(size_t size, std::align_val_t alignment) {
  const auto to = static_cast<size_t>(alignment);
  return intact::fuzz::Counted(std::aligned_alloc(to, (size + to - 1) / to * to));
}
void operator delete(void* memory) noexcept { intact::fuzz::Release(memory); }
void operator delete(void* memory, size_t /*size*/) noexcept { intact::fuzz::Release(memory); }
void operator delete(void* memory, const std::nothrow_t& /*nothrow*/) noexcept {
  intact::fuzz::Release(memory);
}
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept { intact::fuzz::Release(memory); }
void operator delete(void* memory, size_t /*size*/, std::align_val_t /*alignment*/) noexcept {
  intact::fuzz::Release(memory);
}
