#include "verify/problem/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <ranges>
#include <type_traits>
#include <utility>

#include "core/result.h"
#include "core/types.h"
#include "verify/problem/line.h"

namespace intact::verify {
namespace {

constexpr int64_t kMaxPadding = int64_t{1} << 16;

constexpr Name<Fill> kFills[] = {
    {"uniform", Fill::kUniform}, {"extremes", Fill::kExtremes}, {"one_hot", Fill::kOneHot},
    {"bait", Fill::kBait},       {"gauss", Fill::kGauss},       {"laplace", Fill::kLaplace},
    {"student", Fill::kStudent}, {"relu", Fill::kRelu},         {"ramp", Fill::kRamp},
    {"ties", Fill::kTies},       {"bound", Fill::kBound},       {"stray", Fill::kStray},
};
constexpr Name<Numbers> kNumbers[] = {
    {"scaled", Numbers::kScaled},     {"normal", Numbers::kNormal},       {"halves", Numbers::kHalves},
    {"constant", Numbers::kConstant}, {"zeros", Numbers::kZeros},         {"tiny", Numbers::kTiny},
    {"outlier", Numbers::kOutlier},   {"nonfinite", Numbers::kNonFinite},
};
constexpr auto kSources = NamesOf(core::kSourceTypes);
constexpr Name<intact_quantization> kQuantizations[] = {
    {"static", INTACT_QUANTIZATION_STATIC},
    {"rows", INTACT_QUANTIZATION_ROWS},
    {"dynamic_rows", INTACT_QUANTIZATION_DYNAMIC_ROWS},
    {"dynamic_tensor", INTACT_QUANTIZATION_DYNAMIC_TENSOR},
    {"tensor", INTACT_QUANTIZATION_TENSOR}};
constexpr Name<intact_type> kResiduals[] = {
    {"none", INTACT_TYPE_NONE}, {"u8", INTACT_U8}, {"s8", INTACT_S8}, {"f32", INTACT_F32}};
constexpr Name<bool> kItems[] = {{"strided", false}, {"pointers", true}};
constexpr Name<bool> kALayouts[] = {{"mk", false}, {"km", true}};
constexpr Name<bool> kBLayouts[] = {{"kn", false}, {"nk", true}};
constexpr Name<bool> kTensorOrRow[] = {{"tensor", false}, {"row", true}};
constexpr Name<intact_mode> kModes[] = {{"exact", INTACT_EXACT}, {"saturating", INTACT_SATURATING}};
constexpr Name<intact_pairing> kPairings[] = {{"within_tap", INTACT_PAIRING_WITHIN_TAP},
                                              {"flattened", INTACT_PAIRING_FLATTENED}};
constexpr Name<intact_range_check> kRangeChecks[] = {{"checked", INTACT_RANGE_CHECKED},
                                                     {"unchecked", INTACT_RANGE_UNCHECKED}};
constexpr Name<intact_overflow> kOverflows[] = {{"refused", INTACT_OVERFLOW_REFUSED},
                                                {"wraps", INTACT_OVERFLOW_WRAPS}};
constexpr Name<BiasKind> kBiases[] = {
    {"none", BiasKind::kNone}, {"s32", BiasKind::kS32}, {"f32", BiasKind::kF32}};
constexpr Name<FixedKind> kFixed[] = {{"none", FixedKind::kNone},
                                      {"away", FixedKind::kAway},
                                      {"up", FixedKind::kUp},
                                      {"away_shift", FixedKind::kAwayShift},
                                      {"up_shift", FixedKind::kUpShift}};
constexpr Name<ScaleKind> kScales[] = {
    {"none", ScaleKind::kNone}, {"tensor", ScaleKind::kTensor},         {"channel", ScaleKind::kChannel},
    {"tiny", ScaleKind::kTiny}, {"pruned", ScaleKind::kPruned},         {"huge", ScaleKind::kHuge},
    {"item", ScaleKind::kItem}, {"item_column", ScaleKind::kItemColumn}};
constexpr Name<ZeroPointKind> kZeroPointKinds[] = {{"tensor", ZeroPointKind::kTensor},
                                                   {"channel", ZeroPointKind::kChannel},
                                                   {"item", ZeroPointKind::kItem},
                                                   {"item_column", ZeroPointKind::kItemColumn}};

constexpr Name<intact_type> kSourcesOrNone[] = {
    {"f32", INTACT_F32}, {"bf16", INTACT_BF16}, {"f16", INTACT_F16}, {"none", INTACT_TYPE_NONE}};
constexpr Name<bool> kRowOrGroup[] = {{"row", false}, {"group", true}};
constexpr Name<BiasKind> kNoYesBias[] = {{"no", BiasKind::kNone}, {"yes", BiasKind::kF32}};
constexpr Name<bool> kLayoutsOfB[] = {{"nk", false}, {"kn", true}};
constexpr Name<bool> kLayoutsOfScales[] = {{"ng", false}, {"gn", true}};
constexpr Name<GroupedFill> kGroupedFills[] = {
    {"uniform", GroupedFill::kUniform},    {"bounds", GroupedFill::kBounds},
    {"one_hot", GroupedFill::kOneHot},     {"spread", GroupedFill::kSpread},
    {"huge", GroupedFill::kHuge},          {"tiny", GroupedFill::kTiny},
    {"nonfinite", GroupedFill::kNonFinite}};
constexpr auto kFloats = NamesOf(core::kSourceTypes);

// ----- rows -----------------------------------------------------------------------------------------------

using reference::Axis;
using reference::ConvGeometry;

// The part of a problem that has the members of `Of`.
template <class Of, class P>
auto& PartOf(P& problem) {
  if constexpr (std::is_base_of_v<Of, Problem>) {
    return problem;
  } else if constexpr (std::is_same_v<Of, ConvGeometry>) {
    return *problem.conv;
  } else {
    return *problem.grouped;
  }
}

template <class T, class Of>
Field Number(std::string_view key, T Of::*member) {
  Field field = {key, [member](const Problem& p) { return fmt::format("{}", PartOf<Of>(p).*member); },
                 [key, member](std::string_view text, Problem* p) -> std::optional<Error> {
                   ASSIGN_OR_RETURN(const int64_t value, NumberOf(key, text));
                   if (!std::in_range<T>(value))
                     return Invalid(fmt::format("{}: {} is out of range", key, text));
                   PartOf<Of>(*p).*member = static_cast<T>(value);
                   return std::nullopt;
                 }};
  field.number = [member](const Problem& p) { return static_cast<int64_t>(PartOf<Of>(p).*member); };
  return field;
}

// A field whose value has one of `names`, which stay in memory.
template <class E, class Of, class Names>
Field Choice(std::string_view key, E Of::*member, const Names& names) {
  return {key,
          [member, &names](const Problem& p) { return std::string(NameOf(names, PartOf<Of>(p).*member)); },
          [key, member, &names](std::string_view text, Problem* p) -> std::optional<Error> {
            ASSIGN_OR_RETURN(PartOf<Of>(*p).*member, ValueOf(names, key, text));
            return std::nullopt;
          }};
}

// A zero point of the type of `type`.
template <class T>
Field ZeroPoint(std::string_view key, T Problem::*member, intact_type Problem::*type) {
  Field field = Number(key, member);
  field.range = [type](const Problem& p) { return Range{core::LowestOf(p.*type), core::HighestOf(p.*type)}; };
  return field;
}

Field RangeMinimum() {
  Field field = Number("arangemin", &Problem::range_min);
  field.range = [](const Problem& p) { return Range{0, p.range_max}; };
  return field;
}

// The spatial dimensions that the convolution has.
template <class Geometry>
auto AxesOf(Geometry& geometry) {
  return std::span(geometry.axes).last(static_cast<size_t>(geometry.dims));
}

// One extent of each axis: "56x7".
std::string PrintExtents(const ConvGeometry& geometry, int64_t Axis::*extent) {
  std::string text;
  for (const Axis& axis : AxesOf(geometry))
    text += fmt::format("{}{}", text.empty() ? "" : "x", axis.*extent);
  return text;
}

Result<std::vector<int64_t>> NumbersOf(std::string_view key, std::string_view text) {
  std::vector<int64_t> numbers;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('x', begin), text.size());
    ASSIGN_OR_RETURN(const int64_t number, NumberOf(key, text.substr(begin, end - begin)));
    numbers.push_back(number);
    begin = end + 1;
  }
  return numbers;
}

