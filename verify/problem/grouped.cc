#include "verify/problem/grouped.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/types.h"
#include "reference/contract/quantize.h"
#include "verify/problem/line.h"
#include "verify/problem/reset.h"

namespace intact::verify {
namespace {

constexpr Name<intact_type> kATypes[] = {{"u8", INTACT_U8}, {"s8", INTACT_S8}};
constexpr Name<intact_type> kFloats[] = {{"f32", INTACT_F32}, {"bf16", INTACT_BF16}, {"f16", INTACT_F16}};
constexpr Name<intact_type> kSources[] = {
    {"f32", INTACT_F32}, {"bf16", INTACT_BF16}, {"f16", INTACT_F16}, {"none", INTACT_TYPE_NONE}};
constexpr Name<intact_granularity> kGranularities[] = {{"row", INTACT_GRANULARITY_ROWS},
                                                       {"group", INTACT_GRANULARITY_GROUPS}};
constexpr Name<bool> kLayoutsOfB[] = {{"nk", false}, {"kn", true}};
constexpr Name<bool> kLayoutsOfScales[] = {{"ng", false}, {"gn", true}};
constexpr Name<GroupedFill> kFills[] = {
    {"uniform", GroupedFill::kUniform},    {"bounds", GroupedFill::kBounds},
    {"one_hot", GroupedFill::kOneHot},     {"spread", GroupedFill::kSpread},
    {"huge", GroupedFill::kHuge},          {"tiny", GroupedFill::kTiny},
    {"nonfinite", GroupedFill::kNonFinite}};
constexpr std::array kGroups = {int64_t{0},  int64_t{16},  int64_t{32},
                                int64_t{64}, int64_t{128}, int64_t{256}};

using P = GroupedProblem;
using Field = FieldOf<P>;

template <class T, class Of>
Field Number(std::string_view key, T Of::*member) {
  return NumberField<P>(key, member);
}

template <class E, class Of, class Names>
Field Choice(std::string_view key, E Of::*member, const Names& names) {
  return ChoiceField<P>(key, member, names);
}

const std::vector<Field>& Fields() {
  static const std::vector<Field> kFields = {
      Number("m", &P::m),
      Number("n", &P::n),
      Number("k", &P::k),
      Number("group", &P::group),
      Number("experts", &P::experts).Needs(INTACT_TARGET_EXPERTS),
      Choice("src", &P::source, kSources),
      Choice("per", &P::granularity, kGranularities),
      Choice("gscale", &P::scale_type, kFloats),
      Choice("za", &P::has_a_zero_points, kNoYes),
      Choice("zb", &P::has_b_zero_points, kNoYes).Needs(INTACT_TARGET_B_ZERO_POINTS),
      Choice("min", &P::has_b_minimums, kNoYes).Needs(INTACT_TARGET_B_MINIMUMS),
      Choice("bias", &P::has_bias, kNoYes).Needs(INTACT_TARGET_BIAS_F32),
      Choice("act", &P::activation, kActivations),
      Choice("fill", &P::fill, kFills),
      Number("seed", &P::seed),
      Choice("blayout", &P::b_is_kn, kLayoutsOfB).Needs(INTACT_TARGET_B_LAYOUTS),
      Choice("slayout", &P::scales_are_gn, kLayoutsOfScales).Needs(INTACT_TARGET_B_LAYOUTS),
      Number("apad", &P::a_pad).Needs(INTACT_TARGET_STRIDES),
      Number("bpad", &P::b_pad).Needs(INTACT_TARGET_B_LAYOUTS),
      Number("cpad", &P::c_pad).Needs(INTACT_TARGET_STRIDES),
      Number("epad", &P::expert_pad).Needs(INTACT_TARGET_B_LAYOUTS),
      Choice("scratch", &P::own_scratch, kNoYes),
      Choice("saved", &P::saved, kNoYes),
      Number("threads", &P::threads).Needs(INTACT_TARGET_THREADS),
      Number("parts", &P::parts),
      Number("split", &P::split),
      Number("calls", &P::calls),
      Choice("reused", &P::reused, kNoYes),
      Number("item", &P::item).Needs(INTACT_TARGET_BATCH),
      Number("ipad", &P::item_pad).Needs(INTACT_TARGET_BATCH),
      Choice("isa", &P::isa, Isas()),
  };
  return kFields;
}
constexpr size_t kRequired = 3;  // the first fields, which a line must have
constexpr std::string_view kWord = "grouped";

// Takes a type off the front of `word`. The names of no type begin with another name.
template <class Names, class E>
bool TakeType(const Names& names, std::string_view* word, E* type) {
  for (const auto& name : names) {
    if (!word->starts_with(name.text)) continue;
    word->remove_prefix(name.text.size());
    *type = name.value;
    return true;
  }
  return false;
}

std::optional<Error> CheckRange(std::string_view key, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return std::nullopt;
  return Invalid(fmt::format("{}: {} is out of range; expected {} to {}", key, value, low, high));
}

}  // namespace

std::span<const GroupedFill> AllGroupedFills() {
  static constexpr auto kAll = [] {
    std::array<GroupedFill, std::size(kFills)> all = {};
    for (size_t i = 0; i < all.size(); ++i) all[i] = kFills[i].value;
    return all;
  }();
  return kAll;
}

bool GroupedProblem::IsLine(std::string_view line) {
  const std::vector<std::string_view> words = WordsOf(line);
  return !words.empty() && words[0] == kWord;
}

void Reset(std::string_view key, GroupedProblem* problem) {
  const auto field = std::ranges::find(Fields(), key, &Field::key);
  if (field != Fields().end()) (void)field->read(field->print(GroupedProblem()), problem);
}

void ResetLacking(uint64_t features, GroupedProblem* problem) {
  for (const Field& field : Fields()) {
    if ((field.needs & ~features) != 0) Reset(field.key, problem);
  }
}

std::vector<std::string_view> OptionalGroupedKeys() {
  std::vector<std::string_view> keys;
  for (size_t i = kRequired; i < Fields().size(); ++i) keys.push_back(Fields()[i].key);
  return keys;
}

std::string GroupedProblem::ToString() const {
  const GroupedProblem defaults;
  std::string line = fmt::format("{} {}{}{}", kWord, NameOf(kATypes, a_type), NameOf(kWeightTypes, b_type),
                                 NameOf(kFloats, c_type));
  const std::vector<Field>& fields = Fields();
  for (size_t i = 0; i < fields.size(); ++i) {
    const std::string value = fields[i].print(*this);
    if (i < kRequired || value != fields[i].print(defaults))
      line += fmt::format(" {}={}", fields[i].key, value);
  }
  return line;
}

Result<GroupedProblem> GroupedProblem::Parse(std::string_view line) {
  const std::vector<std::string_view> words = WordsOf(line);
  if (words.size() < 2 || words[0] != kWord) {
    return Invalid(fmt::format("'{}' does not begin with 'grouped' and types like s8u4f32", line));
  }
  GroupedProblem problem;
  std::string_view types = words[1];
  if (!TakeType(kATypes, &types, &problem.a_type) || !TakeType(kWeightTypes, &types, &problem.b_type) ||
      !TakeType(kFloats, &types, &problem.c_type) || !types.empty()) {
    return Invalid(fmt::format("types: '{}' is not like s8u4f32: activations, weights, output", words[1]));
  }
  std::set<std::string_view> seen;
  for (size_t i = 2; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (equals == std::string_view::npos) return Invalid(fmt::format("'{}' is not key=value", words[i]));
    const std::string_view key = words[i].substr(0, equals);
    const auto field = std::ranges::find(Fields(), key, &Field::key);
    if (field == Fields().end()) {
      std::vector<std::string_view> known;
      for (const Field& one : Fields()) known.push_back(one.key);
      return Invalid(fmt::format("'{}': key '{}' is unknown; expected one of {}", words[i], key,
                                 fmt::join(known, ", ")));
    }
    if (!seen.insert(key).second) return Invalid(fmt::format("'{}': {} is given twice", words[i], key));
    if (auto error = field->read(words[i].substr(equals + 1), &problem)) return *error;
  }
  for (size_t i = 0; i < kRequired; ++i) {
    if (!seen.contains(Fields()[i].key)) return Invalid(fmt::format("{} is missing", Fields()[i].key));
  }
  if (auto error = problem.Check()) return *error;
  return problem;
}

std::optional<Error> GroupedProblem::Check() const {
  constexpr int64_t kMost = int64_t{1} << 24;
  constexpr int64_t kMostPadding = 1 << 16;
  if (auto error = CheckRange("m", m, 0, kMost)) return error;
  if (auto error = CheckRange("n", n, 1, kMost)) return error;
  if (auto error = CheckRange("k", k, 1, kMost)) return error;
  constexpr int64_t kMostExperts = 1 << 10;
  if (auto error = CheckRange("experts", experts, 1, kMostExperts)) return error;
  if (experts * n * k > kMost) {
    return Invalid(fmt::format("experts·n·k is beyond {}: experts={} n={} k={}", kMost, experts, n, k));
  }
  if (m * k > kMost || m * n > kMost) {
    return Invalid(fmt::format("m·k or m·n is beyond {}: m={} n={} k={}", kMost, m, n, k));
  }
  if (std::ranges::find(kGroups, group) == kGroups.end()) {
    return Invalid(fmt::format("group: {} is unknown; expected one of {}", group, fmt::join(kGroups, ", ")));
  }
  if (auto error = CheckRange("apad", a_pad, 0, kMostPadding)) return error;
  if (auto error = CheckRange("bpad", b_pad, 0, kMostPadding)) return error;
  if (auto error = CheckRange("cpad", c_pad, 0, kMostPadding)) return error;
  if (auto error = CheckRange("epad", expert_pad, 0, kMostPadding)) return error;
  if (auto error = CheckRange("threads", threads, 0, 256)) return error;
  if (auto error = CheckRange("parts", parts, 0, 256)) return error;
  if (auto error = CheckRange("calls", calls, 1, 1 << 20)) return error;
  if (auto error = CheckRange("split", split, 0, kMost)) return error;
  if (auto error = CheckRange("item", item, 0, kMost)) return error;
  if (auto error = CheckRange("ipad", item_pad, 0, kMostPadding)) return error;
  if (item != 0 && (m % item != 0 || split != 0 || experts != 1)) {
    return Invalid(fmt::format("item: {} needs m to be a multiple of it, split=0 and experts=1", item));
  }
  // 255·255·33025 is the largest sum within int32.
  if (auto error = CheckRange("k with group=0", group == 0 ? k : 1, 1, 33025)) return error;
  if (b_is_kn && IsPacked()) {
    return Invalid("blayout: kn needs weights of 8 bits; the depths of 4-bit weights are adjacent");
  }
  if (has_b_minimums && has_b_zero_points) {
    return Invalid("min: yes needs zb=no; weights with minimums have no zero points");
  }
  if (fill == GroupedFill::kNonFinite && source == INTACT_TYPE_NONE) {
    return Invalid("fill: nonfinite needs real numbers; expected src=f32, bf16 or f16");
  }
  if (!has_a_zero_points && source != INTACT_TYPE_NONE) {
    return Invalid("za: no needs given activations; expected src=none");
  }
  return std::nullopt;
}

GroupedProblem GroupedProblem::Draw(support::Random* random) {
  const auto value_of = [&](const auto& names) { return random->Of(names).value; };
  const auto extent = [&](int64_t most) {
    return random->OneIn(3) ? random->Integer(1, 4) : random->Integer(1, most);
  };
  GroupedProblem p;
  p.a_type = value_of(kATypes);
  p.b_type = value_of(kWeightTypes);
  p.c_type = value_of(kFloats);
  p.m = random->OneIn(40) ? 0 : extent(40);
  p.n = extent(100);
  if (random->OneIn(100)) {  // several chunks of rows
    p.m = random->Integer(257, 600);
    p.n = random->Integer(1, 20);
  }
  p.group = random->Of(kGroups);
  // Mostly some whole groups; else any depth, so that the last group is short.
  const int64_t depth = p.group == 0 ? random->Integer(1, 600) : p.group;
  p.k = random->OneIn(2) ? depth * random->Integer(1, std::max<int64_t>(1, 512 / depth))
                         : random->Integer(1, std::max<int64_t>(600, 3 * depth));
  p.source = value_of(kSources);
  p.granularity = value_of(kGranularities);
  p.scale_type = value_of(kFloats);
  p.has_b_zero_points = random->OneIn(2);
  p.has_bias = random->OneIn(2);
  p.activation = value_of(kActivations);
  p.fill = value_of(kFills);
  if (p.source == INTACT_TYPE_NONE && p.fill == GroupedFill::kNonFinite) p.fill = GroupedFill::kUniform;
  p.seed = random->Next() >> 40;
  p.b_is_kn = random->OneIn(3) && !p.IsPacked();
  p.scales_are_gn = random->OneIn(3);
  if (random->OneIn(2)) p.a_pad = random->Integer(1, 70);
  if (random->OneIn(2)) p.b_pad = random->Integer(1, 70);
  if (random->OneIn(2)) p.c_pad = random->Integer(1, 70);
  p.own_scratch = random->OneIn(2);
  p.threads = random->Of({1, 1, 2, 3, 0, 8, 16});
  if (random->OneIn(3)) p.parts = static_cast<int32_t>(random->Integer(1, 7));
  if (random->OneIn(3)) p.split = random->Integer(1, 9);
  p.saved = random->OneIn(3);
  if (random->OneIn(4) && p.m <= 40) {
    p.experts = random->Integer(2, 9);
    if (random->OneIn(2)) p.expert_pad = random->Integer(1, 70);
  } else if (p.split == 0 && p.m > 0 && random->OneIn(3)) {
    p.item = random->Integer(1, p.m);
    while (p.m % p.item != 0) --p.item;
    if (random->OneIn(2)) p.item_pad = random->Integer(1, 70);
  }
  p.has_b_minimums = !p.has_b_zero_points && random->OneIn(3);
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
float Minimum(const GroupedProblem& p, support::Random* random) {
  const double scale = Scale(p.fill, p.seed % 2 == 1 ? INTACT_F16 : INTACT_F32, random);
  const double minimum = (random->OneIn(2) ? -1 : 1) * (p.fill == GroupedFill::kHuge ? scale : 4 * scale);
  return static_cast<float>(p.seed % 2 == 1 ? reference::RoundToFloat(static_cast<float>(minimum), INTACT_F16)
                                            : minimum);
}

void FillWeights(const GroupedProblem& p, reference::Grouped* grouped) {
  const int32_t low = grouped->codes().lowest, high = grouped->codes().highest;
  const bool at_bounds = p.fill == GroupedFill::kBounds;
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
      if (p.has_b_zero_points) {
        grouped->b_zero_points.push_back(static_cast<int16_t>(!at_bounds ? drawn : is_high ? high : low));
      }
      const double scale = Scale(p.fill, p.scale_type, &scales);
      AppendFloat(p.scale_type, scales.OneIn(4) ? -scale : scale, &grouped->b_scales);
      if (p.has_b_minimums) grouped->b_minimums.push_back(Minimum(p, &minimums));
    }
    if (p.has_bias) grouped->bias_f32.push_back(static_cast<float>(bias.Gauss()));
  }
}

