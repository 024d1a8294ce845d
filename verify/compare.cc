#include "verify/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <utility>

#include "reference/quantize.h"
#include "verify/audit.h"
#include "verify/diagnose.h"
#include "verify/diagnose_conv.h"
#include "verify/diagnose_gemm.h"
#include "verify/fnv1a.h"
#include "verify/place.h"

namespace intact::verify {
namespace {

using reference::Model;

double ElementValue(intact_type type, const uint8_t* element) {
  switch (type) {
    case INTACT_TYPE_NONE:
      break;
    case INTACT_U8:
      return *element;
    case INTACT_S8:
      return static_cast<int8_t>(*element);
    case INTACT_S32: {
      int32_t value = 0;
      std::memcpy(&value, element, sizeof value);
      return value;
    }
    case INTACT_F32: {
      float value = 0;
      std::memcpy(&value, element, sizeof value);
      return value;
    }
    case INTACT_BF16: {
      uint16_t bits = 0;
      std::memcpy(&bits, element, sizeof bits);
      return reference::FromBfloat16(bits);
    }
  }
  return 0;
}

// Infinity if one of them is NaN, so that it shows.
double AbsDifference(double x, double y) {
  const double difference = std::fabs(x - y);
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
}

// All that is known of a problem and of a target's answer. A convolution is the GEMMs of its groups, whose
// columns stand side by side; a GEMM is its own only group.
class Comparer {
 public:
  using Suspect = std::function<std::vector<Suspicion>(const Observation& seen)>;

  // `suspect`: what may be wrong with an output that nothing explains, beside what may be in any GEMM.
  Comparer(const reference::Operation& operation, std::span<const reference::Gemm> groups, Suspect suspect,
           const std::vector<uint8_t>& actual, const std::optional<std::vector<int32_t>>& actual_accumulators,
           int64_t max_listed)
      : type_(operation.c_type),
        groups_(groups),
        operands_(groups.begin(), groups.end()),
        suspect_(std::move(suspect)),
        group_columns_(groups.front().n),
        columns_(group_columns_ * std::ssize(groups)),
        actual_(actual),
        actual_accumulators_(actual_accumulators),
        exact_(reference::Accumulators(operands_, Model::kExact)),
        triple_(reference::Accumulators(operands_, Model::kTriple)),
        expected_(reference::Outputs(operation, columns_, exact_)),
        expected_triple_(reference::Outputs(operation, columns_, triple_)),
        size_(static_cast<size_t>(reference::ElementSize(operation.c_type))),
        max_listed_(max_listed) {}

  Comparison Run() {
    const ByteComparison bytes = CompareBytes(type_, expected_, actual_);
    Comparison result;
    result.outputs = bytes.outputs;
    result.differing = bytes.differing;
    result.max_abs_difference = bytes.max_abs_difference;
    result.first_differing = bytes.first_differing;
    result.digest = Fnv1a(actual_);
    CountSaturation(&result);
    result.off_triple = CompareBytes(type_, expected_triple_, actual_).differing;
    for (int64_t i = result.first_differing; i >= 0 && i < result.outputs; ++i) {
      if (!SameElement(i)) Explain(i, &result);
    }
    return result;
  }

 private:
  bool SameElement(int64_t i) const {
    const size_t at = static_cast<size_t>(i) * size_;
    return std::memcmp(&expected_[at], &actual_[at], size_) == 0;
  }

  void CountSaturation(Comparison* result) const {
    for (const reference::Operands& operands : operands_) {
      for (int64_t m = 0; m < operands.m; ++m) {
        for (int64_t n = 0; n < operands.n; ++n) {
          const int64_t pairs = reference::CountClampedPairs(operands.Row(m), operands.Column(n));
          result->saturated_pairs += pairs;
          result->saturated_accumulators += pairs > 0 ? 1 : 0;
        }
      }
    }
  }

