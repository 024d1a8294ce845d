#include "verify/problem/grouped.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "core/result.h"
#include "core/types.h"
#include "reference/contract/quantize.h"
#include "verify/problem/fields.h"
#include "verify/problem/line.h"

namespace intact::verify {

std::optional<Error> CheckGrouped(const Problem& p) {
  const GroupedFields& g = *p.grouped;
  if (g.experts * p.n * p.k > kMaxDimension) {
    return Invalid(
        fmt::format("experts·n·k is beyond {}: experts={} n={} k={}", kMaxDimension, g.experts, p.n, p.k));
  }
  if (p.m * p.k > kMaxDimension || p.m * p.n > kMaxDimension) {
    return Invalid(fmt::format("m·k or m·n is beyond {}: m={} n={} k={}", kMaxDimension, p.m, p.n, p.k));
  }
  if (std::ranges::find(kGroups, g.group) == kGroups.end()) {
    return Invalid(
        fmt::format("group: {} is unknown; expected one of {}", g.group, fmt::join(kGroups, ", ")));
  }
  constexpr int64_t kMostDepths = 33025;  // 255·255·33025 is the largest sum within int32
  if (g.group == 0 && p.k > kMostDepths) {
    return Invalid(fmt::format("k with group=0: {} is out of range; expected 1 to {}", p.k, kMostDepths));
  }
  return std::nullopt;
}

Problem DrawGrouped(support::Random* random) {
  Problem p;
  GroupedFields& g = p.grouped.emplace();
  p.a_type = random->Of({INTACT_U8, INTACT_S8});
  g.b_type = random->Of(core::kGroupedWeightTypes);
  p.c_type = random->Of(core::kSourceTypes);
  DrawFields(
      "m n group k src per gscale zb bias act fill seed blayout slayout apad bpad cpad scratch threads "
      "parts split saved experts epad item ipad min",
      random, &p);
  ResetMisfits(&p);
  return p;
}

// ----- tensors ---------------------------------------------------------------------------------------------

namespace {

// Streams of random numbers. Each column and each row has its own numbers.
enum Stream : uint64_t { kWeights = 1, kZeroPoints, kScales, kBias, kRows, kRowScales, kExperts, kMinimums };

// What a group of the fill `bounds` has. Columns and rows combine, so sums reach both ends.
enum class Side : uint8_t { kHigh, kLow, kAlternating, kRandom };
Side SideOf(support::Random* random) {
  return random->Of({Side::kHigh, Side::kLow, Side::kAlternating, Side::kRandom});
}
bool IsHigh(Side side, int64_t i, support::Random* random) {
  const bool coin = random->OneIn(2);
  return side == Side::kHigh || (side == Side::kAlternating && i % 2 == 0) || (side == Side::kRandom && coin);
}

void AppendFloat(intact_type type, double value, std::vector<uint8_t>* bytes) {
  std::array<uint8_t, 4> element = {};
  core::Encode(type, reference::RoundToFloat(static_cast<float>(value), type), element.data());
  bytes->insert(bytes->end(), element.begin(), element.begin() + core::BytesOf(type));
}

// A positive scale with a random fraction.
double Scale(GroupedFill fill, intact_type type, support::Random* random) {
  const double fraction = 1 + random->Unit();
  const int64_t exponent = random->Integer(-20, 20), usual = random->Integer(-10, -4);
  const core::ElementType& traits = core::TraitsOf(type);
  switch (fill) {
    case GroupedFill::kSpread:
      return std::ldexp(fraction, static_cast<int>(exponent / (type == INTACT_F16 ? 2 : 1)));
    case GroupedFill::kHuge:
      return random->OneIn(8) ? 0 : core::LargestOf(type) / (1 << random->Integer(0, 3)) / fraction;
    case GroupedFill::kTiny:
      return std::ldexp(fraction,
                        traits.exponent - 1 - static_cast<int>(random->Integer(0, traits.fraction)));
    default:
      return std::ldexp(fraction, static_cast<int>(usual));
  }
}

// Of a size like that of the weights. With odd seeds, float16 holds all minimums.
float Minimum(const Problem& p, support::Random* random) {
  const double scale = Scale(p.grouped->fill, p.seed % 2 == 1 ? INTACT_F16 : INTACT_F32, random);
  const double minimum =
      (random->OneIn(2) ? -1 : 1) * (p.grouped->fill == GroupedFill::kHuge ? scale : 4 * scale);
  return static_cast<float>(p.seed % 2 == 1 ? reference::RoundToFloat(static_cast<float>(minimum), INTACT_F16)
                                            : minimum);
}

void FillWeights(const Problem& p, reference::Grouped* grouped) {
  const int32_t low = grouped->codes().lowest, high = grouped->codes().highest;
  const bool at_bounds = p.grouped->fill == GroupedFill::kBounds;
  for (int64_t i = 0; i < grouped->columns(); ++i) {
    const auto column = static_cast<uint64_t>(i);
    support::Random weights(p.seed, kWeights, column), points(p.seed, kZeroPoints, column);
    support::Random scales(p.seed, kScales, column), bias(p.seed, kBias, column);
    support::Random minimums(p.seed, kMinimums, column);
    Side side = Side::kHigh;
    for (int64_t k = 0; k < p.k; ++k) {
      if (k % grouped->depth() == 0) side = SideOf(&weights);
      const int64_t drawn = weights.Integer(low, high);
      const bool is_high = IsHigh(side, k, &weights);
      grouped->b.push_back(static_cast<int16_t>(!at_bounds ? drawn : is_high ? high : low));
    }
    for (int64_t g = 0; g < grouped->groups(); ++g) {
      const int64_t drawn = points.Integer(low, high);
      const bool is_high = points.OneIn(2);
      if (p.grouped->has_b_zero_points) {
        grouped->b_zero_points.push_back(static_cast<int16_t>(!at_bounds ? drawn : is_high ? high : low));
      }
      const double scale = Scale(p.grouped->fill, p.grouped->scale_type, &scales);
      AppendFloat(p.grouped->scale_type, scales.OneIn(4) ? -scale : scale, &grouped->b_scales);
      if (p.grouped->has_b_minimums) grouped->b_minimums.push_back(Minimum(p, &minimums));
    }
    if (p.bias != BiasKind::kNone) grouped->bias_f32.push_back(static_cast<float>(bias.Gauss()));
  }
}

// A as it is passed to runs without a source type.
void FillGiven(const Problem& p, int64_t m, reference::Grouped* grouped) {
  const int32_t low = core::LowestOf(p.a_type), high = core::HighestOf(p.a_type);
  support::Random random(p.seed, kRows, static_cast<uint64_t>(m));
  support::Random scales(p.seed, kRowScales, static_cast<uint64_t>(m));
  const bool at_bounds = p.grouped->fill == GroupedFill::kBounds;
  const bool by_groups = grouped->HasGroupScales();
  std::vector<int32_t> points;
  for (int64_t i = 0; i < (by_groups ? grouped->groups() : 1); ++i) {
    const bool is_high = scales.OneIn(2);
    const auto drawn = static_cast<int32_t>(scales.Integer(low, high));
    points.push_back(!p.grouped->has_a_zero_points ? 0 : !at_bounds ? drawn : is_high ? high : low);
    // As f32: with the scales of B it becomes denormal, or infinite.
    grouped->a_scales.push_back(static_cast<float>(Scale(p.grouped->fill, INTACT_F32, &scales)));
  }
  const int64_t hot = random.Integer(0, p.k - 1);
  Side side = Side::kHigh;
  for (int64_t k = 0; k < p.k; ++k) {
    const int64_t g = k / grouped->depth();
    if (k % grouped->depth() == 0) side = SideOf(&random);
    const auto drawn = static_cast<int32_t>(random.Integer(low, high));
    const bool is_high = IsHigh(side, k, &random);
    int32_t a = at_bounds ? is_high ? high : low : drawn;
    if (p.grouped->fill == GroupedFill::kOneHot && k != hot)
      a = points[static_cast<size_t>(by_groups ? g : 0)];
    grouped->a.push_back(static_cast<uint8_t>(a));
  }
  grouped->a_zero_points.insert(grouped->a_zero_points.end(), points.begin(), points.end());
}

// Real numbers, which runs quantize.
void FillNumbers(const Problem& p, int64_t m, reference::Grouped* grouped) {
  support::Random random(p.seed, kRows, static_cast<uint64_t>(m));
  const int64_t hot = random.Integer(0, p.k - 1);
  const int range = p.source == INTACT_F16 ? 4 : 20;
  const double size = std::ldexp(1.0, static_cast<int>(random.Integer(-range, range)));
  Side side = Side::kHigh;
  for (int64_t k = 0; k < p.k; ++k) {
    if (k % grouped->depth() == 0) side = SideOf(&random);
    double x = random.Gauss() * size;
    const bool is_high = IsHigh(side, k, &random);
    if (p.grouped->fill == GroupedFill::kBounds) x = is_high ? size : p.a_type == INTACT_U8 ? 0 : -size;
    if (p.grouped->fill == GroupedFill::kOneHot && k != hot) x = 0;
    if (p.grouped->fill == GroupedFill::kTiny) x *= std::ldexp(1.0, core::TraitsOf(p.source).exponent - 10);
    if (p.grouped->fill == GroupedFill::kNonFinite && k == hot && m % 3 != 0) {
      x = m % 3 == 1 ? std::numeric_limits<double>::quiet_NaN() : -std::numeric_limits<double>::infinity();
    }
    AppendFloat(p.source, x, &grouped->a_source);
  }
}

// Each row belongs to a random expert. With some seeds, all rows belong to one expert.
void FillExpertRows(const Problem& p, reference::Grouped* grouped) {
  support::Random random(p.seed, kExperts, 0);
  const bool is_one = random.OneIn(5);
  const int64_t one = random.Integer(0, p.grouped->experts - 1);
  grouped->expert_rows.assign(static_cast<size_t>(p.grouped->experts), 0);
  for (int64_t m = 0; m < p.m; ++m) {
    const int64_t drawn = random.Integer(0, p.grouped->experts - 1);
    ++grouped->expert_rows[static_cast<size_t>(is_one ? one : drawn)];
  }
}

}  // namespace

reference::Grouped MaterializeGrouped(const Problem& p) {
  reference::Grouped grouped;
  static_cast<core::WeightFormat&>(grouped) = *p.grouped;
  grouped.m = p.m;
  grouped.n = p.n;
  grouped.k = p.k;
  grouped.experts = p.grouped->experts;
  grouped.item_rows = p.item;
  grouped.a_type = p.a_type;
  grouped.a_source_type = p.source;
  grouped.SetGroupScales(p.grouped->has_group_scales);
  grouped.c_type = p.c_type;
  if (p.activation == INTACT_ACTIVATION_RELU) grouped.post_ops.Add(core::Relu{});
  if (p.activation == INTACT_ACTIVATION_CLAMP) grouped.post_ops.Add(core::Clamp{-0.75f, 1.5f});
  if (p.grouped->experts > 1) FillExpertRows(p, &grouped);
  FillWeights(p, &grouped);
  for (int64_t m = 0; m < p.m; ++m) {
    p.source == INTACT_TYPE_NONE ? FillGiven(p, m, &grouped) : FillNumbers(p, m, &grouped);
  }
  if (p.source != INTACT_TYPE_NONE) reference::QuantizeActivations(&grouped);
  return grouped;
}

}  // namespace intact::verify
