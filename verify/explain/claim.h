// What a target claims to compute, for each kind of operation.
//
// A claim is "exact", "any" or a name that `intact verify models` lists. If the claims for kinds of
// operations differ, they are joined by "|". Each claim except the last begins with its operations. Example:
// "u8s8: maddubs | depthwise: any | exact". Operations are named by kind, as in reports ("gemm", "conv",
// "depthwise", "deconvolution" or "grouped"), by types ("u8s8" or "u8s8u8"), or by kind and types. The first
// claim that fits an operation counts.
#ifndef INTACT_VERIFY_EXPLAIN_CLAIM_H_
#define INTACT_VERIFY_EXPLAIN_CLAIM_H_

#include <optional>
#include <string>
#include <string_view>

#include "verify/explain/identify.h"

namespace intact::verify {

/// The claim for operations of this kind; "exact" if no claim fits. For grouped weights, claims with types
/// are skipped. Every claim except "any" then counts as "exact".
std::string ClaimOf(std::string_view claims, const OperationKind& kind);

/// What is wrong with `claims`. nullopt if each claim can be parsed, and each claim except the last names its
/// operations.
std::optional<std::string> CheckClaims(std::string_view claims);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_EXPLAIN_CLAIM_H_