std::optional<Error> ReadExtents(std::string_view key, std::string_view text, int64_t Axis::*extent,
                                 ConvGeometry* geometry) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, NumbersOf(key, text));
  const auto axes = AxesOf(*geometry);
  if (numbers.size() != axes.size()) {
    return Invalid(
        fmt::format("{}: '{}' has {} extents; expected {}, as in=", key, text, numbers.size(), axes.size()));
  }
  for (size_t i = 0; i < axes.size(); ++i) axes[i].*extent = numbers[i];
  return std::nullopt;
}

// The key that decides how many dimensions there are: read before all others.
Field InputExtents() {
  static constexpr std::string_view kKey = "in";
  return {kKey, [](const Problem& p) { return PrintExtents(*p.conv, &Axis::input); },
          [](std::string_view text, Problem* p) -> std::optional<Error> {
            const auto dims = 1 + std::count(text.begin(), text.end(), 'x');
            if (dims > reference::kMaxSpatial) {
              return Invalid(fmt::format("in: '{}' has {} extents; expected 1 to {}", text, dims,
                                         reference::kMaxSpatial));
            }
            p->conv->dims = static_cast<int>(dims);
            return ReadExtents(kKey, text, &Axis::input, &*p->conv);
          }};
}

Field Extents(std::string_view key, int64_t Axis::*extent) {
  return {
      key, [extent](const Problem& p) { return PrintExtents(*p.conv, extent); },
      [key, extent](std::string_view text, Problem* p) { return ReadExtents(key, text, extent, &*p->conv); }};
}

