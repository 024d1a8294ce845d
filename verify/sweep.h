// Many small problems on one target: GEMMs of shapes around the register blocks, convolutions of geometries
// around the edges, all fills, types, epilogues, zero points, strides and thread counts; not their full
// product, but every value of each and the pairs that matter.
#ifndef INTACT_VERIFY_SWEEP_H_
#define INTACT_VERIFY_SWEEP_H_

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "verify/compare.h"
#include "verify/problem.h"
#include "verify/target.h"

namespace intact::verify {

/// Whether a target did on a problem what its mode and ISA promise.
struct Judgement {
  Comparison comparison;  // with the exact reference
  std::string failure;    // empty if it did; else the first difference in words
  bool Passed() const { return failure.empty(); }
};

/// Runs `problem` on `target` and compares with the exact reference. Errors are the target's.
Result<Comparison> VerifyProblem(const Target& target, const Problem& problem);

/// Runs `problem` on `target`. In exact mode and on VNNI every output must equal the exact reference; where
/// pairs saturate, every output must equal the triple model, and so every difference from the exact reference
/// be int16 saturation. A saturating problem that names no ISA may do either. Errors are the target's.
Result<Judgement> Judge(const Target& target, const Problem& problem);

enum class Effort : uint8_t {
  kQuick,     // a sixth of the standard
  kStandard,  // some four thousand problems per ISA and mode
  kThorough,  // four times that, by other seeds
};

/// The problems of a sweep, for each of `isas` and `modes`.
std::vector<Problem> SweepProblems(std::span<const intact_isa> isas, std::span<const intact_mode> modes,
                                   Effort effort);

/// What a sweep found for one ISA in one mode.
struct SweepCell {
  intact_isa isa = INTACT_ISA_ANY;
  intact_mode mode = INTACT_EXACT;
  int64_t problems = 0;  // run; skipped ones not counted
  int64_t skipped = 0;
  int64_t failed = 0;   // problems
  int64_t outputs = 0;  // elements of all problems run
  int64_t differing = 0;
  std::array<int64_t, kCauseCount> by_cause = {};
  int64_t Unexplained() const { return by_cause[static_cast<size_t>(Cause::kImplementationError)]; }
};

struct SweepFailure {
  std::string problem;    // the line
  std::string reason;     // first difference, or the target's error
  std::string minimised;  // the smallest line found that still fails; only for the first kMaxMinimised
};
inline constexpr size_t kMaxMinimised = 4;

struct SweepSkip {
  std::string problem;
  std::string reason;
};

struct SweepDigest {
  std::string problem;
  uint64_t digest = 0;  // of the output bytes
};

struct SweepResult {
  std::vector<SweepCell> cells;        // in order of first appearance
  std::vector<SweepFailure> failures;  // of all cells
  std::vector<SweepSkip> skips;
  std::vector<SweepDigest> digests;  // of every problem run
  /// Each cell ran something, and nothing failed: what was skipped, or never asked for, proves nothing.
  bool Passed() const;
};

/// Called after each problem.
using Progress = std::function<void(int64_t done, int64_t total)>;

SweepResult RunSweep(std::span<const Problem> problems, const Target& target, const Progress& progress);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_SWEEP_H_
