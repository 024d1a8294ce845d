// A list of problems that a target is known to fail.
#ifndef INTACT_VERIFY_REPORT_EXPECTED_FAILURES_H_
#define INTACT_VERIFY_REPORT_EXPECTED_FAILURES_H_

#include <cstddef>
#include <intact/intact.hpp>
#include <set>
#include <string>
#include <vector>

#include "verify/sweep/sweep.h"

namespace intact::verify {

class ExpectedFailures {
 public:
  /// Reads problem lines, one in each line of a file; '#' begins a comment. Errors name the line at fault.
  static Result<ExpectedFailures> Read(const std::string& path);

  /// Takes failures of listed problems out of `sweep`. A listed problem that passed becomes a failure.
  void Apply(SweepResult* sweep);
  /// The problems that Apply() took out.
  const std::vector<std::string>& Met() const { return met_; }
  /// How many listed problems failed, and how many did not run or were skipped.
  std::string ToText() const;

 private:
  std::set<std::string> lines_;  // as Problem::ToString() writes them
  std::vector<std::string> met_;
  size_t absent_ = 0;
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_REPORT_EXPECTED_FAILURES_H_
