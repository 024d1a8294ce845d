// The GEMM of the C ABI: runs of batches, and tuning.
//
//   Run: decide once which engine runs an item's rows and how items are cut ─► threads ─► shares of items
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
#include "kernels/plans/bound_run.h"
#include "kernels/plans/tuning.h"
#include "kernels/plans/unit_plan.h"
#include "kernels/runtime/threads.h"
#include "kernels/weights/linear_weights.h"
#include "kernels/weights/pack_file.h"

namespace intact::kernels {

class GemmPlan {
 public:
  /// `usual_m`: expected rows per run; 0: unknown. With LinearWeights::OfRuntimeB(), each run passes its B.
  static Result<std::unique_ptr<GemmPlan>> Create(std::shared_ptr<const LinearWeights> weights, core::Isa isa,
                                                  int64_t usual_m);

  /// `info` is all zeros.
  Error Prepare(const intact_gemm_args& args, intact_run_info* info) const;
  Error Run(const intact_gemm_args& args) const;
  Error RunPart(const intact_gemm_args& args, int32_t part, int32_t parts) const;
  /// A run of `args`. Copies `args`. The plan outlives the run. Errors: those of Run().
  Result<std::unique_ptr<BoundRun>> Bind(const intact_gemm_args& args) const;

  const LinearProblem& problem() const { return unit_->data().problem; }
  const LinearWeights& weights() const { return unit_->weights(); }
  core::Isa isa() const { return unit_->isa(); }
  int64_t usual_m() const { return usual_m_; }
  const std::string& kernel_name() const { return unit_->kernel_name(); }
  /// The name of the kernel that runs `m` rows, or that runs `args`.
  std::string KernelNameFor(int64_t m) const { return unit_->engines().For(m).KernelNameFor(m); }
  std::string KernelNameFor(const intact_gemm_args& args) const {
    return IsEmpty(args) ? "nothing" : KernelNameFor(BatchOf(args).m());
  }
  int64_t packed_bytes() const { return unit_->packed_bytes(); }
  ScheduleStatistics schedule_statistics() const { return unit_->schedule_statistics(); }

  /// Times every kernel that can run `m` rows, on at most 8192 rows. Kernels run in turns until `budget` is
  /// spent, each at least four times. Later runs of `m` rows use the fastest kernel. Not thread-safe.
  Result<Tuned> Tune(int64_t m, TuningBudget budget);
  struct TimedEngine {
    const Engine* engine;
    TurnTimes times;
  };
  /// Every engine that can run the plan. The plan keeps the engines. Not thread-safe.
  Result<std::vector<const Engine*>> MakeEngines() { return unit_->mutable_engines()->MakeAll(); }
  /// Times every engine that can run `m` rows, in turns until `budget` is spent. The plan keeps the engines.
  /// Not thread-safe.
  Result<std::vector<TimedEngine>> TimeAll(int64_t m, TuningBudget budget);
  /// The kernels that Tune() would time.
  Result<std::vector<std::string>> CandidateNames();
  /// What Tune() chose, and where.
  TunedChoices tuned() const;
  /// Applies choices that were measured on a CPU of this kind. Skips choices whose kernel no longer exists or
  /// does not fit in memory.
  void Restore(const TunedChoices& tuned);
  /// See EngineSet::RunAllAs().
  void RunAllAs(int64_t m) { unit_->mutable_engines()->RunAllAs(m); }

 private:
  class Bound;
  /// Decisions that are made once for a run, and passed to its shares.
  struct Decision {
    const Batch& batch;
    const Engine& engine;
    Partition cut;  // how each item is cut
    int64_t share_bytes;
    // Bytes of the packed B of one item, if all shares of the item read it. 0: B is constant, or each share
    // packs its columns.
    int64_t shared_bytes;

    int64_t shares() const { return batch.items() * cut.parts(); }
    ThreadCount Count(int threads) const;
  };

  GemmPlan(std::unique_ptr<UnitPlan> unit, int64_t usual_m) : unit_(std::move(unit)), usual_m_(usual_m) {}
  /// The decisions for a run that is cut for `parts` threads. `may_share`: the threads can wait for each
  /// other and share the packed B.
  Decision Decide(const Batch& batch, int parts, bool may_share) const;
  int64_t SharedBytes(const Batch& batch, const Engine& engine, const Partition& cut, int parts) const;
  /// How many threads a run is cut for.
  int Threads(const intact_gemm_args& args) const;
  Batch BatchOf(const intact_gemm_args& args) const { return {args, problem(), weights().k()}; }
  /// Checks numbers, and whether pointers are given.
  Error CheckSizes(const intact_gemm_args& args) const;
  /// CheckSizes(), and the arrays. CheckItems() checks the items' pointers, and the rows' values.
  Error CheckArguments(const intact_gemm_args& args) const;
  Error CheckItems(const Batch& batch) const;
  Error CheckItemApart(const Batch& batch, const BatchItem& item) const;
  RunBuffers BuffersOf(const Batch& batch, const BatchItem& item) const;
  /// Computes share number `share`. Shares are numbered item by item.
  void RunShare(const Decision& run, int64_t share, const RowQuantization& tensor, uint8_t* scratch,
                const uint8_t* shared) const;
  /// Generates the kernels of all shares of an item.
  Error PrepareShares(const Decision& run) const;
  RuntimeB RuntimeBOf(const Decision& run, const BatchItem& item) const;
  /// Packs the B of each item to `shared`.
  void PackShared(const Decision& run, int threads, uint8_t* shared) const;
  /// Destroys unused engines, and weights that no engine reads.
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
