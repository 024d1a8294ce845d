// A sweep in parts that run anywhere, at any time: shard i of n, counted from 1, written "2/8".
//
// Each problem is in exactly one shard. The shard depends only on the list of problems and on n: problems are
// dealt heaviest first, each to the shard with the least work so far. So shards take about the same time. A
// later check can find out whether a shard ran all of its problems.
#ifndef INTACT_VERIFY_SWEEP_SHARD_H_
#define INTACT_VERIFY_SWEEP_SHARD_H_

#include <cstdint>
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

/// Parses "2/8". Errors say what was expected.
Result<Shard> ParseShard(std::string_view text);

/// For each of `count` shards the indices of its problems, ascending.
std::vector<std::vector<size_t>> Deal(std::span<const Problem> problems, int64_t count);

/// The problems of the shard, in the order of `problems`.
std::vector<Problem> ProblemsOf(std::span<const Problem> problems, const Shard& shard);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_SWEEP_SHARD_H_