  void Explain(int64_t i, Comparison* result) const {
    const Observation seen = Observe(i);
    Difference difference;
    difference.m = seen.m;
    difference.n = seen.first_column + seen.n;
    difference.expected = ElementValue(type_, &expected_[static_cast<size_t>(i) * size_]);
    difference.actual = ElementValue(type_, seen.element);
    difference.accumulator = seen.exact;
    Classify(seen, triple_[static_cast<size_t>(i)], &difference);
    ++result->by_cause[static_cast<size_t>(difference.cause)];
    if (std::ssize(result->listed) < max_listed_) result->listed.push_back(std::move(difference));
  }

  Observation Observe(int64_t i) const {
    const auto at = static_cast<size_t>(i);
    const int64_t column = i % columns_;
    const auto group = static_cast<size_t>(column / group_columns_);
    Observation seen{groups_[group],
                     operands_[group],
                     i / columns_,
                     column % group_columns_,
                     column - column % group_columns_,
                     exact_[at],
                     &actual_[at * size_],
                     {}};
    if (type_ == INTACT_S32) {
      int32_t accumulator = 0;
      std::memcpy(&accumulator, seen.element, sizeof accumulator);
      seen.actual_accumulator = accumulator;
    } else if (actual_accumulators_) {
      seen.actual_accumulator = (*actual_accumulators_)[at];
    }
    return seen;
  }

  void Classify(const Observation& seen, int32_t triple, Difference* difference) const {
    if (ClassifyInt16(seen, triple, difference)) return;
    const int32_t saturated = seen.WithCompensation(
        reference::Accumulate(Model::kDpbusds, 0, seen.operands.Row(seen.m), seen.operands.Column(seen.n)));
    if (saturated != seen.exact && seen.GivenBy(saturated)) {
      difference->cause = Cause::kInt32Overflow;
      difference->detail = "the sum of products left int32 and was clamped";
      return;
    }
    if (std::optional<std::string> rounding = OtherRounding(seen)) {
      difference->cause = Cause::kRequantization;
      difference->detail = std::move(*rounding);
      return;
    }
    difference->cause = Cause::kImplementationError;
    difference->detail = Diagnose(seen, suspect_(seen));
  }

  static bool ClassifyInt16(const Observation& seen, int32_t triple, Difference* difference) {
    if (!seen.GivenBy(triple)) return false;
    difference->pairs = SaturatedPairs(seen.gemm, seen.m, seen.n);
    difference->pair_count = std::ssize(difference->pairs);
    if (difference->pairs.empty()) return false;
    difference->cause = Cause::kInt16Saturation;
    difference->detail = fmt::format("accumulator {} instead of {}", triple, seen.exact);
    if (difference->pair_count > kMaxPairsListed) difference->pairs.resize(kMaxPairsListed);
    for (SaturatedPair& pair : difference->pairs) pair.n += seen.first_column;
    return true;
  }

