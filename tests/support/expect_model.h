// The check behind all tests of the library's bytes: they equal the scalar model of the problem's mode and
// ISA.
#ifndef INTACT_TESTS_SUPPORT_EXPECT_MODEL_H_
#define INTACT_TESTS_SUPPORT_EXPECT_MODEL_H_

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "reference/contract/gemm.h"
#include "reference/models/lowering.h"
#include "reference/models/operands.h"
#include "verify/explain/compare.h"
#include "verify/problem/problem.h"
#include "verify/targets/intact_target.h"

namespace intact::tests {

/// Parses a problem's line, which must be valid.
inline verify::Problem Parsed(std::string_view line) {
  const Result<verify::Problem> problem = verify::Problem::Parse(line);
  EXPECT_TRUE(problem) << line << ": " << problem.error().message;
  return problem ? *problem : verify::Problem();
}

/// Asserts that the target's output for `operation` equals ExpectedModel().
inline void ExpectItsModel(const reference::Operation& operation, const verify::RunOptions& options,
                           const verify::Target& target) {
  const Result<std::vector<uint8_t>> actual = target.Run(operation, options);
  ASSERT_TRUE(actual) << actual.error().message;
  const auto model = verify::ExpectedModel(LinearOf(operation), options.isa);
  const verify::ByteComparison bytes =
      verify::CompareBytes(LinearOf(operation).c_type,
                           reference::Outputs(operation, reference::Accumulators(operation, model)), *actual);
  ASSERT_EQ(bytes.differing, 0) << "of " << bytes.outputs << ", first at " << bytes.first_differing;
}

/// Asserts that the output of the library, or of another target, equals ExpectedModel(): the contract, or the
/// saturating model.
inline void ExpectItsModel(const verify::Problem& problem,
                           const verify::Target& target = verify::IntactTarget()) {
  SCOPED_TRACE(target.Name() + ": intact verify replay '" + problem.ToString() + "'");
  ExpectItsModel(verify::Materialize(problem), verify::RunOptionsOf(problem), target);
}

}  // namespace intact::tests

#endif  // INTACT_TESTS_SUPPORT_EXPECT_MODEL_H_
