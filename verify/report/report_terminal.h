// The verifier's findings as text for a terminal: aligned, in plain words, each ending in a newline.
#ifndef INTACT_VERIFY_REPORT_REPORT_TERMINAL_H_
#define INTACT_VERIFY_REPORT_REPORT_TERMINAL_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "verify/explain/audit.h"
#include "verify/problem/place.h"
#include "verify/report/report.h"
#include "verify/report/report_compare.h"
#include "verify/studies/cost.h"
#include "verify/studies/layer_check.h"
#include "verify/studies/pairs.h"
#include "verify/studies/ramp.h"
#include "verify/studies/saturation_map.h"
#include "verify/sweep/mixture.h"
#include "verify/sweep/random_sweep.h"
#include "verify/sweep/sweep.h"

namespace intact::verify {

/// The output and the depths of the pair, then "200*120 + 180*100 = 42000, clamped to 32767".
std::string Describe(const SaturatedPair& pair, const MaybeConv& conv);

/// "12.3 us   5 %   1.08x": the time, its spread, and for an exact kernel the saturating kernel's time over
/// this time (if both are timed). "-" for nullptr.
std::string Describe(const Cost& cost, const Timing* timing);

/// "48 KiB", "2 MiB"; "unknown" for 0.
std::string BytesText(int64_t bytes);

/// "INTEL(R) XEON(R), family 6, model 167, stepping 8, microcode 0x2b000571".
std::string CpuText(const support::Machine& machine);

/// "8 cores, 16 threads (2 per core)". If this process may not use all threads: "1 core, 1 of 16 online
/// threads (up to 2 per core)".
std::string CoresText(const support::Machine& machine);

/// "L1d 48 KiB, L2 2 MiB, L3 32 MiB per 8 threads".
std::string CachesText(const support::Machine& machine);

/// Counts of differences and clamped sums, then up to `max_listed` differences, each with its clamped pairs.
std::string ToText(const Comparison& comparison, int64_t max_listed);
std::string ToText(const support::Machine& machine);
std::string ToText(const std::vector<support::IsaStatus>& isas);
std::string ToText(const Audit& audit);
/// A line for each output: the arithmetic that made it, and the engines known to use this arithmetic.
std::string ToText(std::span<const Recorded> recorded);
/// The arithmetic and engines of outputs of several layers, as a table.
std::string RecordedTable(std::span<const Recorded> recorded);
std::string ToText(const LayerCheck& check);
std::string ToText(std::span<const Cost> costs);
std::string ToText(const PairMap& map);
std::string ToText(const SaturationMap& map);
std::string ToText(const Ramp& ramp);
/// The arithmetics that a target uses: a line for each kind of operation and each arithmetic.
std::string ToText(const std::vector<Mixture>& mixtures);
/// `target`: the value of --target in commands that run failures again; "" for our own kernels.
std::string ToText(const SweepResult& sweep, const std::string& target = {});
/// What was run, failed and differed: a row for each ISA and mode of our own kernels.
std::string CellsText(const SweepResult& sweep, const std::string& target);
std::string FailuresText(const SweepResult& sweep, const std::string& target);
/// The command that runs a problem's line again. `target`: the value of --target; "" for our own kernels.
std::string ReplayCommand(const std::string& problem, const std::string& target);
/// Why problems were skipped, the most frequent reasons first.
std::string SkipsText(const std::vector<SweepSkip>& skips);
/// A line: PASSED, FAILED or NOTHING WAS COMPARED, and the numbers of problems; then TriedText(). `random`: the random
/// problems' result; nullptr if none ran.
std::string VerdictText(const SweepResult& sweep, const SweepResult* random = nullptr);
/// A line with the largest sizes that ran. It adds that nothing larger ran. "" if nothing ran.
std::string TriedText(const Tried& tried);
/// A line: how many problems were not run, and why (Target::WhyGivenUp()); "" if all were run.
std::string NotRunText(const SweepResult& sweep);
/// The counts of CellsText(), the target's arithmetics, and the failures.
std::string ToText(const RandomSweepResult& random, const std::string& target = {});
/// A row for each ramp.
std::string ToText(std::span<const Ramp> ramps);
/// A row for each layer.
std::string ToText(std::span<const LayerAudit> audits);
/// The last line of a standard run: whether every kernel computes what its mode promises.
std::string ParityText(const Report& report);
std::string ToText(const ReportComparison& comparison);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_REPORT_REPORT_TERMINAL_H_
