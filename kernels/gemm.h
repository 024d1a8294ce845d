// The GEMM plan behind intact.h: packed weights, chosen kernels, and the loops around the microkernel.
//
//   Create: check the descriptor → choose ISA and block → pack B → bound the accumulators → generate kernels
//   Run:    threads ─► rectangles of C ─► blocks of rows (A packed, in L2) ─► columns of nr (B panel, in L1)
//           ─► tiles of mr×nr: one microkernel call each; an edge within a vector goes through a scratch tile
#ifndef INTACT_KERNELS_GEMM_H_
#define INTACT_KERNELS_GEMM_H_

#include <intact/intact.h>

#include <cstdint>
#include <intact/intact.hpp>
#include <memory>
#include <string>
#include <vector>

#include "kernels/blocking.h"
#include "kernels/dispatch.h"
#include "kernels/microkernel.h"
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

  jit::Isa isa() const { return block_.isa; }
  intact_mode mode() const { return mode_; }
  const std::string& kernel_name() const { return kernel_name_; }
  int64_t packed_bytes() const;
  int64_t accumulator_min() const { return accumulator_min_; }
  int64_t accumulator_max() const { return accumulator_max_; }

 private:
  GemmPlan() = default;

  Error PackColumns(const GemmProblem& problem);
  Error BoundAccumulators(const GemmProblem& problem);
  Error GenerateKernels(const EpilogueSpec& epilogue);
  Error CheckArguments(const intact_gemm_args& args) const noexcept;
  int64_t ScratchBytes(int64_t rows) const;
  void RunRange(const intact_gemm_args& args, const Range& range, uint8_t* scratch) const noexcept;
  void RunTile(const intact_gemm_args& args, int64_t row, int64_t rows, int64_t column, int64_t columns,
               const uint8_t* panel, uint8_t* scratch_tile) const noexcept;
  MicrokernelFunction Kernel(int64_t rows, int64_t vectors) const {
    return functions_[static_cast<size_t>((vectors - 1) * block_.mr + rows - 1)];
  }

  int64_t n_ = 0, k_ = 0;
  intact_mode mode_ = INTACT_EXACT;
  int element_bytes_ = 4;
  uint8_t a_flip_ = 0;
  KernelBlock block_{};
  int lanes_ = 0, nr_ = 0;
  std::string kernel_name_;
  PackedWeights weights_;
  // Per column, padded to whole panels.
  AlignedBuffer<int32_t> initial_;
  AlignedBuffer<float> scales_, bias_;
  EpilogueArgs epilogue_;
  int64_t accumulator_min_ = 0, accumulator_max_ = 0;
  std::vector<MicrokernelFunction> functions_;  // [vectors − 1][rows − 1]; only those that n can need are set
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_GEMM_H_
