#include "bench/contender.h"

#include <fmt/format.h>

#include <utility>

#include "bench/peers.h"
#include "bench/workload.h"
#include "verify/targets/intact_target.h"

namespace intact::bench {
namespace {

class IntactContender final : public Contender {
 public:
  IntactContender(Gemm plan, const Case& c) : plan_(std::move(plan)) {
    args_.m = c.shape.m;
    args_.threads = c.threads;
  }

  std::string Implementation() const override { return plan_.Info().kernel; }

  bool Run(const uint8_t* a, uint8_t* c) override {
    args_.a = a;
    args_.c = c;
    return intact_gemm_run(plan_.handle(), &args_) == INTACT_OK;
  }

 private:
  Gemm plan_;
  intact_gemm_args args_ = INTACT_GEMM_ARGS_INIT;
};

}  // namespace

GemmDesc DescOf(const Workload& workload, const Case& c) {
  verify::RunOptions options;
  options.mode = c.mode;
  options.isa = static_cast<intact_isa>(c.isa);
  if (c.amax != 0) options.declared = c.amax;
  GemmDesc desc = verify::DescOf(workload.gemm(), options);
  if (c.c_type != INTACT_S32) return desc;
  desc.c_type = INTACT_S32;
  desc.scales = nullptr;
  desc.scale_count = 0;
  desc.activation = INTACT_ACTIVATION_NONE;
  return desc;
}

Result<std::unique_ptr<Contender>> MakeContender(const Workload& workload, const Case& c) {
  if (!c.peer.empty()) return FindPeer(c.peer)->Make(workload, c);
  Result<Gemm> plan = Gemm::Create(DescOf(workload, c), workload.gemm().b.data());
  if (!plan) return plan.error();
  if (plan->Info().isa != static_cast<intact_isa>(c.isa)) {
    return Error{INTACT_UNSUPPORTED, fmt::format("the plan is for {}", intact_isa_name(plan->Info().isa))};
  }
  return std::unique_ptr<Contender>(std::make_unique<IntactContender>(std::move(*plan), c));
}

}  // namespace intact::bench
