// The GEMM plan behind intact.h: packed weights, and the engines that compute from them.
//
//   Create: check the descriptor → choose ISA → pack B → bound the accumulators → make engines
//   Run:    choose the engine for M → threads ─► rectangles of C, one Engine::RunRange() each
#ifndef INTACT_KERNELS_GEMM_H_
#define INTACT_KERNELS_GEMM_H_

#include <intact/intact.h>

#include <cstdint>
#include <intact/intact.hpp>
#include <memory>
#include <string>
#include <vector>

#include "jit/isa.h"
#include "kernels/engine.h"
#include "kernels/pack.h"

namespace intact::kernels {

/// A descriptor with every default filled in and every field checked.
struct GemmProblem {
  int64_t n = 0, k = 0;
  intact_type a_type = INTACT_U8;
  intact_mode mode = INTACT_EXACT;
  jit::IsaSet isas;  // permitted
  int32_t a_zero_point = 0;
  WeightView b;
  EpilogueSpec epilogue;
  float lo = 0.0f, hi = 0.0f;  // see epilogue.h
  int32_t c_zero_point = 0;
  const int32_t* bias_s32 = nullptr;
  const float* bias_f32 = nullptr;
  const float* scales = nullptr;
  int64_t scale_count = 0;

  uint8_t a_flip() const { return a_type == INTACT_S8 ? 0x80 : 0; }
  /// The zero point of activations as kernels see them, in [0, 255].
  int32_t shifted_zero_point() const { return a_zero_point + (a_type == INTACT_S8 ? 128 : 0); }
};

/// Checks everything a user can get wrong.
Result<GemmProblem> CheckDescriptor(const intact_gemm_desc& desc, const void* b);

class GemmPlan {
 public:
  static Result<std::unique_ptr<GemmPlan>> Create(const intact_gemm_desc& desc, const void* b);

  Error Run(const intact_gemm_args& args) const noexcept;
  Error RunPart(const intact_gemm_args& args, int part, int parts) const noexcept;

  jit::Isa isa() const { return isa_; }
  intact_mode mode() const { return mode_; }
  /// The kernel that runs large M.
  const std::string& kernel_name() const { return kernel_name_; }
  /// The kernel that runs `m` rows.
  std::string KernelNameFor(int64_t m) const { return EngineFor(m).KernelName(); }
  int64_t packed_bytes() const;
  int64_t accumulator_min() const { return accumulator_min_; }
  int64_t accumulator_max() const { return accumulator_max_; }

 private:
  GemmPlan() = default;
  Error SetColumns(const GemmProblem& problem);
  Error BoundAccumulators(const GemmProblem& problem);
  Error MakeEngines();
  Error CheckArguments(const intact_gemm_args& args) const noexcept;
  RunBuffers BuffersOf(const intact_gemm_args& args) const;
  const Engine& EngineFor(int64_t m) const;

  jit::Isa isa_ = jit::Isa::kAvx2;
  intact_mode mode_ = INTACT_EXACT;
  GemmData data_;
  std::vector<std::unique_ptr<Engine>> engines_;  // at least one
  std::string kernel_name_;
  int64_t accumulator_min_ = 0, accumulator_max_ = 0;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_GEMM_H_
