#include <fmt/format.h>

#include <stdexcept>

#include "verify/sweep_problems.h"

namespace intact::verify {
namespace {

// So many sizes are gone through, from one on; a multiple of every block's rest.
constexpr int64_t kSizes = 64, kChannels = 32;
// Sizes whose rest by this is the same come with either type of A.
constexpr int64_t kRests = 16;

// Each of the numbers from 1 to `count`, a power of two, once as `i` goes through as many; `step` is odd.
int64_t Shuffled(int64_t i, int64_t step, int64_t count) { return i * step % count + 1; }

Problem Parsed(const std::string& line) {
  const Result<Problem> problem = Problem::Parse(line);
  if (!problem) throw std::logic_error("the sweep's residues: " + problem.error().message);
  return *problem;
}

std::string_view TypesOf(int64_t i) { return i / kRests % 2 == 0 ? "u8s8s32 za=3" : "s8s8s32 za=-5"; }

}  // namespace

std::vector<Problem> ResidueProblems(uint64_t seed) {
  std::vector<Problem> problems;
  const auto add = [&](const std::string& line) { problems.push_back(Parsed(line)); };
  for (int64_t i = 0; i < kSizes; ++i) {
    add(fmt::format("gemm {} m={} n={} k={} seed={}", TypesOf(i), Shuffled(i, 5, kSizes),
                    Shuffled(i, 11, kSizes), Shuffled(i, 27, kSizes), seed));
  }
  for (int64_t i = 0; i < kChannels; ++i) {
    const int64_t width = Shuffled(i, 13, kChannels);
    const int64_t inputs = Shuffled(i, 5, kChannels), outputs = Shuffled(i, 11, kChannels);
    add(fmt::format("conv {} in=3x{} c={} o={} kernel=3x3 pad=1x1 seed={}", TypesOf(i), width, inputs,
                    outputs, seed));
    const int64_t groups = inputs + 1;  // one of them would be none
    add(fmt::format("conv {} in=3x{} c={} o={} groups={} kernel=3x3 pad=1x1 seed={}", TypesOf(i), width,
                    groups, groups, groups, seed));
  }
  return problems;
}

}  // namespace intact::verify
