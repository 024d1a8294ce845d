// A plan of grouped weights (include/intact/grouped.h).
//
//   Run: cut C ─► threads ─► shares: stage some rows of A ─► the engine computes them for the share's columns
//
// A part of a lone item is one share (Partition). A part of several experts or items may have shares of
// several experts or items (ItemCut).
#ifndef INTACT_KERNELS_PLANS_GROUPED_PLAN_H_
#define INTACT_KERNELS_PLANS_GROUPED_PLAN_H_

#include <intact/grouped.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/engines/grouped.h"
#include "kernels/plans/batch.h"
#include "kernels/plans/grouped_stager.h"
#include "kernels/problem/grouped_problem.h"
#include "kernels/runtime/blocking.h"

namespace intact::kernels {

class GroupedPlan {
 public:
  static Result<std::unique_ptr<GroupedPlan>> Create(GroupedProblem problem, const GroupedWeightView& weights,
                                                     core::Isa isa);
  /// A plan for `isa` packs weights as kernels of this ISA read them. Portable kernels copy them.
  static core::Isa PackingIsa(core::Isa isa);
  /// `weights` are packed for PackingIsa(isa).
  static Result<std::unique_ptr<GroupedPlan>> Create(GroupedProblem problem,
                                                     std::shared_ptr<const GroupedWeights> weights,
                                                     core::Isa isa);

  /// `info` is all zeros.
  Error Prepare(const intact_grouped_args& args, intact_run_info* info) const;
  Error Run(const intact_grouped_args& args) const;
  Error RunPart(const intact_grouped_args& args, int32_t part, int32_t parts) const;

  const GroupedProblem& problem() const { return problem_; }
  const GroupedEngine& engine() const { return *engine_; }
  const GroupedWeights& weights() const { return *weights_; }
  /// Memory that the packed weights occupy, with scales, zero points and minimums.
  int64_t packed_bytes() const {
    return weights_->bytes() + weights_->minimum_bytes() + engine_->packed_bytes();
  }
  core::Isa isa() const { return isa_; }
  /// The name of the kernel for large m.
  const std::string& kernel_name() const { return kernel_name_; }

 private:
  GroupedPlan(GroupedProblem problem, std::shared_ptr<const GroupedWeights> weights, core::Isa isa)
      : problem_(std::move(problem)), weights_(std::move(weights)), isa_(isa) {}
  /// The items of a batch, joined if they can be.
  struct Items {
    int64_t count, m;
    ItemSteps a, c;
  };
  Items ItemsOf(const intact_grouped_args& args) const;
  /// The arguments of one item alone, or of one expert alone. `first_row` rows come before the rows of the
  /// expert.
  intact_grouped_args ItemOf(const intact_grouped_args& args, const Items& items, int64_t item,
                             int64_t first_row) const;
  Error CheckSizes(const intact_grouped_args& args) const;
  Error CheckBuffers(const intact_grouped_args& args, const Items& items) const;
  bool IsLone(const Items& items) const { return items.count == 1 && problem_.experts == 1; }
  /// The number of parts that a run is cut for.
  int Parts(const intact_grouped_args& args, const Items& items) const;
  /// How C of a lone item is cut.
  Partition Cut(int64_t m, int parts) const;
  /// Scratch of a share of an item of `m` rows.
  int64_t ShareBytes(int64_t m) const;
  /// Computes a rectangle of an item, of all its rows or of an expert's.
  void RunShare(const intact_grouped_args& args, int64_t expert, const Range& range, uint8_t* scratch) const;
  /// Checks `args`, and calls run(parts, share_bytes, run_part). Parts are at most `wanted`; run_part(part, scratch)
  /// computes one of them.
  template <class Body>
  Error RunChecked(const intact_grouped_args& args, const Items& items, int wanted, const Body& run) const;

  GroupedProblem problem_;
  std::shared_ptr<const GroupedWeights> weights_;
  core::Isa isa_;
  GroupedStager stager_;
  std::unique_ptr<const GroupedEngine> engine_;
  std::string kernel_name_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_GROUPED_PLAN_H_
