// The register blocks of the library's kernels.
#ifndef INTACT_VERIFY_TARGETS_BLOCKS_H_
#define INTACT_VERIFY_TARGETS_BLOCKS_H_

#include <intact/intact.hpp>
#include <string>
#include <vector>

#include "verify/problem/random_problem.h"

namespace intact::verify {

/// The register blocks of kernels for `isa`, or for all ISAs if it is ANY. Equal on every machine.
std::vector<Block> BlocksOf(intact_isa isa);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_TARGETS_BLOCKS_H_
