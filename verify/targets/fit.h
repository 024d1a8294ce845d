// Fits problems to a target: changes each problem so that the target supports it.
//
// Each problem of a sweep has several features. A target with few features would support hardly any problem.
// So a feature that the target lacks is removed from the problem, or replaced by a similar feature (an f32
// bias by an s32 bias). Types become a combination that the target supports. A hash of the problem's line
// chooses the combination. Sizes are rounded up to multiples that the target supports with these types. The
// results are valid, and duplicates are dropped.
#ifndef INTACT_VERIFY_TARGETS_FIT_H_
#define INTACT_VERIFY_TARGETS_FIT_H_

#include <intact/target.h>

#include <array>
#include <cstdint>
#include <intact/intact.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "verify/problem/problem.h"
#include "verify/problem/target.h"

namespace intact::verify {

/// Types of activations, weights and outputs.
struct Types {
  intact_type a = INTACT_U8, b = INTACT_S8, c = INTACT_S32;
  bool operator==(const Types&) const = default;
};
/// "u8s8s32".
std::string ToString(const Types& types);
Result<Types> ParseTypes(std::string_view text);

/// A combination of types that a target supports, and the numbers that m, n and k must be multiples of. For
/// convolutions n and k are a group's output and input channels.
struct Taken : Types {
  std::array<int64_t, 3> multiples = {1, 1, 1};
  bool operator==(const Taken&) const = default;
};

/// The largest multiple. All multiples are powers of two.
inline constexpr int64_t kMaxMultiple = 64;

/// The operations that a target supports.
struct Takes {
  FeatureMasks features = {0, 0};
  std::vector<Taken> gemm, conv;
  bool operator==(const Takes&) const = default;
};

/// Reads the features of `target`, and runs small problems on target.Fresh(), or on `target`. They show the
/// supported types and multiples of sizes. Any error except UNSUPPORTED counts as support. If all problems
/// are UNSUPPORTED, or the target hangs, all types of its features count as supported.
Takes TakesOf(const Target& target);

/// `problem`, a product with grouped weights, changed so that it needs as few features beyond `features` as
/// changes allow.
Problem FittedGrouped(Problem problem, uint64_t features);

/// `problem` fitted to `takes`; nullopt if that is impossible. If its types are not supported, a hash of its
/// line chooses other types, so the result is equal in every sweep.
std::optional<Problem> Fit(Problem problem, const Takes& takes);

/// A feature that the target lacks, and the number of original problems that have it. The name ends with
/// "in GEMMs" or "in convolutions" if the other operation does not lack the feature.
struct LackingFeature {
  std::string name;
  int64_t problems = 0;
};

/// A target's problems are those of one kind: products with grouped weights, or all others.
struct FittedProblems {
  std::vector<Problem> problems;  // in the order of the original problems
  int64_t of = 0;                 // the number of original problems
  int64_t unchanged = 0;          // how many of `problems` are unchanged
  int64_t left_out = 0;  // original problems that cannot be fitted; other missing ones are duplicates
  int64_t rounded = 0;   // how many of `problems` have sizes that were rounded up
  std::vector<std::string> takes;       // describes the combinations of types, and multiples
  std::vector<LackingFeature> lacking;  // the most frequent first
};
FittedProblems Fit(std::span<const Problem> problems, const Takes& takes);

/// Describes what Fit() changed, and which features the target lacks, in lines that begin with `indent`; ""
/// if all problems are unchanged.
std::string ToText(const FittedProblems& fitted, std::string_view indent);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_TARGETS_FIT_H_