Field Padding() {
  static constexpr std::string_view kKey = "pad";
  return {kKey,
          [](const Problem& p) {
            const std::string begin = PrintExtents(*p.conv, &Axis::pad_begin);
            const std::string end = PrintExtents(*p.conv, &Axis::pad_end);
            return begin == end ? begin : begin + ":" + end;
          },
          [](std::string_view text, Problem* p) -> std::optional<Error> {
            const size_t colon = text.find(':');
            const std::string_view begin = text.substr(0, colon);
            const std::string_view end = colon == std::string_view::npos ? begin : text.substr(colon + 1);
            if (auto error = ReadExtents(kKey, begin, &Axis::pad_begin, &*p->conv)) return error;
            return ReadExtents(kKey, end, &Axis::pad_end, &*p->conv);
          }};
}

Field Transposed() {
  static constexpr std::string_view kKey = "transposed";
  return {kKey, [](const Problem& p) { return std::string(NameOf(kNoYes, p.conv->IsTransposed())); },
          [](std::string_view text, Problem* p) -> std::optional<Error> {
            ASSIGN_OR_RETURN(const bool value, ValueOf(kNoYes, kKey, text));
            for (Axis& axis : AxesOf(*p->conv)) axis.transposed = value;
            return std::nullopt;
          }};
}