// A as it is passed to runs without a source type.
void FillGiven(const GroupedProblem& p, int64_t m, reference::Grouped* grouped) {
  const int32_t low = core::LowestOf(p.a_type), high = core::HighestOf(p.a_type);
  support::Random random(p.seed, kRows, static_cast<uint64_t>(m));
  support::Random scales(p.seed, kRowScales, static_cast<uint64_t>(m));
  const bool at_bounds = p.fill == GroupedFill::kBounds;
  const bool by_groups = grouped->HasGroupScales();
  std::vector<int32_t> points;
  for (int64_t i = 0; i < (by_groups ? grouped->groups() : 1); ++i) {
    const bool is_high = scales.OneIn(2);
    const auto drawn = static_cast<int32_t>(scales.Integer(low, high));
    points.push_back(!p.has_a_zero_points ? 0 : !at_bounds ? drawn : is_high ? high : low);
    // As f32: with the scales of B it becomes denormal, or infinite.
    grouped->a_scales.push_back(static_cast<float>(Scale(p.fill, INTACT_F32, &scales)));
  }
  const int64_t hot = random.Integer(0, p.k - 1);
  Side side = Side::kHigh;
  for (int64_t k = 0; k < p.k; ++k) {
    const int64_t g = k / grouped->depth();
    if (k % grouped->depth() == 0) side = SideOf(&random);
    const auto drawn = static_cast<int32_t>(random.Integer(low, high));
    const bool is_high = IsHigh(side, k, &random);
    int32_t a = at_bounds ? is_high ? high : low : drawn;
    if (p.fill == GroupedFill::kOneHot && k != hot) a = points[static_cast<size_t>(by_groups ? g : 0)];
    grouped->a.push_back(static_cast<uint8_t>(a));
  }
  grouped->a_zero_points.insert(grouped->a_zero_points.end(), points.begin(), points.end());
}

