#include "kernels/weights/grouped_certificate.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <vector>

namespace intact::kernels {
namespace {

constexpr int32_t kLeast = std::numeric_limits<int16_t>::min(), kMost = std::numeric_limits<int16_t>::max();

bool Fails(int32_t sum) { return sum > kMost || sum < kLeast; }

// The largest activation with which a pair with this largest sum stays within int16.
int64_t SafeActivation(int32_t largest_sum) {
  if (!Fails(largest_sum)) return kPairsRange.high;
  const int32_t weights = largest_sum / kPairsRange.high;  // their sum, of the weights of one sign
  return (weights < 0 ? kLeast : kMost) / weights;
}

// Writes the certificate of each group of column `n`, and calls visit(k, largest sum) for each pair.
template <class Visit>
void CertifyGroups(const GroupedProblem& problem, const PairedColumns& pairs, int64_t n,
                   std::span<intact_group_certificate> groups, const Visit& visit) {
  std::vector<int8_t> column(static_cast<size_t>(RoundUp(pairs.depth, 2)));
  pairs.copy(n, column.data());
  std::ranges::fill(groups, intact_group_certificate{0, kPairsRange.high});
  for (int64_t k = 0; k < pairs.depth; k += 2) {
    const int8_t* const pair = column.data() + k;
    const int32_t sum = LargestPair(pair[0], pair[1], kPairsRange).sum;
    intact_group_certificate& group = groups[static_cast<size_t>(k / problem.group)];
    group.failing_pairs += Fails(sum) ? 1 : 0;
    group.safe_activation = std::min(group.safe_activation, SafeActivation(sum));
    visit(k, sum);
  }
}

}  // namespace

PairedColumns PairsOf(const GroupedProblem& problem, const GroupedColumns& weights) {
  return {problem.k, problem.columns(), [&](int64_t n, int8_t* to) {
            const uint8_t* const column = weights.weights.data() + n * problem.column_bytes();
            const core::ElementType& codes = problem.codes();
            const int32_t zero = problem.IsPacked() ? codes.lowest : codes.middle();
            for (int64_t k = 0; k < problem.k; ++k) {
              to[k] = static_cast<int8_t>(problem.Code(column, k) - zero);
            }
          }};
}

void CertifyGroups(const GroupedProblem& problem, const PairedColumns& pairs, int64_t n,
                   std::span<intact_group_certificate> groups) {
  CertifyGroups(problem, pairs, n, groups, [](int64_t /*k*/, int32_t /*sum*/) {});
}

intact_pairs_certificate CertifyPairs(const GroupedProblem& problem, const PairedColumns& pairs) {
  intact_pairs_certificate certificate = INTACT_PAIRS_CERTIFICATE_INIT;
  certificate.pairs = CeilDivide(problem.k, 2) * problem.columns();
  int64_t safe_activation = kPairsRange.high;
  std::vector<intact_group_certificate> groups(static_cast<size_t>(problem.groups()));
  for (int64_t n = 0; n < problem.columns(); ++n) {
    CertifyGroups(problem, pairs, n, groups, [&](int64_t k, int32_t sum) {
      if (std::abs(sum) <= std::abs(certificate.largest_sum)) return;
      certificate.largest_sum_n = n;
      certificate.largest_sum_k = k;
      certificate.largest_sum = sum;
    });
    for (int64_t g = 0; g < problem.groups(); ++g) {
      const intact_group_certificate& group = groups[static_cast<size_t>(g)];
      safe_activation = std::min(safe_activation, group.safe_activation);
      certificate.failing_pairs += group.failing_pairs;
      certificate.failing_groups += group.failing_pairs != 0 ? 1 : 0;
      if (group.failing_pairs <= certificate.worst_group_failing_pairs) continue;
      certificate.worst_column = n;
      certificate.worst_group = g;
      certificate.worst_group_failing_pairs = group.failing_pairs;
    }
  }
  certificate.safe_activation = static_cast<int32_t>(safe_activation);
  return certificate;
}

}  // namespace intact::kernels
