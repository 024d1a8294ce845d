#include "kernels/api/create.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/codegen/dispatch.h"
#include "kernels/problem/checks.h"
#include "kernels/weights/grouped_file.h"
#include "kernels/weights/pack_file.h"

namespace intact::kernels {
namespace {

Result<core::Isa> ChooseIsaUnder(int32_t max_isa) {
  ASSIGN_OR_RETURN(const core::IsaSet permitted, PermittedIsas(max_isa));
  return ChooseIsa(permitted);
}

Result<std::unique_ptr<GemmPlan>> PlanOf(Result<std::shared_ptr<const LinearWeights>> weights, core::Isa isa,
                                         int64_t usual_m) {
  if (!weights) return weights.error();
  return GemmPlan::Create(std::move(*weights), isa, usual_m);
}

// Weights of a convolution: a depth for each (tap, channel of the group), dense by output channel.
WeightView ViewOf(const int8_t* weights, const ConvGeometry& geometry, uint8_t shift) {
  const int64_t k = geometry.taps() * geometry.group_inputs();
  return {weights, k, geometry.output_channels, 1, k, shift};
}

// Records of schedules, and the orders that the records refer to.
class Schedules {
 public:
  /// Adds the schedules of `weights`, with the sizes of their orders. Finds the schedules that no run has needed.
  /// `unit` says which unit the weights belong to.
  Error Add(const LinearWeights& weights, const SavedSchedule& unit) {
    for (ScheduleRecord& record : weights.schedules().records()) {
      if (const std::shared_ptr<const LazySchedule> made = record.Used(); made != nullptr) {
        RETURN_IF_ERROR(made->Find(1));
        record.order_bytes = made->statistics().order_bytes;
      }
      schedules_.push_back(unit);
      schedules_.back().record = record;
    }
    return {};
  }
  /// Adds the schedules of `weights`, with their orders. Finds the orders in `panels`, the panels of `weights`.
  Error AddOrders(const LinearWeights& weights, const PackedWeights& panels, const SavedSchedule& unit) {
    for (ScheduleRecord& record : weights.schedules().records()) {
      if (record.Used() != nullptr) {
        std::optional<std::vector<uint8_t>> order =
            OrderOf(panels, record.key.ToSpec(weights.problem().b_zero_points.data()));
        if (!order) return NoMemoryForSchedule();
        record.order = orders_.emplace_back(std::move(*order));
        record.order_bytes = std::ssize(record.order);
      }
      schedules_.push_back(unit);
      schedules_.back().record = record;
    }
    return {};
  }
  const std::vector<SavedSchedule>& all() const { return schedules_; }

