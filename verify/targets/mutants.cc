#include "verify/targets/mutants.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <string_view>
#include <utility>

#include "verify/targets/intact_target.h"

namespace intact::verify {
namespace {

using reference::Model;

// A faulty computation of a GEMM's output bytes; an unfaulty one would accumulate by `model`.
using Computation = std::vector<uint8_t> (*)(const reference::Gemm& gemm, Model model);

std::vector<uint8_t> Compute(const reference::Gemm& gemm, Model model) {
  return reference::Outputs(gemm, reference::Accumulators(gemm, model));
}

std::vector<uint8_t> SwapPairOrder(const reference::Gemm& honest, Model model) {
  reference::Gemm gemm = honest;
  for (int64_t k = 0; k + 3 < gemm.k; k += 4) {
    for (int64_t m = 0; m < gemm.m; ++m) {
      const auto at = static_cast<size_t>(m * gemm.k + k);
      std::swap(gemm.a[at + 1], gemm.a[at + 2]);
    }
    for (int64_t n = 0; n < gemm.n; ++n) {
      std::swap(gemm.b[static_cast<size_t>((k + 1) * gemm.n + n)],
                gemm.b[static_cast<size_t>((k + 2) * gemm.n + n)]);
    }
  }
  return Compute(gemm, model);
}

std::vector<uint8_t> DropDepthTail(const reference::Gemm& honest, Model model) {
  reference::Gemm gemm = honest;
  const int64_t kept = gemm.k / 4 * 4;
  std::fill(gemm.b.begin() + kept * gemm.n, gemm.b.end(), int8_t{0});
  return Compute(gemm, model);
}

std::vector<uint8_t> ForgetZeroPoint(const reference::Gemm& honest, Model model) {
  reference::Gemm gemm = honest;
  gemm.a_zero_point = 0;
  return Compute(gemm, model);
}

std::vector<uint8_t> ForgetWeightZeroPoints(const reference::Gemm& honest, Model model) {
  reference::Gemm gemm = honest;
  gemm.b_zero_points.clear();
  return Compute(gemm, model);
}

std::vector<uint8_t> DropRowSums(const reference::Gemm& gemm, Model model) {
  reference::Operands operands(gemm);
  std::fill(operands.row_sums.begin(), operands.row_sums.end(), 0);
  return reference::Outputs(gemm, reference::Accumulators(operands, model));
}

std::vector<uint8_t> ReuseLastScale(const reference::Gemm& honest, Model model) {
  reference::Gemm gemm = honest;
  if (gemm.scales.size() > 1) gemm.scales.back() = gemm.scales[gemm.scales.size() - 2];
  return Compute(gemm, model);
}

std::vector<uint8_t> RoundHalfUp(const reference::Gemm& gemm, Model model) {
  const std::vector<int32_t> accumulators = reference::Accumulators(gemm, model);
  if (gemm.c_type == INTACT_S32 || gemm.c_type == INTACT_F32) return reference::Outputs(gemm, accumulators);
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < accumulators.size(); ++i) {
    const auto q = reference::RequantizationOf(gemm, static_cast<int64_t>(i) % gemm.n);
    const float rounded = std::floor(reference::Dequantize(accumulators[i], q) + 0.5f);
    bytes.push_back(static_cast<uint8_t>(reference::RoundToType(rounded, q.c_type, q.zero_point)));
  }
  return bytes;
}

std::vector<uint8_t> AddResidualLast(const reference::Gemm& gemm, Model model) {
  const std::vector<int32_t> accumulators = reference::Accumulators(gemm, model);
  if (gemm.residual_type == INTACT_TYPE_NONE) return reference::Outputs(gemm, accumulators);
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < accumulators.size(); ++i) {
    const auto output = static_cast<int64_t>(i);
    const auto q = reference::RequantizationOf(gemm, output % gemm.n);
    const auto whole = reference::WithResidual(q, gemm, output);
    const float f = reference::Dequantize(accumulators[i], q) + whole.residual * whole.residual_scale;
    if (gemm.c_type == INTACT_F32) {
      const auto element = std::bit_cast<std::array<uint8_t, sizeof f>>(f);
      bytes.insert(bytes.end(), element.begin(), element.end());
    } else {
      bytes.push_back(static_cast<uint8_t>(reference::RoundToType(f, q.c_type, q.zero_point)));
    }
  }
  return bytes;
}

std::vector<uint8_t> ForgetResidualZeroPoint(const reference::Gemm& honest, Model model) {
  reference::Gemm gemm = honest;
  gemm.residual_zero_point = 0;
  return Compute(gemm, model);
}

std::vector<uint8_t> SaturateInt32(const reference::Gemm& gemm, Model /*model*/) {
  return Compute(gemm, Model::kDpbusds);
}

class MutantTarget : public Target {
 public:
  MutantTarget(std::string name, Computation compute) : name_(std::move(name)), compute_(compute) {}
  std::string Name() const override { return name_; }
  Result<std::vector<uint8_t>> Run(const reference::Gemm& gemm, const RunOptions& options) const override {
    return compute_(gemm, ExpectedModel(options.mode, options.isa));
  }

