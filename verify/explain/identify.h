// Finds the arithmetic that reproduces all that a target output, byte for byte, among those that libraries
// are known to have: which pairs are clamped to int16, when int16 sums are widened, which operand is shifted,
// how sums are rounded to outputs.
//
// One output proves little: of hundreds of candidates some reproduce it by chance. So the candidates are all
// that reproduce every output of a problem; and of many problems (mixture.h) those that reproduce most of
// them. A candidate that nothing tells from the contract is never named: where the contract itself reproduces
// all, that is the answer, and whether the problem could have shown saturation.
#ifndef INTACT_VERIFY_EXPLAIN_IDENTIFY_H_
#define INTACT_VERIFY_EXPLAIN_IDENTIFY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/models/arithmetic.h"
#include "verify/explain/oracle.h"
#include "verify/problem/place.h"
#include "verify/problem/problem.h"

namespace intact::verify {

/// Operations whose arithmetic a library may choose for itself.
struct OperationKind {
  enum class Shape : uint8_t { kGemm, kConv, kDepthwise };
  Shape shape = Shape::kGemm;
  intact_type a_type = INTACT_U8, b_type = INTACT_S8, c_type = INTACT_S32;
  bool transposed = false;  // convolutions; their sums are as those of others
  bool operator==(const OperationKind&) const = default;
};
OperationKind KindOf(const Oracle& oracle);
OperationKind KindOf(const Problem& problem);
/// "gemm", "conv", "depthwise"; "deconvolution" of transposed ones, depthwise or not.
std::string_view NameOf(const OperationKind& kind);
/// "gemm u8s8s32", "conv s8s8u8", "depthwise u8u8f32", "deconvolution u8s8u8".
std::string ToString(const OperationKind& kind);

/// The models that are looked for in operations of this kind, simplest first. Of models that are the same for
/// the kind it has one: the order of depths means nothing to a GEMM, in a depthwise convolution taps are all
/// there is to pair, and |a|·sign(b, a) never clamps, whatever is paired.
std::vector<reference::Model> CandidateModels(const OperationKind& kind);
/// Adjacent pairs clamped to int16 and widened at once, as operations of this kind usually pair depths.
reference::Model AdjacentPairs(const OperationKind& kind);
/// The roundings that may differ for outputs of this type, the contract's first.
std::vector<reference::Rounding> CandidateRoundings(intact_type c_type);

/// Whether no library is known to widen int16 sums after so many pairs: all but powers of two and the end.
bool IsOddInterval(int32_t spill);

/// How far from what everybody does: of several that explain the same the least strange is named.
int Strangeness(const reference::Arithmetic& arithmetic);

/// What a problem's outputs say of who computed them.
struct Identity {
  OperationKind kind;
  int64_t outputs = 0;
  int64_t differing = 0;                    // outputs that differ from the contract's
  bool telling = false;                     // adjacent pairs clamped to int16 would make other bytes
  reference::Arithmetic arithmetic;         // the least strange that reproduces all; or else the closest
  std::vector<reference::Arithmetic> also;  // others that do, the least strange first
  int64_t unexplained = 0;                  // outputs that `arithmetic` does not reproduce
  std::string first_place;                  // where the first of those is, as OutputPlace() says
  bool Found() const { return unexplained == 0; }
  /// Those of `also` that round alike.
  std::vector<reference::Model> OtherModels() const;
};

/// Of what a target made of a problem, dense; with its own accumulators, if they are known. Of large problems
/// the strangest candidates are tried on some outputs only; the one that is to be named, and those that
/// libraries usually have, on all.
Identity Identify(const Oracle& oracle, const std::vector<uint8_t>& output,
                  const std::optional<std::vector<int32_t>>& accumulators = {});

/// "exact", "pairs of adjacent depths clamped to int16 (maddubs)", …, and how it rounds if not as the
/// contract.
std::string InWords(const reference::Arithmetic& arithmetic);
/// What was computed and how much of it that explains, in a line.
std::string InWords(const Identity& identity);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_EXPLAIN_IDENTIFY_H_
