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

/// "200*120 + 180*100 = 42000, clamped to 32767" and where.
std::string Describe(const SaturatedPair& pair, const MaybeConv& conv);

/// "12.3 us", with "  1.08x" if it is exact and there is a saturating kernel; "-" for nullptr.
std::string Describe(const Cost& cost, const Timing* timing);

/// "48 KiB", "2 MiB"; "unknown" for 0.
std::string BytesText(int64_t bytes);

/// "8 cores, 16 threads (2 per core)". If this process may not use all threads: "1 core, 1 of 16 online
/// threads (up to 2 per core)".
std::string CoresText(const support::Machine& machine);

/// "L1d 48 KiB, L2 2 MiB, L3 32 MiB per 8 threads".
std::string CachesText(const support::Machine& machine);

/// One line on the differences found and up to `max_listed` of them with their pairs.
std::string ToText(const Comparison& comparison, int64_t max_listed);
std::string ToText(const support::Machine& machine);
std::string ToText(const std::vector<support::IsaStatus>& isas);
std::string ToText(const Audit& audit);
/// A line for each output: what computed it, and which engines are known to compute like this.
std::string ToText(std::span<const Recorded> recorded);
/// The same for several layers, as a table.
std::string RecordedTable(std::span<const Recorded> recorded);
std::string ToText(const LayerCheck& check);
std::string ToText(std::span<const Cost> costs);
std::string ToText(const PairMap& map);
std::string ToText(const SaturationMap& map);
std::string ToText(const Ramp& ramp);
/// What a target computes, a line for each arithmetic of each kind of operation.
std::string ToText(const std::vector<Mixture>& mixtures);
/// `target`: as --target names it, in the commands that run failures again; "" for our own.
std::string ToText(const SweepResult& sweep, const std::string& target = {});
/// What was run, failed and differed: a row for each ISA and mode of our own kernels.
std::string CellsText(const SweepResult& sweep, const std::string& target);
std::string FailuresText(const SweepResult& sweep, const std::string& target);
/// The command that runs a problem's line again. `target`: as in ToText() of a sweep.
std::string ReplayCommand(const std::string& problem, const std::string& target);
/// Why problems were skipped, the most frequent reasons first.
std::string SkipsText(const std::vector<SweepSkip>& skips);
/// A line: PASSED, FAILED or NOTHING WAS COMPARED, and the numbers. `random`: as in VerdictWith().
std::string VerdictText(const SweepResult& sweep, const SweepResult* random = nullptr);
/// A line on the problems that were left when the target was given up; "" if there are none.
std::string NotRunText(const SweepResult& sweep);
/// What was run, what is computed, and failures if there are any.
std::string ToText(const RandomSweepResult& random, const std::string& target = {});
/// A row for each ramp.
std::string ToText(std::span<const Ramp> ramps);
/// A row for each layer.
std::string ToText(std::span<const LayerAudit> audits);
/// The last line of a standard run.
std::string ParityText(const Report& report);
std::string ToText(const ReportComparison& comparison);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_REPORT_REPORT_TERMINAL_H_
