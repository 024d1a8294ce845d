// Emitted functions, owned by their users. The last owner frees the code.
#ifndef INTACT_JIT_FUNCTION_H_
#define INTACT_JIT_FUNCTION_H_

#include <cstdint>
#include <memory>
#include <utility>

namespace intact::jit {

/// Executable code: the address where the code begins. The last owner frees the code.
using Code = std::shared_ptr<const void>;

template <class Signature>
class Function;

/// An owner of code, a function of the System V ABI; null unless it was made from code. A copy is another
/// owner and costs an atomic increment. A call costs no more than a call through a pointer.
template <class... Args>
class Function<void(Args...)> {
 public:
  Function() = default;
  explicit Function(Code code) : code_(std::move(code)) {}

  explicit operator bool() const noexcept { return code_ != nullptr; }
  void operator()(Args... args) const noexcept {
    reinterpret_cast<void (*)(Args...)>(const_cast<void*>(code_.get()))(args...);
  }

 private:
  Code code_;
};

}  // namespace intact::jit
#endif  // INTACT_JIT_FUNCTION_H_
