// Memory for buffers that generated code accesses. Sanitizers cannot see such code, but a page fault can.
//
//   | canary page | canary … | data: size bytes | shift bytes | PROT_NONE page |
//                             ^ data()                        ^ page boundary
//
// or, if the surroundings say so,
//
//   | PROT_NONE page | data: size bytes | canary … | PROT_NONE page |
//                    ^ data()
//
// With a shift of 0, an access one byte beyond the data faults. The data is aligned only if its size happens
// to be: kernels must not depend on alignment. All bytes, including the data, are filled with canaries, so
// that stray writes can be found afterwards.
//
// Buffers with a name are listed while they live, so that a signal handler can report which buffer's page was
// hit.
#ifndef INTACT_VERIFY_TARGETS_GUARDED_BUFFER_H_
#define INTACT_VERIFY_TARGETS_GUARDED_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <intact/intact.hpp>
#include <memory>
#include <span>

#include "verify/problem/surroundings.h"

namespace intact::verify {

class GuardedBuffer {
 public:
  /// OUT_OF_MEMORY if the system has no memory left. `name`: nullptr, or a literal.
  static Result<GuardedBuffer> Allocate(size_t size, const Surroundings& surroundings = {},
                                        const char* name = nullptr);

  std::span<uint8_t> data() const noexcept { return data_; }
  /// Makes later writes to the buffer fault.
  void MakeReadOnly() noexcept;
  uint8_t canary() const noexcept { return canary_; }
  /// Whether all bytes before the data are still canaries.
  bool FrontIntact() const noexcept;
  /// Whether all bytes between the data and the page boundary are still canaries.
  bool BackIntact() const noexcept;

 private:
  struct Unmap {
    size_t bytes = 0;
    bool is_named = false;
    void operator()(uint8_t* mapping) const noexcept;
  };
  // `usable`: the accessible part of the mapping.
  GuardedBuffer(uint8_t* mapping, size_t mapped, std::span<uint8_t> usable, size_t size,
                const Surroundings& surroundings);

  std::unique_ptr<uint8_t[], Unmap> mapping_;
  std::span<uint8_t> usable_, data_;
  uint8_t canary_ = 0;
};

/// A buffer that has a name.
struct NamedBuffer {
  const char* name = nullptr;
  const uint8_t* mapping = nullptr;
  size_t mapped = 0;
  const uint8_t* data = nullptr;
  size_t size = 0;
};

/// The named buffer whose data or guards contain `address` or are near `address`. If there is no such buffer,
/// `name` is nullptr. Signal handlers may call this: it takes no lock and calls nothing.
NamedBuffer NamedBufferAt(const void* address) noexcept;

}  // namespace intact::verify
#endif  // INTACT_VERIFY_TARGETS_GUARDED_BUFFER_H_
