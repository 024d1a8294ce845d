// What a sweep writes: its JSON, whole or for a shard, and the journal from which a killed sweep resumes.
//
// `verify sweep --json`, `verify grouped --json`, schema version 6:
//
//   schema           "intact-sweep"; schema_version 6; version of intact; build, the digest of the program
//   machine          cpu, family, model (as CPUID reports them)
//   target           name, options, build (the digest of a plug-in's file, else ""), text (the value of
//                    --target), deadline, and takes: features (gemm, conv, grouped), gemm[] and conv[], each with
//                    types and multiples, that problems were fitted to (verify/targets/fit.h); null for our own kernels
//   isas[], mode, effort, emulated   the command's options: the ISAs, the mode, "quick", "standard" or
//                    "thorough", whether in the emulator too
//   grouped_seed     the seed of problems with grouped weights; null for GEMMs and convolutions
//   problems, problems_digest   the number of problems of the whole sweep, and FNV-1a of their lines, each
//                    with a newline
//   shard            index (from 1 on) and count; 1 and 1 for a whole sweep
//   cells[], skipped[], digests {}   results of the shard, as in `sweep` of report.json
//                    (verify/report/report.h)
//   failures[]       failures of the shard, as in report.json
//   arithmetics[], computed {}   for another library's kernels: for each problem how many outputs differ from
//                    exact, whether clamped pairs would have shown (telling), and, if outputs differ, the
//                    arithmetics that reproduce all outputs, as numbers of entries in arithmetics[]; in_parts
//                    if no single arithmetic reproduces all, but each output that differs has one
//   computes[]       what follows from computed (verify/sweep/mixture.h): operation, problems, exact,
//                    telling, parts[] (arithmetic, in_words, problems, sizes); in_parts, unexplained and
//                    without_outputs, each with problems, sizes, example (a line) and what is known of it;
//                    not_explained (a number of problems); and all of it in_words
//   tried            the largest sizes of the shard's problems that ran: m, n, k, batch, threads, calls
//   random           the random problems after the sweep: seed, stream, problems, cells[], tried, failures[]
//                    (the first hundred, and all that are minimised); of a merged sweep: shards (how many
//                    had random problems), problems, cells[], tried, failures[]
//
// Lists are in the order of the sweep's problems. The JSON does not depend on interruptions and shards: a
// sweep that was resumed, or run in shards and merged, writes the bytes of an uninterrupted sweep. This holds
// on two conditions. The target's outputs do not depend on earlier runs. The sweep finds no more failures
// than it explains and has time to minimise (verify/sweep/sweep.h).
//
// A journal (support/journal.h) is lines of JSON. The first has the fields above `cells`, with the schema
// "intact-sweep-journal". Each other line is a problem's outcome, in the order of the shard's problems:
//
//   problem          the line
//   skipped          why it was not run; no other field follows
//   outputs, differing, causes {}, digest   counts and digest of the outputs, if the target gave some
//   telling, reproduced_by[], in_parts   as in computed {}, with arithmetics as texts
//   failure, kind, minimised, minimised_reason   if the problem failed: the fields of failures[] in
//                    report.json, with `reason` named `failure`
//
// The last member of each line is check: the FNV-1a of the line without check. Changed lines are refused.
#ifndef INTACT_VERIFY_REPORT_SWEEP_FILE_H_
#define INTACT_VERIFY_REPORT_SWEEP_FILE_H_

#include <cstdint>
#include <intact/intact.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "support/journal.h"
#include "verify/problem/problem.h"
#include "verify/report/report.h"
#include "verify/report/report_json.h"
#include "verify/sweep/shard.h"
#include "verify/sweep/sweep.h"
#include "verify/targets/fit.h"

namespace intact::verify {

/// What a sweep runs, with which program, on which machine and target.
struct SweepRun {
  std::string version;
  std::string build;
  support::Machine machine;  // only cpu, family and model
  struct TargetId {
    std::string name, options, build;
    std::string text;            // the value of --target; a plug-in's path may differ between machines
    double deadline = 0;         // seconds that a call may take
    std::optional<Takes> takes;  // none for our own kernels
  };
  TargetId target;
  std::vector<intact_isa> isas;
  intact_mode mode = INTACT_EXACT;
  Effort effort = Effort::kStandard;
  std::optional<uint64_t> grouped_seed;  // set: products with grouped weights, drawn with this seed
  bool emulated = false;
  int64_t problems = 0;
  uint64_t problems_digest = 0;
  Shard shard;

  /// The problems of the whole sweep, as this program makes them. Our own kernels run the standard problems.
  /// A target runs the standard problems after fitting.
  FittedProblems Fitted() const;
  std::vector<Problem> AllProblems() const { return Fitted().problems; }
  /// Fills `problems` and `problems_digest`.
  void Describe(std::span<const Problem> all);
};

/// A field with different values in two runs: "mode is "exact" there, "saturating" here".
struct RunMismatch {
  std::string field, text;
};
/// The first field that differs, apart from the shard; nullopt if both runs belong to one sweep.
std::optional<RunMismatch> Mismatch(const SweepRun& there, const SweepRun& here);

Json ToJson(const SweepRun& run, const SweepResult& result);

/// The outcomes in a run's journal. A new journal gets the run's first line. Errors name the line.
Result<SweepOutcomes> Resume(const std::string& path, const SweepRun& run, support::Journal* journal);
std::optional<Error> Append(const SweepOutcome& outcome, support::Journal* journal);

/// What the random problems after the sweep found.
struct RandomFindings {
  int64_t shards = 0;  // number of shards that ran random problems
  int64_t problems = 0;
  SweepResult sweep;  // only cells, failures and sizes
};
Json ToJson(const RandomFindings& random);
/// The number of problems, and their results. `target`: the value of --target; "" for our own kernels.
std::string ToText(const RandomFindings& random, const std::string& target);

/// A file of a sweep: JSON or a journal. A journal has no random problems.
struct SweepPart {
  std::string path;
  SweepRun run;
  SweepResult result;
  std::optional<RandomFindings> random;
};
Result<SweepPart> ReadSweepPart(const std::string& path);

/// The whole sweep. `parts` must have each shard once, and each shard must have exactly its problems. Random
/// findings are added up.
Result<SweepPart> MergeSweeps(std::span<const SweepPart> parts);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_REPORT_SWEEP_FILE_H_
