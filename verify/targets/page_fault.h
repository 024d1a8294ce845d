// What a handler of SIGSEGV or SIGBUS learns from the registers.
#ifndef INTACT_VERIFY_TARGETS_PAGE_FAULT_H_
#define INTACT_VERIFY_TARGETS_PAGE_FAULT_H_

#include <cstdint>

namespace intact::verify {

enum class Access : uint8_t { kUnknown, kRead, kWrite };

/// The access of the instruction that raised the signal; `context` is the handler's third argument. Async-signal-safe.
Access AccessAtFault(const void* context);

/// "a read", "a write" or "an access".
constexpr const char* NameOf(Access access) {
  return access == Access::kWrite ? "a write" : access == Access::kRead ? "a read" : "an access";
}

}  // namespace intact::verify
#endif  // INTACT_VERIFY_TARGETS_PAGE_FAULT_H_
