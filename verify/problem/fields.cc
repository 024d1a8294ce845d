#include "verify/problem/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <iterator>
#include <limits>
#include <ranges>
#include <type_traits>
#include <utility>

#include "core/result.h"
#include "core/types.h"
#include "verify/problem/fill_blocks.h"
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
  Field field = {
      key, [member, &names](const Problem& p) { return std::string(NameOf(names, PartOf<Of>(p).*member)); },
      [key, member, &names](std::string_view text, Problem* p) -> std::optional<Error> {
        ASSIGN_OR_RETURN(PartOf<Of>(*p).*member, ValueOf(names, key, text));
        return std::nullopt;
      }};
  for (const Name<E>& name : names) field.names.push_back(name.text);
  return field;
}

using support::Random;

// 0, an extreme or the middle of an 8-bit type, or random.
int32_t DrawnZeroPoint(intact_type type, Random& random) {
  if (!core::IsInt8(type)) return 0;
  const int64_t lowest = core::LowestOf(type);
  return static_cast<int32_t>(
      random.Of<int64_t>({0, lowest, lowest + 255, lowest + 128, lowest + random.Integer(0, 255)}));
}

// A zero point of the type of `type`.
template <class T>
Field ZeroPoint(std::string_view key, T Problem::*member, intact_type Problem::*type) {
  Field field = Number(key, member);
  field.range = [type](const Problem& p) { return Range{core::LowestOf(p.*type), core::HighestOf(p.*type)}; };
  field.draw = [=](Random& r, Problem& p) { p.*member = DrawnZeroPoint(p.*type, r); };
  return field;
}

// Unused elements or bytes.
Field Pad(std::string_view key, int64_t Problem::*member) { return Number(key, member).In(0, kMaxPadding); }
// The pads that random GEMMs and convolutions have.
std::vector<std::string_view> Pads() { return {"0", "0", "0", "1", "5", "16", "64"}; }

Field RangeMinimum() {
  Field field = Number("arangemin", &Problem::range_min);
  field.range = [](const Problem& p) { return Range{0, p.range_max}; };
  return field;
}

// Draws all fields of the range.
void DrawRange(Random& r, Problem& p) {
  if (p.IsDynamic() || r.OneIn(2)) return;
  p.range_max = static_cast<int32_t>(r.Of<int64_t>({127, 128, 254, 64, r.Integer(1, 255)}));
  if (r.OneIn(3)) p.range_min = static_cast<int32_t>(r.Integer(0, p.range_max));
  p.range_check = p.fill != Fill::kStray && r.OneIn(2) ? INTACT_RANGE_UNCHECKED : INTACT_RANGE_CHECKED;
  const auto lowest = static_cast<int32_t>(core::LowestOf(p.a_type));
  // The zero points of rows are random, and za is then 0: they may be outside the range.
  if (p.quantization == INTACT_QUANTIZATION_STATIC || p.quantization == INTACT_QUANTIZATION_TENSOR) {
    p.za = std::clamp(p.za, lowest + p.range_min, lowest + p.range_max);
  } else {
    p.range_min = 0;
    p.range_max = 255;
  }
}

// A third of the problems have a quantization by runs; with s32 outputs it is not dynamic.
void DrawQuantization(Random& r, Problem& p) {
  if (!r.OneIn(3)) return;
  p.quantization = p.conv ? r.Of({INTACT_QUANTIZATION_TENSOR, INTACT_QUANTIZATION_DYNAMIC_TENSOR})
                          : r.Of({INTACT_QUANTIZATION_ROWS, INTACT_QUANTIZATION_DYNAMIC_ROWS,
                                  INTACT_QUANTIZATION_DYNAMIC_TENSOR, INTACT_QUANTIZATION_TENSOR});
  if (p.IsDynamic() && p.c_type == INTACT_S32)
    p.quantization = p.conv ? INTACT_QUANTIZATION_TENSOR : INTACT_QUANTIZATION_ROWS;
  if (p.quantization != INTACT_QUANTIZATION_TENSOR) p.za = 0;
}

