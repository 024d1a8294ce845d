// The allocator for the code of instruction tests. No page is writable and executable at once.
#ifndef INTACT_TESTS_SUPPORT_TEST_RUNTIME_H_
#define INTACT_TESTS_SUPPORT_TEST_RUNTIME_H_

#include <asmjit/x86.h>

namespace intact::tests {

inline asmjit::JitRuntime& TestRuntime() {
  static const asmjit::JitAllocator::CreateParams kParams = [] {
    asmjit::JitAllocator::CreateParams params;
    params.options = asmjit::JitAllocatorOptions::kUseDualMapping;
    return params;
  }();
  static asmjit::JitRuntime runtime(&kParams);
  return runtime;
}

}  // namespace intact::tests
#endif  // INTACT_TESTS_SUPPORT_TEST_RUNTIME_H_
