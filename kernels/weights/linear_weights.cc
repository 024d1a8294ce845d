#include "kernels/weights/linear_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "kernels/weights/schedule.h"
#include "kernels/weights/scheduled_vectors.h"

namespace intact::kernels {
namespace {

constexpr int64_t kMin = std::numeric_limits<int32_t>::min();
constexpr int64_t kMax = std::numeric_limits<int32_t>::max();

bool FitsInt32(int64_t sum) { return sum >= kMin && sum <= kMax; }

Error NoMemoryForPanels() { return {INTACT_OUT_OF_MEMORY, "no memory for packed weights"}; }

// Makes the panels of `packed`, which has only sizes; false if memory ran out.
bool MakePanels(const LazySchedule& source, PackedWeights* packed) {
  const auto size = static_cast<size_t>(packed->bytes());
  if (!packed->owned.Resize(size)) return false;
  std::fill_n(packed->owned.data(), size, int8_t{0});
  source.AddTo(packed);
  packed->data = packed->owned.data();
  return true;
}

}  // namespace

Result<std::shared_ptr<const LinearWeights>> LinearWeights::Pack(LinearProblem problem, const WeightView& b,
                                                                 const Naming& naming, bool pairs_saturate) {
  std::shared_ptr<LinearWeights> weights(new LinearWeights);
  weights->problem_ = std::move(problem);
  weights->naming_ = naming;
  if (!PackWeights(b, &weights->packed_)) return NoMemoryForPanels();
  weights->certificate_ = Certify(weights->packed_, weights->problem_.range);
  weights->pairs_saturate_ = pairs_saturate;
  RETURN_IF_ERROR(weights->BoundAccumulators());
  return std::shared_ptr<const LinearWeights>(std::move(weights));
}

Result<std::shared_ptr<const LinearWeights>> LinearWeights::Borrow(
    LinearProblem problem, PackedWeights packed, Certificate certificate, std::shared_ptr<const void> mapping,
    const Naming& naming, bool pairs_saturate) {
  std::shared_ptr<LinearWeights> weights(new LinearWeights);
  weights->problem_ = std::move(problem);
  weights->packed_ = std::move(packed);
  weights->certificate_ = std::move(certificate);
  weights->mapping_ = std::move(mapping);
  weights->naming_ = naming;
  weights->pairs_saturate_ = pairs_saturate;
  RETURN_IF_ERROR(weights->BoundAccumulators());
  return std::shared_ptr<const LinearWeights>(std::move(weights));
}

Error LinearWeights::OwnPanels() const {
  const bool is_borrowed = packed_.data != nullptr && packed_.owned.size() == 0 && mapping_ == nullptr;
  if (!is_borrowed) return {};
  const auto size = static_cast<size_t>(packed_.bytes());
  if (!packed_.owned.Resize(size)) return NoMemoryForPanels();
  std::copy_n(packed_.data, size, packed_.owned.data());
  packed_.data = packed_.owned.data();
  return {};
}

Result<std::shared_ptr<const LinearWeights>> LinearWeights::OfRuntimeB(LinearProblem problem,
                                                                       const WeightView& layout) {
  std::shared_ptr<LinearWeights> weights(new LinearWeights);
  weights->problem_ = std::move(problem);
  weights->layout_ = layout;
  weights->packed_ = PackedWeights(layout.k, weights->problem_.n);
  const auto padded = static_cast<size_t>(weights->packed_.panels() * kPanelColumns);
  if (!weights->compensation_.Resize(padded)) return Error{INTACT_OUT_OF_MEMORY, "no memory for column sums"};
  const std::vector<int32_t>& bias = weights->problem_.bias_s32;
  if (bias.empty()) {
    std::fill_n(weights->compensation_.data(), padded, 0);
  } else {
    std::copy_n(bias.begin(), padded, weights->compensation_.data());
  }
  weights->certificate_.range = weights->problem_.range;
  weights->certificate_.pairs = (layout.k + 1) / 2 * weights->problem_.n;
  weights->certificate_.failing_pairs = weights->certificate_.pairs;  // nothing is proven
  weights->certificate_.column_sums.resize(padded);
  RETURN_IF_ERROR(weights->BoundRuntimeB());
  return std::shared_ptr<const LinearWeights>(std::move(weights));
}

// The worst weights: every product has the largest size, and all have one sign.
Error LinearWeights::BoundRuntimeB() {
  const int64_t factors = int64_t{255} * (problem_.HasWeightZeroPoints() ? 255 : 128);
  int64_t most = k() * factors;
  // Clamped pairs change Σ a·w, but the terms of the zero points are subtracted unchanged.
  if (problem_.mode == INTACT_SATURATING) most = 3 * most;
  certificate_.accumulator_min = -most;
  certificate_.accumulator_max = most;
  largest_output_ = std::numeric_limits<double>::infinity();
  for (int64_t column = 0; column < n(); ++column) {
    const int64_t bias = problem_.bias_s32.empty() ? 0 : problem_.bias_s32[static_cast<size_t>(column)];
    const int64_t sum = bias < 0 ? bias - most : bias + most;
    certificate_.accumulator_min = std::min(certificate_.accumulator_min, sum);
    certificate_.accumulator_max = std::max(certificate_.accumulator_max, sum);
    if (FitsInt32(sum) || problem_.overflow == INTACT_OVERFLOW_WRAPS) continue;
    return Overflow(column, sum, "the worst runtime B");
  }
  return {};
}

Error LinearWeights::Overflow(int64_t n, int64_t sum, const std::string& what) const {
  const int64_t bias = problem_.bias_s32.empty() ? 0 : problem_.bias_s32[static_cast<size_t>(n)];
  const int64_t products = sum - bias;
  const std::string wraps = "the overflow INTACT_OVERFLOW_WRAPS";
  if (!FitsInt32(products)) {
    return {INTACT_OVERFLOW, what + " can accumulate " + std::to_string(sum) +
                                 ", which leaves int32; the depth is " +
                                 std::to_string(naming_.depth == 0 ? k() : naming_.depth) +
                                 "; expected a smaller depth, or " + wraps};
  }
  const std::string limit = sum < kMin ? "at least " + std::to_string(kMin - products)
                                       : "at most " + std::to_string(kMax - products);
  const bool may_be_float = problem_.c_type != INTACT_S32 && problem_.fixed_point == INTACT_FIXED_POINT_NONE;
  return {INTACT_OVERFLOW, "bias_s32[" + std::to_string(naming_.first_column + n) + "] is " +
                               std::to_string(bias) + ", and the products of " + what + " reach " +
                               std::to_string(products) + ": their sum " + std::to_string(sum) +
                               " leaves int32; expected a bias of " + limit +
                               (may_be_float ? ", a bias_f32, or " : ", or ") + wraps};
}

void LinearWeights::DropPanels(std::shared_ptr<const LazySchedule> source) const {
  {
    const std::lock_guard lock(freeing_);
    dropped_to_ = std::move(source);
  }
  FreeUnreadPanels();
}

void LinearWeights::FreeUnreadPanels() const noexcept {
  const std::lock_guard lock(freeing_);
  // Unread pages of a file take no memory.
  if (dropped_to_ == nullptr || mapping_ != nullptr || schedules_.HasUnfound()) return;
  packed_.owned.Release();
  packed_.data = nullptr;
}

template <class Made>
Result<std::shared_ptr<LazyScheduleOf<Made>>> LinearWeights::MakeSchedule(const ScheduleSpec& spec) const {
  const ScheduleKey key = ScheduleKey::Of(spec);
  std::shared_ptr<LazyScheduleOf<Made>> schedule;
  if (const std::span<const uint8_t> order = schedules_.HeldOrder(key); !order.empty()) {
    Made made;
    RETURN_IF_ERROR(made.Build(packed_, spec, order));
    schedule = std::make_shared<LazyScheduleOf<Made>>(spec, std::move(made));
  } else {
    const std::optional<ScheduleStatistics> estimate = schedules_.Estimate(packed_, spec);
    if (!estimate) return NoMemoryForSchedule();
    schedule =
        std::make_shared<LazyScheduleOf<Made>>(packed_, spec, *estimate, [this] { FreeUnreadPanels(); });
  }
  schedules_.Note(key, schedule);
  return schedule;
}

template Result<std::shared_ptr<LazyScheduleOf<ScheduledWeights>>> LinearWeights::MakeSchedule(
    const ScheduleSpec& spec) const;
template Result<std::shared_ptr<LazyScheduleOf<ScheduledVectors>>> LinearWeights::MakeSchedule(
    const ScheduleSpec& spec) const;

Error LinearWeights::RestorePanels() const {
  if (dropped_to_ == nullptr) return {};  // writes nothing: threads share weights that keep their panels
  if (packed_.data == nullptr && !MakePanels(*dropped_to_, &packed_)) return NoMemoryForPanels();
  dropped_to_ = nullptr;
  return {};
}

Result<std::shared_ptr<const PackedWeights>> LinearWeights::Panels() const {
  // A thread that finds the last schedule may free dropped panels.
  if (dropped_to_ == nullptr || mapping_ != nullptr) {
    return std::shared_ptr<const PackedWeights>(std::shared_ptr<void>(), &packed_);
  }
  auto made = std::make_shared<PackedWeights>(packed_.k, packed_.n);
  if (!MakePanels(*dropped_to_, made.get())) return NoMemoryForPanels();
  return std::shared_ptr<const PackedWeights>(std::move(made));
}

int64_t LinearWeights::bytes() const {
  auto bytes = static_cast<int64_t>(compensation_.bytes() + column_sums_.bytes());
  {
    const std::lock_guard lock(freeing_);
    const bool is_read = dropped_to_ == nullptr || schedules_.HasUnfound();
    if (is_read && packed_.data != nullptr) bytes += packed_.bytes();
  }
  for (const bool has_values : {!problem_.bias_s32.empty(), !problem_.b_zero_points.empty(),
                                problem_.Factors() != nullptr, problem_.Addends() != nullptr}) {
    if (has_values) bytes += packed_.panels() * kPanelColumns * static_cast<int64_t>(sizeof(int32_t));
  }
  return bytes;
}

void LinearWeights::CompensationOf(int32_t zero_point, int32_t* to) const noexcept {
  std::copy_n(compensation_.data(), compensation_.size(), to);
  if (!problem_.has_run_zero_point) return;
  const auto add = [to](size_t n, int64_t value) {
    to[n] = static_cast<int32_t>(static_cast<uint32_t>(to[n]) + static_cast<uint32_t>(value));
  };
  for (size_t n = 0; n < compensation_.size(); ++n) add(n, -int64_t{zero_point} * column_sums_[n]);
  if (!pairs_saturate_ || problem_.clamp_excess.empty()) return;
  const auto place = static_cast<size_t>(problem_.ActivationZeroPoint() + zero_point);
  for (size_t n = 0; n < compensation_.size(); ++n) add(n, problem_.clamp_excess[place][n]);
}

Error LinearWeights::BoundAccumulators() {
  const ActivationRange admissible = problem_.AdmissibleRange();
  const auto padded = static_cast<size_t>(packed_.panels() * kPanelColumns);
  if (!compensation_.Resize(padded)) return {INTACT_OUT_OF_MEMORY, "no memory for column sums"};
  if (problem_.HasOpenZeroPoint()) {
    if (!column_sums_.Resize(padded)) return {INTACT_OUT_OF_MEMORY, "no memory for column sums"};
    std::fill_n(column_sums_.data(), padded, 0);
  }
  certificate_.accumulator_min = std::numeric_limits<int64_t>::max();
  certificate_.accumulator_max = std::numeric_limits<int64_t>::min();
  std::fill_n(compensation_.data(), padded, 0);  // padding columns are computed and dropped
  for (int64_t panel = 0; panel < packed_.panels(); ++panel) {
    const int64_t first = panel * kPanelColumns;
    const auto columns = static_cast<size_t>(std::min<int64_t>(kPanelColumns, n() - first));
    std::array<ColumnParts, kPanelColumns> parts;
    std::copy_n(certificate_.column_sums.begin() + first, kPanelColumns, parts.begin());
    if (problem_.HasWeightZeroPoints()) {
      std::array<int32_t, kPanelColumns> zero_points = {};
      std::copy_n(problem_.b_zero_points.begin() + first, columns, zero_points.begin());
      parts = SumPanel(packed_, panel, zero_points);
    }
    for (size_t i = 0; i < columns; ++i) {
      RETURN_IF_ERROR(BoundColumn(first + static_cast<int64_t>(i), parts[i], admissible));
    }
  }
  return {};
}

Error LinearWeights::BoundColumn(int64_t n, const ColumnParts& parts, ActivationRange admissible) {
  const auto i = static_cast<size_t>(n);
  const int64_t bias = problem_.bias_s32.empty() ? 0 : problem_.bias_s32[i];
  const int64_t compensation = bias - problem_.ActivationZeroPoint() * (parts.positive + parts.negative);
  // A run's zero points may be any values of the type; a single one for all of A lies in the activation
  // range.
  const bool has_open_zero_point = problem_.HasOpenZeroPoint();
  const int64_t constant = has_open_zero_point ? bias : compensation;
  const bool is_in_range =
      problem_.has_run_zero_point || problem_.a_quantization == INTACT_QUANTIZATION_TENSOR;
  const ActivationRange zero_points = is_in_range ? problem_.range : ActivationRange();
  const auto exact = [&](const ActivationRange& range) {
    return has_open_zero_point ? parts.Bound(range, zero_points) : parts.Bound(range);
  };
  // Exact sums are bounded in both modes. Clamped sums are bounded in saturating mode on every ISA, so that
  // all ISAs refuse the same problems.
  std::array<ColumnBound, 2> bounds = {exact(admissible)};
  size_t bound_count = 1;
  int64_t least_excess = 0;
  int64_t most_excess = 0;
  for (const std::vector<int64_t>& excess : problem_.clamp_excess) {
    const bool is_first = &excess == &problem_.clamp_excess.front();
    least_excess = is_first ? excess[i] : std::min(least_excess, excess[i]);
    most_excess = is_first ? excess[i] : std::max(most_excess, excess[i]);
  }
  if (problem_.mode == INTACT_SATURATING) {
    ColumnBound& saturating = bounds[bound_count++];
    saturating = BoundSaturatingColumn(packed_, n, problem_.WeightZeroPoint(n), admissible);
    saturating.lowest += least_excess;
    saturating.highest += most_excess;
    if (has_open_zero_point) {
      const int64_t sum = parts.positive + parts.negative;
      saturating.lowest -= std::max(zero_points.low * sum, zero_points.high * sum);
      saturating.highest -= std::min(zero_points.low * sum, zero_points.high * sum);
    }
  }
  int64_t largest = 0;
  for (const ColumnBound& bound : std::span(bounds).first(bound_count)) {
    for (const int64_t sum : {constant + bound.lowest, constant + bound.highest}) {
      largest = std::max(largest, FitsInt32(sum) ? std::abs(sum) : -kMin);
      if (FitsInt32(sum) || problem_.overflow == INTACT_OVERFLOW_WRAPS) continue;
      return Overflow(n, sum,
                      std::string(naming_.column) + " " + std::to_string(naming_.first_column + n) + " of " +
                          naming_.weights);
    }
  }
  largest_output_ = std::max(largest_output_, problem_.LargestOutput(i, static_cast<double>(largest)));
  // Modulo 2³²: intermediate sums may wrap. The final sum is proven to fit, or may wrap too.
  const bool has_excess = pairs_saturate_ && !problem_.has_run_zero_point;
  const int64_t start = compensation + (has_excess ? most_excess : 0);
  compensation_[i] = static_cast<int32_t>(static_cast<uint32_t>(start));
  if (has_open_zero_point) column_sums_[i] = static_cast<int32_t>(parts.positive + parts.negative);
  const ColumnBound bound = exact(problem_.range);
  certificate_.accumulator_min = std::min(certificate_.accumulator_min, constant + bound.lowest);
  certificate_.accumulator_max = std::max(certificate_.accumulator_max, constant + bound.highest);
  return {};
}

}  // namespace intact::kernels