void DrawBias(Random& r, Problem& p) {
  p.bias = r.Of({BiasKind::kNone, BiasKind::kS32, BiasKind::kF32});
  if (p.c_type == INTACT_S32 && p.bias == BiasKind::kF32) p.bias = BiasKind::kS32;
}

void DrawFixed(Random& r, Problem& p) {
  const bool may_be = core::IsInt8(p.c_type) && p.bias != BiasKind::kF32 && p.scale <= ScaleKind::kChannel &&
                      p.quantization == INTACT_QUANTIZATION_STATIC;
  if (!may_be || !r.OneIn(2)) return;
  p.fixed = r.Of({FixedKind::kAway, FixedKind::kUp, FixedKind::kAwayShift, FixedKind::kUpShift});
}

bool HasResidualOfSizeOfC(const Problem& p) {
  return p.residual != INTACT_TYPE_NONE && core::BytesOf(p.residual) == core::BytesOf(p.c_type);
}
void DrawResidual(Random& r, Problem& p) {
  if (p.c_type == INTACT_S32 || p.fixed != FixedKind::kNone || !r.OneIn(3)) return;
  p.residual = r.Of({INTACT_U8, INTACT_S8, INTACT_F32});
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

bool HasScale(const Problem& p) { return p.c_type != INTACT_S32; }
bool HasStoredB(const Problem& p) { return !p.runtime_b; }
bool IsDynamic(const Problem& p) { return p.IsDynamic(); }
constexpr std::string_view kNotS32 = "needs an output that is not s32",
                           kNeedsDynamic = "needs a dynamic quantization";

// Fields that several kinds have.
std::vector<Field> OperandFields() {
  return {
      Number("m", &Problem::m).In(0, kMaxDimension).Required(),
      Number("n", &Problem::n).In(1, kMaxDimension).Required(),
      Number("k", &Problem::k).In(1, kMaxDimension).Required(),
      Choice("quant", &Problem::quantization, kQuantizations).Kept().Drawn(DrawQuantization),
      Choice("src", &Problem::source, kSources)
          .Needs(INTACT_TARGET_DYNAMIC_F16)
          .Where(IsDynamic, kNeedsDynamic)
          .FromAll(),
      Choice("x", &Problem::numbers, kNumbers).Where(IsDynamic, kNeedsDynamic).FromAll(),
      ZeroPoint("za", &Problem::za, &Problem::a_type),
      ZeroPoint("zb", &Problem::zb, &Problem::b_type)
          .Needs(INTACT_TARGET_B_ZERO_POINT)
          .Drawn([](Random& r, Problem& p) { p.zb = r.OneIn(2) ? 0 : DrawnZeroPoint(p.b_type, r); }),
      Choice("zbper", &Problem::zb_kind, kZeroPointKinds)
          .Needs(INTACT_TARGET_B_ZERO_POINTS)
          .InOneOf(4, "channel"),
      ZeroPoint("zc", &Problem::zc, &Problem::c_type).Needs(INTACT_TARGET_C_ZERO_POINT),
      Number("amax", &Problem::amax).In(0, 255).InOneOf(6, 0, 255),
      Number("wmax", &Problem::wmax).In(1, 128).Drawn([](Random& r, Problem& p) {
        if (r.OneIn(3)) p.wmax = static_cast<int32_t>(r.Of<int64_t>({128, 128, 64, r.Integer(1, 128)}));
      }),
      RangeMinimum(),
      Number("arange", &Problem::range_max).In(1, 255).Drawn(DrawRange),
      Choice("rangecheck", &Problem::range_check, kRangeChecks),
      Choice("overflow", &Problem::overflow, kOverflows)
          .Needs(INTACT_TARGET_OVERFLOW_WRAPS)
          .InOneOf(5, "wraps"),
  };
}

std::vector<Field> EpilogueFields() {
  return {
      Choice("bias", &Problem::bias, kBiases).Drawn(DrawBias).Filled(FillBias),
      Choice("scale", &Problem::scale, kScales)
          .Needs(INTACT_TARGET_CHANNEL_SCALES, INTACT_TARGET_SCALE_ZERO)
          .Where(HasScale, kNotS32)
          .From({"tensor", "tensor", "channel", "channel", "pruned", "huge"})
          .Filled(FillScales),
      Choice("fixed", &Problem::fixed, kFixed)
          .Needs(INTACT_TARGET_FIXED_POINT)
          .Drawn(DrawFixed)
          .Filled(FillFixedPoint),
      Choice("act", &Problem::activation, kActivations)
          .Where(HasScale, kNotS32)
          .FromAll()
          .Filled(FillActivation),
      Choice("table", &Problem::has_table, kNoYes)
          .Needs(INTACT_TARGET_LOOKUP_TABLE)
          .Where([](const Problem& p) { return core::IsInt8(p.c_type); }, "needs 8-bit outputs")
          .InOneOf(3, "yes")
          .Filled(FillTable),
      Choice("res", &Problem::residual, kResiduals)
          .Needs(INTACT_TARGET_RESIDUAL)
          .Kept()
          .Where(HasScale, kNotS32)
          .Drawn(DrawResidual)
          .Filled(FillResidual),
      ZeroPoint("zres", &Problem::zres, &Problem::residual).Needs(INTACT_TARGET_RESIDUAL),
      Choice("inplace", &Problem::in_place, kNoYes)
          .Needs(INTACT_TARGET_RESIDUAL, INTACT_TARGET_RESIDUAL_IN_PLACE)
          .Where(HasResidualOfSizeOfC, "needs a residual with elements of the size of the output's")
          .InOneOf(2, "yes"),
      Pad("respad", &Problem::res_pad)
          .Needs(INTACT_TARGET_STRIDES, INTACT_TARGET_RESIDUAL)
          .Where([](const Problem& p) { return p.residual != INTACT_TYPE_NONE && !p.in_place; },
                 "needs a residual that is not in place")
          .From(Pads()),
  };
}

std::vector<Field> RunFields() {
  return {
      Choice("fill", &Problem::fill, kFills).FromAll(),
      Number("seed", &Problem::seed).In(0, std::numeric_limits<int64_t>::max()).Kept().InOneOf(1, 1, 1 << 30),
      Pad("apad", &Problem::a_pad).Needs(INTACT_TARGET_STRIDES).From(Pads()),
      Pad("bpad", &Problem::b_pad).Needs(INTACT_TARGET_B_LAYOUTS).From(Pads()),
      Pad("cpad", &Problem::c_pad).Needs(INTACT_TARGET_STRIDES).From(Pads()),
      Choice("open", &Problem::open_extents, kNoYes)
          .Where([](const Problem& p) { return p.conv.has_value(); }, "needs a convolution")
          .InOneOf(3, "yes"),
      Choice("scratch", &Problem::own_scratch, kNoYes).InOneOf(3, "yes"),
      Choice("saved", &Problem::saved, kNoYes).Where(HasStoredB, "needs runtimeb=no").InOneOf(6, "yes"),
      Number("threads", &Problem::threads)
          .In(0, 1024)
          .Needs(INTACT_TARGET_THREADS)
          .Drawn([](Random& r, Problem& p) {
            p.threads = static_cast<int32_t>(r.Of<int64_t>({1, 1, 1, 2, 3, 0, r.Integer(4, 16)}));
          }),
      Number("calls", &Problem::calls).In(1, 1 << 20).NotInFiles("it needs several calls").InOneOf(50, 2, 30),
      Choice("reused", &Problem::reused, kNoYes)
          .NotInFiles("it needs several calls")
          .Where(HasStoredB, "needs runtimeb=no")
          .InOneOf(8, "yes"),
      Choice("mode", &Problem::mode, kModes).Kept(),
      Choice("isa", &Problem::isa, Isas()).Kept(),
  };
}

const std::vector<Field>& SharedFields() {
  static const std::vector<Field> kFields = [] {
    std::vector<Field> fields = OperandFields();
    for (std::vector<Field> more : {EpilogueFields(), RunFields()}) {
      std::ranges::move(more, std::back_inserter(fields));
    }
    return fields;
  }();
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
                   Pad("itempad", &Problem::item_pad)
                       .Needs(INTACT_TARGET_BATCH)
                       .Where([](const Problem& p) { return !p.item_pointers; }, "needs items=strided")
                       .From(Pads()),
                   Choice("alayout", &Problem::a_by_columns, kALayouts)
                       .Needs(INTACT_TARGET_A_TRANSPOSED)
                       .InOneOf(4, "km"),
                   Choice("runtimeb", &Problem::runtime_b, kNoYes).NotInFiles(kBatch).Kept(),
                   Choice("blayout", &Problem::b_by_columns, kBLayouts)
                       .Needs(INTACT_TARGET_B_LAYOUTS)
                       .InOneOf(3, "nk"),
                   Choice("zaper", &Problem::row_zero_points, kTensorOrRow)
                       .Where([](const Problem& p) { return p.quantization == INTACT_QUANTIZATION_ROWS; },
                              "needs quant=rows")
                       .InOneOf(2, "row"),
                   Number("usual", &Problem::usual_m).In(0, kMaxDimension).Drawn([](Random& r, Problem& p) {
                     p.usual_m = r.Of<int64_t>({0, 0, p.m, 1, 8, 128});
                   })})};
}

