// Results of a sweep as JUnit's XML. Continuous integration shows this XML as tests.
#ifndef INTACT_VERIFY_REPORT_REPORT_JUNIT_H_
#define INTACT_VERIFY_REPORT_REPORT_JUNIT_H_

#include <span>
#include <string>
#include <string_view>

#include "verify/sweep/sweep.h"

namespace intact::verify {

/// A <testsuite> named `suite` with a <testcase> for each problem, named as its line, of a class like
/// "avx2.exact". Problems in `expected` appear as skipped. If the target was given up, the problems that were
/// left are one error. `random`: the result of random problems, whose failures are added; or nullptr.
std::string ToJunit(std::string_view suite, const SweepResult& result, std::span<const std::string> expected,
                    const SweepResult* random);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_REPORT_REPORT_JUNIT_H_
