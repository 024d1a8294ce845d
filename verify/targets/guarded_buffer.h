// Memory for buffers that emitted code touches: sanitizers cannot see such code, a page fault can.
//
//   | canary page | canary … | data: size bytes | shift bytes | PROT_NONE page |
//                             ^ data()                        ^ page boundary
//
// or, where the surroundings have it so,
//
//   | PROT_NONE page | data: size bytes | canary … | PROT_NONE page |
//                    ^ data()
//
// With a shift of 0 one byte beyond the data faults. The data is not aligned, unless its size is: kernels may
// not ask for alignment. All bytes, the data's too, begin as canaries, so that what a kernel was not to write
// can be checked afterwards.
//
// Buffers with a name are listed while they live, so that a handler of faults can tell whose page was hit.
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
  /// OUT_OF_MEMORY if the system gives none. `name`: nullptr, or a literal.
  static Result<GuardedBuffer> Allocate(size_t size, const Surroundings& surroundings = {},
                                        const char* name = nullptr);

  std::span<uint8_t> data() const noexcept { return data_; }
  /// From here on, a write to the buffer faults.
  void MakeReadOnly() noexcept;
  uint8_t canary() const noexcept { return canary_; }
  /// Whether all bytes before the data are still canaries.
  bool FrontIntact() const noexcept;
  /// The same of those between the data and the page boundary.
  bool BackIntact() const noexcept;

 private:
  struct Unmap {
    size_t bytes = 0;
    bool is_named = false;
    void operator()(uint8_t* mapping) const noexcept;
  };
  // What of the mapping can be touched.
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

/// The buffer whose data or guards `address` is in or near; without a name if there is none. Made for
/// handlers of signals: takes no lock, calls nothing.
NamedBuffer NamedBufferAt(const void* address) noexcept;

}  // namespace intact::verify
#endif  // INTACT_VERIFY_TARGETS_GUARDED_BUFFER_H_
