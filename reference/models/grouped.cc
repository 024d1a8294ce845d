#include "reference/models/grouped.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <limits>

#include "core/types.h"
#include "reference/contract/quantize.h"
#include "reference/contract/requantize.h"

namespace intact::reference {
namespace {

struct ModelRow {
  GroupedModel model;
  bool is_fault;
  std::string_view phrase;
};
// The contract, then all other models.
constexpr std::array kRows = std::to_array<ModelRow>({
    {GroupedModel::kContract, false, "the contract"},
    {GroupedModel::kSeparateRounding, false,
     "the product and the sum of a group are rounded separately, without FMA"},
    {GroupedModel::kReversedGroups, false, "groups are added from the last to the first"},
    {GroupedModel::kRowScaleInside, false,
     "the scale of the row multiplies the scale of each group, and not the sum of the groups"},
    {GroupedModel::kEightSums, false,
     "eight float32 sums, each of every eighth quad; then their sum, in halves"},
    {GroupedModel::kClampedPairs, false, "pairs of adjacent depths clamped to int16 (maddubs)"},
    {GroupedModel::kSumsInFloat, false, "the products of a group are added in float32"},
    {GroupedModel::kSwappedNibbles, true, "the high four bits of a byte are read as the even depth"},
    {GroupedModel::kNibbleHalves, true,
     "the low four bits of a group's bytes are read as its first half, as in GGUF"},
    {GroupedModel::kNoZeroPoint, true, "the zero points of weights are taken as 0"},
    {GroupedModel::kNextZeroPoint, true, "a group uses the zero point of the next group"},
    {GroupedModel::kPreviousZeroPoint, true, "a group uses the zero point of the group before it"},
    {GroupedModel::kNextColumnZeroPoint, true, "a column uses the zero points of the next column"},
    {GroupedModel::kEarlyGroups, true, "groups begin one depth too early"},
    {GroupedModel::kLateGroups, true, "groups begin one depth too late"},
    {GroupedModel::kNoShortGroup, true, "the short last group is missing"},
    {GroupedModel::kNextScale, true, "a group uses the scale of the next group"},
    {GroupedModel::kOtherHalf, true, "a group uses the scale of the other group of its pair"},
    {GroupedModel::kOtherSign, true, "weights are read with the other sign"},
    {GroupedModel::kFirstExpert, true, "all rows are computed as rows of expert 0"},
    {GroupedModel::kFirstExpertWeights, true, "all rows are multiplied by the weights of expert 0"},
    {GroupedModel::kNextExpert, true, "an expert's rows are computed as rows of the next expert"},
    {GroupedModel::kEarlyExperts, true, "an expert's last row is computed as a row of the next expert"},
    {GroupedModel::kFirstExpertScales, true, "all experts use the scales and zero points of expert 0"},
    {GroupedModel::kFirstExpertBias, true, "all experts use the bias of expert 0"},
    {GroupedModel::kPreviousItem, true,
     "an item of a batch is computed with the activations of the item before"},
    {GroupedModel::kMinimumsLast, false, "the minimums of all groups are added last"},
    {GroupedModel::kMinimumOfGroup, false,
     "the minimum of a group is added right after the sum of the group"},
    {GroupedModel::kNextMinimum, true, "a group uses the minimum of the next group"},
    {GroupedModel::kOtherMinimumSign, true, "minimums are subtracted"},
    {GroupedModel::kNoMinimum, true, "minimums are taken as 0"},
});
constexpr auto kModels = [] {
  std::array<GroupedModel, kRows.size() - 1> models = {};
  for (size_t i = 0; i < models.size(); ++i) models[i] = kRows[i + 1].model;
  return models;
}();
static_assert(kRows.size() == static_cast<size_t>(GroupedModel::kNoMinimum) + 1, "each model has a row");
const ModelRow& RowOf(GroupedModel model) { return *std::ranges::find(kRows, model, &ModelRow::model); }

// One output by one model. Every index is within the tensors: what a fault reads beyond them is the last
// element.
class Output {
 public:
  Output(const Grouped& grouped, GroupedModel model, int64_t m, int64_t n)
      : grouped_(grouped), model_(model), m_(m), n_(n), a_row_(ARow()), expert_(Expert()) {}