// Fields that several kinds have.
const std::vector<Field>& SharedFields() {
  static const std::vector<Field> kFields = {
      Number("m", &Problem::m).In(0, kMaxDimension).Required(),
      Number("n", &Problem::n).In(1, kMaxDimension).Required(),
      Number("k", &Problem::k).In(1, kMaxDimension).Required(),
      Choice("quant", &Problem::quantization, kQuantizations).Kept(),
      Choice("src", &Problem::source, kSources).Needs(INTACT_TARGET_DYNAMIC_F16),
      Choice("x", &Problem::numbers, kNumbers),
      ZeroPoint("za", &Problem::za, &Problem::a_type),
      ZeroPoint("zb", &Problem::zb, &Problem::b_type).Needs(INTACT_TARGET_B_ZERO_POINT),
      Choice("zbper", &Problem::zb_kind, kZeroPointKinds).Needs(INTACT_TARGET_B_ZERO_POINTS),
      ZeroPoint("zc", &Problem::zc, &Problem::c_type).Needs(INTACT_TARGET_C_ZERO_POINT),
      Number("amax", &Problem::amax).In(0, 255),
      Number("wmax", &Problem::wmax).In(1, 128),
      RangeMinimum(),
      Number("arange", &Problem::range_max).In(1, 255),
      Choice("rangecheck", &Problem::range_check, kRangeChecks),
      Choice("overflow", &Problem::overflow, kOverflows).Needs(INTACT_TARGET_OVERFLOW_WRAPS),
      Choice("bias", &Problem::bias, kBiases),
      Choice("scale", &Problem::scale, kScales).Needs(INTACT_TARGET_CHANNEL_SCALES, INTACT_TARGET_SCALE_ZERO),
      Choice("fixed", &Problem::fixed, kFixed).Needs(INTACT_TARGET_FIXED_POINT),
      Choice("act", &Problem::activation, kActivations),
      Choice("table", &Problem::has_table, kNoYes).Needs(INTACT_TARGET_LOOKUP_TABLE),
      Choice("res", &Problem::residual, kResiduals).Needs(INTACT_TARGET_RESIDUAL).Kept(),
      ZeroPoint("zres", &Problem::zres, &Problem::residual).Needs(INTACT_TARGET_RESIDUAL),
      Choice("inplace", &Problem::in_place, kNoYes)
          .Needs(INTACT_TARGET_RESIDUAL, INTACT_TARGET_RESIDUAL_IN_PLACE),
      Choice("fill", &Problem::fill, kFills),
      Number("seed", &Problem::seed).In(0, std::numeric_limits<int64_t>::max()).Kept(),
      Number("apad", &Problem::a_pad).In(0, kMaxPadding).Needs(INTACT_TARGET_STRIDES),
      Number("bpad", &Problem::b_pad).In(0, kMaxPadding).Needs(INTACT_TARGET_B_LAYOUTS),
      Number("cpad", &Problem::c_pad).In(0, kMaxPadding).Needs(INTACT_TARGET_STRIDES),
      Number("respad", &Problem::res_pad)
          .In(0, kMaxPadding)
          .Needs(INTACT_TARGET_STRIDES, INTACT_TARGET_RESIDUAL),
      Choice("open", &Problem::open_extents, kNoYes),
      Choice("scratch", &Problem::own_scratch, kNoYes),
      Choice("saved", &Problem::saved, kNoYes),
      Number("threads", &Problem::threads).In(0, 1024).Needs(INTACT_TARGET_THREADS),
      Number("calls", &Problem::calls).In(1, 1 << 20).NotInFiles("it needs several calls"),
      Choice("reused", &Problem::reused, kNoYes).NotInFiles("it needs several calls"),
      Choice("mode", &Problem::mode, kModes).Kept(),
      Choice("isa", &Problem::isa, Isas()).Kept(),
  };
  return kFields;
}

// ----- kinds ----------------------------------------------------------------------------------------------

// nullptr if there is none.
const Field* Find(const std::vector<Field>& fields, std::string_view key) {
  const auto found = std::ranges::find(fields, key, &Field::key);
  return found == fields.end() ? nullptr : &*found;
}

// `order`: the keys in the order of lines, of `own` fields and of shared ones.
std::vector<Field> InOrder(std::string_view order, const std::vector<Field>& own) {
  std::vector<Field> fields;
  for (const std::string_view key : WordsOf(order)) {
    const Field* const found = Find(own, key);
    fields.push_back(found != nullptr ? *found : *Find(SharedFields(), key));
  }
  return fields;
}

constexpr std::string_view kEndOfLinear =
    " za zb zbper zc amax wmax arangemin arange rangecheck overflow bias scale fixed act table res zres"
    " inplace fill seed apad cpad respad open scratch saved threads calls reused mode isa";
constexpr std::array kBytes = {INTACT_U8, INTACT_S8};

LineKind GemmKind() {
  constexpr std::string_view kBatch = "it has a batch or runtime B";
  return {"gemm", "u8s8s32", kBytes, core::kOutputTypes,
          InOrder(std::string(
                      "m n k batch items itempad alayout runtimeb blayout bpad quant zaper src x usual") +=
                  kEndOfLinear,
                  {Number("batch", &Problem::batch)
                       .In(0, kMaxExtent)
                       .Needs(INTACT_TARGET_BATCH)
                       .NotInFiles(kBatch)
                       .Kept(),
                   Choice("items", &Problem::item_pointers, kItems)
                       .Needs(INTACT_TARGET_BATCH, INTACT_TARGET_BATCH_POINTERS),
                   Number("itempad", &Problem::item_pad).In(0, kMaxPadding).Needs(INTACT_TARGET_BATCH),
                   Choice("alayout", &Problem::a_by_columns, kALayouts).Needs(INTACT_TARGET_A_TRANSPOSED),
                   Choice("runtimeb", &Problem::runtime_b, kNoYes).NotInFiles(kBatch).Kept(),
                   Choice("blayout", &Problem::b_by_columns, kBLayouts).Needs(INTACT_TARGET_B_LAYOUTS),
                   Choice("zaper", &Problem::row_zero_points, kTensorOrRow),
                   Number("usual", &Problem::usual_m).In(0, kMaxDimension)})};
}

