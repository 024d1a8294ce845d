#include "bench/peers/contenders.h"

#include <fmt/format.h>

#include <array>
#include <intact/bound.hpp>
#include <intact/grouped.hpp>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "bench/cases/workload.h"
#include "bench/peers/peers.h"
#include "core/result.h"
#include "support/turns.h"

namespace intact::bench {
namespace {

/// A plan of intact, with the names of its kernels.
class PlanContender : public Contender {
 public:
  explicit PlanContender(std::string implementation) : implementation_(std::move(implementation)) {}
  std::string Implementation() const override { return implementation_; }
  std::string Replaced() const override { return replaced_; }
  /// Lets the plan choose its kernels by measurement.
  virtual Error Tune(double milliseconds) = 0;

 protected:
  Error Take(const Result<intact_tune_info>& info) {
    if (!info) return info.error();
    implementation_ = info->kernel;
    // Not by names: a transposed convolution's names are of its longest phase, but others may have changed.
    if (info->microseconds != info->model_microseconds) replaced_ = info->model_kernel;
    return {};
  }

 private:
  std::string implementation_, replaced_;
};

/// A plan, run by kRun, a function of the C ABI, or by a bound run.
template <class Plan, auto kRun>
class PlanContenderOf : public PlanContender {
 public:
  bool Run(const uint8_t* a, uint8_t* c) final {
    if constexpr (!std::is_same_v<Plan, Grouped>) {
      if (is_bound_) {
        if (!bound_ || args_.a != a || args_.c != c) Bind(a, c);
        return bound_ && bound_->Run().ok();
      }
    }
    args_.a = a;
    args_.c = c;
    return kRun(plan_.handle(), &args_) == INTACT_OK;
  }

 protected:
  PlanContenderOf(Plan plan, const typename Plan::Args& args, const Case& c)
      : PlanContender(plan.Info().kernel), plan_(std::move(plan)), args_(args) {
    args_.threads = c.threads;
    is_bound_ = c.is_bound;
  }

  Plan plan_;
  typename Plan::Args args_;

 private:
  void Bind(const uint8_t* a, uint8_t* c) {
    args_.a = a;
    args_.c = c;
    bound_.reset();
    Result<Bound> bound = Bound::Create(plan_, args_);
    if (bound) bound_ = std::move(*bound);
  }

