// The floating-point environment of a thread, by the C library's functions.
#ifndef INTACT_KERNELS_RUNTIME_FLOAT_ENVIRONMENT_H_
#define INTACT_KERNELS_RUNTIME_FLOAT_ENVIRONMENT_H_

#include <cfenv>

namespace intact::kernels {

class ScopedFloatEnvironment {
 public:
  ScopedFloatEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~ScopedFloatEnvironment() { std::fesetenv(&saved_); }
  ScopedFloatEnvironment(const ScopedFloatEnvironment&) = delete;
  ScopedFloatEnvironment& operator=(const ScopedFloatEnvironment&) = delete;

 private:
  std::fenv_t saved_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_RUNTIME_FLOAT_ENVIRONMENT_H_
