#include "reference/models/grouped.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "core/types.h"
#include "reference/contract/quantize.h"
#include "reference/contract/requantize.h"

namespace intact::reference {
namespace {

constexpr std::array kModels = {
    GroupedModel::kSeparateRounding,   GroupedModel::kReversedGroups,  GroupedModel::kRowScaleInside,
    GroupedModel::kSumsInFloat,        GroupedModel::kSwappedNibbles,  GroupedModel::kNibbleHalves,
    GroupedModel::kNoZeroPoint,        GroupedModel::kNextZeroPoint,   GroupedModel::kNextColumnZeroPoint,
    GroupedModel::kEarlyGroups,        GroupedModel::kLateGroups,      GroupedModel::kNoShortGroup,
    GroupedModel::kNextScale,          GroupedModel::kOtherSign,       GroupedModel::kFirstExpert,
    GroupedModel::kFirstExpertWeights, GroupedModel::kNextExpert,      GroupedModel::kEarlyExperts,
    GroupedModel::kFirstExpertScales,  GroupedModel::kFirstExpertBias, GroupedModel::kPreviousItem};

// One output by one model. Every index is within the tensors: what a fault reads beyond them is the last
// element.
class Output {
 public:
  Output(const Grouped& grouped, GroupedModel model, int64_t m, int64_t n)
      : grouped_(grouped), model_(model), m_(m), n_(n), a_row_(ARow()), expert_(Expert()) {}

