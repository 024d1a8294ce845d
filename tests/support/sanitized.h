// Whether sanitizers watch. A test that goes through thousands of cases is slow then, and looks at some of
// them; at all of them without sanitizers.
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
