// A plan: some weights, how A is found, and the engines that compute from them on one ISA. A GEMM of the C
// ABI is one whose rows have one tap; a convolution has one for each unit of its weights (conv_plan.h).
//
//   Create: bound what depends on the access → make engines
//   Tune:   time all engines for an M (gemm_tuning.cc)
//   Run:    choose the engine for M → threads ─► rectangles of C, one Engine::RunRange() each
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
#include "kernels/codegen/dispatch.h"
#include "kernels/codegen/quantizer.h"
#include "kernels/codegen/row_sums.h"
#include "kernels/engines/engine.h"
#include "kernels/engines/scheduled_engine.h"
#include "kernels/plans/batch.h"
#include "kernels/plans/share.h"
#include "kernels/plans/tuning.h"
#include "kernels/problem/access.h"
#include "kernels/runtime/threads.h"
#include "kernels/weights/linear_weights.h"
#include "kernels/weights/pack_file.h"
#include "kernels/weights/scheduled_vectors.h"

namespace intact::kernels {

/// How many rows runs have, as far as is known: memory for others would be wasted. Any number runs.
struct UsualRows {
  int64_t least = 1;  // but for rests
  int64_t named = 0;  // as many, and the plan keeps the one form of the weights that is best for them; 0: any
};

class GemmPlan {
 public:
  /// `like`: a plan of the same weights for other extents of a convolution's input, whose schedules it
  /// shares; or null.
  static Result<std::unique_ptr<GemmPlan>> Create(std::shared_ptr<const LinearWeights> weights, Access access,
                                                  core::Isa isa, UsualRows usual = {},
                                                  const GemmPlan* like = nullptr);

  // The C ABI's GEMM.
  Error Prepare(const intact_gemm_args& args, intact_run_info* info) const;
  Error Run(const intact_gemm_args& args) const;
  Error RunPart(const intact_gemm_args& args, int32_t part, int32_t parts) const;

  /// What each part of Run() on `threads` threads computes; on a machine that has as many processors.
  std::vector<Share> Shares(int64_t m, int threads) const;

  /// The engine for runs of `m` rows.
  const Engine& EngineFor(int64_t m) const;
  /// Scratch for one thread's share of a run of `m` rows.
  int64_t ShareBytes(const Engine& engine, int64_t m) const;
  /// Computes `range`, one thread's share of a run or a piece of it.
  void RunShare(const Engine& engine, const RunBuffers& buffers, const Range& range, uint8_t* scratch) const;

  /// How a run of `m` rows is cut for `parts` threads.
  Partition Cut(const Engine& engine, int64_t m, int parts) const;
  /// Columns between multiples of which any engine can begin and end.
  int64_t AnyColumnStep() const;
  /// The time of `rows` rows by the cost model, as Engine::Cost() tells it.
  double RowsCost(const Engine& engine, int64_t rows) const;
  /// What RunShare() of `range` takes, see Share::work.
  double Work(const Engine& engine, const Range& range) const;

  const GemmData& data() const { return data_; }
  const LinearWeights& weights() const { return *data_.linear; }
  core::Isa isa() const { return isa_; }
  /// The kernel that runs large M, or the named one.
  const std::string& kernel_name() const { return kernel_name_; }
  /// The kernel that runs `m` rows.
  std::string KernelNameFor(int64_t m) const { return EngineFor(m).KernelName(); }
  /// Times every kernel that can run `m` rows (8192 of them at most), in turns until `budget` is spent, four
  /// runs of each at least, and runs as many rows on the fastest from now on. All compute the same bytes. Not
  /// while others use the plan.
  Result<Tuned> Tune(int64_t m, TuningBudget budget);
  /// The kernels that Tune() would time.
  Result<std::vector<std::string>> CandidateNames() const;
  /// What Tune() chose, and where.
  TunedChoices tuned() const;
  /// Chooses as `tuned` tells, if that was measured on a CPU of this kind; kernels that there are none of any
  /// more, or no memory for, are passed over.
  void Restore(const TunedChoices& tuned);

  /// What a stopwatch may choose from: the engines of the plan, and those that its cost model left out.
  struct Candidates {
    std::vector<const Engine*> all;
    std::vector<std::unique_ptr<Engine>> others;      // among them
    std::shared_ptr<const ScheduledVectors> vectors;  // what the scheduled form runs
    const Engine* scheduled = nullptr;                // among others, or null

    /// The engine of that name; null if there is none.
    const Engine* Find(const std::string& name) const;
  };
  Result<Candidates> MakeCandidates() const;
  /// Makes `engine`, one of `candidates`, the plan's own.
  void Keep(const Engine* engine, Candidates* candidates);

