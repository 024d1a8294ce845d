// Explains the outputs of a target that differ from the exact reference. There are two ordered lists of
// hypotheses. Each hypothesis has a name, a prediction and the test that it must pass.
//
// The first list has arithmetics for all outputs at once (identify.h). The first arithmetic that passes its
// test is the common arithmetic:
//
//   1. the arithmetics of a larger problem, if one makes all outputs
//   2. VPMADDUBSW's clamped pairs, if they make all outputs
//   3. the identified arithmetic, if it explains more outputs than chance would; or if it makes all
//      outputs, clamps sums, and the target claims nothing
//
// The second list has causes of one output. Each is tried on outputs that the earlier causes did not explain.
// In order: the common arithmetic; adjacent pairs that clamp; VPDPBUSDS, compensated last, first, or last and
// clamped; other roundings of the right accumulator. Among several roundings the one that explains most
// outputs is chosen. So each output may have a cause even if no arithmetic makes all of them, for example if a
// loop's tail rounds differently. But if one arithmetic of this list makes all outputs that differ, this
// arithmetic is their only explanation: one cause is likelier than several.
#ifndef INTACT_VERIFY_EXPLAIN_HYPOTHESES_H_
#define INTACT_VERIFY_EXPLAIN_HYPOTHESES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/models/arithmetic.h"
#include "verify/explain/diagnose.h"
#include "verify/explain/identify.h"
#include "verify/explain/oracle.h"

namespace intact::verify {

/// An arithmetic that makes an output, its accumulator, and the hypothesis that found it.
struct Explanation {
  reference::Arithmetic arithmetic;
  int32_t accumulator = 0;
  std::string_view hypothesis;
};

/// A target's outputs of an operation.
class Answer {
 public:
  using Accumulators = std::optional<std::vector<int32_t>>;  // the target's accumulators, if known

  Answer(const Oracle& oracle, const std::vector<uint8_t>& actual);
  void Learn(Accumulators accumulators);
  /// Drops accumulators that do not belong to these outputs: a target may compute s32 outputs by another
  /// kernel. Accumulators do not belong to the outputs if one arithmetic fits all outputs, no arithmetic fits
  /// the accumulators too, and enough outputs differ.
  void DropForeignAccumulators();

  const Oracle& oracle() const { return oracle_; }
  const std::vector<uint8_t>& actual() const { return actual_; }
  const Accumulators& accumulators() const { return accumulators_; }
  /// The result of Identify(), computed once.
  const Identity& identity() const;
  /// Whether identity() was computed and makes all outputs.
  bool IsIdentified() const { return identity_ && identity_->Found(); }
  /// The number of outputs that differ from the exact reference.
  int64_t differing() const { return differing_; }
  /// Whether `output` differs. An s32 output whose exact sum leaves int32 always differs.
  bool Differs(int64_t output) const;
  /// How many outputs a common explanation must explain at least, so that it is not chance.
  int64_t LeastExplained() const;
  Observation Observe(int64_t output) const;

 private:
  const Oracle& oracle_;
  const std::vector<uint8_t>& actual_;
  const std::vector<uint8_t>& expected_;
  const size_t size_;  // bytes of an element
  int64_t differing_ = 0;
  Accumulators accumulators_;
  mutable std::optional<Identity> identity_;
};

/// What explains the outputs of a problem.
struct Causes {
  std::vector<reference::Arithmetic> arithmetics;  // the likeliest first
  std::vector<std::string> mistakes;               // Diagnosis::of; each explains all other outputs
};

/// What else is known when outputs are explained.
struct AcceptanceRules {
  // The causes of a larger problem that fails in the same way: the outputs get no other explanation. Few outputs
  // have many explanations by chance.
  const Causes* of_larger = nullptr;
  bool sums = false;  // accept clamped sums that make all outputs, however few of them differ

  /// Whether the larger problem, if there is one, has this cause.
  bool Allows(const reference::Arithmetic& arithmetic) const;
};

/// The explanation of each differing output that has one. Outputs whose sums leave int32 get none.
std::map<int64_t, Explanation> ExplainOutputs(const Answer& answer, const AcceptanceRules& rules);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_EXPLAIN_HYPOTHESES_H_
