// A plan of grouped weights (include/intact/grouped.h).
//
//   Run: cut C ─► threads ─► shares: stage some rows of A ─► the engine computes them for the share's columns
//
// A part of a lone item is one share (Partition). With several experts, or a batch of several items, a part
// may have shares of several of them (ItemCut).
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
#include "kernels/plans/item_cut.h"
#include "kernels/problem/grouped_problem.h"
#include "kernels/problem/linear_problem.h"
#include "kernels/runtime/blocking.h"

namespace intact::kernels {

class GroupedPlan {
 public:
  static Result<std::unique_ptr<GroupedPlan>> Create(GroupedProblem problem, const GroupedWeightView& weights,
                                                     core::Isa isa);
  /// `weights` are packed for the kernels of `isa`, which generates code.
  static Result<std::unique_ptr<GroupedPlan>> Create(GroupedProblem problem,
                                                     std::shared_ptr<const GroupedWeights> weights,
                                                     core::Isa isa);

  /// `info` is all zeros.
  Error Prepare(const intact_grouped_args& args, intact_run_info* info) const;
  Error Run(const intact_grouped_args& args) const;
  Error RunPart(const intact_grouped_args& args, int32_t part, int32_t parts) const;

  const GroupedProblem& problem() const { return problem_; }
  const GroupedEngine& engine() const { return *engine_; }
  core::Isa isa() const { return isa_; }
  /// The name of the kernel for large m.
  const std::string& kernel_name() const { return kernel_name_; }

 private:
  GroupedPlan(GroupedProblem problem, core::Isa isa);
  Error SetEngine(Result<std::unique_ptr<const GroupedEngine>> engine);
  int Threads(const intact_grouped_args& args) const;
  Error CheckSizes(const intact_grouped_args& args) const;
  /// Of a plain run, or of all items.
  Error CheckBuffers(const intact_grouped_args& args) const;
  Error CheckBuffers(const intact_grouped_args& args, const Batch& batch) const;
  /// Whether a run has one expert, and sets no field of batches.
  bool IsPlain(const intact_grouped_args& args) const {
    return problem_.experts == 1 && args.batch == 1 && (args.a_batch_stride | args.c_batch_stride) == 0;
  }
  /// The arguments of item `i` alone.
  intact_grouped_args ItemOf(const intact_grouped_args& args, const Batch& batch, int64_t i) const;
  /// Whether a run has one item and one expert.
  bool IsLone(const Batch& batch) const { return batch.items() == 1 && problem_.experts == 1; }
  /// How C is cut for `parts` threads, with one item and one expert.
  Partition Cut(int64_t m, int parts) const;
  ItemCut CutItems(const RunItems& items, int parts) const;
  /// Scratch of a share.
  int64_t ShareBytes(int64_t m) const;
  void RunShare(const intact_grouped_args& args, int64_t expert, const Range& range, uint8_t* scratch) const;
  template <class Share>
  Error RunAll(const intact_grouped_args& args, int parts, int64_t share_bytes, const Share& run_share) const;
  /// Runs the lone item `args`, which has been checked.
  Error RunLone(const intact_grouped_args& args) const;
  /// Computes part `part` of a run of several experts or items.
  void RunItemShares(const intact_grouped_args& args, const Batch& batch, const ItemCut& cut, int part,
                     uint8_t* scratch) const;

  GroupedProblem problem_;
  LinearProblem batch_problem_;  // what Batch needs: n, and the types of A and C
  core::Isa isa_;
  GroupedStager stager_;
  std::unique_ptr<const GroupedEngine> engine_;
  std::string kernel_name_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_GROUPED_PLAN_H_
