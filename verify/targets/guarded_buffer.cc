#include "verify/targets/guarded_buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <mutex>

namespace intact::verify {
namespace {

// Buffers with a name. If there are more than slots, the others cannot be found.
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
  const size_t shift = surroundings.is_behind_a_page ? 0 : surroundings.shift;
  const size_t mapped = 2 * page + (size + shift + page - 1) / page * page;
  void* mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    return Error{INTACT_OUT_OF_MEMORY, fmt::format("no memory for a guarded buffer of {} bytes", size)};
  }
  auto* const begin = static_cast<uint8_t*>(mapping);
  const size_t front = surroundings.is_behind_a_page ? page : 0;
  GuardedBuffer buffer(begin, mapped, {begin + front, mapped - front - page}, size, surroundings);
  const bool has_front =
      front == 0 || mprotect(begin, front, PROT_NONE) == 0;  // emulators reject a size of 0
  if (!has_front || mprotect(begin + mapped - page, page, PROT_NONE) != 0) {
    return Error{INTACT_OUT_OF_MEMORY, "the pages around a guarded buffer cannot be protected"};
  }
  if (name != nullptr) {
    buffer.mapping_.get_deleter().is_named =
        Name({name, begin, mapped, buffer.data_.data(), buffer.data_.size()});
  }
  return buffer;
}

GuardedBuffer::GuardedBuffer(uint8_t* mapping, size_t mapped, std::span<uint8_t> usable, size_t size,
                             const Surroundings& surroundings)
    : mapping_(mapping, Unmap{mapped}), usable_(usable), canary_(surroundings.canary) {
  data_ = usable.subspan(surroundings.is_behind_a_page ? 0 : usable.size() - surroundings.shift - size, size);
  std::ranges::fill(usable, canary_);
}

void GuardedBuffer::MakeReadOnly() noexcept {
  // A failure leaves the buffer writable: the check is weaker, but the data is right.
  (void)mprotect(usable_.data(), usable_.size(), PROT_READ);
}

bool GuardedBuffer::FrontIntact() const noexcept {
  return std::all_of(usable_.data(), data_.data(), [this](uint8_t byte) { return byte == canary_; });
}

bool GuardedBuffer::BackIntact() const noexcept {
  return std::all_of(data_.data() + data_.size(), usable_.data() + usable_.size(),
                     [this](uint8_t byte) { return byte == canary_; });
}

void GuardedBuffer::Unmap::operator()(uint8_t* mapping) const noexcept {
  if (is_named) Forget(mapping);
  (void)munmap(mapping, bytes);
}

NamedBuffer NamedBufferAt(const void* address) noexcept {
  constexpr ptrdiff_t kNear = 4096;
  const auto at = reinterpret_cast<intptr_t>(address);
  // The guard pages of one buffer may be next to another's.
  for (const NamedBuffer& buffer : named_buffers) {
    if (buffer.name == nullptr) continue;
    const auto begin = reinterpret_cast<intptr_t>(buffer.mapping);
    if (at >= begin && at < begin + static_cast<intptr_t>(buffer.mapped)) return buffer;
  }
  for (const NamedBuffer& buffer : named_buffers) {
    if (buffer.name == nullptr) continue;
    const auto begin = reinterpret_cast<intptr_t>(buffer.mapping);
    const auto end = reinterpret_cast<intptr_t>(buffer.data + buffer.size);
    if (at >= begin && at < end + 2 * kNear) return buffer;
  }
  return {};
}

}  // namespace intact::verify
