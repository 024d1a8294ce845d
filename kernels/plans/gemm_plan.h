// A plan: some weights, how A is found, and the engines that compute from them on one ISA. A GEMM of the C
// ABI is one whose rows have one tap; a convolution has one for each unit of its weights (conv_plan.h).
//
//   Create: bound what depends on the access → make engines
//   Run:    choose the engine for M → threads ─► rectangles of C, one Engine::RunRange() each
#ifndef INTACT_KERNELS_PLANS_GEMM_PLAN_H_
#define INTACT_KERNELS_PLANS_GEMM_PLAN_H_

#include <intact/intact.h>

#include <cstdint>
#include <intact/intact.hpp>
#include <memory>
#include <string>
#include <vector>

#include "jit/isa.h"
#include "kernels/codegen/dispatch.h"
#include "kernels/codegen/row_sums.h"
#include "kernels/engines/engine.h"
#include "kernels/engines/scheduled_engine.h"
#include "kernels/problem/access.h"
#include "kernels/weights/linear_weights.h"
#include "kernels/weights/scheduled_vectors.h"

namespace intact::kernels {

class GemmPlan {
 public:
  /// `like`: a plan of the same weights for other extents of a convolution's input, whose schedule it shares;
  /// or null.
  static Result<std::unique_ptr<GemmPlan>> Create(std::shared_ptr<const LinearWeights> weights, Access access,
                                                  jit::Isa isa, const GemmPlan* like = nullptr);

  // The C ABI's GEMM.
  Error Prepare(const intact_gemm_args& args, intact_run_info* info) const;
  Error Run(const intact_gemm_args& args) const;
  Error RunPart(const intact_gemm_args& args, int32_t part, int32_t parts) const;

  /// The engine for runs of `m` rows.
  const Engine& EngineFor(int64_t m) const;
  /// Scratch for one thread's share of a run of `m` rows.
  int64_t ShareBytes(const Engine& engine, int64_t m) const;
  /// Computes `range`, one thread's share of a run or a piece of it.
  void RunShare(const Engine& engine, const RunBuffers& buffers, const Range& range, uint8_t* scratch) const;

  const GemmData& data() const { return data_; }
  const LinearWeights& weights() const { return *data_.linear; }
  jit::Isa isa() const { return isa_; }
  /// The kernel that runs large M.
  const std::string& kernel_name() const { return kernel_name_; }
  /// The kernel that runs `m` rows.
  std::string KernelNameFor(int64_t m) const { return EngineFor(m).KernelName(); }
  /// For tests and measurements: from now on every M runs on the engine that runs `m` rows.
  void RunAllAs(int64_t m) { run_all_as_ = m; }
  /// Memory of the weights, in all forms.
  int64_t packed_bytes() const;
  /// What the scheduled engine runs; zeros if there is none.
  ScheduleStatistics schedule_statistics() const;

 private:
  GemmPlan(std::shared_ptr<const LinearWeights> weights, Access access, jit::Isa isa)
      : data_(std::move(weights), std::move(access), isa), isa_(isa) {}
  Error SetSkippingInitial();
  Error AddSkippingInitial(const TapRange& range);
  Error MakeEngines(const GemmPlan* like);
  Error MakePanelEngines(const GemmPlan* like);
  Result<std::vector<KernelBlock>> BlocksInUse(const GemmPlan* like) const;
  Error CheckArguments(const intact_gemm_args& args) const;
  RunBuffers BuffersOf(const intact_gemm_args& args) const;
  /// Computes `range` on `engine`, and what does not fill its vectors where that is cheapest.
  void RunRows(const Engine& engine, const RunBuffers& buffers, const Range& range, uint8_t* scratch) const;
  const Engine* EngineForRest(const Engine& engine, int64_t m) const;
  void RunWithRowSums(const Engine& engine, RunBuffers buffers, const Range& range, uint8_t* scratch) const;

  GemmData data_;
  std::vector<std::unique_ptr<Engine>> engines_;     // at least one
  const ScheduledEngine* scheduled_ = nullptr;       // among engines_
  std::shared_ptr<const ScheduledVectors> vectors_;  // what one of them runs; null: none does
  RowSums row_sums_;                                 // where the epilogue has weight zero points
  std::string kernel_name_;
  int64_t run_all_as_ = 0;  // 0: each M as itself
  jit::Isa isa_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_GEMM_PLAN_H_
