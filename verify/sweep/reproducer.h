// A failure of a plug-in as one C file: the tensors, the call, and the outputs that are expected. The file
// needs the plug-in and the headers of the plug-in ABI, and nothing else of this library:
//
//   cc failure_1.c ./mine.so -o failure && ./failure
//
// The program runs the problem as the verifier does, ten times in each of three places: tensors end right
// before a page that cannot be touched, end 61 bytes before the page, or begin right behind such a page.
// Memory that nobody has written has different contents in the three places. Repeated runs catch failures
// that come now and then. The status is 1 after a wrong output, an error, a byte written outside C or changed
// floating-point control; 2 if the plug-in does not open; otherwise 0, unless the plug-in ends the process.
//
// Values that the failure does not need are zeros, or the value of the activation range that is nearest to
// zero. The reason in the file describes the failure with these values.
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
  std::string options;  // the options for intact_target_open()
  std::string file;     // the name that the file will have
};

/// The text of the file for `problem`, which fails on `target`. UNSUPPORTED, with the reason in words, if the
/// file cannot show the failure: a fresh process does not fail, or ends with status 0; batches, runtime B, an
/// unusual layout of grouped weights, no outputs; a tensor or output of more than 4096 elements.
Result<std::string> Reproducer(const Target& target, const Problem& problem, const ReproducerOptions& names);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_SWEEP_REPRODUCER_H_