LineKind ConvKind() {
  return {
      "conv", "u8s8s32", kBytes, core::kOutputTypes,
      InOrder(
          std::string(
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
           Choice("pairing", &Problem::pairing, kPairings)
               .Where([](const Problem& p) { return p.mode == INTACT_SATURATING; }, "needs mode=saturating")
               .Drawn([](Random& r, Problem& p) {
                 const bool may_be = p.mode == INTACT_SATURATING && !p.conv->IsTransposed();
                 if (may_be && r.OneIn(2)) p.pairing = INTACT_PAIRING_FLATTENED;
               })})};
}

// ----- grouped weights -----------------------------------------------------------------------------------------

Field Shared(std::string_view key) { return *Find(SharedFields(), key); }

constexpr int64_t kMostDepths = 33025;  // 255·255·33025 is the largest sum within int32

bool IsGiven(const Problem& p) { return p.source == INTACT_TYPE_NONE; }

int64_t DrawnExtent(int64_t most, Random& r) { return r.OneIn(3) ? r.Integer(1, 4) : r.Integer(1, most); }

// Now and then several chunks of rows.
void DrawColumns(Random& r, Problem& p) {
  p.n = DrawnExtent(100, r);
  if (!r.OneIn(100)) return;
  p.m = r.Integer(257, 600);
  p.n = r.Integer(1, 20);
}

