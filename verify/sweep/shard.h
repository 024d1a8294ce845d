// A sweep in parts that run anywhere, at any time: shard i of n, counted from 1, written "2/8".
//
// Each problem is in exactly one shard. Only the list of problems and n decide in which one: problems are
// dealt heaviest first, each to the shard with the least work so far. So shards take about the same time, and
// it can be checked later that a shard ran all of its problems.
//
// If one command starts many processes, each can find its shard in the environment:
//
//   "auto"     i and n are read. In a task of a Slurm array: from SLURM_ARRAY_TASK_ID and _MIN, _STEP and
//              _COUNT. In a rank of MPI: from OMPI_COMM_WORLD_RANK and _SIZE (Open MPI), or from PMI_RANK and
//              PMI_SIZE (MPICH, Intel MPI, srun).
//   "auto/8"   i is read, n is 8. In a task of a Slurm array: the task's id, 1 to 8, also if a later array has
//              only some of these ids. In a pod of an indexed Kubernetes job with 8 completions:
//              JOB_COMPLETION_INDEX + 1. In a rank of MPI: the rank + 1; there must be 8 ranks.
#ifndef INTACT_VERIFY_SWEEP_SHARD_H_
#define INTACT_VERIFY_SWEEP_SHARD_H_

#include <cstdint>
#include <functional>
#include <intact/intact.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "verify/problem/problem.h"

namespace intact::verify {

struct Shard {
  int64_t index = 1;  // 1 to count
  int64_t count = 1;

  bool operator==(const Shard&) const = default;
  std::string ToString() const;  // "2/8"
};

/// getenv(), or a test's replacement. Returns nullptr if the variable is not set.
using Environment = std::function<const char*(const char* name)>;

/// Parses "2/8", "auto" or "auto/8". Errors say what was expected.
Result<Shard> ParseShard(std::string_view text, const Environment& environment);

/// For each of `count` shards the indices of its problems, ascending.
std::vector<std::vector<size_t>> Deal(std::span<const Problem> problems, int64_t count);

/// The problems of the shard, in the order of `problems`.
std::vector<Problem> ProblemsOf(std::span<const Problem> problems, const Shard& shard);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_SWEEP_SHARD_H_
