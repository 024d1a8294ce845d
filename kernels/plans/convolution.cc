#include "kernels/plans/convolution.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "kernels/base/threads.h"
#include "kernels/codegen/dispatch.h"

namespace intact::kernels {
namespace {

Error Invalid(const std::string& message) { return {INTACT_INVALID_ARGUMENT, message}; }

Error Unexpected(const char* field, int64_t value, const std::string& expected) {
  return Invalid(std::string(field) + " is " + std::to_string(value) + "; expected " + expected);
}

Error CheckConvDescriptor(const intact_conv_desc& desc, const void* weights) {
  if (desc.struct_size != sizeof(intact_conv_desc)) {
    return Unexpected("desc->struct_size", static_cast<int64_t>(desc.struct_size),
                      std::to_string(sizeof(intact_conv_desc)) + " (use INTACT_CONV_DESC_INIT)");
  }
  if (weights == nullptr) return Invalid("weights is NULL");
  for (const auto& [field, value] : {std::pair("gemm.n", desc.gemm.n), std::pair("gemm.k", desc.gemm.k),
                                     std::pair("gemm.b_stride_k", desc.gemm.b_stride_k),
                                     std::pair("gemm.b_stride_n", desc.gemm.b_stride_n)}) {
    if (value != 0) return Unexpected(field, value, "0: a convolution's weights have a layout of their own");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Convolution>> Convolution::Create(const intact_conv_desc& desc, const void* weights) {
  const ScopedFloatEnvironment float_environment;
  Error error = CheckConvDescriptor(desc, weights);
  if (error.status != INTACT_OK) return error;
  const Result<ConvGeometry> geometry = CheckGeometry(desc);
  if (!geometry) return geometry.error();
  intact_gemm_desc gemm = desc.gemm;
  gemm.n = geometry->output_channels;
  gemm.k = geometry->taps() * geometry->group_inputs();
  gemm.b_stride_k = 1;
  gemm.b_stride_n = gemm.k;
  const Result<GemmProblem> problem = CheckDescriptor(gemm, weights);
  if (!problem) return problem.error();
  const Result<jit::Isa> isa = ChooseIsa(problem->isas);
  if (!isa) return isa.error();
  std::unique_ptr<Convolution> made(new Convolution);
  made->geometry_ = *geometry;
  made->spatial_dims_ = desc.spatial_dims;
  made->a_type_ = problem->a_type;
  made->mode_ = problem->mode;
  made->isa_ = *isa;
  made->range_ = problem->range;
  made->epilogue_ = problem->epilogue;
  error = made->MakePhases(*problem);
  if (error.status != INTACT_OK) return error;
  made->shares_of_one_ = made->MakeShares(1);
  return made;
}

Error Convolution::MakePhases(const GemmProblem& problem) {
  if (!geometry_.is_transposed) {
    auto plan = ConvPlan::Create(problem, geometry_, OutputGrid::All(geometry_.output));
    if (!plan) return plan.error();
    kernel_name_ = (*plan)->kernel_name();
    plans_.push_back(std::move(*plan));
    return {};
  }
  const std::vector<ConvPhase> phases = PhasesOf(geometry_);
  const PaddingExcess excess(geometry_, problem);
  int64_t most = 0;
  for (const ConvPhase& phase : phases) {
    const std::vector<int8_t> weights = WeightsOf(phase.taps, geometry_, problem);
    const std::vector<int64_t> others = excess.WithoutTaps(phase.taps);
    GemmProblem own = problem;
    own.k = phase.geometry.taps() * geometry_.group_inputs();
    own.b = {weights.data(), own.k, own.n, 1, own.k, problem.b.flip};
    own.clamp_excess = others.empty() ? nullptr : others.data();
    auto plan = ConvPlan::Create(own, phase.geometry, phase.grid);
    if (!plan) return plan.error();
    const int64_t products = phase.geometry.plane_pixels() * phase.geometry.output[kDepth] * own.k;
    if (products > most) kernel_name_ = (*plan)->kernel_name();
    most = std::max(most, products);
    plans_.push_back(std::move(*plan));
    plan_taps_.push_back(phase.taps);
  }
  KeepUnreadTaps(problem);
  return MakeBare(problem, phases, excess);
}

void Convolution::KeepUnreadTaps(const GemmProblem& problem) {
  std::vector<bool> is_read(static_cast<size_t>(geometry_.taps()));
  for (const std::vector<int64_t>& taps : plan_taps_) {
    for (const int64_t tap : taps) is_read[static_cast<size_t>(tap)] = true;
  }
  for (int64_t tap = 0; tap < geometry_.taps(); ++tap) {
    if (!is_read[static_cast<size_t>(tap)]) unread_taps_.push_back(tap);
  }
  unread_weights_ = WeightsOf(unread_taps_, geometry_, problem);
  for (int8_t& weight : unread_weights_) weight = static_cast<int8_t>(weight ^ problem.b.flip);
}

Error Convolution::MakeBare(const GemmProblem& problem, const std::vector<ConvPhase>& phases,
                            const PaddingExcess& excess) {
  Result<std::unique_ptr<BarePixels>> bare =
      BarePixels::Create(geometry_, phases, problem, excess.WithoutTaps({}));
  if (!bare) return bare.error();
  bare_ = std::move(*bare);
  if (plans_.empty()) kernel_name_ = bare_->plan().kernel_name();
  return {};
}

int64_t Convolution::packed_bytes() const {
  int64_t bytes = bare_ == nullptr ? 0 : bare_->plan().packed_bytes();
  for (const auto& plan : plans_) bytes += plan->packed_bytes();
  return bytes;
}

void Convolution::RunAllAs(int64_t m) {
  for (const auto& plan : plans_) plan->RunAllAs(m);
  if (bare_ != nullptr) bare_->RunAllAs(m);
  shares_of_one_ = MakeShares(1);
}

ScheduleStatistics Convolution::schedule_statistics() const {
  ScheduleStatistics all;
  for (const auto& plan : plans_) all += plan->schedule_statistics();
  return all;
}

void Convolution::CopyColumn(int64_t column, int8_t* to) const {
  const int64_t pitch = PairPitch();
  for (size_t i = 0; i < plans_.size(); ++i) {
    for (int64_t tap = 0; tap < plans_[i]->taps(); ++tap) {
      const int64_t place = plan_taps_.empty() ? tap : plan_taps_[i][static_cast<size_t>(tap)];
      plans_[i]->CopyTap(column, tap, to + place * pitch);
    }
  }
  const int64_t inputs = geometry_.group_inputs();
  const auto unread = static_cast<int64_t>(unread_taps_.size());
  for (int64_t i = 0; i < unread; ++i) {
    std::copy_n(unread_weights_.begin() + (column * unread + i) * inputs, inputs,
                to + unread_taps_[static_cast<size_t>(i)] * pitch);
  }
}

PairedColumns Convolution::Pairs() const {
  return {geometry_.taps() * PairPitch(), geometry_.output_channels,
          [this](int64_t column, int8_t* to) { CopyColumn(column, to); }};
}

Result<Certificate> Convolution::MakeCertificate() const {
  Result<Certificate> certificate = Certify(Pairs(), range_);
  if (!certificate) return certificate;
  certificate->accumulator_min = accumulator_min();
  certificate->accumulator_max = accumulator_max();
  return certificate;
}

Result<std::vector<FailingPair>> Convolution::ListFailingPairs(int64_t first, int64_t count) const {
  return kernels::ListFailingPairs(Pairs(), range_, first, count);
}

int64_t Convolution::accumulator_min() const {
  int64_t least = std::numeric_limits<int64_t>::max();
  if (bare_ != nullptr) least = bare_->plan().data().certificate.accumulator_min;
  for (const auto& plan : plans_) least = std::min(least, plan->accumulator_min());
  return least;
}

int64_t Convolution::accumulator_max() const {
  int64_t most = std::numeric_limits<int64_t>::min();
  if (bare_ != nullptr) most = bare_->plan().data().certificate.accumulator_max;
  for (const auto& plan : plans_) most = std::max(most, plan->accumulator_max());
  return most;
}

Error Convolution::CheckArguments(const intact_conv_args& args) const {
  if (args.struct_size != sizeof(intact_conv_args)) {
    return Unexpected("args->struct_size", static_cast<int64_t>(args.struct_size),
                      "that of INTACT_CONV_ARGS_INIT");
  }
  if (args.a == nullptr) return Invalid("a is NULL");
  if (args.c == nullptr) return Invalid("c is NULL");
  const int64_t pixels = geometry_.output[kDepth] * geometry_.plane_pixels();
  const int64_t most = std::numeric_limits<int32_t>::max() / pixels;
  if (args.batch < 1 || args.batch > most) {
    return Unexpected("batch", args.batch, "1 to " + std::to_string(most));
  }
  for (const auto& [field, stride, channels] :
       {std::tuple("a_stride", args.a_stride, geometry_.input_channels),
        std::tuple("c_stride", args.c_stride, geometry_.output_channels)}) {
    if (stride != 0 && (stride < channels || stride > kMaxStride)) {
      return Unexpected(field, stride, "0 or at least " + std::to_string(channels) + ", at most 2^40");
    }
  }
  return CheckResidual(epilogue_, geometry_.output_channels,
                       {args.residual, args.residual_stride, args.c, args.c_stride});
}

Convolution::Shares Convolution::MakeShares(int64_t batch) const {
  Shares shares;
  for (const auto& plan : plans_) {
    const ConvPlan::Shape& shape = shares.shapes.emplace_back(plan->ShapeOf(batch));
    shares.parts = std::max(shares.parts, shape.parts());
    shares.bytes = std::max(shares.bytes, shape.bytes);
  }
  if (bare_ == nullptr) return shares;
  shares.parts = std::max(shares.parts, bare_->Parts(batch));
  shares.bytes = std::max(shares.bytes, bare_->ScratchBytes());
  return shares;
}

const Convolution::Shares& Convolution::SharesOf(int64_t batch, Shares* made) const {
  if (batch == 1) return shares_of_one_;
  *made = MakeShares(batch);
  return *made;
}

void Convolution::RunShare(const intact_conv_args& args, const Shares& shares, int part, int parts,
                           uint8_t* scratch) const {
  for (size_t i = 0; i < plans_.size(); ++i)
    plans_[i]->RunShare(args, shares.shapes[i], part, parts, scratch);
  if (bare_ == nullptr) return;
  const RunBuffers buffers = OutputBuffers(args, bare_->plan().data(), geometry_.output_channels);
  bare_->RunShare(buffers, args.batch, part, parts, scratch);
}

Error Convolution::Run(const intact_conv_args& args) const {
  Error error = CheckArguments(args);
  if (error.status != INTACT_OK) return error;
  if (args.threads < 0) return Unexpected("threads", args.threads, "0 or more");
  Shares made;
  const Shares& shares = SharesOf(args.batch, &made);
  const ThreadCount count = CountThreads(args.threads, shares.parts);
  uint8_t* const scratch = ThreadScratch(shares.bytes * count.threads);
  if (scratch == nullptr) return {INTACT_OUT_OF_MEMORY, "no scratch memory"};
  RunParts(count, [&](int part, int thread) {
    RunShare(args, shares, part, count.parts, scratch + thread * shares.bytes);
  });
  return {};
}

Error Convolution::RunPart(const intact_conv_args& args, int part, int parts) const {
  Error error = CheckArguments(args);
  if (error.status == INTACT_OK) error = CheckPart(part, parts);
  if (error.status != INTACT_OK) return error;
  Shares made;
  const Shares& shares = SharesOf(args.batch, &made);
  uint8_t* const scratch = ThreadScratch(shares.bytes);
  if (scratch == nullptr) return {INTACT_OUT_OF_MEMORY, "no scratch memory"};
  RunShare(args, shares, part, parts, scratch);
  return {};
}

}  // namespace intact::kernels