  /// For tests and measurements: from now on every M runs on the engine that runs `m` rows.
  void RunAllAs(int64_t m) { run_all_as_ = m; }
  /// Memory of the weights, in all forms.
  int64_t packed_bytes() const;
  int64_t usual_m() const { return usual_.named; }
  /// Frees the canonical panels if no engine reads them. Not while others use the plan or its weights; no
  /// other plan reads those.
  void DropUnreadPanels();
  /// What the scheduled engine runs, or vectors where there is none; zeros without a schedule.
  ScheduleStatistics schedule_statistics() const;

 private:
  GemmPlan(std::shared_ptr<const LinearWeights> weights, Access access, core::Isa isa, UsualRows usual)
      : data_(std::move(weights), std::move(access), isa), usual_(usual), isa_(isa) {}
  Error SetSkippingInitial();
  Error AddSkippingInitial(const TapRange& range);
  Error MakeEngines(const GemmPlan* like);
  Error MakeGeneratedEngines(const GemmPlan* like);
  /// What runs need: the blocks of panel engines, and whether the scheduled engine.
  struct Needed {
    std::vector<KernelBlock> blocks;
    bool scheduled = false;
  };
  Result<Needed> NeededEngines(const ScheduledEngine* scheduled, const GemmPlan* like) const;
  Result<std::unique_ptr<ScheduledEngine>> MakeScheduledEngine(const GemmPlan* like) const;
  bool CanRun(const KernelBlock& block) const;
  /// `vectors`: the schedule of the scheduled form, made if it is null.
  Result<std::unique_ptr<Engine>> MakePanelEngine(const KernelBlock& block,
                                                  std::shared_ptr<const ScheduledVectors>* vectors) const;
  std::vector<const Engine*> OwnEngines() const;
  void Choose(int64_t m, const Engine* engine, Candidates* candidates);
  void DropUnchosen();
  using TunedEngines = std::vector<std::pair<int64_t, const Engine*>>;
  TunedEngines::const_iterator FirstTunedFrom(int64_t m) const {
    return std::ranges::lower_bound(tuned_, m, {}, &TunedEngines::value_type::first);
  }
  /// The engine for `m` rows by the cost model.
  const Engine& ModelEngineFor(int64_t m) const;
  Error CheckArguments(const intact_gemm_args& args) const;
  Error CheckItemApart(const intact_gemm_args& item) const;
  RunBuffers BuffersOf(const intact_gemm_args& args) const;
  /// Computes `range` on `engine`, and what does not fill its vectors where that is cheapest.
  void RunRows(const Engine& engine, const RunBuffers& buffers, const Range& range, uint8_t* scratch) const;
  const Engine* EngineForRest(const Engine& engine, int64_t m) const;
  const Engine* EngineForRest(const Engine& engine, const Range& range) const;
  /// How many a run is cut for.
  int Threads(const intact_gemm_args& args) const {
    const double rows = static_cast<double>(args.m) * static_cast<double>(std::max<int64_t>(args.batch, 1));
    return ThreadsOf(args.threads, rows * static_cast<double>(data_.n * data_.k), isa_);
  }
  /// The same where rows have values of their own, which it finds; and numbers, which it quantizes.
  void RunWithRowValues(const Engine& engine, RunBuffers buffers, const Range& range, uint8_t* scratch) const;
  /// Quantizes the rows of `piece` to `quantized`, and tells where they then are, under the same numbers.
  RowMap QuantizeRows(const RowMap& source, const RowQuantization& tensor, const Range& piece,
                      uint8_t* quantized, RowValues* values) const noexcept;
  void CopyGiven(const RunBuffers& buffers, const Range& piece, RowValues* values) const noexcept;
  /// Stores the outputs of rows that have no scale.
  void FillWithoutScale(const RowValues& values, const OutputMap& output, const Range& piece) const noexcept;
  /// RunBuffers::tensor of a run, where that is wanted.
  RowQuantization FindTensor(const Batch& batch, int threads) const;
  static ThreadCount CountThreads(const Batch& batch, const Partition& cut, int threads);
  /// Computes share number `share` of a batch whose items are cut alike.
  void RunBatchShare(const Engine& engine, const Batch& batch, const Partition& cut, int64_t share,
                     const RowQuantization& tensor, uint8_t* scratch) const;

  GemmData data_;
  UsualRows usual_;
  std::vector<std::unique_ptr<Engine>> engines_;     // at least one
  const ScheduledEngine* scheduled_ = nullptr;       // among engines_
  std::shared_ptr<const ScheduledVectors> vectors_;  // what one of them runs; null: none does
  RowSums row_sums_;                                 // where the epilogue has weight zero points
  Quantizer quantizer_;                              // where runs quantize A
  std::string kernel_name_;
  TunedEngines tuned_;                                  // by rising M
  std::vector<std::unique_ptr<Engine>> tuned_engines_;  // those of tuned_ that are not among engines_
  int64_t run_all_as_ = 0;                              // 0: each M as itself
  core::Isa isa_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_GEMM_PLAN_H_
