// Fits problems to what a target takes.
//
// A sweep's problems have several features each, of which a target may know few: of thousands of problems
// hardly any would ask for nothing else. So what a target lacks is taken out of each of them. Types become
// ones that it takes, as its line chooses, and sizes the next ones that it takes with them; a feature that it
// does not declare is left out, or gives way to one that is like it (an f32 bias to an s32 one). What remains
// is distinct, and valid.
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

/// Types that a target takes together, and the numbers that m, n and k have to be multiples of; of
/// convolutions n and k are the channels of a group.
struct Taken : Types {
  std::array<int64_t, 3> multiples = {1, 1, 1};
  bool operator==(const Taken&) const = default;
};

/// Powers of two are looked for, up to this one.
inline constexpr int64_t kMaxMultiple = 64;

/// What a target takes.
struct Takes {
  uint64_t features = 0;  // intact_target_feature bits
  std::vector<Taken> gemm, conv;
  bool operator==(const Takes&) const = default;
};

/// Asks `target`, in a process of its own if it has any: which features it declares, and by small problems
/// which of its types it takes together, and which powers of two sizes have to be multiples of: 1 where it
/// takes no problem whose sizes are all multiples. One that fails at such a problem in any other way than
/// with UNSUPPORTED takes its types; one that takes none of the problems, or hangs, takes all types that it
/// declares, for then the sweep is to tell.
Takes TakesOf(const Target& target);

/// `problem` as `takes` has it; nothing if that cannot be. Of the types that are taken, where it has others,
/// its line chooses: it becomes the same in whatever sweep it is.
std::optional<Problem> Fit(Problem problem, const Takes& takes);

struct FittedProblems {
  std::vector<Problem> problems;   // in the order of those that they were made of
  int64_t of = 0;                  // how many those were
  int64_t unchanged = 0;           // of `problems`
  int64_t left_out = 0;            // of `of`: cannot be fitted; the others came to be the same as some other
  int64_t rounded = 0;             // of `problems`: sizes were rounded up
  std::vector<std::string> takes;  // words: the types that are taken together, and multiples of sizes
  // Of `of`, how many have a feature that is lacking.
  std::array<int64_t, INTACT_TARGET_FEATURES> lacking = {};
};
FittedProblems Fit(std::span<const Problem> problems, const Takes& takes);

/// A feature that the target lacks, and how many problems have it, most first.
struct LackingFeature {
  std::string name;
  int64_t problems = 0;
};
std::vector<LackingFeature> Lacking(const FittedProblems& fitted);

/// What was changed, and what is lacking, in lines that begin with `indent`; "" if nothing is.
std::string ToText(const FittedProblems& fitted, std::string_view indent);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_TARGETS_FIT_H_
