// One wrong output: what is known about the output, and what it looks like if nothing explains it.
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

/// One output of a target, and the reference's values for it.
struct Observation {
  const reference::Gemm& gemm;  // the GEMM of the output's group or item
  const reference::Operands& operands;
  int64_t m, n;
  int64_t first_column;    // where the group's columns begin in C
  int32_t exact;           // the exact accumulator
  const uint8_t* element;  // the target's output
  std::optional<int32_t> actual_accumulator;

  /// The requantization of this output.
  reference::Requantization OwnRequantization() const;
  /// The scale of the output's row; 1 if rows have no scales.
  float RowScale() const;
  /// Whether the contract's requantization of accumulator `y` gives the target's output. `scale`: replaces
  /// the right scale.
  bool GivenBy(int32_t y, std::optional<float> scale = {}) const;
  /// Whether accumulator `y`, rounded by `rounding`, gives the target's output.
  bool GivenBy(int32_t y, reference::Rounding rounding) const;
};

/// A mistake, and the accumulator and the scale that this output would have with it.
struct Suspicion {
  std::string_view mistake;  // without numbers
  int32_t accumulator;
  std::optional<float> scale = {};
  std::string text = {};  // with numbers, if there are any
  bool is_common = false;
};

/// What an output looks like: a name for similar outputs, and a text for people.
struct Diagnosis {
  std::string of, text;
  bool is_common = false;  // one mistake gives all its outputs this text
  /// Equal for all outputs of one mistake.
  const std::string& key() const { return is_common ? text : of; }
};

/// If a sum beyond int32 should have wrapped: what happened to the sum instead. nullopt if the output does
/// not show this.
std::optional<std::string> HowNotWrapped(const Observation& seen);

/// What is known about an output that nothing explains: whether its accumulator is right.
Diagnosis KnownOf(const Observation& seen);

/// The mistakes that would make such an output, likeliest first, for the person who looks for the bug.
/// `of_operation`: suspicions for this kind of operation, likeliest first.
std::vector<Diagnosis> Mistakes(const Observation& seen, std::vector<Suspicion> of_operation);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_EXPLAIN_DIAGNOSE_H_
