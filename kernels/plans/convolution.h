// The convolution behind intact.h: one plan (conv.h), or those of a transposed one's phases
// (conv_transposed.h).
//
//   Create: check geometry and descriptor → phases → a ConvPlan each, and the bare pixels
//   Run:    shares to threads ─► a share of each plan
#ifndef INTACT_KERNELS_PLANS_CONVOLUTION_H_
#define INTACT_KERNELS_PLANS_CONVOLUTION_H_

#include <intact/intact.h>

#include <cstdint>
#include <intact/intact.hpp>
#include <memory>
#include <string>
#include <vector>

#include "kernels/plans/conv_plan.h"
#include "kernels/plans/conv_transposed.h"
#include "kernels/problem/conv_geometry.h"

namespace intact::kernels {

class Convolution {
 public:
  static Result<std::unique_ptr<Convolution>> Create(const intact_conv_desc& desc, const void* weights);

  Error Run(const intact_conv_args& args) const;
  Error RunPart(const intact_conv_args& args, int part, int parts) const;

  intact_type a_type() const { return a_type_; }
  const ConvGeometry& geometry() const { return geometry_; }
  /// The caller's dimensions: the last of the geometry's.
  int spatial_dims() const { return spatial_dims_; }
  jit::Isa isa() const { return isa_; }
  intact_mode mode() const { return mode_; }
  const std::string& kernel_name() const { return kernel_name_; }
  int64_t packed_bytes() const;
  /// For tests: see GemmPlan::RunAllAs().
  void RunAllAs(int64_t m);
  /// Of all output channels; pairs are adjacent channels of a tap, whatever the layout. Made anew by each
  /// call, in a pass over the packed weights.
  Result<Certificate> MakeCertificate() const;
  /// By output channel, tap and channel: number `first` and on, at most `count`. Their `k` is
  /// tap·PairPitch() + channel of the group.
  Result<std::vector<FailingPair>> ListFailingPairs(int64_t first, int64_t count) const;
  int64_t PairPitch() const { return RoundUp(geometry_.group_inputs(), 2); }
  int64_t accumulator_min() const;
  int64_t accumulator_max() const;
  ScheduleStatistics schedule_statistics() const;

 private:
  Convolution() = default;
  Error MakePhases(const GemmProblem& problem);
  void KeepUnreadTaps(const GemmProblem& problem);
  Error MakeBare(const GemmProblem& problem, const std::vector<ConvPhase>& phases,
                 const PaddingExcess& excess);
  /// As kernels see them, each tap's channels from a multiple of PairPitch() on.
  PairedColumns Pairs() const;
  void CopyColumn(int64_t column, int8_t* to) const;
  Error CheckArguments(const intact_conv_args& args) const;
  /// How a run is cut.
  struct Shares {
    std::vector<ConvPlan::Shape> shapes;  // of each plan
    int64_t parts = 1;                    // more are of no use
    int64_t bytes = 0;                    // scratch of a share, aligned to 64 bytes
  };
  Shares MakeShares(int64_t batch) const;
  /// Those of a batch: kept, or made in `made`.
  const Shares& SharesOf(int64_t batch, Shares* made) const;
  void RunShare(const intact_conv_args& args, const Shares& shares, int part, int parts,
                uint8_t* scratch) const;

  ConvGeometry geometry_;
  int spatial_dims_ = 2;
  intact_type a_type_ = INTACT_U8;
  intact_mode mode_ = INTACT_EXACT;
  jit::Isa isa_ = jit::Isa::kAvx2;
  ActivationRange range_;  // declared, as kernels see activations
  EpilogueSpec epilogue_;
  std::vector<std::unique_ptr<ConvPlan>> plans_;  // may be none of a transposed convolution
  std::unique_ptr<BarePixels> bare_;              // null: there are none
  // Of a transposed one, for the certificate: the caller's number of each plan's taps; then taps that no
  // output reads, with their weights, [output channel][tap][channel], as kernels see them.
  std::vector<std::vector<int64_t>> plan_taps_;
  std::vector<int64_t> unread_taps_;
  std::vector<int8_t> unread_weights_;
  std::string kernel_name_;  // of the plan with most products
  // Of a batch of one: where a convolution has many plans or units, to make them takes microseconds.
  Shares shares_of_one_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_CONVOLUTION_H_
