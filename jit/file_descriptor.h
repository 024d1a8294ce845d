// A file descriptor with an owner.
#ifndef INTACT_JIT_FILE_DESCRIPTOR_H_
#define INTACT_JIT_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace intact::jit {

/// Owns a descriptor and closes it. −1: it has none.
class FileDescriptor {
 public:
  explicit FileDescriptor(int descriptor = -1) : descriptor_(descriptor) {}
  ~FileDescriptor() { Reset(); }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  bool IsOpen() const noexcept { return descriptor_ >= 0; }
  int get() const noexcept { return descriptor_; }
  /// Closes the present descriptor, and takes `descriptor`.
  void Reset(int descriptor = -1) noexcept {
    if (IsOpen()) (void)close(descriptor_);
    descriptor_ = descriptor;
  }
  /// Gives the descriptor to the caller.
  int Release() noexcept { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

}  // namespace intact::jit
#endif  // INTACT_JIT_FILE_DESCRIPTOR_H_
