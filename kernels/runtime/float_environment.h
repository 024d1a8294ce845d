// The floating-point environment of a thread.
#ifndef INTACT_KERNELS_RUNTIME_FLOAT_ENVIRONMENT_H_
#define INTACT_KERNELS_RUNTIME_FLOAT_ENVIRONMENT_H_

#include <xmmintrin.h>

namespace intact::kernels {

/// Sets the default floating-point environment for its lifetime: round to nearest even, no flush to zero, all
/// exceptions masked. The destructor restores the caller's environment and exception flags. Each call of the
/// C ABI has such an object (api/guard.h). Helper threads inherit the environment of this call.
class ScopedFloatEnvironment {
 public:
  ScopedFloatEnvironment() : saved_(_mm_getcsr()) {
    if ((saved_ & ~kFlags) != kDefault) _mm_setcsr(kDefault);
  }
  // Reading the register takes less time than writing it.
  ~ScopedFloatEnvironment() {
    if ((saved_ & ~kFlags) != kDefault || _mm_getcsr() != saved_) _mm_setcsr(saved_);
  }
  ScopedFloatEnvironment(const ScopedFloatEnvironment&) = delete;
  ScopedFloatEnvironment& operator=(const ScopedFloatEnvironment&) = delete;

 private:
  static constexpr unsigned kDefault = 0x1f80;
  static constexpr unsigned kFlags = 0x3f;  // exceptions that have occurred: they change no result
  unsigned saved_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_RUNTIME_FLOAT_ENVIRONMENT_H_
