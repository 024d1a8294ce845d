#include "verify/studies/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <tuple>
#include <utility>

#include "core/isas.h"
#include "core/result.h"
#include "reference/models/lowering.h"
#include "reference/models/operands.h"
#include "support/turns.h"
#include "verify/explain/audit.h"
#include "verify/explain/compare.h"
#include "verify/explain/pairing.h"
#include "verify/problem/problem.h"
#include "verify/targets/intact_target.h"

namespace intact::verify {
namespace {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

constexpr int32_t kSevenBits = 127;
constexpr Microseconds kBudget(5e3);

std::string WhyNotSevenBits(const reference::Linear& operation) {
  const bool is_given = operation.a_quantization == INTACT_QUANTIZATION_TENSOR;
  if (!operation.a_scales.empty() && !is_given) return "activations are quantized as they are read";
  if (operation.a_type == INTACT_S8) return "s8 activations, shifted by 128, leave [0, 127]";
  const int32_t largest = *std::ranges::max_element(operation.a);
  if (largest > kSevenBits) return fmt::format("activations reach {}", largest);
  const int32_t zero_point = reference::ActivationZeroPoint(operation);
  if (zero_point > kSevenBits) return fmt::format("the zero point is {}", zero_point);
  return {};
}

// The settings of a plan.
struct Variant {
  intact_mode mode;
  int32_t a_max;  // activation range [0, a_max]; 0: all of the type
};

std::vector<Variant> VariantsOn(intact_isa isa, bool seven_bits) {
  if (!core::SaturatesInt16(isa)) return {{INTACT_EXACT, 0}};
  std::vector<Variant> variants = {{INTACT_SATURATING, 0}, {INTACT_EXACT, 0}};
  if (seven_bits) variants.push_back({INTACT_EXACT, kSevenBits});
  return variants;
}

std::optional<double> PerQuad(const intact_certificate& certificate, int64_t count) {
  if (certificate.schedule_quads == 0) return std::nullopt;
  return static_cast<double>(count) / static_cast<double>(certificate.schedule_quads);
}

bool IsRight(const Contender& contender) {
  std::vector<uint8_t> output(contender.expected.size());
  return contender.run(output.data()) == INTACT_OK && std::ranges::equal(output, contender.expected);
}

double TimedRun(const Contender& contender, std::vector<uint8_t>* output) {
  (void)contender.run(output->data());
  const auto start = Clock::now();
  (void)contender.run(output->data());
  return Microseconds(Clock::now() - start).count();
}

intact_status RunPlan(const Gemm& plan, const intact_gemm_args& args) {
  return intact_gemm_run(plan.handle(), &args);
}
intact_status RunPlan(const Conv& plan, const intact_conv_args& args) { return plan.Run(args).status; }

/// Times the plans of a layer. Only the plans of one ISA exist at a time, because only they are compared, and
/// because a large layer's plans for all ISAs would fill the memory.
template <class Plan, class Operation>
class Timer {
 public:
  explicit Timer(const Operation& operation)
      : operation_(operation),
        pairing_(operation.pairing),
        exact_(OutputsOf(reference::Model::kExact)),
        maddubs_(OutputsOf(MaddubsOf(pairing_))) {}

  /// Leaves out an ISA that this machine lacks, or for which the library has no kernel.
  Error AddIsa(intact_isa isa, bool seven_bits) {
    std::vector<Plan> plans;
    RunOptions options;
    options.isa = isa;
    for (const Variant& variant : VariantsOn(isa, seven_bits)) {
      operation_.mode = variant.mode;
      // Exact plans have no pairing of their own.
      operation_.pairing = variant.mode == INTACT_SATURATING ? pairing_ : INTACT_PAIRING_WITHIN_TAP;
      operation_.a_max = variant.a_max;
      Result<Plan> plan = CreatePlan(operation_, options);
      if (!plan && plan.error().status == INTACT_UNSUPPORTED) continue;
      if (!plan) return plan.error();
      RETURN_IF_ERROR(AddTiming(*plan, isa));
      plans.push_back(std::move(*plan));
    }
    TimeLast(plans);
    return {};
  }

  std::vector<Timing> Timings() && { return std::move(timings_); }

 private:
  Error AddTiming(const Plan& plan, intact_isa isa) {
    ASSIGN_OR_RETURN(const intact_certificate certificate, plan.Certificate(pairing_));
    Timing timing;
    timing.isa = isa;
    timing.mode = operation_.mode;
    timing.seven_bits = operation_.a_max == kSevenBits;
    timing.kernel = plan.Info().kernel;
    timing.certificate = certificate;
    timings_.push_back(std::move(timing));
    return {};
  }

  // Fills in the times of `plans`; the last timings belong to them.
  void TimeLast(const std::vector<Plan>& plans) {
    const std::span<Timing> last = std::span(timings_).last(plans.size());
    std::vector<Contender> contenders;
    for (size_t i = 0; i < plans.size(); ++i) {
      const bool saturates = Saturates(last[i].mode, last[i].isa);
      contenders.push_back(
          {[this, &plans, i](uint8_t* c) { return Run(plans[i], c); }, saturates ? maddubs_ : exact_});
    }
    const std::vector<std::optional<Time>> times = Race(contenders);
    for (size_t i = 0; i < times.size(); ++i) last[i].time = times[i];
  }

