// A sweep in parts that run anywhere, at any time: shard i of n, counted from 1, written "2/8".
//
// Each problem is in exactly one shard. The list of problems and n alone decide which: heaviest first, each
// problem goes to the shard that has least to do so far. So shards take about the same time, and the list
// shows which problems a shard must have run.
//
// If one command starts many processes, each can find its shard in the environment:
//
//   "auto"     a task of a Slurm array: SLURM_ARRAY_TASK_ID, whose range is SLURM_ARRAY_TASK_MIN, _STEP and
//              _COUNT; a rank of MPI: OMPI_COMM_WORLD_RANK and _SIZE (Open MPI), PMI_RANK and PMI_SIZE
//              (MPICH, Intel MPI, srun)
//   "auto/8"   a task of a Slurm array with ids 1 to 8, even if only some of them are started again; a pod of
//              an indexed Kubernetes job with 8 completions: JOB_COMPLETION_INDEX, counted from 0; a rank of
//              MPI, if there are 8 ranks
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

/// The shard that `text` names. Errors say what was expected.
Result<Shard> ParseShard(std::string_view text, const Environment& environment);

/// For each of `count` shards the indices of its problems, ascending.
std::vector<std::vector<size_t>> Deal(std::span<const Problem> problems, int64_t count);

/// The problems of the shard, in the order of `problems`.
std::vector<Problem> ProblemsOf(std::span<const Problem> problems, const Shard& shard);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_SWEEP_SHARD_H_
