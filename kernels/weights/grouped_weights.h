// Packed grouped weights (include/intact/grouped.h), as the kernels of one ISA read them.
//
//   expert    panels of its columns; the panels of the next expert follow
//   panel     two vectors of columns over the whole depth
//     group   header: scales, zero points and sums of the panel's columns
//             steps of 16 depths: four quads of each column (jit/emitters/dot.h)
//
// A step has one of these layouts; a vector has a quad of each of its columns:
//
//   kBytes       q0 q1 q2 q3                        a byte is a weight
//   kNibbles     q0|q1  q2|q3                       weights of 4 bits: low nibbles are one quad, high nibbles
//                                                   the next quad
//   kSplitBytes  q0 q1 q2 q3                        a byte is an unsigned weight of 8 bits. Without VNNI its
//                                                   two nibbles are multiplied separately
//   kHalves      q0 low, q0 high, q1 low, …         kSplitBytes, expanded
//   kSignBytes   q0 q1 q2 q3                        a byte is a signed weight of 8 bits, and none is −128. Without
//                                                   VNNI, |a| is multiplied by the weight with the sign of a
//
// Runs of many rows expand a block of groups into scratch memory first, so that each row need not unpack the
// nibbles: kNibbles becomes kBytes, and kSplitBytes becomes kHalves. All values of an expanded header
// have 32 bits.
//
// Weights of 4 bits are packed as 0 to 15. Weights of 8 bits in kBytes are packed as s8 for u8 activations,
// and as u8 for s8 activations, because the dot product multiplies u8 by s8. Weights of kSplitBytes are
// always u8, weights of kSignBytes always s8. Zero points are shifted as the weights are.
#ifndef INTACT_KERNELS_WEIGHTS_GROUPED_WEIGHTS_H_
#define INTACT_KERNELS_WEIGHTS_GROUPED_WEIGHTS_H_

#include <algorithm>
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>

#include "core/isas.h"
#include "core/result.h"
#include "core/types.h"
#include "kernels/problem/grouped_problem.h"
#include "kernels/runtime/aligned_buffer.h"
#include "kernels/runtime/blocking.h"

namespace intact::kernels {

enum class GroupedStep : uint8_t { kBytes, kNibbles, kSplitBytes, kHalves, kSignBytes };

/// How a group of a panel is laid out in memory.
struct GroupedLayout {
  static constexpr int kVectors = 2;  // of a panel
  static constexpr int kStepDepths = 16;
  static constexpr int kStepQuads = 4;

  GroupedStep step = GroupedStep::kBytes;
  intact_type scale_type = INTACT_F32;
  // Bytes of a column's zero point: 0 if all zero points are equal, 1, or 4 if expanded.
  int zero_point_bytes = 0;
  bool signed_zero_points = false;
  int sum_bytes = 0;  // of a column's Σ b': 0, 2 or 4; 0 if activations have no zero points
  auto operator<=>(const GroupedLayout&) const = default;

  bool NeedsExpansion() const { return step == GroupedStep::kNibbles || step == GroupedStep::kSplitBytes; }
  /// The layout after expansion; only if NeedsExpansion().
  GroupedLayout Expanded() const;
  /// kNibbles as signed bytes without zero points; see GroupedExpansionSpec.
  GroupedLayout Centered() const;
  /// Vectors of a step, for each vector of columns.
  int StepVectors() const;
  /// The offsets of zero points and sums from the group's begin, for panels of `columns` columns. Scales are
  /// first.
  int64_t ZeroPointOffset(int columns) const { return columns * core::BytesOf(scale_type); }
  int64_t SumOffset(int columns) const { return ZeroPointOffset(columns) + columns * zero_point_bytes; }
  int64_t HeaderBytes(int columns) const { return SumOffset(columns) + columns * sum_bytes; }
  int64_t StepBytes(int columns) const { return int64_t{4} * columns * StepVectors(); }
  int64_t GroupBytes(int columns, int64_t steps) const {
    return HeaderBytes(columns) + steps * StepBytes(columns);
  }
};

/// What the layout of packed weights depends on, besides the problem.
struct GroupedPacking {
  int32_t columns = 0;                // of a panel
  bool has_dot_products = false;      // of u8 and s8 (VNNI)
  std::optional<int32_t> zero_point;  // of all weights; nothing if zero points differ
  // Of the minimums: F16 if float16 holds all of them, else F32; NONE without minimums.
  intact_type minimum_type = INTACT_TYPE_NONE;
  bool has_sign_bytes = false;  // kSignBytes instead of kSplitBytes

  /// For the kernels of `isa`, an ISA with generated code.
  static GroupedPacking Of(core::Isa isa, std::optional<int32_t> zero_point, intact_type minimum_type,
                           bool has_sign_bytes = false);
};

/// Immutable after Pack() or Copy().
class GroupedWeights {
 public:
  /// Packs the weights of all experts for the kernels of `isa`, an ISA with generated code. `view` is expert
  /// 0. Errors: OUT_OF_MEMORY.
  static Result<std::unique_ptr<const GroupedWeights>> Pack(const GroupedProblem& problem,
                                                            const GroupedWeightView& view, core::Isa isa);

