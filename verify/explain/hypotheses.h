// What may have made the outputs of a target that differ from the exact reference: two ordered lists of
// hypotheses, each with a name, what it predicts and the test that it must pass.
//
// The first list has arithmetics of all outputs at once (identify.h): those that made a larger problem, pairs
// clamped as VPMADDUBSW clamps them, and whatever identification finds, if it explains so many outputs that
// it is no chance; or if it clamps sums, makes all, and the target claims nothing. The first that passes its
// test is the common arithmetic.
//
// The second list has the causes of one output, and each gets the outputs that those before it left: the
// common arithmetic; adjacent pairs, one of which must clamp; VPDPBUSDS; other roundings of the right
// accumulator, of which the one that explains most outputs. So each output may have a cause where no
// arithmetic makes all of them, as where a loop's tail rounds otherwise.
#ifndef INTACT_VERIFY_EXPLAIN_HYPOTHESES_H_
#define INTACT_VERIFY_EXPLAIN_HYPOTHESES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "reference/models/arithmetic.h"
#include "verify/explain/diagnose.h"
#include "verify/explain/identify.h"
#include "verify/explain/oracle.h"

namespace intact::verify {

/// An arithmetic that makes an output, the accumulator that it makes it of, and the hypothesis that says so.
struct Explanation {
  reference::Arithmetic arithmetic;
  int32_t accumulator = 0;
  std::string_view hypothesis;
};

/// What a target made of an operation.
class Answer {
 public:
  using Accumulators = std::optional<std::vector<int32_t>>;  // the target's own, if they are known

  Answer(const Oracle& oracle, const std::vector<uint8_t>& actual);
  void Learn(Accumulators accumulators);
  /// Forgets accumulators that are not of these outputs: a target may compute s32 outputs by another kernel.
  /// They are not where they fit no arithmetic and the outputs, too many for chance, do.
  void DropForeignAccumulators();

  const Oracle& oracle() const { return oracle_; }
  const std::vector<uint8_t>& actual() const { return actual_; }
  const Accumulators& accumulators() const { return accumulators_; }
  /// What Identify() finds, which it looks for once.
  const Identity& identity() const;
  /// Whether that was looked for, and makes all outputs.
  bool IsIdentified() const { return identity_ && identity_->Found(); }
  /// The number of outputs that differ from the exact reference, and whether one does. An s32 output whose
  /// exact sum leaves int32 does, whatever it is.
  int64_t differing() const { return differing_; }
  bool Differs(int64_t output) const;
  /// What an explanation of outputs in common must explain at least, lest it be chance.
  int64_t LeastExplained() const;
  Observation Observe(int64_t output) const;

 private:
  const Oracle& oracle_;
  const std::vector<uint8_t>& actual_;
  const std::vector<uint8_t>& expected_;
  const size_t size_;  // of an element
  int64_t differing_ = 0;
  Accumulators accumulators_;
  mutable std::optional<Identity> identity_;
};

/// What is believed without evidence of its own.
struct Prejudice {
  std::span<const reference::Arithmetic> preferred;  // of several that make all outputs the first of these
  bool sums = false;  // clamped sums that make all outputs, however few of them differ
};

/// The explanation of each output that differs and has one. Sums that leave int32 need none.
std::map<int64_t, Explanation> ExplainOutputs(const Answer& answer, const Prejudice& prejudice);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_EXPLAIN_HYPOTHESES_H_
