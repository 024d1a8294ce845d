// Debian's libasmjit.a is compiled for executables (PIE): its one reference to data of another library,
// stderr in an assertion's message, cannot stand in a shared object. The linker is told --wrap=stderr, so
// that every reference within libintact.so goes through the pointer below, which is our own.
#include <cstdio>

extern "C" {
extern FILE*
    __real_stderr;  // NOLINT(bugprone-reserved-identifier,readability-identifier-naming): --wrap's names
FILE* __wrap_stderr = nullptr;  // NOLINT(bugprone-reserved-identifier,readability-identifier-naming)

__attribute__((constructor(101))) static void InitialiseStderr() { __wrap_stderr = __real_stderr; }
}
