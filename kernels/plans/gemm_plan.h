// The GEMM plan behind intact.h: packed weights, and the engines that compute from them.
//
//   Create: check the descriptor → choose ISA → pack B → bound the accumulators → make engines
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
#include "kernels/weights/pack.h"

namespace intact::kernels {

/// A descriptor with every default filled in and every field checked.
struct GemmProblem {
  int64_t n = 0, k = 0;
  Naming naming;
  intact_type a_type = INTACT_U8;
  intact_type b_type = INTACT_S8;
  intact_mode mode = INTACT_EXACT;
  jit::IsaSet isas;  // permitted
  int32_t a_zero_point = 0;
  ActivationRange range;  // as kernels see activations
  bool is_range_checked = true;
  WeightView b;
  const int32_t* b_zero_points = nullptr;  // in b_type
  int64_t b_zero_point_count = 0;
  /// That of column `column` as kernels see weights.
  int32_t WeightZeroPoint(int64_t column) const;
  bool HasWeightZeroPoints() const;
  EpilogueSpec epilogue;
  float lo = 0.0f, hi = 0.0f;  // see epilogue.h
  int32_t c_zero_point = 0;
  const int32_t* bias_s32 = nullptr;
  // Of each column, what accumulators get beside where pairs saturate, on ISAs where they do: null, or n
  // values.
  const int64_t* clamp_excess = nullptr;
  const float* bias_f32 = nullptr;
  const float* scales = nullptr;
  int64_t scale_count = 0;
  ResidualScale residual;
};

/// The permitted ISAs under a plan's own cap: an intact_isa, if the caller gave one.
Result<jit::IsaSet> PermittedIsas(int64_t max_isa);

/// Checks everything a user can get wrong.
Result<GemmProblem> CheckDescriptor(const intact_gemm_desc& desc, const void* b);

/// Of a run's arguments those that tell of the residual and of C, as the caller gave them.
struct ResidualArguments {
  const void* residual = nullptr;
  int64_t residual_stride = 0;
  const void* c = nullptr;
  int64_t c_stride = 0;
};
/// The largest a_stride and c_stride, in elements.
inline constexpr int64_t kMaxStride = int64_t{1} << 40;
/// Of a run's arguments `part` and `parts`.
Error CheckPart(int part, int parts);
/// Against what a plan of `columns` columns wants.
Error CheckResidual(const EpilogueSpec& epilogue, int64_t columns, const ResidualArguments& arguments);

class GemmPlan {
 public:
  static Result<std::unique_ptr<GemmPlan>> Create(const intact_gemm_desc& desc, const void* b);
  /// From a checked problem, whose depth lies in A as `taps` say.
  static Result<std::unique_ptr<GemmPlan>> Create(const GemmProblem& problem, const Taps& taps);
  /// From a pack file's image (pack_file.h), which `mapping` keeps alive.
  static Result<std::unique_ptr<GemmPlan>> Load(const void* image, size_t size, intact_isa max_isa,
                                                std::shared_ptr<const void> mapping);

  Error Run(const intact_gemm_args& args) const;
  Error RunPart(const intact_gemm_args& args, int part, int parts) const;

  /// The engine for runs of `m` rows.
  const Engine& EngineFor(int64_t m) const;
  /// Scratch for one thread's share of a run of `m` rows.
  int64_t ShareBytes(const Engine& engine, int64_t m) const;
  /// Computes `range`, one thread's share of a run or a piece of it.
  void RunShare(const Engine& engine, const RunBuffers& buffers, const Range& range, uint8_t* scratch) const;

  const GemmData& data() const { return data_; }
  jit::Isa isa() const { return isa_; }
  /// The kernel that runs large M; "" without engines.
  const std::string& kernel_name() const { return kernel_name_; }
  /// The kernel that runs `m` rows.
  std::string KernelNameFor(int64_t m) const { return EngineFor(m).KernelName(); }
  /// For tests and measurements: from now on every M runs on the engine that runs `m` rows.
  void RunAllAs(int64_t m) { run_all_as_ = m; }
  int64_t packed_bytes() const;
  /// What the grouped engine runs; zeros if there is none.
  ScheduleStatistics schedule_statistics() const;

 private:
  GemmPlan() = default;
  Error SetColumns(const GemmProblem& problem);
  Error SetWeightZeroPoints(const GemmProblem& problem);
  /// From data_ on, however it came about: bounds, engines.
  Error Finish();
  Error BoundAccumulators();
  Error SetSkippingInitial();
  Error AddSkippingInitial(const TapRange& range);
  Error BoundColumn(int64_t n, const ColumnParts& parts, ActivationRange admissible);
  Error MakeEngines();
  Error MakePanelEngines();
  Error MakeScheduledEngine();
  std::vector<KernelBlock> BlocksInUse() const;
  Error CheckArguments(const intact_gemm_args& args) const;
  RunBuffers BuffersOf(const intact_gemm_args& args) const;
  /// Computes `range` on `engine`, and what does not fill its vectors where that is cheapest.
  void RunRows(const Engine& engine, const RunBuffers& buffers, const Range& range, uint8_t* scratch) const;
  const Engine* EngineForRest(const Engine& engine, int64_t m) const;
  void RunWithRowSums(const Engine& engine, RunBuffers buffers, const Range& range, uint8_t* scratch) const;

  GemmData data_;
  std::shared_ptr<const void> mapping_;           // of a pack file, whose weights data_ borrows
  std::vector<std::unique_ptr<Engine>> engines_;  // at least one
  const ScheduledEngine* grouped_ = nullptr;      // among engines_
  RowSums row_sums_;                              // where data_ has weight zero points
  std::string kernel_name_;
  double largest_output_ = 0;  // |float(y)·scale + bias| at most, over all admissible activations
  int64_t run_all_as_ = 0;     // 0: each M as itself
  jit::Isa isa_ = jit::Isa::kAvx2;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_GEMM_PLAN_H_
