// Targets with a planted fault. A verifier that cannot fail proves nothing: tests/verify/sweep/mutants_test.cc
// shows that each fault is caught and classified correctly.
#ifndef INTACT_TESTS_VERIFY_MUTANTS_MUTANTS_H_
#define INTACT_TESTS_VERIFY_MUTANTS_MUTANTS_H_

#include <memory>
#include <string>
#include <vector>

#include "tests/verify/mutants/mutant_parts.h"
#include "verify/problem/target.h"

namespace intact::verify {

/// The scalar reference as a target: the output of a correct implementation, on any machine.
class ReferenceTarget : public Target {
 public:
  std::string Name() const override { return "reference"; }
  /// Computes convolutions by the loop nest if their model is the exact one.
  Result<std::vector<uint8_t>> Run(const reference::Operation& operation,
                                   const RunOptions& options) const override;
};

/// intact with schedules for an activation range that is one too small: int16 groups may have one pair too
/// many.
std::unique_ptr<Target> OvereagerTarget();

/// All mutants.
std::vector<Mutant> Mutants();

}  // namespace intact::verify
#endif  // INTACT_TESTS_VERIFY_MUTANTS_MUTANTS_H_
