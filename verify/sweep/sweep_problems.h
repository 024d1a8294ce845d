// The problems of a sweep: shapes around the blocks of GEMMs, geometries around the edges of convolutions,
// and every tail that a block may leave. For verify/sweep/sweep.cc alone.
#ifndef INTACT_VERIFY_SWEEP_SWEEP_PROBLEMS_H_
#define INTACT_VERIFY_SWEEP_SWEEP_PROBLEMS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "verify/problem/problem.h"

namespace intact::verify {

/// The problems that are run for each ISA and mode. They name no ISA and no mode.
std::vector<Problem> GemmProblems(uint64_t seed);
std::vector<Problem> ConvProblems(uint64_t seed);
/// Small problems in which m, n and k, and a convolution's width and channels, take every size up to 64, so
/// that blocks end anywhere. With A of either type, each size takes every value modulo 16, and any two sizes
/// take every pair of values modulo 8.
std::vector<Problem> ResidueProblems(uint64_t seed);
/// One problem of each kind. The problems show what a target keeps between calls, and what it does with many
/// threads, large batches, depths beyond 8,192, long lines and infinite scales.
std::vector<Problem> StateProblems(uint64_t seed);

/// Cycles through a list of values. So each value occurs, without the full product of all lists. If two lists
/// have coprime lengths, every pair of their values occurs after a while.
template <class T>
class Cycle {
 public:
  explicit Cycle(std::span<const T> values) : values_(values) {}
  T Next() { return values_[next_++ % values_.size()]; }

 private:
  std::span<const T> values_;
  size_t next_ = 0;
};

/// Types and zero points of weights.
struct WeightKind {
  intact_type type;
  int32_t zb;
  ZeroPointKind kind = ZeroPointKind::kTensor;
};
/// The number of kinds of weights that TypeCycle goes through; also its number of zero points of activations.
inline constexpr size_t kWeightKindCount = 17;
inline constexpr size_t kZeroPointCount = 5;

/// Goes through the zero points of each type, and through the kinds of weights.
class TypeCycle {
 public:
  TypeCycle();
  void Set(intact_type a, intact_type c, Problem* problem);
  /// Adds a residual. With `in_place`, the residual is in place if its elements have the output's size. In
  /// place, `pad` is ignored.
  void SetResidual(intact_type type, int64_t pad, bool in_place, Problem* problem);

 private:
  Cycle<int32_t> u8_za_, s8_za_, u8_zc_, s8_zc_;
  Cycle<WeightKind> weight_kinds_;
};

/// The problem of a line that is part of the source. Throws std::logic_error if the line is wrong.
Problem ParsedProblem(const std::string& line);

/// Sets an activation range that ends at `range_max`, and moves the zero point into it. Ranges are
/// distances from the type's minimum.
void SetActivationRange(int32_t range_max, intact_range_check check, Problem* problem);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_SWEEP_SWEEP_PROBLEMS_H_
