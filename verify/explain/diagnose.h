// One wrong output: what is known of it, and what it looks like where nothing explains it.
#ifndef INTACT_VERIFY_EXPLAIN_DIAGNOSE_H_
#define INTACT_VERIFY_EXPLAIN_DIAGNOSE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/contract/gemm.h"
#include "reference/models/operands.h"
#include "reference/models/rounding.h"

namespace intact::verify {

/// One output of a target, and what the reference says of it.
struct Observation {
  const reference::Gemm& gemm;  // of the group that the output belongs to
  const reference::Operands& operands;
  int64_t m, n;
  int64_t first_column;    // where the group's columns begin among all
  int32_t exact;           // accumulator by the contract
  const uint8_t* element;  // the target's output
  std::optional<int32_t> actual_accumulator;

  /// The requantization of this output.
  reference::Requantization OwnRequantization() const;
  /// The scale of its row; 1 where rows have none.
  float RowScale() const;
  /// Whether accumulator `y`, rightly requantized but for another scale, is what the target gave.
  bool GivenBy(int32_t y, std::optional<float> scale = {}) const;
  /// Whether accumulator `y` is, rounded in this way.
  bool GivenBy(int32_t y, reference::Rounding rounding) const;
  /// The accumulator y that a sum of products makes.
  int32_t WithCompensation(int32_t sum) const;
};

/// A mistake, the accumulator that it would make, and the scale that it would take for this output's.
struct Suspicion {
  std::string_view mistake;  // without numbers
  int32_t accumulator;
  std::optional<float> scale = {};
  std::string text = {};  // with its numbers, if it has some
};

/// What an output looks like: what such outputs have in common, and a text for people.
struct Diagnosis {
  std::string of, text;
};

/// Where a sum beyond int32 is to wrap: what was made of it instead. Nothing if the output does not show it.
std::optional<std::string> HowNotWrapped(const Observation& seen);

/// What an output that nothing explains looks like, for whoever has to find the bug. `of_operation`: what
/// else may have gone wrong, likeliest first.
Diagnosis Diagnose(const Observation& seen, std::vector<Suspicion> of_operation);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_EXPLAIN_DIAGNOSE_H_
