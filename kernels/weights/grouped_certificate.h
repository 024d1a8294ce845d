// The certificate of grouped weights (intact_pairs_certificate): which pairs of weights could saturate in
// kernels of other libraries. certificate.h defines pairs that fail.
#ifndef INTACT_KERNELS_WEIGHTS_GROUPED_CERTIFICATE_H_
#define INTACT_KERNELS_WEIGHTS_GROUPED_CERTIFICATE_H_

#include <intact/grouped.h>

#include <cstdint>
#include <span>

#include "kernels/problem/grouped_problem.h"
#include "kernels/weights/certificate.h"

namespace intact::kernels {

/// The activations of a certificate of grouped weights.
inline constexpr ActivationRange kPairsRange = {0, 255};

/// The weights of all experts as the instruction sees them. `problem` and `weights` outlive the result.
PairedColumns PairsOf(const GroupedProblem& problem, const GroupedColumns& weights);

/// The certificates of the groups of column `n`. `groups` has room for problem.groups().
void CertifyGroups(const GroupedProblem& problem, const PairedColumns& pairs, int64_t n,
                   std::span<intact_group_certificate> groups);

intact_pairs_certificate CertifyPairs(const GroupedProblem& problem, const PairedColumns& pairs);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_GROUPED_CERTIFICATE_H_