  std::vector<uint8_t> OutputsOf(reference::Model model) const {
    return reference::Outputs(operation_, reference::Accumulators(operation_, model));
  }

  intact_status Run(const Plan& plan, uint8_t* c) const {
    const void* const residual = operation_.HasResidual() ? operation_.residual.data() : nullptr;
    return RunPlan(plan, ArgsOf(operation_, RunOptions(), {operation_.GivenA().data(), c, residual}));
  }

  Operation operation_;
  intact_pairing pairing_;  // the pairing of saturating plans and of all certificates
  std::vector<uint8_t> exact_, maddubs_;
  std::vector<Timing> timings_;
};

Layer LaplaceLayer(std::string name, int32_t amax) {
  Problem problem;
  problem.c_type = INTACT_U8;
  problem.scale = ScaleKind::kChannel;
  problem.m = 128;
  problem.n = problem.k = 768;
  problem.fill = Fill::kLaplace;
  problem.amax = amax;
  Layer layer;
  layer.name = std::move(name);
  layer.op = "linear";
  layer.operation = Materialize(problem);
  return layer;
}

}  // namespace

std::optional<double> Timing::ItemsPerQuad() const {
  return PerQuad(certificate, certificate.schedule_items);
}

std::optional<double> Timing::GroupsPerQuad() const {
  return PerQuad(certificate, certificate.schedule_groups);
}

bool Cost::AllRight() const {
  return std::ranges::all_of(timings, [](const Timing& timing) { return timing.time.has_value(); });
}

const intact_certificate* Cost::FullRangeCertificate() const {
  const auto found = std::ranges::find(timings, false, &Timing::seven_bits);
  return found == timings.end() ? nullptr : &found->certificate;
}

const Timing* Cost::Find(intact_isa isa, intact_mode mode, bool seven_bits) const {
  const auto found = std::ranges::find_if(timings, [&](const Timing& timing) {
    return timing.isa == isa && timing.mode == mode && timing.seven_bits == seven_bits;
  });
  return found == timings.end() ? nullptr : &*found;
}

std::optional<double> Cost::SpeedUp(const Timing& timing) const {
  const Timing* saturating = Find(timing.isa, INTACT_SATURATING, false);
  if (saturating == nullptr || !saturating->time || !timing.time) return std::nullopt;
  return saturating->time->microseconds / timing.time->microseconds;
}

std::vector<std::optional<Time>> Race(std::span<const Contender> contenders) {
  std::vector<size_t> right;
  std::vector<support::Measurement> measurements;
  std::vector<uint8_t> output;
  for (size_t i = 0; i < contenders.size(); ++i) {
    output.resize(std::max(output.size(), contenders[i].expected.size()));
    if (!IsRight(contenders[i])) continue;
    right.push_back(i);
    measurements.emplace_back([&contenders, &output, i] { return TimedRun(contenders[i], &output); });
  }
  const std::vector<std::vector<double>> turns = support::TakeTurns(measurements, kBudget);
  std::vector<std::optional<Time>> times(contenders.size());
  for (size_t i = 0; i < right.size(); ++i)
    times[right[i]] = Time{support::Median(turns[i]), support::Spread(turns[i])};
  return times;
}

namespace {

template <class Plan, class Operation>
Result<std::vector<Timing>> TimePlans(const Operation& operation, bool seven_bits) {
  Timer<Plan, Operation> timer(operation);
  for (const intact_isa isa : core::kIsaLadder) {
    RETURN_IF_ERROR(timer.AddIsa(isa, seven_bits));
  }
  return std::move(timer).Timings();
}

}  // namespace

Result<Cost> MeasureCost(const Layer& layer) {
  Cost cost;
  cost.layer = layer.name;
  cost.why_not_seven_bits = WhyNotSevenBits(LinearOf(layer.operation));
  const bool seven_bits = cost.why_not_seven_bits.empty();
  ASSIGN_OR_RETURN(cost.timings, layer.conv() != nullptr ? TimePlans<Conv>(*layer.conv(), seven_bits)
                                                         : TimePlans<Gemm>(layer.gemm(), seven_bits));
  const auto [rows, columns] = OutputOf(layer.operation);
  cost.m = rows;
  cost.n = columns;
  cost.k = layer.conv() != nullptr ? layer.conv()->geometry.Taps() * layer.conv()->geometry.GroupInputs()
                                   : layer.gemm().k;
  return cost;
}

Result<std::vector<Cost>> MeasureBuiltinCosts() {
  std::vector<Layer> layers = BuiltinLayers();
  layers.push_back(LaplaceLayer("builtin_768x768", 255));
  layers.push_back(LaplaceLayer("builtin_768x768_u7", kSevenBits));
  std::vector<Cost> costs;
  for (const Layer& layer : layers) {
    ASSIGN_OR_RETURN(Cost cost, MeasureCost(layer));
    costs.push_back(std::move(cost));
  }
  return costs;
}

}  // namespace intact::verify