  float Compute() const {
    if (!HasScale()) return std::numeric_limits<float>::quiet_NaN();
    const bool scales_each = grouped_.HasGroupScales() || Is(GroupedModel::kRowScaleInside);
    float f = Is(GroupedModel::kEightSums) ? EightSums() : OneSum(scales_each);
    if (!scales_each) f = f * AScale(0);
    if (!grouped_.bias_f32.empty()) {
      const int64_t expert = Is(GroupedModel::kFirstExpertBias)      ? 0
                             : Is(GroupedModel::kFirstExpertWeights) ? grouped_.ExpertOf(m_)
                                                                     : expert_;
      f = f + grouped_.bias_f32[static_cast<size_t>(expert * grouped_.n + n_)];
    }
    Requantization post;
    post.post_ops = grouped_.post_ops;
    return AfterBias(f, post);
  }

 private:
  bool Is(GroupedModel model) const { return model_ == model; }
  // The row of A that the row of C uses.
  int64_t ARow() const {
    return Is(GroupedModel::kPreviousItem) && m_ >= grouped_.item_rows ? m_ - grouped_.item_rows : m_;
  }
  // The expert whose weights the row uses.
  int64_t Expert() const {
    if (Is(GroupedModel::kFirstExpert) || Is(GroupedModel::kFirstExpertWeights)) return 0;
    const int64_t row = Is(GroupedModel::kEarlyExperts) ? std::min(m_ + 1, grouped_.m - 1) : m_;
    const int64_t expert = grouped_.ExpertOf(row);
    return Is(GroupedModel::kNextExpert) ? std::min(expert + 1, grouped_.experts - 1) : expert;
  }
  // The number of the column whose scales and zero points column n uses.
  int64_t ColumnOf(int64_t n) const {
    const int64_t expert = Is(GroupedModel::kFirstExpertScales) ? 0 : expert_;
    return expert * grouped_.n + n;
  }
  float AScale(int64_t g) const { return grouped_.a_scales[grouped_.APlace(a_row_, g)]; }
  bool HasScale() const {
    for (int64_t g = 0; g < grouped_.groups(); ++g) {
      if (std::isnan(AScale(g))) return false;
    }
    return true;
  }
  float BScale(int64_t g) const {
    if (Is(GroupedModel::kNextScale)) g = std::min(g + 1, grouped_.groups() - 1);
    if (Is(GroupedModel::kOtherHalf) && (g ^ 1) < grouped_.groups()) g ^= 1;
    return grouped_.Scale(ColumnOf(n_), g);
  }
  int64_t BZeroPoint(int64_t g) const {
    if (Is(GroupedModel::kNoZeroPoint)) return 0;
    int64_t n = n_;
    if (Is(GroupedModel::kNextZeroPoint)) g = std::min(g + 1, grouped_.groups() - 1);
    if (Is(GroupedModel::kPreviousZeroPoint)) g = std::max<int64_t>(g - 1, 0);
    if (Is(GroupedModel::kNextColumnZeroPoint)) n = std::min(n + 1, grouped_.n - 1);
    return grouped_.ZeroPoint(ColumnOf(n), g);
  }
  // The depth whose weight a wrong order of nibbles reads instead of `k`.
  int64_t WeightDepth(int64_t k) const {
    if (!grouped_.IsPacked()) return k;
    if (Is(GroupedModel::kSwappedNibbles)) return k ^ 1;
    if (!Is(GroupedModel::kNibbleHalves)) return k;
    const int64_t first = k / grouped_.depth() * grouped_.depth();
    const int64_t depth = std::min(grouped_.depth(), grouped_.k - first), half = (depth + 1) / 2;
    const int64_t i = k - first;
    return std::min(first + (i < half ? 2 * i : 2 * (i - half) + 1), grouped_.k - 1);
  }
  int64_t Weight(int64_t k) const {
    const int64_t column = expert_ * grouped_.n + n_, depth = WeightDepth(k);
    if (depth == grouped_.k) return 0;  // the unused bits of a column's last byte, which BytesOfB() clears
    const int64_t weight = grouped_.b[static_cast<size_t>(column * grouped_.k + depth)];
    if (!Is(GroupedModel::kOtherSign)) return weight;
    const int64_t values = int64_t{1} << grouped_.codes().bits;
    if (grouped_.codes().is_signed()) return weight < 0 ? weight + values : weight;
    return weight >= values / 2 ? weight - values : weight;
  }
  float Scale(int64_t g, bool scales_each) const { return scales_each ? AScale(g) * BScale(g) : BScale(g); }
  // `f` and the minimum of group g.
  float AddMinimum(float f, int64_t g, bool scales_each) const {
    if (!grouped_.has_b_minimums || Is(GroupedModel::kNoMinimum)) return f;
    const int64_t from = Is(GroupedModel::kNextMinimum) ? std::min(g + 1, grouped_.groups() - 1) : g;
    float minimum = grouped_.b_minimums[grouped_.Place(ColumnOf(n_), from)];
    if (Is(GroupedModel::kOtherMinimumSign)) minimum = -minimum;
    auto factor = static_cast<float>(ActivationSum(grouped_, a_row_, g));
    if (scales_each) factor = AScale(g) * factor;
    return std::fma(factor, minimum, f);
  }
  float AddMinimums(float f, bool scales_each) const {
    for (int64_t g = 0; g < grouped_.groups(); ++g) f = AddMinimum(f, g, scales_each);
    return f;
  }
  float OneSum(bool scales_each) const {
    const int64_t groups = grouped_.groups();
    const bool are_first = !Is(GroupedModel::kMinimumsLast) && !Is(GroupedModel::kMinimumOfGroup);
    float f = are_first ? AddMinimums(0.0f, scales_each) : 0.0f;
    for (int64_t i = 0; i < groups; ++i) {
      const int64_t g = Is(GroupedModel::kReversedGroups) ? groups - 1 - i : i;
      const float scale = Scale(g, scales_each), sum = GroupSum(g), product = sum * scale;
      f = Is(GroupedModel::kSeparateRounding) ? f + product : std::fma(sum, scale, f);
      if (Is(GroupedModel::kMinimumOfGroup)) f = AddMinimum(f, g, scales_each);
    }
    return Is(GroupedModel::kMinimumsLast) ? AddMinimums(f, scales_each) : f;
  }
  float EightSums() const {
    constexpr size_t kSums = 8;
    std::array<float, kSums> f = {};
    for (int64_t g = 0; g < grouped_.groups(); ++g) {
      std::array<int64_t, kSums> sums = {};
      const int64_t begin = g * grouped_.depth(), end = std::min(begin + grouped_.depth(), grouped_.k);
      for (int64_t k = begin; k < end; ++k) {
        sums[static_cast<size_t>((k - begin) / 4) % kSums] += Product(k, AZeroPoint(g), BZeroPoint(g));
      }
      for (size_t i = 0; i < kSums; ++i) {
        f[i] = std::fma(static_cast<float>(sums[i]), Scale(g, grouped_.HasGroupScales()), f[i]);
      }
    }
    for (size_t half = kSums / 2; half > 0; half /= 2) {
      for (size_t i = 0; i < half; ++i) f[i] += f[i + half];
    }
    return AddMinimums(f[0], grouped_.HasGroupScales());
  }
  int64_t AZeroPoint(int64_t g) const { return grouped_.a_zero_points[grouped_.APlace(a_row_, g)]; }
  int64_t Product(int64_t k, int64_t za, int64_t zb) const {
    const int64_t a =
        core::DecodeInt8(grouped_.a_type, grouped_.a[static_cast<size_t>(a_row_ * grouped_.k + k)]);
    return (a - za) * (Weight(k) - zb);
  }
  // A sum of clamped pairs, with s8 activations and u8 weights shifted by 128 as VPMADDUBSW needs them. The
  // terms of zero points are exact.
  int64_t ClampedSum(int64_t begin, int64_t end, int64_t za, int64_t zb) const {
    const int64_t a_shift = grouped_.a_type == INTACT_S8 ? 128 : 0;
    const int64_t b_shift = grouped_.b_type == INTACT_U8 ? -128 : 0;
    int64_t sum = 0;
    for (int64_t k = begin; k < end; k += 2) {
      int64_t pair = 0;
      for (int64_t i = k; i < std::min(k + 2, end); ++i) {
        const int64_t product = Product(i, -a_shift, -b_shift);
        sum += Product(i, za, zb) - product;
        pair += product;
      }
      sum += grouped_.IsPacked() ? pair : std::clamp<int64_t>(pair, -32768, 32767);
    }
    return sum;
  }
  // The sum of group g as a float32.
  float GroupSum(int64_t g) const {
    const int64_t shift = Is(GroupedModel::kEarlyGroups) ? -1 : Is(GroupedModel::kLateGroups) ? 1 : 0;
    const int64_t depth = grouped_.depth(), groups = grouped_.groups();
    const int64_t begin = g == 0 ? 0 : g * depth + shift;
    const int64_t end = g + 1 == groups ? grouped_.k : std::min((g + 1) * depth + shift, grouped_.k);
    if (Is(GroupedModel::kNoShortGroup) && g + 1 == groups && grouped_.k % depth != 0) return 0.0f;
    const int64_t za = AZeroPoint(g), zb = BZeroPoint(g);
    if (Is(GroupedModel::kClampedPairs)) return static_cast<float>(ClampedSum(begin, end, za, zb));
    int64_t sum = 0;
    float float_sum = 0.0f;
    for (int64_t k = begin; k < end; ++k) {
      const int64_t product = Product(k, za, zb);
      sum += product;
      float_sum += static_cast<float>(product);
    }
    return Is(GroupedModel::kSumsInFloat) ? float_sum : static_cast<float>(sum);
  }

