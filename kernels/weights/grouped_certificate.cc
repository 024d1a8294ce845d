#include "kernels/weights/grouped_certificate.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace intact::kernels {
namespace {

constexpr int32_t kMostActivation = 255;

bool Fails(int32_t sum) {
  return sum > std::numeric_limits<int16_t>::max() || sum < std::numeric_limits<int16_t>::min();
}

// The largest activation with which a pair with this largest sum stays within int16.
int64_t SafeActivation(int32_t largest_sum) {
  if (!Fails(largest_sum)) return kMostActivation;
  const int32_t weights = largest_sum / kMostActivation;  // their sum, of the weights of one sign
  return (weights < 0 ? int32_t{std::numeric_limits<int16_t>::min()} : std::numeric_limits<int16_t>::max()) /
         weights;
}

}  // namespace

int32_t GroupedPairs::At(int64_t k, int64_t n) const {
  if (k >= problem_.k) return 0;
  const int32_t code = problem_.Code(weights_ + n * problem_.column_bytes(), k);
  return problem_.IsPacked() ? code - problem_.codes().lowest : code - problem_.codes().middle();
}

intact_failing_pair GroupedPairs::PairAt(int64_t k, int64_t n) const {
  intact_failing_pair pair = {};
  pair.k = k;
  pair.n = n;
  pair.w0 = At(k, n);
  pair.w1 = At(k + 1, n);
  const int32_t positive = std::max(pair.w0, 0) + std::max(pair.w1, 0);
  const int32_t negative = std::min(pair.w0, 0) + std::min(pair.w1, 0);
  const bool is_positive = positive >= -negative;
  pair.a0 = (pair.w0 > 0) == is_positive ? kMostActivation : 0;
  pair.a1 = (pair.w1 > 0) == is_positive ? kMostActivation : 0;
  pair.sum = kMostActivation * (is_positive ? positive : negative);
  return pair;
}

intact_group_certificate GroupedPairs::CertifyGroup(int64_t n, int64_t g) const {
  intact_group_certificate certificate = {0, kMostActivation};
  const int64_t begin = g * problem_.group;
  for (int64_t k = begin; k < begin + problem_.GroupDepth(g); k += 2) {
    const int32_t sum = PairAt(k, n).sum;
    certificate.failing_pairs += Fails(sum) ? 1 : 0;
    certificate.safe_activation = std::min(certificate.safe_activation, SafeActivation(sum));
  }
  return certificate;
}

intact_pairs_certificate GroupedPairs::Certify() const {
  intact_pairs_certificate certificate = INTACT_PAIRS_CERTIFICATE_INIT;
  certificate.pairs = CeilDivide(problem_.k, 2) * problem_.columns();
  int64_t safe_activation = kMostActivation;
  for (int64_t n = 0; n < problem_.columns(); ++n) {
    for (int64_t g = 0; g < problem_.groups(); ++g) {
      const intact_group_certificate group = CertifyGroup(n, g);
      safe_activation = std::min(safe_activation, group.safe_activation);
      certificate.failing_pairs += group.failing_pairs;
      certificate.failing_groups += group.failing_pairs != 0 ? 1 : 0;
      if (group.failing_pairs <= certificate.worst_group_failing_pairs) continue;
      certificate.worst_column = n;
      certificate.worst_group = g;
      certificate.worst_group_failing_pairs = group.failing_pairs;
    }
    for (int64_t k = 0; k < problem_.k; k += 2) {
      const int32_t sum = PairAt(k, n).sum;
      if (std::abs(sum) <= std::abs(certificate.largest_sum)) continue;
      certificate.largest_sum_n = n;
      certificate.largest_sum_k = k;
      certificate.largest_sum = sum;
    }
  }
  certificate.safe_activation = static_cast<int32_t>(safe_activation);
  return certificate;
}

int64_t GroupedPairs::ListFailing(int64_t first, int64_t count, intact_failing_pair* pairs) const {
  int64_t number = 0, written = 0;
  for (int64_t n = 0; n < problem_.columns() && written < count; ++n) {
    for (int64_t k = 0; k < problem_.k && written < count; k += 2) {
      const intact_failing_pair pair = PairAt(k, n);
      if (Fails(pair.sum) && number++ >= first) pairs[written++] = pair;
    }
  }
  return written;
}

}  // namespace intact::kernels