  bool is_bound_;
  std::optional<Bound> bound_;  // of args_
};

class GemmContender final : public PlanContenderOf<Gemm, intact_gemm_run> {
 public:
  GemmContender(Gemm plan, const Workload& workload, const Case& c)
      : PlanContenderOf(std::move(plan), INTACT_GEMM_ARGS_INIT, c) {
    args_.m = c.shape.m;
    args_.batch = c.shape.Items();
    if (c.shape.batch) args_.b = workload.b().data();
  }
  Error Tune(double milliseconds) override { return Take(plan_.Tune(args_.m, milliseconds)); }
};

class BlockContender final : public PlanContenderOf<Grouped, intact_grouped_run> {
 public:
  BlockContender(Grouped plan, const Workload& /*workload*/, const Case& c)
      : PlanContenderOf(std::move(plan), INTACT_GROUPED_ARGS_INIT, c) {
    args_.m = c.shape.m;
  }
  Error Tune(double /*milliseconds*/) override {
    return {INTACT_UNSUPPORTED, "plans with weights in blocks are not tuned"};
  }
};

class ConvContender final : public PlanContenderOf<Conv, intact_conv_run> {
 public:
  ConvContender(Conv plan, const Workload& /*workload*/, const Case& c)
      : PlanContenderOf(std::move(plan), INTACT_CONV_ARGS_INIT, c) {
    args_.batch = c.shape.conv->batch;
  }
  Error Tune(double milliseconds) override {
    return Take(plan_.Tune(std::to_array(args_.input), milliseconds));
  }
};

/// The part of the description that GEMMs and convolutions share.
intact_linear_desc LinearDescOf(const Workload& workload, const reference::Linear& operation, const Case& c) {
  intact_linear_desc desc = INTACT_LINEAR_DESC_INIT;
  desc.c_type = c.format.c_type;
  desc.mode = c.mode;
  desc.max_isa = static_cast<int32_t>(c.isa);
  if (c.shape.batch) desc.b_type = c.shape.batch->b_type;
  if (IsDynamic(c.format.quantization)) {
    desc.a_source_type = INTACT_F32;
    desc.a_quantization = c.format.quantization == Quantization::kRow ? INTACT_QUANTIZATION_DYNAMIC_ROWS
                                                                      : INTACT_QUANTIZATION_DYNAMIC_TENSOR;
  }
  if (c.format.c_type == INTACT_S32) return desc;
  desc.scales = operation.scales.data();
  desc.scale_count = std::ssize(operation.scales);
  core::SetPostOps(workload.PostOpsOf(c.format), &desc);
  return desc;
}

/// Makes `plan` a contender, if it is for exactly c.isa.
template <class OfPlan, class Plan>
Result<std::unique_ptr<Contender>> Enter(Result<Plan> plan, const Workload& workload, const Case& c,
                                         double tuning_milliseconds) {
  if (!plan) return plan.error();
  if (plan->Info().isa != static_cast<int32_t>(c.isa)) {
    return Error{INTACT_UNSUPPORTED, fmt::format("the plan is for {}", intact_isa_name(plan->Info().isa))};
  }
  auto contender = std::make_unique<OfPlan>(std::move(*plan), workload, c);
  if (c.is_tuned) {
    RETURN_IF_ERROR(contender->Tune(tuning_milliseconds));
  }
  return std::unique_ptr<Contender>(std::move(contender));
}

}  // namespace

double Contender::Microseconds(const uint8_t* a, uint8_t* c, int64_t times) {
  const auto run = [&] {
    if (!Run(a, c)) throw std::runtime_error(Implementation() + ": a run failed");
  };
  return support::MicrosecondsPerCall(run, times);
}

GemmDesc GemmDescOf(const Workload& workload, const Case& c) {
  GemmDesc desc = MakeGemmDesc();
  desc.linear = LinearDescOf(workload, workload.gemm(), c);
  desc.n = workload.gemm().n;
  desc.k = workload.gemm().k;
  if (!c.shape.batch) return desc;
  desc.runtime_b = 1;
  desc.b_stride_k = c.shape.batch->b_by_columns ? 1 : desc.n;
  desc.b_stride_n = c.shape.batch->b_by_columns ? desc.k : 1;
  return desc;
}

ConvDesc ConvDescOf(const Workload& workload, const Case& c) {
  const Geometry& g = *c.shape.conv;
  ConvDesc desc = MakeConvDesc();
  desc.linear = LinearDescOf(workload, workload.conv(), c);
  desc.input_channels = g.c_in;
  desc.output_channels = g.c_out;
  desc.groups = g.groups;
  desc.transposed = g.transposed ? 1 : 0;
  desc.input[0] = g.height;
  desc.input[1] = g.width;
  const auto set = [](int64_t* field, const Extents& extents) {
    field[0] = extents.height;
    field[1] = extents.width;
  };
  set(desc.kernel, g.kernel);
  set(desc.stride, g.stride);
  set(desc.dilation, g.dilation);
  set(desc.pad_begin, g.PadBegin());
  set(desc.pad_end, g.PadEnd());
  return desc;
}

Result<std::unique_ptr<Contender>> MakeContender(const Workload& workload, const Case& c,
                                                 double tuning_milliseconds) {
  if (!c.peer.empty()) return FindPeer(c.peer)->Make(workload, c);
  if (c.shape.conv) {
    return Enter<ConvContender>(Conv::Create(ConvDescOf(workload, c), workload.b().data()), workload, c,
                                tuning_milliseconds);
  }
  if (const std::optional<BlockOperands>& blocks = workload.blocks()) {
    return Enter<BlockContender>(Grouped::Create(blocks->Describe(c), blocks->b().data()), workload, c,
                                 tuning_milliseconds);
  }
  const int8_t* const constant_b = c.shape.batch ? nullptr : workload.b().data();
  return Enter<GemmContender>(Gemm::Create(GemmDescOf(workload, c), constant_b), workload, c,
                              tuning_milliseconds);
}

}  // namespace intact::bench
