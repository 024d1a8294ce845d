// Debian's libasmjit.a is compiled for executables (PIE). It refers once to data of another library (stderr,
// in an assertion), which a shared object may not do. The linker option --wrap=stderr makes every reference
// within libintact.so use the pointer below.
#include <cstdio>

extern "C" {
extern FILE*
    __real_stderr;  // NOLINT(bugprone-reserved-identifier,readability-identifier-naming): --wrap's names
FILE* __wrap_stderr = nullptr;  // NOLINT(bugprone-reserved-identifier,readability-identifier-naming)

__attribute__((constructor(101))) static void InitialiseStderr() { __wrap_stderr = __real_stderr; }
}
