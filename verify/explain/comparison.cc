#include "verify/explain/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/names.h"
#include "core/types.h"
#include "verify/problem/element.h"

namespace intact::verify {
namespace {

// Infinity if one of them is NaN, so that it counts as the largest difference.
double AbsDifference(double x, double y) {
  const double difference = std::fabs(x - y);
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
}

}  // namespace

std::string_view ToString(Cause cause) {
  static constexpr Name<Cause> kCauses[] = {
      {"int16 saturation", Cause::kInt16Saturation}, {"int32 overflow", Cause::kInt32Overflow},
      {"reduced weights", Cause::kReducedWeights},   {"float sums", Cause::kFloatSums},
      {"requantization", Cause::kRequantization},    {"implementation error", Cause::kImplementationError}};
  return intact::NameOf(kCauses, cause);
}

int64_t Comparison::Unexplained() const { return by_cause[static_cast<size_t>(Cause::kImplementationError)]; }

Causes Comparison::Explanations() const {
  Causes all = explained_by;
  if (naming && !naming->reproduced_by.empty()) {
    all.arithmetics.insert(all.arithmetics.begin(), naming->reproduced_by.front());
  }
  return all;
}

int64_t Comparison::Explained() const { return differing - Unexplained(); }

ByteComparison CompareBytes(intact_type type, const std::vector<uint8_t>& expected,
                            const std::vector<uint8_t>& actual) {
  const auto size = static_cast<size_t>(core::BytesOf(type));
  ByteComparison result;
  result.outputs = static_cast<int64_t>(expected.size() / size);
  for (int64_t i = 0; i < result.outputs; ++i) {
    const size_t at = static_cast<size_t>(i) * size;
    if (IsSameElement(size, &expected[at], &actual[at])) continue;
    const double value = core::Decode(type, &actual[at]), right = core::Decode(type, &expected[at]);
    if (result.differing++ == 0) {
      result.first_differing = i;
      result.first_expected = right;
      result.first_actual = value;
    }
    const double difference = AbsDifference(right, value);
    result.max_abs_difference = std::max(result.max_abs_difference, difference);
  }
  return result;
}

std::string GroupedNaming::InWords() const {
  if (arithmetic.empty()) return "unexplained";
  return error ? fmt::format("{} (at most {:.2g} % of it)", arithmetic, 100 * *error) : arithmetic;
}

}  // namespace intact::verify
