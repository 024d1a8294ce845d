// A sweep in parts that run anywhere, at any time: shard i of n, from 1 on, written "2/8".
//
// Each problem is in exactly one shard, which follows from the list of problems and n alone: heaviest first,
// each goes to the shard that has least to do so far. So shards take about the same time, and whoever has the
// list can tell what a shard must have run.
//
// Who starts many processes by one command lets each find its shard in the environment, and says so by name:
//
//   "auto"     a task of a Slurm array: SLURM_ARRAY_TASK_ID among those that SLURM_ARRAY_TASK_MIN, _STEP and
//              _COUNT tell; a rank of MPI: OMPI_COMM_WORLD_RANK and _SIZE (Open MPI), PMI_RANK and PMI_SIZE
//              (MPICH, Intel MPI, srun)
//   "auto/8"   a task of a Slurm array whose ids are 1 to 8, also where only some of them are started again;
//              a pod of an indexed Kubernetes job with 8 completions: JOB_COMPLETION_INDEX, which is from 0
//              on; a rank of MPI, of which there must be 8
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
  int64_t index = 1;  // of 1 to count
  int64_t count = 1;

  bool operator==(const Shard&) const = default;
  std::string ToString() const;  // "2/8"
};

/// getenv(), or what a test has instead: nullptr where there is no such variable.
using Environment = std::function<const char*(const char* name)>;

/// The shard that `text` names. Errors say what was expected.
Result<Shard> ParseShard(std::string_view text, const Environment& environment);

/// For each of `count` shards the indices of its problems, ascending.
std::vector<std::vector<size_t>> Deal(std::span<const Problem> problems, int64_t count);

/// Those of `problems` that are the shard's, in their order.
std::vector<Problem> ProblemsOf(std::span<const Problem> problems, const Shard& shard);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_SWEEP_SHARD_H_