  const intact_type type_;
  const std::span<const reference::Gemm> groups_;
  const std::vector<reference::Operands> operands_;
  const Suspect suspect_;
  const int64_t group_columns_, columns_;
  const std::vector<uint8_t>& actual_;
  const std::optional<std::vector<int32_t>>& actual_accumulators_;
  const std::vector<int32_t> exact_;
  const std::vector<int32_t> triple_;
  const std::vector<uint8_t> expected_;
  const std::vector<uint8_t> expected_triple_;
  const size_t size_;
  const int64_t max_listed_;
};

int64_t OutputCount(const reference::Gemm& gemm) { return gemm.rows() * gemm.n; }
int64_t OutputCount(const reference::Conv& conv) {
  return conv.geometry.OutputPixels() * conv.geometry.output_channels;
}

// The same operation with its accumulators as output.
template <class Operation>
Operation AccumulatorProblem(Operation operation) {
  if constexpr (requires { operation.item_scales; }) operation.item_scales.clear();
  operation.c_type = INTACT_S32;
  operation.c_zero_point = 0;
  operation.scales.clear();
  operation.a_scales.clear();
  operation.bias_f32.clear();
  operation.activation = INTACT_ACTIVATION_NONE;
  operation.residual_type = INTACT_TYPE_NONE;
  operation.residual.clear();
  operation.residual_scale = 0.0f;
  operation.residual_zero_point = 0;
  return operation;
}

// A dynamic quantization has none to tell of: with its activations given, its faults would not show.
bool TellsAccumulators(const reference::Gemm& gemm) { return !gemm.is_dynamic(); }
bool TellsAccumulators(const reference::Conv& /*conv*/) { return true; }

template <class Operation>
std::optional<std::vector<int32_t>> RunForAccumulators(const Target& target, const Operation& operation,
                                                       const RunOptions& options) {
  if (!TellsAccumulators(operation)) return std::nullopt;
  const Result<std::vector<uint8_t>> bytes = RunOn(target, AccumulatorProblem(operation), options);
  if (!bytes || bytes->size() != static_cast<size_t>(OutputCount(operation)) * sizeof(int32_t)) {
    return std::nullopt;
  }
  std::vector<int32_t> accumulators(bytes->size() / sizeof(int32_t));
  std::memcpy(accumulators.data(), bytes->data(), bytes->size());
  return accumulators;
}

template <class Operation>
Result<Comparison> VerifyOperation(const Target& target, const Operation& operation,
                                   const RunOptions& options, int64_t max_listed) {
  const Result<std::vector<uint8_t>> actual = RunOn(target, operation, options);
  if (!actual) return actual.error();
  const int64_t size = OutputCount(operation) * reference::ElementSize(operation.c_type);
  if (std::ssize(*actual) != size) {
    return Error{INTACT_INVALID_ARGUMENT, fmt::format("target {} gave {} bytes of output; expected {}",
                                                      target.Name(), actual->size(), size)};
  }
  Comparison comparison = Compare(operation, *actual, std::nullopt, max_listed);
  if (comparison.Parity() || operation.c_type == INTACT_S32) return comparison;
  return Compare(operation, *actual, RunForAccumulators(target, operation, options), max_listed);
}

}  // namespace

std::string_view ToString(Cause cause) {
  switch (cause) {
    case Cause::kInt16Saturation:
      return "int16 saturation";
    case Cause::kInt32Overflow:
      return "int32 overflow";
    case Cause::kRequantization:
      return "requantization";
    case Cause::kImplementationError:
      return "implementation error";
  }
  return "unknown";
}

int64_t Comparison::Unexplained() const { return by_cause[static_cast<size_t>(Cause::kImplementationError)]; }

int64_t Comparison::Explained() const { return differing - Unexplained(); }

ByteComparison CompareBytes(intact_type type, const std::vector<uint8_t>& expected,
                            const std::vector<uint8_t>& actual) {
  const auto size = static_cast<size_t>(reference::ElementSize(type));
  ByteComparison result;
  result.outputs = static_cast<int64_t>(expected.size() / size);
  for (int64_t i = 0; i < result.outputs; ++i) {
    const size_t at = static_cast<size_t>(i) * size;
    if (std::memcmp(&expected[at], &actual[at], size) == 0) continue;
    if (result.differing++ == 0) result.first_differing = i;
    const double difference =
        AbsDifference(ElementValue(type, &expected[at]), ElementValue(type, &actual[at]));
    result.max_abs_difference = std::max(result.max_abs_difference, difference);
  }
  return result;
}

std::string PlaceOf(const Comparison& comparison, const Difference& difference) {
  if (comparison.item_rows == 0) return OutputPlace(comparison.conv, difference.m, difference.n);
  return fmt::format("item {} {}", difference.m / comparison.item_rows,
                     OutputPlace({}, difference.m % comparison.item_rows, difference.n));
}

namespace {

// Adds item `i` of a batch to those before it.
void Append(Comparison item, int64_t i, int64_t max_listed, Comparison* batch) {
  if (batch->first_differing < 0 && item.first_differing >= 0) {
    batch->first_differing = batch->outputs + item.first_differing;
  }
  batch->outputs += item.outputs;
  batch->differing += item.differing;
  batch->max_abs_difference = std::max(batch->max_abs_difference, item.max_abs_difference);
  for (size_t cause = 0; cause < kCauseCount; ++cause) batch->by_cause[cause] += item.by_cause[cause];
  batch->saturated_accumulators += item.saturated_accumulators;
  batch->saturated_pairs += item.saturated_pairs;
  batch->off_triple += item.off_triple;
  for (Difference& difference : item.listed) {
    if (std::ssize(batch->listed) == max_listed) break;
    difference.m += i * batch->item_rows;
    for (SaturatedPair& pair : difference.pairs) pair.m = difference.m;
    batch->listed.push_back(std::move(difference));
  }
}

}  // namespace

Comparison Compare(const reference::Gemm& gemm, const std::vector<uint8_t>& actual,
                   const std::optional<std::vector<int32_t>>& actual_accumulators, int64_t max_listed) {
  GemmSuspects suspects(gemm);
  const auto compare_item = [&](const reference::Gemm& item, int64_t i, const std::vector<uint8_t>& bytes,
                                const std::optional<std::vector<int32_t>>& accumulators) {
    const auto suspect = [&suspects, i](const Observation& seen) { return suspects.Of(seen, i); };
    return Comparer(item, {&item, 1}, suspect, bytes, accumulators, max_listed).Run();
  };
  if (gemm.batch == 1 && !gemm.has_own_b) return compare_item(gemm, 0, actual, actual_accumulators);
  Comparison batch;
  batch.item_rows = gemm.m;
  batch.digest = Fnv1a(actual);
  const auto outputs = gemm.m * gemm.n;
  const int64_t bytes = outputs * reference::ElementSize(gemm.c_type);
  for (int64_t i = 0; i < gemm.batch; ++i) {
    std::optional<std::vector<int32_t>> accumulators;
    if (actual_accumulators) {
      const auto begin = actual_accumulators->begin() + i * outputs;
      accumulators.emplace(begin, begin + outputs);
    }
    const auto begin = actual.begin() + i * bytes;
    Append(compare_item(reference::Item(gemm, i), i, {begin, begin + bytes}, accumulators), i, max_listed,
           &batch);
  }
  return batch;
}

Comparison Compare(const reference::Conv& conv, const std::vector<uint8_t>& actual,
                   const std::optional<std::vector<int32_t>>& actual_accumulators, int64_t max_listed) {
  const std::vector<reference::Gemm> groups = reference::Lower(conv);
  const auto geometry = [&conv](const Observation& seen) {
    return SuspectGeometry(conv, seen.m, seen.first_column + seen.n);
  };
  Comparison comparison = Comparer(conv, groups, geometry, actual, actual_accumulators, max_listed).Run();
  comparison.conv = conv.geometry;
  return comparison;
}

Result<Comparison> Verify(const Target& target, const reference::Gemm& gemm, const RunOptions& options,
                          int64_t max_listed) {
  return VerifyOperation(target, gemm, options, max_listed);
}

Result<Comparison> Verify(const Target& target, const reference::Conv& conv, const RunOptions& options,
                          int64_t max_listed) {
  return VerifyOperation(target, conv, options, max_listed);
}

Model ExpectedModel(intact_mode mode, intact_isa isa) {
  const bool clamps = SaturatesInt16(isa) || isa == INTACT_ISA_ANY;
  return mode == INTACT_SATURATING && clamps ? Model::kTriple : Model::kExact;
}

std::vector<SaturatedPair> SaturatedPairs(const reference::Gemm& gemm, int64_t m, int64_t n) {
  std::vector<SaturatedPair> pairs;
  for (int64_t k = 0; k + 1 < gemm.k; k += 2) {
    SaturatedPair pair;
    pair.m = m;
    pair.n = n;
    pair.k = k;
    pair.a0 = reference::ShiftedActivation(gemm, m, k);
    pair.a1 = reference::ShiftedActivation(gemm, m, k + 1);
    pair.w0 = reference::ShiftedWeight(gemm, k, n);
    pair.w1 = reference::ShiftedWeight(gemm, k + 1, n);
    pair.true_sum = reference::PairSum(pair.a0, pair.a1, pair.w0, pair.w1);
    pair.clamped_sum = reference::Maddubs(pair.a0, pair.a1, pair.w0, pair.w1);
    if (pair.true_sum != pair.clamped_sum) pairs.push_back(pair);
  }
  return pairs;
}

}  // namespace intact::verify
