#include <fmt/format.h>

#include <array>
#include <stdexcept>

#include "verify/sweep/sweep_problems.h"

namespace intact::verify {
namespace {

constexpr int kBits = 6;  // of a problem's number, and of each size minus 1
constexpr int64_t kProblems = int64_t{1} << kBits;

// Bit i of the result is the parity of the bits of `number` that rows[i] selects.
int64_t Mixed(int64_t number, const std::array<int64_t, kBits>& rows) {
  int64_t value = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    value |= static_cast<int64_t>(__builtin_parityll(static_cast<uint64_t>(number & rows.at(i)))) << i;
  }
  return value;
}

// Three sizes that each go through 1 to 64. Any two of them go through all pairs modulo 8, and the three
// through all values modulo 4. Each size takes each value modulo 16 with both types of A.
struct Sizes {
  int64_t m, n, k;
  std::string_view types;
};
Sizes SizesOf(int64_t number) {
  constexpr std::array<int64_t, kBits> kM = {1, 2, 4, 8, 16, 32}, kN = {8, 16, 32, 1, 2, 4},
                                       kK = {4 + 8, 1 + 32, 2 + 16, 1, 2, 4};
  constexpr int64_t kType = 4 + 16;
  const bool is_signed = __builtin_parityll(static_cast<uint64_t>(number & kType)) != 0;
  return {Mixed(number, kM) + 1, Mixed(number, kN) + 1, Mixed(number, kK) + 1,
          is_signed ? "s8s8s32 za=-5" : "u8s8s32 za=3"};
}

}  // namespace

Problem ParsedProblem(const std::string& line) {
  const Result<Problem> problem = Problem::Parse(line);
  if (!problem) throw std::logic_error(fmt::format("the sweep's '{}': {}", line, problem.error().message));
  return *problem;
}

std::vector<Problem> ResidueProblems(uint64_t seed) {
  std::vector<Problem> problems;
  for (int64_t number = 0; number < kProblems; ++number) {
    const auto& [m, n, k, types] = SizesOf(number);
    problems.push_back(ParsedProblem(fmt::format("gemm {} m={} n={} k={} seed={}", types, m, n, k, seed)));
    problems.push_back(ParsedProblem(
        fmt::format("conv {} in=2x{} c={} o={} kernel=3x3 pad=1x1 seed={}", types, m, k, n, seed)));
    const int64_t groups = n + 1;  // a single group would be no grouping
    problems.push_back(
        ParsedProblem(fmt::format("conv {} in=2x{} c={} o={} groups={} kernel=3x3 pad=1x1 seed={}", types, m,
                                  groups, groups, groups, seed)));
  }
  return problems;
}

}  // namespace intact::verify