// Mostly some whole groups; else any depth, so that the last group is short.
void DrawDepth(Random& r, Problem& p) {
  const int64_t group = p.grouped->group, depth = group == 0 ? r.Integer(1, 600) : group;
  p.k = r.OneIn(2) ? depth * r.Integer(1, std::max<int64_t>(1, 512 / depth))
                   : r.Integer(1, std::max<int64_t>(600, 3 * depth));
}

bool IsBatchOfItems(const Problem& p) {
  return p.item == 0 || (p.m % p.item == 0 && p.split == 0 && p.grouped->experts == 1);
}
void DrawItem(Random& r, Problem& p) {
  if (p.grouped->experts > 1 || p.split != 0 || p.m == 0 || !r.OneIn(3)) return;
  p.item = r.Integer(1, p.m);
  while (p.m % p.item != 0) --p.item;
}

std::vector<Field> GroupedWeightFields() {
  return {
      Shared("m").Drawn([](Random& r, Problem& p) { p.m = r.OneIn(40) ? 0 : DrawnExtent(40, r); }),
      Shared("n").Drawn(DrawColumns),
      Shared("k")
          .Where([](const Problem& p) { return p.grouped->group != 0 || p.k <= kMostDepths; },
                 "is out of range with group=0; expected 1 to 33025")
          .Drawn(DrawDepth),
      Number("group", &GroupedFields::group)
          .Kept()
          .Where([](const Problem& p) { return std::ranges::count(kGroups, p.grouped->group) == 1; },
                 "is unknown; expected 0, 16, 32, 64, 128 or 256")
          .Drawn([](Random& r, Problem& p) { p.grouped->group = r.Of(kGroups); }),
      Number("experts", &GroupedFields::experts)
          .In(1, 1 << 10)
          .Needs(INTACT_TARGET_EXPERTS)
          .Drawn([](Random& r, Problem& p) {
            if (r.OneIn(4) && p.m <= 40) p.grouped->experts = r.Integer(2, 9);
          })
          .Filled(FillExpertRows),
      Choice("src", &Problem::source, kSourcesOrNone).Kept().FromAll().Filled(FillRows),
      Choice("per", &GroupedFields::has_group_scales, kRowOrGroup).FromAll(),
      Choice("gscale", &GroupedFields::scale_type, kFloats).FromAll().Filled(FillGroupScales),
      Choice("za", &GroupedFields::has_a_zero_points, kNoYes)
          .Kept()
          .Where(IsGiven, "needs given activations; expected src=none"),
      Choice("zb", &GroupedFields::has_b_zero_points, kNoYes)
          .Needs(INTACT_TARGET_B_ZERO_POINTS)
          .InOneOf(2, "yes")
          .Filled(FillGroupZeroPoints),
      Choice("min", &GroupedFields::has_b_minimums, kNoYes)
          .Needs(INTACT_TARGET_B_MINIMUMS)
          .Where([](const Problem& p) { return !p.grouped->has_b_zero_points; },
                 "needs zb=no; weights with minimums have no zero points")
          .InOneOf(3, "yes")
          .Filled(FillMinimums),
      Choice("bias", &Problem::bias, kNoYesBias)
          .Needs(INTACT_TARGET_BIAS_F32)
          .InOneOf(2, "yes")
          .Filled(FillGroupedBias),
      Choice("fill", &GroupedFields::fill, kGroupedFills)
          .Where([](const Problem& p) { return !IsGiven(p) || p.grouped->fill != GroupedFill::kNonFinite; },
                 "needs real numbers; expected src=f32, bf16 or f16")
          .FromAll()
          .Filled(FillCodes),
  };
}