// Real numbers, which runs quantize.
void FillNumbers(const GroupedProblem& p, int64_t m, reference::Grouped* grouped) {
  support::Random random(p.seed, kRows, static_cast<uint64_t>(m));
  const int64_t hot = random.Integer(0, p.k - 1);
  const int range = p.source == INTACT_F16 ? 4 : 20;
  const double size = std::ldexp(1.0, static_cast<int>(random.Integer(-range, range)));
  Side side = Side::kHigh;
  for (int64_t k = 0; k < p.k; ++k) {
    if (k % grouped->depth() == 0) side = SideOf(&random);
    double x = random.Gauss() * size;
    const bool is_high = IsHigh(side, k, &random);
    if (p.fill == GroupedFill::kBounds) x = is_high ? size : p.a_type == INTACT_U8 ? 0 : -size;
    if (p.fill == GroupedFill::kOneHot && k != hot) x = 0;
    if (p.fill == GroupedFill::kTiny) x *= std::ldexp(1.0, core::TraitsOf(p.source).exponent - 10);
    if (p.fill == GroupedFill::kNonFinite && k == hot && m % 3 != 0) {
      x = m % 3 == 1 ? std::numeric_limits<double>::quiet_NaN() : -std::numeric_limits<double>::infinity();
    }
    AppendFloat(p.source, x, &grouped->a_source);
  }
}

