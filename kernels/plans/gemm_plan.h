// The GEMM of the C ABI: runs of batches, and which engine a stopwatch chose for how many rows.
//
//   Run: decide, once: the engine for the items' rows and how an item is cut → threads ─► shares of items
//        (unit_plan.h)
#ifndef INTACT_KERNELS_PLANS_GEMM_PLAN_H_
#define INTACT_KERNELS_PLANS_GEMM_PLAN_H_

#include <intact/intact.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/plans/batch.h"
#include "kernels/plans/share.h"
#include "kernels/plans/tuning.h"
#include "kernels/plans/unit_plan.h"
#include "kernels/runtime/threads.h"
#include "kernels/weights/linear_weights.h"
#include "kernels/weights/pack_file.h"

namespace intact::kernels {

class GemmPlan {
 public:
  /// `usual_m`: rows that runs are expected to have; 0: unknown. Without weights (LinearWeights::OfRuntimeB()) runs
  /// give them.
  static Result<std::unique_ptr<GemmPlan>> Create(std::shared_ptr<const LinearWeights> weights, core::Isa isa,
                                                  int64_t usual_m);

  /// `info` is all zeros.
  Error Prepare(const intact_gemm_args& args, intact_run_info* info) const;
  Error Run(const intact_gemm_args& args) const;
  Error RunPart(const intact_gemm_args& args, int32_t part, int32_t parts) const;
  /// What each part of Run() on `threads` threads computes; on a machine that has as many processors.
  std::vector<Share> Shares(int64_t m, int threads) const;

  const LinearProblem& problem() const { return unit_->data().problem; }
  const LinearWeights& weights() const { return unit_->weights(); }
  core::Isa isa() const { return unit_->isa(); }
  int64_t usual_m() const { return usual_m_; }
  const std::string& kernel_name() const { return unit_->kernel_name(); }
  /// The kernel that runs `m` rows, and that of a run.
  std::string KernelNameFor(int64_t m) const { return unit_->engines().For(m).KernelName(); }
  std::string KernelNameFor(const intact_gemm_args& args) const {
    return IsEmpty(args) ? "nothing" : KernelNameFor(Batch(args, problem(), weights().k()).m());
  }
  int64_t packed_bytes() const { return unit_->packed_bytes(); }
  ScheduleStatistics schedule_statistics() const { return unit_->schedule_statistics(); }

  /// Times every kernel that can run `m` rows (8192 of them at most), in turns until `budget` is spent, four
  /// runs of each at least. Later runs of `m` rows take the fastest. All compute the same bytes. Not while
  /// others use the plan.
  Result<Tuned> Tune(int64_t m, TuningBudget budget);
  /// The kernels that Tune() would time.
  Result<std::vector<std::string>> CandidateNames();
  /// What Tune() chose, and where.
  TunedChoices tuned() const;
  /// Chooses as `tuned` says, if that was measured on a CPU of this kind. Skips choices whose kernel no longer
  /// exists or does not fit in memory.
  void Restore(const TunedChoices& tuned);
  /// See EngineSet::RunAllAs().
  void RunAllAs(int64_t m) { unit_->mutable_engines()->RunAllAs(m); }

 private:
  /// What is decided once for a run, and passed to all that computes it.
  struct Decision {
    Batch batch;
    const Engine* engine;
    Partition cut;  // of each item
    int64_t share_bytes;

    int64_t shares() const { return batch.items() * cut.parts(); }
    ThreadCount Count(int threads) const;
  };

  GemmPlan(std::unique_ptr<UnitPlan> unit, int64_t usual_m) : unit_(std::move(unit)), usual_m_(usual_m) {}
  /// For a run that is cut for `parts` threads.
  Decision Decide(const intact_gemm_args& args, int parts) const;
  /// How many threads a run is cut for.
  int Threads(const intact_gemm_args& args) const;
  Error CheckArguments(const intact_gemm_args& args) const;
  Error CheckItemApart(const intact_gemm_args& item) const;
  RunBuffers BuffersOf(const intact_gemm_args& args) const;
  /// Computes share number `share`: of the items in their order, those of one item after the other.
  void RunShare(const Decision& run, int64_t share, const RowQuantization& tensor, uint8_t* scratch) const;
  /// Destroys engines that are not used, and weights that no engine reads.
  void DropUnused();
  struct UnusedDropper {
    GemmPlan* plan;
    ~UnusedDropper() { plan->DropUnused(); }
  };

  std::unique_ptr<UnitPlan> unit_;
  int64_t usual_m_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_GEMM_PLAN_H_
