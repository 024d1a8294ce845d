#include "verify/guarded_buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <mutex>

namespace intact::verify {
namespace {

// Those that have a name; with more at a time than there are slots, the others are not found.
std::array<NamedBuffer, 64> named_buffers;
std::mutex naming;

bool Name(const NamedBuffer& buffer) {
  const std::lock_guard lock(naming);
  const auto slot = std::ranges::find(named_buffers, nullptr, &NamedBuffer::name);
  if (slot == named_buffers.end()) return false;
  *slot = buffer;
  return true;
}

void Forget(const uint8_t* mapping) {
  const std::lock_guard lock(naming);
  const auto slot = std::ranges::find(named_buffers, mapping, &NamedBuffer::mapping);
  if (slot != named_buffers.end()) *slot = {};
}

}  // namespace

Result<GuardedBuffer> GuardedBuffer::Allocate(size_t size, const Surroundings& surroundings,
                                              const char* name) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t usable = page + (size + surroundings.shift + page - 1) / page * page;
  const size_t mapped = usable + page;
  void* mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    return Error{INTACT_OUT_OF_MEMORY, fmt::format("no memory for a guarded buffer of {} bytes", size)};
  }
  GuardedBuffer buffer(static_cast<uint8_t*>(mapping), mapped, usable, size, surroundings);
  if (mprotect(buffer.mapping_.get() + usable, page, PROT_NONE) != 0) {
    return Error{INTACT_OUT_OF_MEMORY, "the page behind a guarded buffer cannot be protected"};
  }
  if (name != nullptr) {
    buffer.mapping_.get_deleter().is_named =
        Name({name, buffer.mapping_.get(), buffer.data_.data(), buffer.data_.size()});
  }
  return buffer;
}

GuardedBuffer::GuardedBuffer(uint8_t* mapping, size_t mapped, size_t usable, size_t size,
                             const Surroundings& surroundings)
    : mapping_(mapping, Unmap{mapped}),
      data_(mapping + usable - surroundings.shift - size, size),
      shift_(surroundings.shift),
      canary_(surroundings.canary) {
  std::fill_n(mapping, usable, canary_);
}

void GuardedBuffer::MakeReadOnly() noexcept {
  // A failure leaves the buffer writable: the check is weaker, the data the same.
  (void)mprotect(mapping_.get(), static_cast<size_t>(data_.data() + data_.size() + shift_ - mapping_.get()),
                 PROT_READ);
}

bool GuardedBuffer::FrontIntact() const noexcept {
  return std::all_of(mapping_.get(), data_.data(), [this](uint8_t byte) { return byte == canary_; });
}

bool GuardedBuffer::BackIntact() const noexcept {
  const uint8_t* end = data_.data() + data_.size();
  return std::all_of(end, end + shift_, [this](uint8_t byte) { return byte == canary_; });
}

void GuardedBuffer::Unmap::operator()(uint8_t* mapping) const noexcept {
  if (is_named) Forget(mapping);
  (void)munmap(mapping, bytes);
}

NamedBuffer NamedBufferAt(const void* address) noexcept {
  constexpr ptrdiff_t kNear = 4096;
  const auto at = reinterpret_cast<intptr_t>(address);
  for (const NamedBuffer& buffer : named_buffers) {
    if (buffer.name == nullptr) continue;
    const auto begin = reinterpret_cast<intptr_t>(buffer.mapping);
    const auto end = reinterpret_cast<intptr_t>(buffer.data + buffer.size);
    if (at >= begin && at < end + 2 * kNear) return buffer;
  }
  return {};
}

}  // namespace intact::verify