// Each row belongs to a random expert. With some seeds, all rows belong to one expert.
void FillExpertRows(const GroupedProblem& p, reference::Grouped* grouped) {
  support::Random random(p.seed, kExperts, 0);
  const bool is_one = random.OneIn(5);
  const int64_t one = random.Integer(0, p.experts - 1);
  grouped->expert_rows.assign(static_cast<size_t>(p.experts), 0);
  for (int64_t m = 0; m < p.m; ++m) {
    const int64_t drawn = random.Integer(0, p.experts - 1);
    ++grouped->expert_rows[static_cast<size_t>(is_one ? one : drawn)];
  }
}

}  // namespace

reference::Grouped Materialize(const GroupedProblem& p) {
  reference::Grouped grouped;
  static_cast<core::WeightFormat&>(grouped) = p;
  grouped.m = p.m;
  grouped.n = p.n;
  grouped.k = p.k;
  grouped.experts = p.experts;
  grouped.item_rows = p.item;
  grouped.a_type = p.a_type;
  grouped.a_source_type = p.source;
  grouped.a_granularity = p.granularity;
  grouped.c_type = p.c_type;
  if (p.activation == INTACT_ACTIVATION_RELU) grouped.post_ops.Add(core::Relu{});
  if (p.activation == INTACT_ACTIVATION_CLAMP) grouped.post_ops.Add(core::Clamp{-0.75f, 1.5f});
  if (p.experts > 1) FillExpertRows(p, &grouped);
  FillWeights(p, &grouped);
  for (int64_t m = 0; m < p.m; ++m) {
    p.source == INTACT_TYPE_NONE ? FillGiven(p, m, &grouped) : FillNumbers(p, m, &grouped);
  }
  if (p.source != INTACT_TYPE_NONE) reference::QuantizeActivations(&grouped);
  return grouped;
}

}  // namespace intact::verify