 private:
  std::vector<SavedSchedule> schedules_;
  std::vector<std::vector<uint8_t>> orders_;
};

// Calls visit(weights, unit) for each unit that has records of schedules, until it returns an error.
template <class Visit>
Error ForEachUnitWithSchedules(const Convolution& plan, const Visit& visit) {
  Error error;
  plan.ForEachLayout([&](int64_t phase, const ConvLayout& layout) {
    for (int64_t unit = 0; unit < layout.units() && error.ok(); ++unit) {
      const LinearWeights& weights = *layout.weights(unit);
      if (weights.schedules().records().empty()) continue;
      error = visit(weights, SavedSchedule{phase, layout.variant().ToString(), unit, {}});
    }
  });
  return error;
}

}  // namespace

Result<std::unique_ptr<GemmPlan>> MakePlan(const intact_gemm_desc& desc, const intact_linear_desc& linear,
                                           const void* b) {
  ASSIGN_OR_RETURN(WeightView view, CheckGemm(desc, b));
  RETURN_IF_ERROR(CheckClampBounds(linear));
  ASSIGN_OR_RETURN(LinearProblem problem, CheckLinear(linear, desc.n));
  view.shift = problem.b_shift();
  problem.has_runtime_b = desc.runtime_b != 0;
  problem.may_have_b_zero_points = problem.has_runtime_b && linear.b_zero_points != nullptr;
  ASSIGN_OR_RETURN(const core::Isa isa, ChooseIsaUnder(linear.max_isa));
  if (problem.has_runtime_b)
    return PlanOf(LinearWeights::OfRuntimeB(std::move(problem), view), isa, desc.usual_m);
  const bool pairs_saturate = PairsSaturate(isa, problem.mode);
  return PlanOf(LinearWeights::Pack(std::move(problem), view, {}, pairs_saturate), isa, desc.usual_m);
}

Result<std::unique_ptr<Convolution>> MakePlan(const intact_conv_desc& desc, const intact_linear_desc& linear,
                                              const void* weights) {
  if (weights == nullptr) return InvalidArgument("weights is NULL");
  ASSIGN_OR_RETURN(const ConvGeometry geometry, CheckGeometry(desc));
  RETURN_IF_ERROR(CheckClampBounds(linear));
  ASSIGN_OR_RETURN(LinearProblem problem, CheckConvLinear(linear, geometry.output_channels));
  ASSIGN_OR_RETURN(const core::Isa isa, ChooseIsaUnder(linear.max_isa));
  ConvWeights dense(ViewOf(static_cast<const int8_t*>(weights), geometry, problem.b_shift()));
  return Convolution::Create(std::move(problem), geometry, &dense, isa);
}

Result<std::unique_ptr<GroupedPlan>> MakePlan(const intact_grouped_desc& desc, const void* b) {
  ASSIGN_OR_RETURN(GroupedProblem problem, CheckGrouped(desc));
  ASSIGN_OR_RETURN(const GroupedWeightView weights, CheckGroupedWeights(desc, problem, b));
  ASSIGN_OR_RETURN(const core::Isa isa, ChooseIsaUnder(desc.max_isa));
  return GroupedPlan::Create(std::move(problem), weights, isa);
}

Result<std::unique_ptr<GemmPlan>> LoadGemm(const void* image, size_t size, int32_t max_isa,
                                           std::shared_ptr<const void> mapping) {
  ASSIGN_OR_RETURN(const core::Isa isa, ChooseIsaUnder(max_isa));
  ASSIGN_OR_RETURN(PackContents contents, ReadPackImage(image, size));
  if (contents.conv) return InvalidArgument("it holds a convolution; expected a GEMM (use intact_conv_load)");
  ASSIGN_OR_RETURN(LinearProblem problem, CheckLinear(contents.linear, contents.weights.n));
  Certificate certificate = Certify(contents.weights, problem.range);
  const bool pairs_saturate = PairsSaturate(isa, problem.mode);
  ASSIGN_OR_RETURN(std::shared_ptr<const LinearWeights> weights,
                   LinearWeights::Borrow(std::move(problem), std::move(contents.weights),
                                         std::move(certificate), std::move(mapping), {}, pairs_saturate));
  for (const SavedSchedule& schedule : contents.schedules) weights->schedules().Hold(schedule.record);
  ASSIGN_OR_RETURN(std::unique_ptr<GemmPlan> plan, GemmPlan::Create(weights, isa, contents.usual_m));
  plan->Restore(contents.tuned);
  weights->schedules().ForgetHeld();
  return plan;
}

Result<std::unique_ptr<Convolution>> LoadConvolution(const void* image, size_t size, int32_t max_isa,
                                                     std::shared_ptr<const void> mapping) {
  ASSIGN_OR_RETURN(const core::Isa isa, ChooseIsaUnder(max_isa));
  ASSIGN_OR_RETURN(const PackContents contents, ReadPackImage(image, size));
  if (!contents.conv)
    return InvalidArgument("it holds a GEMM; expected a convolution (use intact_gemm_load)");
  ASSIGN_OR_RETURN(const ConvGeometry geometry, CheckGeometry(*contents.conv));
  const PackedWeights& packed = contents.weights;
  const int64_t k = geometry.taps() * geometry.group_inputs();
  if (packed.n != geometry.output_channels || packed.k != k) {
    return InvalidArgument("corrupted: the geometry does not match n and k");
  }
  ASSIGN_OR_RETURN(LinearProblem problem, CheckConvLinear(contents.linear, packed.n));
  ConvWeights weights(&packed, std::move(mapping));
  ASSIGN_OR_RETURN(std::unique_ptr<Convolution> plan,
                   Convolution::Create(std::move(problem), geometry, &weights, isa, contents.schedules));
  plan->Restore(contents.tuned);
  RETURN_IF_ERROR(plan->LeaveImage());
  return plan;
}

Result<std::unique_ptr<GroupedPlan>> LoadGrouped(const void* image, size_t size, int32_t max_isa,
                                                 std::shared_ptr<const void> mapping) {
  ASSIGN_OR_RETURN(GroupedImage read, ReadGroupedImage(image, size, mapping));
  ASSIGN_OR_RETURN(const core::Isa isa, ChooseIsaUnder(max_isa));
  if (!read.weights->AreFor(read.problem, GroupedPlan::PackingIsa(isa)) || MayExceedInt32(read.problem)) {
    const GroupedColumns columns = read.weights->Unpacked(read.problem);
    const GroupedWeightView view = columns.View(read.problem);
    RETURN_IF_ERROR(CheckGroups(read.problem, view));
    return GroupedPlan::Create(std::move(read.problem), view, isa);
  }
  RETURN_IF_ERROR(read.weights->Check(read.problem));
  if (mapping == nullptr) RETURN_IF_ERROR(read.weights->Copy());
  return GroupedPlan::Create(std::move(read.problem), std::move(read.weights), isa);
}

Result<std::vector<uint8_t>> ImageOf(const GemmPlan& plan) {
  const LinearWeights& weights = plan.weights();
  ASSIGN_OR_RETURN(const auto panels, weights.Panels());
  Schedules schedules;
  RETURN_IF_ERROR(schedules.AddOrders(weights, *panels, {}));
  return WritePackImage(weights.problem(), std::nullopt, *panels, plan.usual_m(), plan.tuned(),
                        schedules.all());
}

Result<std::vector<uint8_t>> ImageOf(const Convolution& plan) {
  const ConvGeometry& geometry = plan.geometry();
  const int64_t k = geometry.taps() * geometry.group_inputs();
  std::vector<int8_t> weights(static_cast<size_t>(k * geometry.output_channels));
  ASSIGN_OR_RETURN(const Convolution::CopyColumn columns, plan.ColumnsAt(geometry.group_inputs()));
  for (int64_t n = 0; n < geometry.output_channels; ++n) columns(n, &weights[static_cast<size_t>(n * k)]);
  PackedWeights packed;
  if (!PackWeights(ViewOf(weights.data(), geometry, 0), &packed)) {
    return Error{INTACT_OUT_OF_MEMORY, "no memory for packed weights"};
  }
  Schedules schedules;
  const auto add = [&](const LinearWeights& own, const SavedSchedule& unit) -> Error {
    ASSIGN_OR_RETURN(const auto panels, own.Panels());
    return schedules.AddOrders(own, *panels, unit);
  };
  RETURN_IF_ERROR(ForEachUnitWithSchedules(plan, add));
  return WritePackImage(plan.problem(), DescOf(geometry), packed, 0, plan.tuned(), schedules.all());
}

Result<std::vector<uint8_t>> ImageOf(const GroupedPlan& plan) {
  return WriteGroupedImage(plan.problem(), plan.weights());
}

Result<size_t> ImageBytes(const GemmPlan& plan) {
  const LinearWeights& weights = plan.weights();
  Schedules schedules;
  RETURN_IF_ERROR(schedules.Add(weights, {}));
  return PackImageBytes(weights.problem(), std::nullopt, PackedWeights(weights.k(), weights.n()),
                        plan.usual_m(), plan.tuned(), schedules.all());
}

Result<size_t> ImageBytes(const Convolution& plan) {
  const ConvGeometry& geometry = plan.geometry();
  const PackedWeights sizes(geometry.taps() * geometry.group_inputs(), geometry.output_channels);
  Schedules schedules;
  const auto add = [&](const LinearWeights& own, const SavedSchedule& unit) {
    return schedules.Add(own, unit);
  };
  RETURN_IF_ERROR(ForEachUnitWithSchedules(plan, add));
  return PackImageBytes(plan.problem(), DescOf(geometry), sizes, 0, plan.tuned(), schedules.all());
}

Result<size_t> ImageBytes(const GroupedPlan& plan) {
  return GroupedImageBytes(plan.problem(), plan.weights());
}

}  // namespace intact::kernels
