// Runs many small problems on one target: GEMMs with sizes around the register blocks, and convolutions with
// geometries around edge cases. Together they have all fills, types, epilogues, zero points, strides and
// thread counts: every value of each property and the pairs that matter, not all combinations.
#ifndef INTACT_VERIFY_SWEEP_SWEEP_H_
#define INTACT_VERIFY_SWEEP_SWEEP_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/deadline.h"
#include "verify/explain/compare.h"
#include "verify/explain/judge.h"
#include "verify/explain/oracle.h"
#include "verify/problem/problem.h"
#include "verify/problem/target.h"
#include "verify/sweep/effort.h"

namespace intact::verify {

/// The problems of a sweep, for each of `isas` and `modes`.
std::vector<Problem> SweepProblems(std::span<const intact_isa> isas, std::span<const intact_mode> modes,
                                   Effort effort);

/// What a sweep found for one ISA in one mode.
struct SweepCell {
  intact_isa isa = INTACT_ISA_ANY;
  intact_mode mode = INTACT_EXACT;
  int64_t problems = 0;  // problems that were run, without skipped problems
  int64_t skipped = 0;
  int64_t failed = 0;   // problems that failed
  int64_t outputs = 0;  // output elements of all problems that were run
  int64_t differing = 0;
  std::array<int64_t, kCauseCount> by_cause = {};
  int64_t Unexplained() const { return by_cause[static_cast<size_t>(Cause::kImplementationError)]; }
  /// Adds the counts of `other`, a cell of other problems with this ISA and mode.
  void Add(const SweepCell& other);
};

struct SweepFailure {
  std::string problem;           // the line
  std::string reason;            // first difference, or the target's error
  std::string kind;              // Failure::Text(): equal for all failures of one kind
  std::string minimised;         // the smallest line found that still fails, if it was minimised
  std::string minimised_reason;  // the reason of the minimised line, and the earlier calls that it needs
  /// The line to run again.
  const std::string& Line() const { return minimised.empty() ? problem : minimised; }
  /// Why Line() fails.
  const std::string& Reason() const { return minimised.empty() ? reason : minimised_reason; }
};

/// Which failures of a sweep are minimised: the first of each kind, so that no kind hides the others.
class MinimisedChoice {
 public:
  /// Whether to minimise the next failure, a failure of this kind.
  bool Take(const std::string& kind);