 private:
  std::string name_;
  Computation compute_;
};

class Overeager : public IntactTarget {
 public:
  std::string Name() const override { return "one_pair_too_many"; }
  Result<std::vector<uint8_t>> Run(const reference::Gemm& gemm, const RunOptions& options) const override {
    RunOptions narrow = options;
    const int32_t zero = gemm.a_zero_point + (gemm.a_type == INTACT_S8 ? 128 : 0);
    narrow.declared = std::max({options.declared - 1, zero, 1});  // a range must hold the zero point
    narrow.range_check = INTACT_RANGE_UNCHECKED;
    return IntactTarget::Run(gemm, narrow);
  }
};

Problem ProblemOf(std::string_view line) {
  const Result<Problem> problem = Problem::Parse(line);
  assert(problem);
  return *problem;
}

Mutant MakeMutant(const char* name, Computation compute, std::string fault, std::string_view line,
                  Cause cause, std::string detail) {
  return {std::make_unique<MutantTarget>(name, compute), std::move(fault), ProblemOf(line), cause,
          std::move(detail)};
}

}  // namespace

Result<std::vector<uint8_t>> ReferenceTarget::Run(const reference::Gemm& gemm,
                                                  const RunOptions& options) const {
  return Compute(gemm, ExpectedModel(options.mode, options.isa));
}

std::unique_ptr<Target> OvereagerTarget() { return std::make_unique<Overeager>(); }

std::vector<Mutant> Mutants() {
  std::vector<Mutant> mutants;
  mutants.push_back(MakeMutant("swapped_pair_order", SwapPairOrder,
                               "pairs (k, k+2) and (k+1, k+3) saturate instead of adjacent ones",
                               "gemm u8s8s32 m=4 n=16 k=64 fill=bait mode=saturating isa=avx2",
                               Cause::kImplementationError, "pairs (k, k+2) and (k+1, k+3)"));
  mutants.push_back(MakeMutant("dropped_depth_tail", DropDepthTail, "the last K mod 4 depths are left out",
                               "gemm u8s8s32 m=5 n=17 k=67 za=3", Cause::kImplementationError,
                               "depth tail k=64…66 missing"));
  mutants.push_back(MakeMutant("forgotten_zero_point", ForgetZeroPoint,
                               "the activation zero point is not subtracted",
                               "gemm u8s8u8 m=5 n=17 k=64 za=77 zc=128", Cause::kImplementationError,
                               "activation zero point not subtracted"));
  mutants.push_back(MakeMutant("forgotten_weight_zero_point", ForgetWeightZeroPoints,
                               "the weights' zero points are not subtracted",
                               "gemm u8u8u8 m=5 n=17 k=64 za=77 zb=131 zc=128", Cause::kImplementationError,
                               "weight zero point not subtracted"));
  mutants.push_back(MakeMutant("dropped_row_sums", DropRowSums,
                               "the weights' zero points are not multiplied with the rows' sums",
                               "gemm s8u8s32 m=5 n=17 k=67 za=-3 zb=9 zbper=channel",
                               Cause::kImplementationError, "sum of the row's activations left out"));
  mutants.push_back(MakeMutant("reused_scale", ReuseLastScale, "the last column is scaled as the one before",
                               "gemm u8s8s8 m=16 n=17 k=64 za=128 scale=channel", Cause::kImplementationError,
                               "the scale of column 15 gives this output of column 16"));
  mutants.push_back(MakeMutant("half_up", RoundHalfUp, "ties are rounded up instead of to even",
                               "gemm u8s8u8 m=16 n=16 k=64 za=9 zc=128 fill=ties", Cause::kRequantization,
                               "half up"));
  mutants.push_back(MakeMutant("late_residual", AddResidualLast,
                               "the residual is added after the activation instead of before it",
                               "gemm u8s8u8 m=8 n=17 k=64 za=128 zc=128 act=relu res=s8 zres=-3",
                               Cause::kImplementationError, "residual added after the activation"));
  mutants.push_back(MakeMutant("forgotten_residual_zero_point", ForgetResidualZeroPoint,
                               "the residual's zero point is not subtracted",
                               "gemm u8s8f32 m=8 n=17 k=64 za=128 bias=f32 res=u8 zres=77",
                               Cause::kImplementationError, "residual's zero point not subtracted"));
  mutants.push_back(
      MakeMutant("saturating_int32_adds", SaturateInt32, "VPDPBUSDS: intermediate sums are clamped to int32",
                 "gemm u8s8s32 m=1 n=1 k=70000 za=128 fill=extremes", Cause::kInt32Overflow, "left int32"));
  mutants.push_back({OvereagerTarget(), "int16 groups take one pair too many",
                     ProblemOf("gemm u8s8s32 m=48 n=16 k=64 wmax=128 fill=bound isa=avx2"),
                     Cause::kImplementationError, "int16 sums wrapped"});
  return mutants;
}

}  // namespace intact::verify
