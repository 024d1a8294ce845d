// Which pairs of depths a target adds in int16: found by probing, one pair at a time.
//
// Each output column has two weights of ±127, at depths i and j, and every other weight is 0. All activations
// are at their maximum. The exact sum of the two products is ±64770. A pair that is added in int16 gives
// 32767 or −32768 instead. A run has a column for each pair (i, j), so one run finds all pairs.
// docs/peers_methods.md describes the method.
//
// A convolution's depths are numbered in the flattened window: depth = tap·C + channel, where C is the number
// of channels of a group.
#ifndef INTACT_VERIFY_STUDIES_PAIR_PROBE_H_
#define INTACT_VERIFY_STUDIES_PAIR_PROBE_H_

#include <cstdint>
#include <intact/intact.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/json_file.h"
#include "verify/problem/target.h"

namespace intact::verify {

/// The pairs of one operator, for one combination of types.
struct ProbedPairs {
  std::string operation;    // "product", "convolution 3x3, 4 channels", …
  bool is_padding = false;  // whether the input is one pixel: all taps except the centre read padding
  std::string types;        // "u8s8s32"
  int64_t channels = 0;     // a group's input channels; 0: the operator is a GEMM
  int64_t kernel_height = 1, kernel_width = 1;
  int64_t depths = 0;
  std::vector<std::pair<int64_t, int64_t>> clamping;  // pairs of depths that clamp, ascending
  int64_t other_sums = 0;  // columns whose sum is neither exact nor clamped to int16
  Error error;             // why a run failed; UNSUPPORTED if the target does not run this operator
};

/// The pairing as a word for programs: "none", "depths", "within_tap", "flattened", "within_tap_or_flattened"
/// (if both rules give these pairs), "kernel_row", "kernel_column", "all" or "other". If the operator probes padding: "multiplied" or
/// "skipped". Without a result: "failed" or "unsupported".
std::string PairingOf(const ProbedPairs& pairs);
/// The pairing in words for people.
std::string InWords(const ProbedPairs& pairs);

/// Probes GEMMs of one row and of five, and convolutions of 3×3: 1, 3 and 4 channels, groups of 2, 3 and 4,
/// depthwise with one output and with two per channel, and padding. With one channel in a group the kernel is also 5×5 and
/// 1×4, and the output also has 8 columns. Probes all types that `target` supports,
/// and no feature that it lacks. `mode`, `isa` and `pairing` apply to our own kernels.
std::vector<ProbedPairs> ProbePairs(const Target& target, intact_mode mode = INTACT_EXACT,
                                    intact_isa isa = INTACT_ISA_ANY,
                                    intact_pairing pairing = INTACT_PAIRING_WITHIN_TAP);

/// One line for each operator and each combination of types.
std::string ToText(const std::vector<ProbedPairs>& probed);
support::Json ToJson(const std::vector<ProbedPairs>& probed);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_STUDIES_PAIR_PROBE_H_
