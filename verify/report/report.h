// The report of a machine's standard run: report.json for programs and report.html for people.
//
// report.json, schema version 3:
//
//   schema           "intact-report"; schema_version 3; version of intact
//   machine          cpu, family, model (as CPUID reports them); what this process may use: cores, threads
//                    (logical CPUs); online_threads (of the machine), threads_per_core (the maximum, if cores
//                    differ); l1d_bytes, l2_bytes, l3_bytes (the size of one cache), l1d_threads, l2_threads,
//                    l3_threads (logical CPUs that share one cache). A number that is unknown is 0
//   isas[]           isa, available, reason (why not), saturates (in int16, in saturating mode and in other
//                    libraries), reduce_range (the value that suits this ISA)
//   pair_map         all inputs of one vpmaddubsw lane: inputs, clamped_high, clamped_low, counted_by,
//                    model and instruction (high, low, total of each), agrees,
//                    clamped_by_activation_max {"1" … "255"}, clamped_by_weight_magnitude_max {"1" … "128"},
//                    clamped_by_widths[] (activation_bits, weight_bits, clamped)
//   saturation_map   isa, measured, agrees, cells[]: amax, wmax, problem (repro line), outputs, predicted,
//                    measured (outputs that differ from exact), mispredicted, share, max_abs_error, witness
//                    (pair)
//   ramp[]           layer, isa, mode, steps, columns, outputs, non_monotonic, columns_with_kinks, explained,
//                    unexplained, shown (the column with the most kinks): column, activations[], outputs[],
//                    exact[]; kinks[]: row, n, activations[2], outputs[2], explained, saturated_pairs, pairs[]
//   sweep            cells[], one per ISA and mode: isa, mode, problems, skipped, failed, outputs,
//                    differing (from exact), explained, unexplained, causes {cause: outputs that differ by
//                    it}; skipped[]: problem, reason; tried: the largest m, n, k, batch, threads and calls;
//                    digests {repro line: FNV-1a of the output's bytes}: equal on every machine;
//                    not_run {problems, reason}: only if the target was given up or --time was over: how many
//                    problems were not run, and why
//   grouped_sweep    grouped weights (intact/grouped.h): as sweep
//   reduce_range[]   layer, and its audit (verify/explain/audit.h): verdict, max_activation, …; an object for
//                    each remedy
//   cost[]           what exactness costs or gains here, for each built-in layer (verify/studies/cost.h):
//                    layer, m, n, k, threads, why_not_seven_bits (why activations or the zero point leave
//                    [0, 127]; "" if they do not), certificate (full range: pairing, a_min, a_max, pairs,
//                    failing_pairs, failing_share, worst_channel, worst_channel_failing_pairs,
//                    accumulator_min, accumulator_max), timings[]: isa, mode, seven_bits (an activation
//                    range of [0, 127]), kernel, right (equal to its model; else not timed), microseconds
//                    (median), spread (interquartile range over median), speed_up (times as fast as the
//                    saturating kernel of that ISA; null if there is none), items_per_quad, groups_per_quad
//                    (of the plan's schedule for many rows; null without a schedule). `kernel` names the
//                    kernel for many rows
//   failures[]       problems that a sweep found wrong: problem (repro line: `intact verify replay
//                    '<line>'`), reason, kind (equal for similar failures), minimised (a smaller line that
//                    fails too, or ""), minimised_reason
//   missing[]        parts that are null because --time was over
//   parity           true if no part is missing or shows a fault; determines the exit status
//
// `verify layer --json` writes an array of objects, one for each layer. If --time was over before a layer, its
// object has only layer and missing. The others have: layer, operator, isa, mode, outputs, expect (a file or
// null), differing and max_abs_difference (from the file, or from exact without a file), differing_from_exact,
// model, differing_from_model, saturated_accumulators, saturated_pairs, explained, unexplained,
// causes, digest, reduce_range and cost as above, differences[]: m, n, expected, actual,
// accumulator, cause, detail, saturated_pairs, pairs[]. With --expect, the field expected describes the file:
// computes (in words), arithmetic (the one that reproduces it, or most of it; see
// reference/models/arithmetic.h), saturation_shows (whether pairs clamped to int16 would make another
// output), unexplained_by_it, first_unexplained (a place or null), also_reproduced_by[] (other models that
// reproduce it), differing_from_exact, max_abs_difference, causes, differences[].
//
// verify/report/sweep_file.h describes what `verify sweep --json` writes.
//
// A pair is m, n, its depths k and k1, a0, a1, w0, w1, true_sum, clamped_sum. For convolutions,
// reference/models/lowering.h defines m, n and k (n is the output channel). A pair of a convolution also has
// batch and output (the image and the pixel's coordinates, outermost first), tap (coordinates in the filter),
// tap1 (the tap of k1, if the taps differ) and channels (two input channels). Differences also have batch
// and output, witnesses tap, tap1 and channels.
#ifndef INTACT_VERIFY_REPORT_REPORT_H_
#define INTACT_VERIFY_REPORT_REPORT_H_

#include <intact/intact.h>

#include <cstdint>
#include <intact/intact.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "support/machine.h"
#include "support/origin.h"
#include "verify/explain/audit.h"
#include "verify/studies/cost.h"
#include "verify/studies/pairs.h"
#include "verify/studies/ramp.h"
#include "verify/studies/saturation_map.h"
#include "verify/sweep/sweep.h"

namespace intact::verify {

struct LayerAudit {
  std::string layer;
  Audit audit;
};

/// Names of parts, for Report::missing.
inline constexpr const char* kSaturationMap = "saturation map";
inline constexpr const char* kRamp = "ramp";
inline constexpr const char* kReduceRange = "reduce_range";
inline constexpr const char* kCost = "cost of exactness";

struct Report {
  support::Origin origin;
  support::Machine machine;
  std::vector<support::IsaStatus> isas;
  PairMap pairs;
  SaturationMap map;
  std::vector<Ramp> ramps;
  SweepResult sweep;
  SweepResult grouped;  // of grouped weights
  std::vector<LayerAudit> audits;
  std::vector<Cost> costs;
  /// Parts that a deadline prevented. A sweep counts the problems that a deadline prevented.
  std::vector<std::string> missing;

  /// Whether every kernel computed what its mode promises, in all parts.
  bool Parity() const;
  /// Whether only a deadline prevented parity.
  bool IsUnfinished() const;
  bool Has(std::string_view part) const;
  /// The missing parts and problems; "" if nothing is missing.
  std::string MissingText() const;
};

/// The ramps of the built-in layers, on all ISAs that this machine offers.
Result<std::vector<Ramp>> RunBuiltinRamps();
/// The audits of the built-in layers.
std::vector<LayerAudit> AuditBuiltinLayers();

}  // namespace intact::verify
#endif  // INTACT_VERIFY_REPORT_REPORT_H_