  float Compute() const {
    if (!HasScale()) return std::numeric_limits<float>::quiet_NaN();
    const int64_t groups = grouped_.groups();
    const bool scales_each = IsByGroups() || Is(GroupedModel::kRowScaleInside);
    float f = 0.0f;
    for (int64_t i = 0; i < groups; ++i) {
      const int64_t g = Is(GroupedModel::kReversedGroups) ? groups - 1 - i : i;
      const float scale = scales_each ? AScale(g) * BScale(g) : BScale(g);
      const float sum = GroupSum(g);
      const float product = sum * scale;
      f = Is(GroupedModel::kSeparateRounding) ? f + product : std::fma(sum, scale, f);
    }
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
  // The row whose activations the row of C uses.
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
  // The number of the scale and zero point of column n and group g.
  size_t Place(int64_t n, int64_t g) const {
    const int64_t expert = Is(GroupedModel::kFirstExpertScales) ? 0 : expert_;
    return static_cast<size_t>((expert * grouped_.n + n) * grouped_.groups() + g);
  }
  bool IsByGroups() const { return grouped_.a_granularity == INTACT_GRANULARITY_GROUPS; }
  size_t AValue(int64_t g) const {
    return static_cast<size_t>(IsByGroups() ? a_row_ * grouped_.groups() + g : a_row_);
  }
  float AScale(int64_t g) const { return grouped_.a_scales[AValue(g)]; }
  bool HasScale() const {
    for (int64_t g = 0; g < grouped_.groups(); ++g) {
      if (std::isnan(AScale(g))) return false;
    }
    return true;
  }
  float BScale(int64_t g) const {
    if (Is(GroupedModel::kNextScale)) g = std::min(g + 1, grouped_.groups() - 1);
    const auto bytes = static_cast<size_t>(core::BytesOf(grouped_.scale_type));
    return static_cast<float>(core::Decode(grouped_.scale_type, &grouped_.b_scales[Place(n_, g) * bytes]));
  }
  int64_t BZeroPoint(int64_t g) const {
    if (Is(GroupedModel::kNoZeroPoint)) return 0;
    if (grouped_.b_zero_points.empty()) return grouped_.Middle();
    int64_t n = n_;
    if (Is(GroupedModel::kNextZeroPoint)) g = std::min(g + 1, grouped_.groups() - 1);
    if (Is(GroupedModel::kNextColumnZeroPoint)) n = std::min(n + 1, grouped_.n - 1);
    return grouped_.b_zero_points[Place(n, g)];
  }
  // The depth whose weight a wrong order of nibbles reads instead of `k`.
  int64_t WeightDepth(int64_t k) const {
    if (!grouped_.Is4Bit()) return k;
    if (Is(GroupedModel::kSwappedNibbles)) return std::min(k ^ 1, grouped_.k - 1);
    if (!Is(GroupedModel::kNibbleHalves)) return k;
    const int64_t first = k / grouped_.depth() * grouped_.depth();
    const int64_t depth = std::min(grouped_.depth(), grouped_.k - first), half = (depth + 1) / 2;
    const int64_t i = k - first;
    return std::min(first + (i < half ? 2 * i : 2 * (i - half) + 1), grouped_.k - 1);
  }
  int64_t Weight(int64_t k) const {
    const int64_t column = expert_ * grouped_.n + n_;
    const int64_t weight = grouped_.b[static_cast<size_t>(column * grouped_.k + WeightDepth(k))];
    if (!Is(GroupedModel::kOtherSign)) return weight;
    const int64_t values = grouped_.Is4Bit() ? 16 : 256;
    if (grouped_.IsSigned()) return weight < 0 ? weight + values : weight;
    return weight >= values / 2 ? weight - values : weight;
  }
  // The sum of group g as a float32.
  float GroupSum(int64_t g) const {
    const int64_t shift = Is(GroupedModel::kEarlyGroups) ? -1 : Is(GroupedModel::kLateGroups) ? 1 : 0;
    const int64_t depth = grouped_.depth(), groups = grouped_.groups();
    const int64_t begin = g == 0 ? 0 : g * depth + shift;
    const int64_t end = g + 1 == groups ? grouped_.k : std::min((g + 1) * depth + shift, grouped_.k);
    if (Is(GroupedModel::kNoShortGroup) && g + 1 == groups && grouped_.k % depth != 0) return 0.0f;
    const int64_t za = grouped_.a_zero_points[AValue(g)], zb = BZeroPoint(g);
    int64_t sum = 0;
    float float_sum = 0.0f;
    for (int64_t k = begin; k < end; ++k) {
      const int64_t a =
          core::DecodeInt8(grouped_.a_type, grouped_.a[static_cast<size_t>(a_row_ * grouped_.k + k)]);
      const int64_t product = (a - za) * (Weight(k) - zb);
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

std::string_view ToString(GroupedModel model) {
  switch (model) {
    case GroupedModel::kContract:
      return "the contract";
    case GroupedModel::kSeparateRounding:
      return "the product and the sum of a group are rounded separately, without FMA";
    case GroupedModel::kReversedGroups:
      return "groups are added from the last to the first";
    case GroupedModel::kRowScaleInside:
      return "the scale of the row multiplies the scale of each group, and not the sum of the groups";
    case GroupedModel::kSumsInFloat:
      return "the products of a group are added in float32";
    case GroupedModel::kSwappedNibbles:
      return "the high four bits of a byte are read as the even depth";
    case GroupedModel::kNibbleHalves:
      return "the low four bits of a group's bytes are read as its first half, as in GGUF";
    case GroupedModel::kNextZeroPoint:
      return "a group uses the zero point of the next group";
    case GroupedModel::kNextColumnZeroPoint:
      return "a column uses the zero points of the next column";
    case GroupedModel::kNoZeroPoint:
      return "the zero points of weights are taken as 0";
    case GroupedModel::kEarlyGroups:
      return "groups begin one depth too early";
    case GroupedModel::kLateGroups:
      return "groups begin one depth too late";
    case GroupedModel::kNoShortGroup:
      return "the short last group is missing";
    case GroupedModel::kNextScale:
      return "a group uses the scale of the next group";
    case GroupedModel::kOtherSign:
      return "weights are read with the other sign";
    case GroupedModel::kFirstExpert:
      return "all rows are computed as rows of expert 0";
    case GroupedModel::kFirstExpertWeights:
      return "all rows are multiplied by the weights of expert 0";
    case GroupedModel::kNextExpert:
      return "an expert's rows are computed as rows of the next expert";
    case GroupedModel::kEarlyExperts:
      return "an expert's last row is computed as a row of the next expert";
    case GroupedModel::kFirstExpertScales:
      return "all experts use the scales and zero points of expert 0";
    case GroupedModel::kFirstExpertBias:
      return "all experts use the bias of expert 0";
    case GroupedModel::kPreviousItem:
      return "an item of a batch is computed with the activations of the item before";
  }
  return "unknown";
}

std::vector<uint8_t> Outputs(const Grouped& grouped, GroupedModel model) {
  const auto bytes = static_cast<size_t>(core::BytesOf(grouped.c_type));
  std::vector<uint8_t> c(static_cast<size_t>(grouped.m * grouped.n) * bytes);
  for (int64_t i = 0; i < grouped.m * grouped.n; ++i) {
    const float f = Output(grouped, model, i / grouped.n, i % grouped.n).Compute();
    core::Encode(grouped.c_type, RoundToFloat(f, grouped.c_type), &c[static_cast<size_t>(i) * bytes]);
  }
  return c;
}

}  // namespace intact::reference