  const Grouped& grouped_;
  GroupedModel model_;
  int64_t m_, n_;
  int64_t a_row_;
  int64_t expert_;
};

}  // namespace

std::span<const GroupedModel> AllGroupedModels() { return kModels; }

bool IsFault(GroupedModel model) { return RowOf(model).is_fault; }

std::string_view ToString(GroupedModel model) { return RowOf(model).phrase; }

std::vector<uint8_t> Outputs(const Grouped& grouped, GroupedModel model) {
  const auto bytes = static_cast<size_t>(core::BytesOf(grouped.c_type));
  std::vector<uint8_t> c(static_cast<size_t>(grouped.m * grouped.n) * bytes);
  for (int64_t i = 0; i < grouped.m * grouped.n; ++i) {
    const float f = Output(grouped, model, i / grouped.n, i % grouped.n).Compute();
    core::Encode(grouped.c_type, RoundToFloat(f, grouped.c_type), &c[static_cast<size_t>(i) * bytes]);
  }
  return c;
}

std::string ToString(const GroupedArithmetic& arithmetic) {
  const std::string model(ToString(arithmetic.model));
  const bool is_contract = arithmetic.model == GroupedModel::kContract;
  switch (arithmetic.activations) {
    case GroupedActivations::kContract:
      return is_contract ? "exact" : model;
    case GroupedActivations::kReciprocal:
      return "activations are rne(x*(127/max))" + (is_contract ? std::string() : "; " + model);
    case GroupedActivations::kReciprocalHalf:
      return "activations are rne(x*(127/max)), with float16 scales" +
             (is_contract ? std::string() : "; " + model);
  }
  return "unknown";
}

std::vector<GroupedActivations> ActivationsOf(const Grouped& grouped) {
  if (grouped.a_source_type == INTACT_TYPE_NONE || grouped.a_type != INTACT_S8) {
    return {GroupedActivations::kContract};
  }
  return {GroupedActivations::kContract, GroupedActivations::kReciprocal,
          GroupedActivations::kReciprocalHalf};
}

namespace {

// A number as CVTPS2DQ, PACKSSDW and PACKSSWB convert it. CVTPS2DQ makes −2^31 of a NaN (0·∞, where 127/max
// is infinite) and of a number beyond int32, of either sign.
int8_t PackedInt8(float value) {
  const float rounded = std::nearbyint(value);
  const bool is_int32 = rounded >= -0x1p31f && rounded < 0x1p31f;
  const int32_t converted = is_int32 ? static_cast<int32_t>(rounded) : std::numeric_limits<int32_t>::min();
  return static_cast<int8_t>(std::clamp(converted, -128, 127));
}

}  // namespace

Grouped Requantized(const Grouped& grouped, GroupedActivations activations) {
  Grouped made = grouped;
  if (activations == GroupedActivations::kContract) return made;
  const auto bytes = static_cast<size_t>(core::BytesOf(grouped.a_source_type));
  const auto x = [&](int64_t i) {
    return static_cast<float>(
        core::Decode(grouped.a_source_type, &grouped.a_source[static_cast<size_t>(i) * bytes]));
  };
  const int64_t unit = grouped.HasGroupScales() ? grouped.depth() : grouped.k;
  auto scale = made.a_scales.begin();
  for (int64_t m = 0; m < grouped.m; ++m) {
    for (int64_t k = 0; k < grouped.k; k += unit, ++scale) {
      if (std::isnan(*scale)) continue;
      const int64_t begin = m * grouped.k + k, end = begin + std::min(unit, grouped.k - k);
      float most = 0.0f;
      for (int64_t i = begin; i < end; ++i) most = std::max(most, std::abs(x(i)));
      const float reciprocal = most == 0 ? 0.0f : 127.0f / most;
      for (int64_t i = begin; i < end; ++i) {
        made.a[static_cast<size_t>(i)] = static_cast<uint8_t>(PackedInt8(x(i) * reciprocal));
      }
      *scale = most / 127.0f;
      if (activations == GroupedActivations::kReciprocalHalf) {
        *scale = static_cast<float>(RoundToFloat(*scale, INTACT_F16));
      }
    }
  }
  return made;
}

namespace {

// The real value of an output before the activation, and a bound of the error of float32 sums.
struct Bounded {
  double value = 0, error = 0;
};
// Two bounds; the larger one counts. An engine adds exact integers in float32, and the integers of a group
// add up to the sum of the group, or to the sum of its activations, which the minimum multiplies. Each rounding has a relative error of at most 2^-24, so an integer p with
// the scale s contributes at most r·2^-24·|p·s| to the error, where r is the number of roundings that it
// passes: one addition for each group, and at most 40 others (its conversion, products of scales and with
// them, up to 31 additions of lanes, the bias, the scale of a row).
//
// 1. The integers are sums of (a−za)·(b−zb), over any lanes. Their magnitudes are at most Σ|(a−za)·(b−zb)|.
// 2. The zero points are applied to the sums of a group: Σa·b in any lanes, and two terms of zero points, are
//    integers of their own, each with its own sum of groups, or combined in each group. The terms are
//    zb·Σ(a−za) and za·Σb, or zb·Σa and za·Σ(b−zb).
Bounded BoundOf(const Grouped& grouped, int64_t m, int64_t n) {
  const int64_t groups = grouped.groups();
  const int64_t column = grouped.ExpertOf(m) * grouped.n + n;
  double whole_magnitude = 0, parts_magnitude = 0, minimum_magnitude = 0, value = 0;
  double factors = 0;  // that may multiply a denormal number
  for (int64_t g = 0; g < groups; ++g) {
    const size_t a_value = grouped.APlace(m, g);
    const double a_scale = double{grouped.a_scales[a_value]};
    const double b_scale = double{grouped.Scale(column, g)};
    const double scale = a_scale * b_scale;
    const int64_t za = grouped.a_zero_points[a_value];
    const int64_t zb = grouped.ZeroPoint(column, g);
    const int64_t begin = g * grouped.depth(), end = std::min(grouped.k, begin + grouped.depth());
    int64_t whole = 0, products = 0, sum_of_a = 0, sum_of_b = 0, magnitude_of_a = 0;
    for (int64_t k = begin; k < end; ++k) {
      const int64_t a = core::DecodeInt8(grouped.a_type, grouped.a[static_cast<size_t>(m * grouped.k + k)]);
      const int64_t b = grouped.b[static_cast<size_t>(column * grouped.k + k)];
      whole += std::abs((a - za) * (b - zb));
      products += std::abs(a * b);
      sum_of_a += a;
      magnitude_of_a += std::abs(a);
      sum_of_b += b;
    }
    const int64_t depths = end - begin;
    const int64_t parts =
        products + std::max(std::abs(zb * (sum_of_a - depths * za)) + std::abs(za * sum_of_b),
                            std::abs(zb * sum_of_a) + std::abs(za * (sum_of_b - depths * zb)));
    value += static_cast<double>(GroupSum(grouped, m, n, g)) * scale;
    whole_magnitude += static_cast<double>(whole) * std::abs(scale);
    parts_magnitude += static_cast<double>(parts) * std::abs(scale);
    factors += static_cast<double>(std::max(whole, parts)) + a_scale + std::abs(b_scale) + 1;
    if (!grouped.has_b_minimums) continue;
    const double minimum = double{grouped.b_minimums[grouped.Place(column, g)]};
    const auto of_minimum = static_cast<double>(magnitude_of_a + depths * std::abs(za));
    value += static_cast<double>(sum_of_a - depths * za) * a_scale * minimum;
    minimum_magnitude += of_minimum * std::abs(a_scale * minimum);
    factors += of_minimum + a_scale + std::abs(minimum);
  }
  const double bias = grouped.bias_f32.empty() ? 0 : double{grouped.bias_f32[static_cast<size_t>(column)]};
  const auto roundings = static_cast<double>(groups * (grouped.has_b_minimums ? 2 : 1) + 40);
  const double magnitude = std::max(whole_magnitude, parts_magnitude) + minimum_magnitude + std::abs(bias);
  const double denormal = 4 * std::numeric_limits<float>::denorm_min();
  return {value + bias, roundings * std::ldexp(magnitude, -24) + denormal * factors};
}

}  // namespace

std::optional<double> RoundingError(const Grouped& grouped, const std::vector<uint8_t>& contract,
                                    const std::vector<uint8_t>& outputs) {
  const auto bytes = static_cast<size_t>(core::BytesOf(grouped.c_type));
  const core::ElementType& traits = core::TraitsOf(grouped.c_type);
  double largest = 0;
  for (int64_t i = 0; i < grouped.m * grouped.n; ++i) {
    const size_t at = static_cast<size_t>(i) * bytes;
    const double output = core::Decode(grouped.c_type, &outputs[at]);
    const double expected = core::Decode(grouped.c_type, &contract[at]);
    if (output == expected || (std::isnan(output) && std::isnan(expected))) continue;
    Bounded sum = BoundOf(grouped, i / grouped.n, i % grouped.n);
    if (!std::isfinite(output) || !std::isfinite(expected) || !std::isfinite(sum.error)) return std::nullopt;
    if (grouped.post_ops.Has<core::Relu>()) sum.value = std::max(sum.value, 0.0);
    if (const auto* clamp = grouped.post_ops.Find<core::Clamp>()) {
      sum.value = std::clamp(sum.value, double{clamp->low}, double{clamp->high});
    }
    const double last_place = std::ldexp(std::abs(sum.value) + sum.error, -traits.fraction) +
                              std::ldexp(1.0, traits.exponent - traits.fraction);
    largest = std::max(largest, std::abs(output - sum.value) / (sum.error + last_place));
    if (largest > 1) return std::nullopt;
  }
  return largest;
}

}  // namespace intact::reference
