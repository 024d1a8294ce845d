// Random problems: every field of a Problem is drawn, extents mostly around the edges of register blocks, and
// each is one that Check() takes and that a scalar reference does in milliseconds.
#ifndef INTACT_VERIFY_PROBLEM_RANDOM_PROBLEM_H_
#define INTACT_VERIFY_PROBLEM_RANDOM_PROBLEM_H_

#include <cstdint>
#include <span>

#include "support/random.h"
#include "verify/problem/problem.h"

namespace intact::verify {

/// What a kernel computes at a time: rows by columns of C.
struct Block {
  int64_t rows = 1, columns = 1;
  bool operator==(const Block&) const = default;
};

/// A problem in `mode` that names no ISA, around one of `blocks`.
Problem DrawProblem(std::span<const Block> blocks, intact_mode mode, support::Random* random);
/// One of a kind.
Problem DrawGemm(std::span<const Block> blocks, intact_mode mode, support::Random* random);
Problem DrawConv(std::span<const Block> blocks, intact_mode mode, support::Random* random);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_RANDOM_PROBLEM_H_
