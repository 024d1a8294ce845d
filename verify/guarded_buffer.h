// Memory for buffers that emitted code touches: sanitizers cannot see such code, a page fault can.
//
//   | canary page | canary … | data: size bytes | PROT_NONE page |
//                             ^ data()         ^ page boundary: one byte beyond the data faults
//
// The data is not aligned, unless its size is: kernels may not ask for alignment. All bytes, the data's too,
// begin as kCanary, so that what a kernel was not to write can be checked afterwards.
#ifndef INTACT_VERIFY_GUARDED_BUFFER_H_
#define INTACT_VERIFY_GUARDED_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <intact/intact.hpp>
#include <memory>
#include <span>

namespace intact::verify {

class GuardedBuffer {
 public:
  static constexpr uint8_t kCanary = 0xa5;

  /// OUT_OF_MEMORY if the system gives none.
  static Result<GuardedBuffer> Allocate(size_t size);

  std::span<uint8_t> data() const noexcept { return data_; }
  /// From here on, a write to the buffer faults.
  void MakeReadOnly() noexcept;
  /// Whether all bytes before the data are still canaries.
  bool FrontIntact() const noexcept;

 private:
  struct Unmap {
    size_t bytes = 0;
    void operator()(uint8_t* mapping) const noexcept;
  };
  GuardedBuffer(uint8_t* mapping, size_t mapped, size_t usable, size_t size);

  std::unique_ptr<uint8_t[], Unmap> mapping_;
  std::span<uint8_t> data_;
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_GUARDED_BUFFER_H_