std::vector<Field> GroupedRunFields() {
  constexpr std::string_view kLayout = "its weights have another layout";
  return {
      Shared("seed").Drawn([](Random& r, Problem& p) { p.seed = r.Next() >> 40; }),
      Choice("blayout", &Problem::b_is_kn, kLayoutsOfB)
          .Needs(INTACT_TARGET_B_LAYOUTS)
          .NotInFiles(kLayout)
          .InOneOf(3, "kn")  // before Where(): weights of 4 bits take the same numbers from the stream
          .Where([](const Problem& p) { return !p.grouped->IsPacked(); },
                 "needs weights of 8 bits; the depths of 4-bit weights are adjacent"),
      Choice("slayout", &Problem::scales_are_gn, kLayoutsOfScales)
          .Needs(INTACT_TARGET_B_LAYOUTS)
          .NotInFiles(kLayout)
          .InOneOf(3, "gn"),
      Shared("apad").InOneOf(2, 1, 70),
      Shared("bpad").NotInFiles(kLayout).InOneOf(2, 1, 70),
      Shared("cpad").InOneOf(2, 1, 70),
      Pad("epad", &Problem::expert_pad)
          .Needs(INTACT_TARGET_B_LAYOUTS)
          .NotInFiles(kLayout)
          .Drawn([](Random& r, Problem& p) {
            if (p.grouped->experts > 1 && r.OneIn(2)) p.expert_pad = r.Integer(1, 70);
          }),
      Shared("scratch").InOneOf(2, "yes"),
      Shared("saved").InOneOf(3, "yes"),
      Shared("threads").From({"1", "1", "2", "3", "0", "8", "16"}),
      Number("parts", &Problem::parts).In(0, 256).InOneOf(3, 1, 7),
      Number("split", &Problem::split).In(0, kMaxDimension).InOneOf(3, 1, 9),
      Number("item", &Problem::item)
          .In(0, kMaxDimension)
          .Needs(INTACT_TARGET_BATCH)
          .NotInFiles("it has a batch")
          .Where(IsBatchOfItems, "needs m to be a multiple of it, split=0 and experts=1")
          .Drawn(DrawItem),
      Pad("ipad", &Problem::item_pad).Needs(INTACT_TARGET_BATCH).Drawn([](Random& r, Problem& p) {
        if (p.item != 0 && r.OneIn(2)) p.item_pad = r.Integer(1, 70);
      }),
  };
}

