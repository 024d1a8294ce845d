// How engines compute grouped weights, rightly or wrongly. The verifier names the model that reproduces an
// engine's outputs.
#ifndef INTACT_REFERENCE_MODELS_GROUPED_H_
#define INTACT_REFERENCE_MODELS_GROUPED_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/contract/grouped.h"

namespace intact::reference {

/// The deviations from the contract that a model may have.
enum class GroupedModel : uint8_t {
  kContract,
  kSeparateRounding,     // product and sum of a group are rounded separately, without FMA
  kReversedGroups,       // the last group is added first
  kRowScaleInside,       // with a scale for each row: that scale multiplies the scale of each group
  kSumsInFloat,          // float32 sums over all depths, not integers in a group
  kEightSums,            // ggml's plain kernels: eight float32 sums; sum i has depths 4i to 4i + 3 of 32
  kClampedPairs,         // sums of two products of 8-bit weights are clamped to int16 (VPMADDUBSW)
  kSwappedNibbles,       // the high four bits of a byte are the even depth
  kNibbleHalves,         // the low four bits of a group's bytes are its first half, as in GGUF
  kNextZeroPoint,        // the zero point of the next group of the column
  kPreviousZeroPoint,    // the zero point of the group before, in the column
  kNextColumnZeroPoint,  // the zero point of the next column
  kNoZeroPoint,          // zero points of weights are 0
  kEarlyGroups,          // groups after the first begin a depth too early
  kLateGroups,           // groups after the first begin a depth too late
  kNoShortGroup,         // a last group that is shorter does not count
  kNextScale,            // the scale of the next group of the column
  kOtherHalf,            // groups 2i and 2i + 1 of a column use each other's scales
  kOtherSign,            // weights are read with the other sign
  kFirstExpert,          // all rows use the weights, scales, zero points and bias of expert 0
  kFirstExpertWeights,   // all rows use the weights, scales and zero points of expert 0
  kNextExpert,           // an expert's rows use the weights, scales, zero points and bias of the next expert
  kEarlyExperts,       // an expert's last row uses the weights, scales, zero points and bias of the next one
  kFirstExpertScales,  // all experts use the scales and zero points of expert 0
  kFirstExpertBias,    // all experts use the bias of expert 0
  kPreviousItem,       // an item of a batch uses the activations of the item before
  kMinimumsLast,       // the minimums are added after the sums of all groups
  kMinimumOfGroup,     // the minimum of a group is added right after the sum of the group
  kNextMinimum,        // the minimum of the next group of the column
  kOtherMinimumSign,   // minimums are subtracted
  kNoMinimum,          // minimums are 0
};

/// How an engine quantizes numbers to s8 activations.
enum class GroupedActivations : uint8_t {
  kContract,
  kReciprocal,      // rne(x·(127/max)), with the scale max/127; ONNX Runtime
  kReciprocalHalf,  // as kReciprocal; then the scale is rounded to float16; ggml
};

struct GroupedArithmetic {
  GroupedActivations activations = GroupedActivations::kContract;
  GroupedModel model = GroupedModel::kContract;
  bool operator==(const GroupedArithmetic&) const = default;
};

/// All models except the contract, the least strange first.
std::span<const GroupedModel> AllGroupedModels();
/// Whether the model computes a wrong product. The other models add the right numbers in another way.
bool IsFault(GroupedModel model);
/// A phrase for reports: "groups are added from the last to the first".
std::string_view ToString(GroupedModel model);
/// A phrase, without the parts that are the contract's; "exact" for the contract.
std::string ToString(const GroupedArithmetic& arithmetic);
/// Outputs() by `model`.
std::vector<uint8_t> Outputs(const Grouped& grouped, GroupedModel model);

/// The quantizations that may have made the activations of `grouped`, the contract first.
std::vector<GroupedActivations> ActivationsOf(const Grouped& grouped);
/// `grouped` with its activations quantized in this way.
Grouped Requantized(const Grouped& grouped, GroupedActivations activations);

/// The largest error of an output as a share of the bound of float32 sums of the groups in any order, if the
/// integers that are added are exact; nullopt if an output is outside. Zero points may be applied to the sums
/// of each group. If the sums of an output may leave float32, it must be `contract`, the bytes of
/// Outputs(grouped).
std::optional<double> RoundingError(const Grouped& grouped, const std::vector<uint8_t>& contract,
                                    const std::vector<uint8_t>& outputs);

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_MODELS_GROUPED_H_