LineKind ConvKind() {
  return {
      "conv", "u8s8s32", kBytes, core::kOutputTypes,
      InOrder(std::string(
                  "in c o kernel stride dilation pad transposed outpad groups batch pairing quant src x") +=
              kEndOfLinear,
              {InputExtents().Required(),
               Number("c", &ConvGeometry::input_channels).In(1, kMaxDimension).Required(),
               Number("o", &ConvGeometry::output_channels).In(1, kMaxDimension).Required(),
               Extents("kernel", &Axis::kernel).Required(), Extents("stride", &Axis::stride),
               Extents("dilation", &Axis::dilation), Padding(), Transposed().Kept(),
               Extents("outpad", &Axis::output_pad),
               Number("groups", &ConvGeometry::groups).In(1, kMaxDimension).Kept(),
               Number("batch", &ConvGeometry::batch).In(0, kMaxDimension).Kept(),
               Choice("pairing", &Problem::pairing, kPairings)})};
}

LineKind GroupedKind() {
  constexpr std::string_view kLayout = "its weights have another layout";
  return {"grouped", "s8u4f32", core::kGroupedWeightTypes, core::kSourceTypes,
          InOrder("m n k group experts src per gscale za zb min bias act fill seed blayout slayout apad bpad "
                  "cpad epad"
                  " scratch saved threads parts split calls reused item ipad isa",
                  {Number("group", &GroupedFields::group).Kept(),
                   Number("experts", &GroupedFields::experts).In(1, 1 << 10).Needs(INTACT_TARGET_EXPERTS),
                   Choice("src", &Problem::source, kSourcesOrNone).Kept(),
                   Choice("per", &GroupedFields::has_group_scales, kRowOrGroup),
                   Choice("gscale", &GroupedFields::scale_type, kFloats),
                   Choice("za", &GroupedFields::has_a_zero_points, kNoYes).Kept(),
                   Choice("zb", &GroupedFields::has_b_zero_points, kNoYes).Needs(INTACT_TARGET_B_ZERO_POINTS),
                   Choice("min", &GroupedFields::has_b_minimums, kNoYes).Needs(INTACT_TARGET_B_MINIMUMS),
                   Choice("bias", &Problem::bias, kNoYesBias).Needs(INTACT_TARGET_BIAS_F32),
                   Choice("fill", &GroupedFields::fill, kGroupedFills),
                   Choice("blayout", &Problem::b_is_kn, kLayoutsOfB)
                       .Needs(INTACT_TARGET_B_LAYOUTS)
                       .NotInFiles(kLayout),
                   Choice("slayout", &Problem::scales_are_gn, kLayoutsOfScales)
                       .Needs(INTACT_TARGET_B_LAYOUTS)
                       .NotInFiles(kLayout),
                   Find(SharedFields(), "bpad")->NotInFiles(kLayout),
                   Number("epad", &Problem::expert_pad)
                       .In(0, kMaxPadding)
                       .Needs(INTACT_TARGET_B_LAYOUTS)
                       .NotInFiles(kLayout),
                   Number("parts", &Problem::parts).In(0, 256),
                   Number("split", &Problem::split).In(0, kMaxDimension),
                   Number("item", &Problem::item)
                       .In(0, kMaxDimension)
                       .Needs(INTACT_TARGET_BATCH)
                       .NotInFiles("it has a batch"),
                   Number("ipad", &Problem::item_pad).In(0, kMaxPadding).Needs(INTACT_TARGET_BATCH)})};
}

}  // namespace

Field Field::Required() const {
  Field field = *this;
  field.is_required = true;
  return field;
}

Field Field::Kept() const {
  Field field = *this;
  field.is_kept = true;
  return field;
}

