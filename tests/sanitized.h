// Whether sanitizers watch, under which a test that goes through thousands of cases looks at some of them:
// what they find does not depend on the case, and all are looked at without.
#ifndef INTACT_TESTS_SANITIZED_H_
#define INTACT_TESTS_SANITIZED_H_

namespace intact::tests {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace intact::tests
#endif  // INTACT_TESTS_SANITIZED_H_
