// Whether sanitizers are on. Tests with thousands of cases are slow then, and check only some of them.
#ifndef INTACT_TESTS_SUPPORT_SANITIZED_H_
#define INTACT_TESTS_SUPPORT_SANITIZED_H_

namespace intact::tests {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace intact::tests
#endif  // INTACT_TESTS_SUPPORT_SANITIZED_H_
