// Finds the arithmetic that reproduces all of a target's output, byte for byte. Candidates are the
// arithmetics known from libraries. They differ in the pairs that are clamped to int16, when int16 sums are
// widened, the operand that is shifted, when sums are compensated, and how sums are rounded to outputs.
//
// One output proves little: some of the hundreds of candidates reproduce it by chance. So a candidate must
// reproduce every output of a problem. Over many problems (mixture.h) the best candidates reproduce most
// problems. A candidate that gives the same outputs as the contract is never named. If the contract
// reproduces all outputs, the contract is the answer. The answer also says whether the problem could have
// shown saturation.
#ifndef INTACT_VERIFY_EXPLAIN_IDENTIFY_H_
#define INTACT_VERIFY_EXPLAIN_IDENTIFY_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reference/models/arithmetic.h"
#include "verify/explain/oracle.h"
#include "verify/problem/place.h"
#include "verify/problem/problem.h"

namespace intact::verify {

/// A kind of operation: a library may choose an arithmetic for each kind.
struct OperationKind {
  enum class Shape : uint8_t { kGemm, kConv, kDepthwise, kGrouped };
  Shape shape = Shape::kGemm;
  intact_type a_type = INTACT_U8, b_type = INTACT_S8, c_type = INTACT_S32;
  bool transposed = false;  // a transposed convolution; its sums are like other convolutions' sums
  bool operator==(const OperationKind&) const = default;
};
OperationKind KindOf(const Oracle& oracle);
OperationKind KindOf(const Problem& problem);
/// "gemm", "conv", "depthwise", "grouped"; "deconvolution" if transposed, depthwise or not.
std::string_view NameOf(const OperationKind& kind);
/// "gemm u8s8s32", "conv s8s8u8", "depthwise u8u8f32", "deconvolution u8s8u8".
std::string ToString(const OperationKind& kind);

/// The candidate models for operations of this kind, simplest first. Models that are equal for the kind
/// appear once. A GEMM has only one order of depths. A depthwise convolution can pair only taps. |a|·sign(b,
/// a) never clamps, however depths are paired.
std::vector<reference::Model> CandidateModels(const OperationKind& kind);
/// Adjacent pairs clamped to int16 and widened at once, with the usual order of depths for this kind.
reference::Model AdjacentPairs(const OperationKind& kind);
/// The roundings that may differ for outputs of this type, the contract's rounding first.
std::vector<reference::Rounding> CandidateRoundings(intact_type c_type);

/// Whether no known library widens int16 sums after `spill` pairs: true unless `spill` is a power of
/// two, or the whole depth.
bool IsOddInterval(int32_t spill);

/// How unusual an arithmetic is. If several explain the same outputs, the least strange one is named.
int Strangeness(const reference::Arithmetic& arithmetic);
/// The order in which arithmetics are named if they explain the same outputs: by strangeness, then as in
/// kAllRoundings.
std::pair<int, int> NamingRank(const reference::Arithmetic& arithmetic);

/// The arithmetic behind a problem's outputs.
struct Identity {
  OperationKind kind;
  int64_t outputs = 0;
  int64_t differing = 0;             // outputs that differ from the contract's
  bool would_show_clamping = false;  // adjacent pairs clamped to int16 would make other bytes
  // The least strange arithmetic that reproduces all outputs; if none does, the closest arithmetic.
  reference::Arithmetic arithmetic;
  std::vector<reference::Arithmetic> also;  // others that reproduce all outputs, the least strange first
  int64_t unexplained = 0;                  // outputs that `arithmetic` does not reproduce
  std::string first_place;                  // OutputPlace() of the first of these outputs
  bool Found() const { return unexplained == 0; }
  /// The models in `also` whose rounding is the rounding of `arithmetic`.
  std::vector<reference::Model> OtherModels() const;
  /// The roundings in `also` whose model is the model of `arithmetic`, if they are as likely as its rounding.
  std::vector<reference::Rounding> OtherRoundings() const;
};

/// Identifies the arithmetic of a target's dense `output`; `accumulators`: the target's, if known. For
/// large problems the strangest candidates are tried on some outputs only. The usual candidates, and the
/// returned arithmetic, are tried on all outputs.
Identity Identify(const Oracle& oracle, const std::vector<uint8_t>& output,
                  const std::optional<std::vector<int32_t>>& accumulators = {});

/// ", or half up"; "" if there are none. `others` explain the same outputs. Names a few of them, and counts
/// the rest.
std::string OrOthers(std::span<const reference::Rounding> others);
/// "exact", "pairs of adjacent depths clamped to int16 (maddubs)", …, and the rounding unless it is the
/// contract's.
std::string InWords(const reference::Arithmetic& arithmetic);
/// The arithmetic and how many outputs it explains, in one line.
std::string InWords(const Identity& identity);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_EXPLAIN_IDENTIFY_H_
