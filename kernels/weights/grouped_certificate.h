// The certificate of grouped weights (intact_pairs_certificate): which pairs of weights could saturate in
// kernels of other libraries.
#ifndef INTACT_KERNELS_WEIGHTS_GROUPED_CERTIFICATE_H_
#define INTACT_KERNELS_WEIGHTS_GROUPED_CERTIFICATE_H_

#include <intact/grouped.h>

#include <cstdint>

#include "kernels/problem/grouped_problem.h"

namespace intact::kernels {

/// The pairs of dense weights: columns() columns of column_bytes() bytes, of all experts in one order.
class GroupedPairs {
 public:
  GroupedPairs(const GroupedProblem& problem, const uint8_t* weights)
      : problem_(problem), weights_(weights) {}

  intact_pairs_certificate Certify() const;
  intact_group_certificate CertifyGroup(int64_t n, int64_t g) const;
  /// Writes at most `count` failing pairs, from number `first` on, and returns the number written.
  int64_t ListFailing(int64_t first, int64_t count, intact_failing_pair* pairs) const;

 private:
  /// The weight of depth k as the instruction sees it; 0 beyond the last depth.
  int32_t At(int64_t k, int64_t n) const;
  /// The pair of depths k and k + 1, with the activations of its largest sum.
  intact_failing_pair PairAt(int64_t k, int64_t n) const;

  const GroupedProblem& problem_;
  const uint8_t* weights_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_GROUPED_CERTIFICATE_H_