LineKind GroupedKind() {
  std::vector<Field> own = GroupedWeightFields();
  std::ranges::move(GroupedRunFields(), std::back_inserter(own));
  return {"grouped", "s8u4f32", core::kGroupedWeightTypes, core::kSourceTypes,
          InOrder("m n k group experts src per gscale za zb min bias act fill seed blayout slayout apad bpad "
                  "cpad epad scratch saved threads parts split calls reused item ipad isa",
                  own)};
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

Field Field::Where(std::function<bool(const Problem&)> fits_others, std::string_view why) const {
  Field field = *this;
  field.fits = std::move(fits_others);
  field.misfit = why;
  return field;
}

Field Field::Drawn(std::function<Draw> by) const {
  Field field = *this;
  field.draw = std::move(by);
  return field;
}

Field Field::Filled(void (*by)(const Filling&)) const {
  Field field = *this;
  field.fill = by;
  return field;
}

namespace {

// What draws the text of a value if other values than the default of `field` fit.
template <class Text>
Field DrawnAs(const Field& field, const Text& text) {
  return field.Drawn([read = field.read, fits = field.fits, text](Random& r, Problem& p) {
    if (fits && !fits(p)) return;
    if (const std::string value = text(r); !value.empty()) {
      [[maybe_unused]] const auto error = read(value, &p);
      assert(!error);
    }
  });
}

}  // namespace

Field Field::From(std::vector<std::string_view> values) const {
  return DrawnAs(*this, [values = std::move(values)](Random& r) { return std::string(r.Of(values)); });
}

Field Field::InOneOf(int64_t n, std::string_view value) const {
  return DrawnAs(*this, [=](Random& r) { return std::string(r.OneIn(n) ? value : ""); });
}

Field Field::InOneOf(int64_t n, int64_t low, int64_t high) const {
  return DrawnAs(*this, [=](Random& r) {
    return n == 1 || r.OneIn(n) ? fmt::format("{}", r.Integer(low, high)) : std::string();
  });
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

namespace {

bool IsMisfit(const Field& field, const Problem& problem) {
  return field.fits && !field.fits(problem) && field.print(problem) != field.print(DefaultsOf(problem));
}

}  // namespace

void ResetMisfits(Problem* problem) {
  for (const Field& field : LineKindOf(*problem).fields) {
    if (IsMisfit(field, *problem)) problem->Reset(field.key);
  }
}

std::optional<Error> CheckFields(const Problem& problem) {
  for (const Field& field : LineKindOf(problem).fields) {
    if (field.range) {
      const auto [low, high] = field.range(problem);
      if (auto error = CheckRange(field.key, field.number(problem), low, high)) return error;
    }
    if (IsMisfit(field, problem)) {
      return Invalid(fmt::format("{}: {} {}", field.key, field.print(problem), field.misfit));
    }
  }
  return std::nullopt;
}

void DrawFields(std::string_view keys, support::Random* random, Problem* problem) {
  for (const std::string_view key : WordsOf(keys)) LineKindOf(*problem).Find(key)->draw(*random, *problem);
}

void FillFields(std::string_view keys, const Filling& filling) {
  for (const std::string_view key : WordsOf(keys)) LineKindOf(filling.problem).Find(key)->fill(filling);
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
