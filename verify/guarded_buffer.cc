#include "verify/guarded_buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace intact::verify {

Result<GuardedBuffer> GuardedBuffer::Allocate(size_t size) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t usable = page + (size + page - 1) / page * page;
  const size_t mapped = usable + page;
  void* mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    return Error{INTACT_OUT_OF_MEMORY, fmt::format("no memory for a guarded buffer of {} bytes", size)};
  }
  GuardedBuffer buffer(static_cast<uint8_t*>(mapping), mapped, usable, size);
  if (mprotect(buffer.mapping_.get() + usable, page, PROT_NONE) != 0) {
    return Error{INTACT_OUT_OF_MEMORY, "the page behind a guarded buffer cannot be protected"};
  }
  return buffer;
}

GuardedBuffer::GuardedBuffer(uint8_t* mapping, size_t mapped, size_t usable, size_t size)
    : mapping_(mapping, Unmap{mapped}), data_(mapping + usable - size, size) {
  std::fill_n(mapping, usable, kCanary);
}

void GuardedBuffer::MakeReadOnly() noexcept {
  // A failure leaves the buffer writable: the check is weaker, the data the same.
  (void)mprotect(mapping_.get(), static_cast<size_t>(data_.data() + data_.size() - mapping_.get()),
                 PROT_READ);
}

bool GuardedBuffer::FrontIntact() const noexcept {
  return std::all_of(mapping_.get(), data_.data(), [](uint8_t byte) { return byte == kCanary; });
}

void GuardedBuffer::Unmap::operator()(uint8_t* mapping) const noexcept { (void)munmap(mapping, bytes); }

}  // namespace intact::verify
