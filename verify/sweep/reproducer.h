// A failure of a plug-in as one C file: the tensors, the call, what should come out. It needs the plug-in and
// the headers of its ABI, and nothing of this library:
//
//   cc failure_1.c ./mine.so -o failure && ./failure
//
// The program runs the problem as the verifier does: on tensors before a page that cannot be touched and,
// every second time, at another alignment and with other contents of memory that nobody has written; ten
// times each, for failures that come now and then. It ends with status 1 when it sees a wrong output, a byte
// written outside C or floating-point control changed; else with what the plug-in does to it, or 0.
//
// Values that the failure does not need are zeros, or the nearest to it that an activation range has. The reason
// that stands in the file is that of the values in it.
#ifndef INTACT_VERIFY_SWEEP_REPRODUCER_H_
#define INTACT_VERIFY_SWEEP_REPRODUCER_H_

#include <intact/intact.hpp>
#include <string>

#include "verify/problem/problem.h"
#include "verify/problem/target.h"

namespace intact::verify {

struct ReproducerOptions {
  std::string target;   // as the user named it
  std::string plugin;   // the plug-in's file, an absolute path
  std::string options;  // what intact_target_open() gets
  std::string file;     // the name of the file that the text is for
};

/// The text of such a file for `problem`, which fails on `target`. UNSUPPORTED, with the reason in words,
/// where such a file would not show it: what does not fail in a process that has run nothing, or ends it with
/// status 0; batches and B that runs give; and a tensor, the output too, of more than 4096 elements without
/// padding.
Result<std::string> Reproducer(const Target& target, const Problem& problem, const ReproducerOptions& names);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_SWEEP_REPRODUCER_H_
