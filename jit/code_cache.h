// Generated functions by kernel name. The name says all that the code depends on, so it is the key.
//
// Thread-safe. Two threads that miss at once wait for one generation; a failed one leaves no entry.
#ifndef INTACT_JIT_CODE_CACHE_H_
#define INTACT_JIT_CODE_CACHE_H_

#include <functional>
#include <intact/intact.hpp>
#include <string>

namespace intact::jit {

/// The function called `name`, made by `generate` if it is not there yet.
Result<const void*> GetOrGenerate(const std::string& name,
                                  const std::function<Result<const void*>()>& generate);

/// The same as a `Function` pointer.
template <class Function>
Result<Function> GetFunction(const std::string& name, const std::function<Result<const void*>()>& generate) {
  const Result<const void*> function = GetOrGenerate(name, generate);
  if (!function) return function.error();
  return reinterpret_cast<Function>(const_cast<void*>(*function));
}

}  // namespace intact::jit
#endif  // INTACT_JIT_CODE_CACHE_H_
