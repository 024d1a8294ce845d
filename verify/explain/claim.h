// What a target claims to compute, of one kind of operation or another.
//
// A claim is "exact", "any" or words of `intact verify models`. Where kinds differ, claims are joined by "|",
// each but the last with the operations that it is of in front: "u8s8: maddubs | depthwise: any | exact".
// Operations are told as reports have them, by any of their words: "gemm", "conv", "depthwise" or
// "deconvolution"; types of A and B, or of C too; both. The first claim that is of an operation counts.
#ifndef INTACT_VERIFY_EXPLAIN_CLAIM_H_
#define INTACT_VERIFY_EXPLAIN_CLAIM_H_

#include <optional>
#include <string>
#include <string_view>

#include "verify/explain/identify.h"

namespace intact::verify {

/// The claim that operations of this kind are held to; "exact" if `claims` has none of them.
std::string ClaimOf(std::string_view claims, const OperationKind& kind);

/// What is wrong with claims: nothing if each can be read, and the last is of all that is left.
std::optional<std::string> CheckClaims(std::string_view claims);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_EXPLAIN_CLAIM_H_
