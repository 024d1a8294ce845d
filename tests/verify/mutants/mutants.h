// Targets with a planted fault. A verifier that cannot fail proves nothing: tests/verify/mutants_test.cc shows
// that each of these is caught, and classified for what it is.
#ifndef INTACT_TESTS_VERIFY_MUTANTS_MUTANTS_H_
#define INTACT_TESTS_VERIFY_MUTANTS_MUTANTS_H_

#include <memory>
#include <string>
#include <vector>

#include "verify/explain/compare.h"
#include "verify/problem/problem.h"
#include "verify/problem/target.h"

namespace intact::verify {

/// The scalar reference as a target: what a faultless implementation outputs, on any machine.
class ReferenceTarget : public Target {
 public:
  std::string Name() const override { return "reference"; }
  /// Convolutions by the loop nest where their model is the exact one.
  Result<std::vector<uint8_t>> Run(const reference::Operation& operation,
                                   const RunOptions& options) const override;
};

struct Mutant {
  std::unique_ptr<Target> target;  // its name is the fault's
  std::string fault;               // in words
  Problem problem;                 // on which it must show
  Cause cause;                     // as which it must be classified
  std::string detail;              // what the verifier must say of it
};

/// Our library, with schedules for activations up to one less than there are: int16 groups take one pair too
/// many.
std::unique_ptr<Target> OvereagerTarget();

/// All mutants.
std::vector<Mutant> Mutants();

}  // namespace intact::verify
#endif  // INTACT_TESTS_VERIFY_MUTANTS_MUTANTS_H_
