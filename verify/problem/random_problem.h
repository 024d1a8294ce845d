// Random problems: every field of a Problem is drawn. Extents are mostly around the edges of register blocks.
// Check() accepts each problem, and a scalar reference computes it in milliseconds.
#ifndef INTACT_VERIFY_PROBLEM_RANDOM_PROBLEM_H_
#define INTACT_VERIFY_PROBLEM_RANDOM_PROBLEM_H_

#include <cstdint>
#include <span>

#include "support/random.h"
#include "verify/problem/problem.h"

namespace intact::verify {

/// The rows and columns of C that a kernel computes at a time.
struct Block {
  int64_t rows = 1, columns = 1;
  bool operator==(const Block&) const = default;
};

/// A problem in `mode` with isa=any and extents around one of `blocks`.
Problem DrawProblem(std::span<const Block> blocks, intact_mode mode, support::Random* random);
/// DrawProblem() for GEMMs only, and for convolutions only.
Problem DrawGemm(std::span<const Block> blocks, intact_mode mode, support::Random* random);
Problem DrawConv(std::span<const Block> blocks, intact_mode mode, support::Random* random);
/// A random product with grouped weights. Its extents do not depend on the blocks of kernels.
Problem DrawGrouped(support::Random* random);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_RANDOM_PROBLEM_H_
