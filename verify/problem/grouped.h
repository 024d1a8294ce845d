// Problems of grouped weights (include/intact/grouped.h), as values whose text form round-trips:
//
//   grouped s8u4f32 m=1 n=64 k=4096 group=128 gscale=f16 zb=yes seed=7 isa=avx2
//   grouped u8s8bf16 m=5 n=16 k=100 group=0 src=none per=group bias=yes act=relu fill=bounds threads=3
//
// The types belong to A, B and C; src is the type of A before runs quantize it, or none. za=no: zero points of A
// are 0. group=0: all depths are one group. experts: matrices of weights; each row of A belongs to a random
// expert, and rows are sorted by expert. per: whether A has a scale for each row, or for each group of each row.
// split: rows of a run; 0: one run has all rows. item: rows of an item; the run is a batch of all items; 0: no
// batch. parts: parts that a run is computed in, one after the other; 0: the run is computed as a whole.
#ifndef INTACT_VERIFY_PROBLEM_GROUPED_H_
#define INTACT_VERIFY_PROBLEM_GROUPED_H_

#include <intact/grouped.h>

#include <cstdint>
#include <intact/intact.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "reference/contract/grouped.h"
#include "support/random.h"
#include "verify/problem/surroundings.h"

namespace intact::verify {

/// How tensors are filled. Every fill is a function of the seed, on every platform.
enum class GroupedFill : uint8_t {
  kUniform,    // full range, uniform; bell-shaped numbers
  kBounds,     // weights, zero points and activations at their bounds: sums of groups as large as possible
  kOneHot,     // one activation of each row is not at the zero point
  kSpread,     // scales from 2⁻²⁰ to 2²⁰, so that the order of the groups matters
  kHuge,       // scales near the largest number of their type, and 0: infinities, and NaNs before the end
  kTiny,       // denormal scales
  kNonFinite,  // as uniform, but a NaN or an infinity in two rows of three; A must be quantized by runs
};

/// How a target is to run a problem. No field changes the output.
struct GroupedRun {
  intact_isa isa = INTACT_ISA_ANY;  // exactly this ISA; ANY = the target's own choice
  int32_t threads = 1;
  int32_t parts = 0;
  int64_t split = 0;
  int64_t item = 0;
  bool b_is_kn = false;                     // B's depths are rows; weights of 8 bits only
  bool scales_are_gn = false;               // B's scales and zero points as groups × columns
  int64_t expert_pad = 0;                   // bytes between experts of B; elements between their scales
  int64_t item_pad = 0;                     // elements between items of A and of C
  int64_t a_pad = 0, b_pad = 0, c_pad = 0;  // elements between rows of A and C; bytes between columns of B,
                                            // or between its depths
  bool saved = false;                       // the plan was saved and loaded
  bool own_scratch = false;                 // the caller provides the scratch memory
  int32_t calls = 1;               // runs of one plan in the same memory; all must write the same bytes
  bool reused = false;             // the weights' memory held other weights in an earlier call
  Surroundings surroundings = {};  // not part of a line
  bool operator==(const GroupedRun&) const = default;
};

struct GroupedProblem : GroupedRun, core::WeightFormat {
  intact_type a_type = INTACT_S8;
  intact_type c_type = INTACT_F32;
  int64_t m = 1, n = 1, k = 1;
  int64_t experts = 1;
  intact_type source = INTACT_F32;  // INTACT_TYPE_NONE: runs give A and its scales
  intact_granularity granularity = INTACT_GRANULARITY_ROWS;
  bool has_a_zero_points = true;  // false: zero points of A are 0; only if runs give A
  bool has_bias = false;
  intact_activation activation = INTACT_ACTIVATION_NONE;
  GroupedFill fill = GroupedFill::kUniform;
  uint64_t seed = 1;
  bool operator==(const GroupedProblem&) const = default;

  /// The problem line; fields at their defaults are left out.
  std::string ToString() const;
  /// nullopt, or what is wrong with the fields.
  std::optional<Error> Check() const;
  /// Errors name the word at fault and what was expected.
  static Result<GroupedProblem> Parse(std::string_view line);
  /// Whether `line` begins like a line of this kind.
  static bool IsLine(std::string_view line);
  /// A random problem that Check() accepts.
  static GroupedProblem Draw(support::Random* random);
};

/// All fills, in the order of the enumeration.
std::span<const GroupedFill> AllGroupedFills();

/// The tensors of `problem`, which Check() accepts.
reference::Grouped Materialize(const GroupedProblem& problem);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_GROUPED_H_