Field Field::In(int64_t low, int64_t high) const {
  Field field = *this;
  field.range = [=](const Problem& /*problem*/) { return Range{low, high}; };
  return field;
}

Field Field::NotInFiles(std::string_view why) const {
  Field field = *this;
  field.no_file = why;
  return field;
}

const Field* LineKind::Find(std::string_view key) const { return verify::Find(fields, key); }

std::span<const LineKind> LineKinds() {
  static const std::array kKinds = {GemmKind(), ConvKind(), GroupedKind()};
  return kKinds;
}

const LineKind& LineKindOf(const Problem& problem) {
  return LineKinds()[problem.grouped ? 2 : problem.conv ? 1 : 0];
}

Problem DefaultsOf(const Problem& problem) {
  Problem p;
  p.a_type = problem.a_type;
  p.b_type = problem.b_type;
  p.c_type = problem.c_type;
  if (problem.grouped) {
    p.grouped.emplace().b_type = problem.grouped->b_type;
    return p;
  }
  // A scale is the default if the output needs one.
  p.scale = p.c_type == INTACT_S32 ? ScaleKind::kNone : ScaleKind::kTensor;
  if (problem.conv) p.conv.emplace().dims = problem.conv->dims;
  return p;
}

void Problem::Reset(std::string_view key) {
  const Field* const field = LineKindOf(*this).Find(key);
  if (field != nullptr) (void)field->read(field->print(DefaultsOf(*this)), this);
}

void ResetNeeding(intact_target_feature feature, Problem* problem) {
  for (const Field& field : LineKindOf(*problem).fields) {
    if ((field.needs & INTACT_TARGET_BIT(feature)) != 0) problem->Reset(field.key);
  }
}

uint64_t NeedsOf(const Problem& problem) {
  const Problem defaults = DefaultsOf(problem);
  uint64_t needs = 0;
  for (const Field& field : LineKindOf(problem).fields) {
    if (field.needs != 0 && field.print(problem) != field.print(defaults)) needs |= field.needs;
  }
  return needs;
}

void ResetLacking(uint64_t features, Problem* problem) {
  for (const Field& field : LineKindOf(*problem).fields) {
    if ((field.needs & ~features) != 0) problem->Reset(field.key);
  }
}

std::optional<Error> CheckRanges(const Problem& problem) {
  for (const Field& field : LineKindOf(problem).fields) {
    if (!field.range) continue;
    const auto [low, high] = field.range(problem);
    if (auto error = CheckRange(field.key, field.number(problem), low, high)) return error;
  }
  return std::nullopt;
}

std::string_view WhyNoFile(const Problem& problem) {
  const Problem defaults = DefaultsOf(problem);
  for (const Field& field : LineKindOf(problem).fields) {
    if (!field.no_file.empty() && field.print(problem) != field.print(defaults)) return field.no_file;
  }
  return {};
}

namespace {

template <class E, size_t kCount>
std::vector<E> ValuesOf(const Name<E> (&names)[kCount]) {
  std::vector<E> values;
  for (const Name<E>& name : names) values.push_back(name.value);
  return values;
}

}  // namespace

std::span<const Fill> AllFills() {
  static const std::vector<Fill> kAll = ValuesOf(kFills);
  return kAll;
}

std::span<const GroupedFill> AllGroupedFills() {
  static const std::vector<GroupedFill> kAll = ValuesOf(kGroupedFills);
  return kAll;
}

std::span<const Numbers> AllNumbers() {
  static const std::vector<Numbers> kAll = ValuesOf(kNumbers);
  return kAll;
}

std::string_view ToString(Fill fill) { return NameOf(kFills, fill); }
std::string_view ToString(Numbers numbers) { return NameOf(kNumbers, numbers); }
std::string_view ToString(intact_mode mode) { return NameOf(kModes, mode); }
std::string_view ToString(intact_type type) { return core::NameOf(type); }
Result<intact_isa> ParseIsa(std::string_view name) { return ValueOf(Isas(), "isa", name); }
Result<intact_mode> ParseMode(std::string_view name) { return ValueOf(kModes, "mode", name); }
Result<intact_pairing> ParsePairing(std::string_view name) { return ValueOf(kPairings, "pairing", name); }

}  // namespace intact::verify