 private:
  std::map<std::string, size_t> taken_;
  size_t all_ = 0;
};
inline constexpr size_t kMinimisedOfAKind = 2;
inline constexpr size_t kMaxMinimised = 24;
/// After this many failures with outputs that no arithmetic makes, failures are only counted, so that a target that
/// is wrong everywhere does not take hours. Targets that claim nothing are always explained.
inline constexpr int64_t kMostExplained = 100;
/// No failure is minimised after this time was spent on minimising others.
inline constexpr std::chrono::seconds kMostMinimising{300};

struct SweepSkip {
  std::string problem;
  std::string reason;
};

/// A reason of skips, the number of problems that were skipped for it, and the first of these problems.
struct SkipReason {
  std::string reason;
  int64_t problems = 0;
  std::string example;
};
/// The reasons of `skips`, the most frequent first.
std::vector<SkipReason> SkipReasons(const std::vector<SweepSkip>& skips);

struct SweepDigest {
  std::string problem;
  uint64_t digest = 0;  // of the output bytes
};

/// The arithmetics that may have computed the outputs of a problem without an ISA, on targets that are not
/// ours. Of grouped weights: the phrase of one arithmetic that makes all outputs.
struct SweepComputed {
  std::string problem;
  int64_t differing = 0;             // outputs that differ from the contract
  bool would_show_clamping = false;  // as in Comparison
  std::vector<std::string> reproduced_by;
  std::string in_parts;  // PartsInWords()
};

/// The fields of SweepComputed that SweepOutcome has too.
struct SweepNaming {
  bool would_show_clamping = false;
  std::vector<std::string> reproduced_by;
  std::string in_parts;
};

/// What a sweep found for one problem.
struct SweepOutcome {
  std::string problem;  // the line
  intact_isa isa = INTACT_ISA_ANY;
  intact_mode mode = INTACT_EXACT;
  std::string skipped;    // why it was not run, or ""
  std::string failure;    // the first difference, the target's error, or ""
  std::string kind;       // see SweepFailure
  std::string minimised;  // see SweepFailure
  std::string minimised_reason;
  struct Outputs {
    int64_t outputs = 0;
    int64_t differing = 0;
    std::array<int64_t, kCauseCount> by_cause = {};
    uint64_t digest = 0;
    std::optional<SweepNaming> naming;
  };
  std::optional<Outputs> outputs;  // nullopt if the target returned no outputs
};

/// The largest sizes of problems that were run. For convolutions m, n and k are the pixels, columns and depths
/// of the GEMM of one group, and `batch` counts images.
struct Tried {
  int64_t m = 0, n = 0, k = 0, batch = 0;
  int64_t threads = 0;
  int64_t calls = 0;  // of one plan
  void Add(const Problem& problem);
  /// The problem of a line; does nothing if `line` is no problem line.
  void Add(std::string_view line);
  void Add(const Tried& other);
  bool operator==(const Tried&) const = default;
};

/// The verdict on a sweep.
enum class SweepVerdict : uint8_t {
  kPassed,
  kFailed,
  kNothingCompared,  // all problems of some ISA in some mode were skipped
  kUnfinished,       // a deadline was over first; every problem that was run passed
};

struct SweepResult {
  std::vector<SweepCell> cells;        // in order of first appearance
  std::vector<SweepFailure> failures;  // of all cells
  int64_t expected_failures = 0;       // problems that were run, failed as expected, and count in no `failed`
  std::vector<SweepSkip> skips;
  std::vector<SweepDigest> digests;     // of every problem run
  std::vector<SweepComputed> computed;  // of problems run that name no ISA
  int64_t not_run = 0;      // problems left when the target was given up, or a deadline was over; in no cell
  std::string why_not_run;  // Target::WhyGivenUp(), or support::kTimeIsOver
  Tried tried;              // of all problems that were run
  /// Problems that were skipped, or are not in the sweep, prove nothing.
  SweepVerdict Verdict() const;
  bool Passed() const { return Verdict() == SweepVerdict::kPassed; }
  /// Whether a deadline was over before all problems were run.
  bool IsOutOfTime() const { return not_run > 0 && why_not_run == support::kTimeIsOver; }
  /// The verdict on these problems and on the random problems that were run after them. `random`: nullptr if
  /// there were no random problems.
  SweepVerdict VerdictWith(const SweepResult* random) const;
  /// How many problems were run.
  int64_t Problems() const;
  /// Problems in which each output has an arithmetic, but no single arithmetic makes all outputs.
  int64_t InParts() const;
  /// How many problems failed. `failures` may be only the first of them.
  int64_t Failed() const;
  /// The cell of this ISA and mode. Adds the cell if it does not exist yet.
  SweepCell& CellOf(intact_isa isa, intact_mode mode);
  void Add(const SweepOutcome& outcome);
};

/// Called after each problem.
using Progress = std::function<void(int64_t done, int64_t total)>;

/// After `deadline` no further problem is run.
SweepResult RunSweep(std::span<const Problem> problems, const Target& target, const Progress& progress,
                     const support::Deadline& deadline = {});

/// The known outcomes of problems, by problem line.
using SweepOutcomes = std::map<std::string, SweepOutcome>;
/// Records an outcome. If it returns an error, the sweep ends.
using SweepRecorder = std::function<std::optional<Error>(const SweepOutcome&)>;

/// Runs only problems that are not in `known`; `record` gets each new outcome at once. Progress counts all
/// problems. MinimisedChoice decides which failures are minimised.
Result<SweepResult> RunSweep(std::span<const Problem> problems, const Target& target,
                             const SweepOutcomes& known, const SweepRecorder& record,
                             const Progress& progress, const support::Deadline& deadline = {});

/// Runs problems one by one on a target. Remembers the problems, to find the earlier calls that a failure
/// depends on. Explains failures up to kMostExplained, and minimises the failures that MinimisedChoice chooses.
class Sweeper {
 public:
  explicit Sweeper(const Target& target) : target_(target) {}
  /// `line`: the problem's line.
  SweepOutcome Run(const Problem& problem, const std::string& line);
  /// Uses a known outcome of the next problem, instead of running it.
  void Know(const SweepOutcome& outcome);

 private:
  const Oracle& OracleOf(Problem problem);
  Result<Judgement> Judged(const Problem& problem);
  void Minimise(const Problem& problem, const Failure& failure, const Result<Judgement>& judgement,
                SweepOutcome* outcome);

  const Target& target_;
  std::optional<Oracle> oracle_;  // of the last problem, whatever its ISA
  Problem of_oracle_;
  std::vector<Problem> before_;  // the last problems that ran, in order
  MinimisedChoice choice_;
  std::chrono::steady_clock::duration minimising_{};  // the time spent on minimising
  int64_t explained_ = 0;                             // failures with outputs that no arithmetic makes
};

}  // namespace intact::verify
#endif  // INTACT_VERIFY_SWEEP_SWEEP_H_
