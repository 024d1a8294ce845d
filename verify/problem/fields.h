// The fields of problems, one row for each field. The rows are used to parse, print and check lines, to draw
// random problems, to fit problems to targets, and to minimise failures.
#ifndef INTACT_VERIFY_PROBLEM_FIELDS_H_
#define INTACT_VERIFY_PROBLEM_FIELDS_H_

#include <intact/target.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/random.h"
#include "verify/problem/fill.h"
#include "verify/problem/problem.h"

namespace intact::verify {

struct Range {
  int64_t low = 0, high = 0;
};

/// A field is a key of problem lines. The functions take problems of kinds that have the field.
struct Field {
  std::string_view key;
  std::function<std::string(const Problem&)> print;
  std::function<std::optional<Error>(std::string_view, Problem*)> read;
  std::function<int64_t(const Problem&)> number = {};  // the value of a field that is one number
  std::function<Range(const Problem&)> range = {};     // what the number must be in; unset: anything
  bool is_required = false;                            // lines must have the key
  bool is_kept = false;                                // minimising does not try the default
  // Bits of features. A target that lacks one of them runs problems in which the field has its default.
  uint64_t needs = 0;
  std::string_view no_file = {};  // why no reproducer shows other values than the default; "" if one does
  // Whether the value fits the other fields; unset, or the default: it always does.
  std::function<bool(const Problem&)> fits = {};
  std::string_view misfit = {};              // why a value does not
  std::vector<std::string_view> names = {};  // of the values of a field that has one of some
  // Draws the value for a random problem that has some other fields already; unset: other code draws it.
  using Draw = void(support::Random& random, Problem& problem);
  std::function<Draw> draw = {};
  void (*fill)(const Filling&) = nullptr;  // fills in what the field describes

  // Each function returns a copy with a change.
  Field Required() const;
  Field Kept() const;
  Field In(int64_t low, int64_t high) const;
  Field NotInFiles(std::string_view why) const;
  Field Where(std::function<bool(const Problem&)> fits, std::string_view misfit) const;
  Field Drawn(std::function<Draw> draw) const;
  Field Filled(void (*fill)(const Filling&)) const;
  // Drawn if other values than the default fit (Where() comes first): one of `values`; one of all names; `value` or
  // a number within bounds, in one of `n` problems.
  Field From(std::vector<std::string_view> values) const;
  Field FromAll() const { return From(names); }
  Field InOneOf(int64_t n, std::string_view value) const;
  Field InOneOf(int64_t n, int64_t low, int64_t high) const;
  template <class... Features>
  Field Needs(Features... features) const {
    Field field = *this;
    field.needs = (INTACT_TARGET_BIT(features) | ...);
    return field;
  }
};

/// What distinguishes GEMMs, convolutions and products with grouped weights.
struct LineKind {
  std::string_view name;     // the first word of lines
  std::string_view example;  // of the second word, the types
  std::span<const intact_type> weights, outputs;
  std::vector<Field> fields;  // in the order of lines
  const Field* Find(std::string_view key) const;
};

/// All kinds.
std::span<const LineKind> LineKinds();
const LineKind& LineKindOf(const Problem& problem);

/// The problem whose line has only the types and the dimensions of `problem`.
Problem DefaultsOf(const Problem& problem);
/// Resets the fields that need `feature`.
void ResetNeeding(intact_target_feature feature, Problem* problem);
/// The features that fields with other values than their defaults need.
uint64_t NeedsOf(const Problem& problem);
/// Resets the fields that need other features than `features`.
void ResetLacking(uint64_t features, Problem* problem);
/// Resets the fields that do not fit others.
void ResetMisfits(Problem* problem);
/// The first number that is out of its range, or value that does not fit.
std::optional<Error> CheckFields(const Problem& problem);
/// Draws the fields of `keys`, one after the other.
void DrawFields(std::string_view keys, support::Random* random, Problem* problem);
/// Fills in the fields of `keys`, one after the other.
void FillFields(std::string_view keys, const Filling& filling);
/// Why no reproducer can show the problem; "" if one can.
std::string_view WhyNoFile(const Problem& problem);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_FIELDS_H_
