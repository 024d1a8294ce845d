// Grouped weights in compiled code, for CPUs without AVX2 and for processes that may not generate code. The
// engine keeps the weights minus their zero points as int16, in addition to the packed weights of the plan.
// It needs only SSE2.
#ifndef INTACT_KERNELS_ENGINES_PORTABLE_GROUPED_ENGINE_H_
#define INTACT_KERNELS_ENGINES_PORTABLE_GROUPED_ENGINE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "core/result.h"
#include "kernels/engines/grouped.h"
#include "kernels/runtime/aligned_buffer.h"

namespace intact::kernels {

class PortableGroupedEngine final : public GroupedEngine {
 public:
  /// Copies `packed`. `problem` outlives the engine. Errors: OUT_OF_MEMORY.
  static Result<std::unique_ptr<const GroupedEngine>> Create(const GroupedProblem& problem,
                                                             const GroupedWeights& packed);

  std::string KernelName(int64_t /*m*/) const override { return "grouped_portable"; }
  int64_t packed_bytes() const override {
    return static_cast<int64_t>(weights_.bytes() + scales_.bytes() + minimums_.bytes());
  }
  int64_t column_step() const override { return kPanelColumns; }
  int64_t row_step() const override { return 1; }
  int64_t ScratchBytes(int64_t /*rows*/) const override { return 0; }
  void Run(const GroupedRows& rows, int64_t expert, int64_t column_begin, int64_t column_end, uint8_t* c,
           int64_t c_stride_bytes, uint8_t* scratch) const noexcept override;

 private:
  explicit PortableGroupedEngine(const GroupedProblem& problem) : problem_(problem) {}
  /// A value for each column of a panel.
  template <class T>
  using Panel = std::array<T, kPanelColumns>;
  /// Two depths of a panel; the depths of a column are adjacent.
  using Pair = Panel<std::array<int16_t, 2>>;
  int64_t group_pairs() const { return CeilDivide(problem_.group, 2); }
  int64_t expert_panels() const { return CeilDivide(problem_.n, kPanelColumns); }
  /// The number of group 0 of a panel of an expert, among the groups of all panels.
  int64_t FirstGroup(int64_t expert, int64_t panel) const {
    return (expert * expert_panels() + panel) * problem_.groups();
  }
  void Pack(const GroupedWeightView& weights);
  /// acc_g of a panel's columns. `a`: the first depth of the group.
  Panel<int32_t> GroupSums(const uint8_t* a, int32_t a_zero_point, const Pair* pairs) const noexcept;

  const GroupedProblem& problem_;
  AlignedBuffer<Pair> weights_;           // [expert][panel][group][pair]; 0 beyond k and n
  AlignedBuffer<Panel<float>> scales_;    // [expert][panel][group]
  AlignedBuffer<Panel<float>> minimums_;  // [expert][panel][group], or empty
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_ENGINES_PORTABLE_GROUPED_ENGINE_H_
