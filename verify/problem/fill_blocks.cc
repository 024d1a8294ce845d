#include "verify/problem/fill_blocks.h"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "core/types.h"
#include "reference/contract/quantize.h"
#include "support/random.h"

namespace intact::verify {

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

// A code for each draw: of the fill `bounds`, the lowest or the highest.
int16_t CodeOf(const Problem& p, const reference::Grouped& grouped, int64_t drawn, bool is_high) {
  if (p.grouped->fill != GroupedFill::kBounds) return static_cast<int16_t>(drawn);
  return static_cast<int16_t>(is_high ? grouped.codes().highest : grouped.codes().lowest);
}

// Calls visit(random) for each group of each column, with the column's random numbers of `stream`.
template <class Visit>
void ForEachGroup(const Filling& filling, Stream stream, Visit visit) {
  for (int64_t i = 0; i < filling.grouped->columns(); ++i) {
    support::Random random(filling.problem.seed, stream, static_cast<uint64_t>(i));
    for (int64_t g = 0; g < filling.grouped->groups(); ++g) visit(random);
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

}  // namespace

void FillExpertRows(const Filling& filling) {
  const Problem& p = filling.problem;
  if (p.grouped->experts == 1) return;
  support::Random random(p.seed, kExperts, 0);
  const bool is_one = random.OneIn(5);
  const int64_t one = random.Integer(0, p.grouped->experts - 1);
  std::vector<int64_t>& rows = filling.grouped->expert_rows;
  rows.assign(static_cast<size_t>(p.grouped->experts), 0);
  for (int64_t m = 0; m < p.m; ++m) {
    const int64_t drawn = random.Integer(0, p.grouped->experts - 1);
    ++rows[static_cast<size_t>(is_one ? one : drawn)];
  }
}

void FillCodes(const Filling& filling) {
  const Problem& p = filling.problem;
  reference::Grouped& grouped = *filling.grouped;
  for (int64_t i = 0; i < grouped.columns(); ++i) {
    support::Random random(p.seed, kWeights, static_cast<uint64_t>(i));
    Side side = Side::kHigh;
    for (int64_t k = 0; k < p.k; ++k) {
      if (k % grouped.depth() == 0) side = SideOf(&random);
      const int64_t drawn = random.Integer(grouped.codes().lowest, grouped.codes().highest);
      grouped.b.push_back(CodeOf(p, grouped, drawn, IsHigh(side, k, &random)));
    }
  }
}

void FillGroupZeroPoints(const Filling& filling) {
  reference::Grouped& grouped = *filling.grouped;
  if (!grouped.has_b_zero_points) return;
  ForEachGroup(filling, kZeroPoints, [&](support::Random& random) {
    const int64_t drawn = random.Integer(grouped.codes().lowest, grouped.codes().highest);
    grouped.b_zero_points.push_back(CodeOf(filling.problem, grouped, drawn, random.OneIn(2)));
  });
}

void FillGroupScales(const Filling& filling) {
  const GroupedFields& fields = *filling.problem.grouped;
  ForEachGroup(filling, kScales, [&](support::Random& random) {
    const double scale = Scale(fields.fill, fields.scale_type, &random);
    AppendFloat(fields.scale_type, random.OneIn(4) ? -scale : scale, &filling.grouped->b_scales);
  });
}

void FillMinimums(const Filling& filling) {
  if (!filling.grouped->has_b_minimums) return;
  ForEachGroup(filling, kMinimums, [&](support::Random& random) {
    filling.grouped->b_minimums.push_back(Minimum(filling.problem, &random));
  });
}

void FillGroupedBias(const Filling& filling) {
  if (filling.problem.bias == BiasKind::kNone) return;
  for (int64_t i = 0; i < filling.grouped->columns(); ++i) {
    support::Random random(filling.problem.seed, kBias, static_cast<uint64_t>(i));
    filling.grouped->bias_f32.push_back(static_cast<float>(random.Gauss()));
  }
}

void FillRows(const Filling& filling) {
  const bool is_given = filling.problem.source == INTACT_TYPE_NONE;
  for (int64_t m = 0; m < filling.problem.m; ++m) {
    (is_given ? FillGiven : FillNumbers)(filling.problem, m, filling.grouped);
  }
  if (!is_given) reference::QuantizeActivations(filling.grouped);
}

}  // namespace intact::verify