  /// Weights that Pack() packed in this way, at `panels` and `minimums`, for instance in a file. `owner` keeps them
  /// alive.
  GroupedWeights(const GroupedProblem& problem, const GroupedPacking& packing, const uint8_t* panels,
                 const uint8_t* minimums, std::shared_ptr<const void> owner);
  /// Checks the scales, the minimums, the zero points, the sums and the padding of these weights. GroupedPacking::zero_point
  /// is within the range of b_type.
  Error Check(const GroupedProblem& problem) const;
  /// Copies the panels. The panels of the owner are then not needed. Errors: OUT_OF_MEMORY.
  Error Copy();

  /// The inverse of Pack(). Throws std::bad_alloc.
  GroupedColumns Unpacked(const GroupedProblem& problem) const;

  /// Whether the kernels of `isa`, an ISA with generated code, read these weights.
  bool AreFor(const GroupedProblem& problem, core::Isa isa) const;
  const GroupedPacking& packing() const { return packing_; }
  const GroupedLayout& layout() const { return layout_; }
  /// Columns of a panel.
  int columns() const { return packing_.columns; }
  /// The zero point of all weights, if GroupedLayout::zero_point_bytes is 0.
  int32_t uniform_zero_point() const { return uniform_zero_point_; }
  int64_t bytes() const { return experts_ * expert_panels_ * panel_bytes_; }
  /// The minimums are [expert][panel][group][column].
  intact_type minimum_type() const { return packing_.minimum_type; }
  int64_t minimum_bytes() const {
    return experts_ * expert_panels_ * CeilDivide(k_, group_) * GroupMinimumBytes();
  }
  const uint8_t* minimums() const { return minimums_; }
  /// The minimums of group 0 of a panel.
  const uint8_t* PanelMinimums(int64_t expert, int64_t panel) const {
    return minimums_ + (expert * expert_panels_ + panel) * CeilDivide(k_, group_) * GroupMinimumBytes();
  }
  const uint8_t* data() const { return panels_; }
  int64_t panel_bytes() const { return panel_bytes_; }
  int64_t expert_panels() const { return expert_panels_; }
  const uint8_t* Panel(int64_t expert, int64_t panel) const {
    return panels_ + (expert * expert_panels_ + panel) * panel_bytes_;
  }

 private:
  GroupedWeights(const GroupedProblem& problem, const GroupedPacking& packing);
  int64_t GroupMinimumBytes() const {
    return minimum_type() == INTACT_TYPE_NONE ? 0 : columns() * core::BytesOf(minimum_type());
  }
  // Packs all columns. False if a byte of kSignBytes is −128: the weights are then not packed.
  bool PackColumns(const GroupedProblem& problem, const GroupedWeightView& view);
  Error PackMinimums(const GroupedProblem& problem, const GroupedWeightView& view);
  Error CheckMinimums(const GroupedProblem& problem) const;
  // Calls visit(place, index) for each column and group, with the number of the value in minimums_.
  template <class Visit>
  void ForEachMinimum(const Visit& visit) const;
  float MinimumAt(int64_t index) const {
    return static_cast<float>(
        core::Decode(minimum_type(), minimums_ + index * core::BytesOf(minimum_type())));
  }
  int64_t GroupSteps(int64_t g) const {
    return CeilDivide(std::min(group_, k_ - g * group_), GroupedLayout::kStepDepths);
  }
  void PackGroup(const GroupedProblem& problem, const GroupedWeightView& view, int64_t first_column,
                 int64_t g, uint8_t* to) const;
  Error CheckHeader(const GroupedProblem& problem, int64_t panel, int64_t g, const uint8_t* group) const;
  /// Stores the sums of `count` steps, as a header has them.
  void StoreSums(const uint8_t* steps, int64_t count, uint8_t* to) const;
  void UnpackColumn(const uint8_t* group, int64_t i, int64_t column, int64_t g,
                    GroupedColumns* to) const noexcept;

  int64_t experts_ = 0, n_ = 0, k_ = 0, group_ = 0;
  core::WeightFormat format_;  // of the weights that were packed
  GroupedLayout layout_;
  GroupedPacking packing_;
  bool is_signed_ = false;  // the packed weights
  int32_t shift_ = 0;       // added to weights and zero points
  int32_t uniform_zero_point_ = 0;
  int64_t expert_panels_ = 0, panel_bytes_ = 0;
  const uint8_t* panels_ = nullptr;
  std::shared_ptr<const void> owner_;  // of the panels, unless `own_` is
  AlignedBuffer<uint8_t> own_;
  const uint8_t* minimums_ = nullptr;
  AlignedBuffer<uint8_t> own_minimums_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_GROUPED_WEIGHTS_H_
