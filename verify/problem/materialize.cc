#include "verify/problem/problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>
#include <ranges>
#include <set>
#include <type_traits>
#include <utility>

#include "core/result.h"
#include "core/types.h"
#include "reference/models/lowering.h"
#include "verify/problem/fill.h"
#include "verify/problem/line.h"
#include "verify/problem/problem_size.h"
#include "verify/problem/reset.h"

namespace intact::verify {
namespace {

constexpr int64_t kMaxDimension = int64_t{1} << 24;
constexpr int64_t kMaxExtent = int64_t{1} << 16;  // limit of kernel, stride, dilation, pad and batch

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
constexpr auto kTypes = [] {  // all except INTACT_TYPE_NONE, which is the first
  std::array<Name<intact_type>, core::kElementTypes.size() - 1> names = {};
  for (size_t i = 0; i < names.size(); ++i)
    names[i] = {core::kElementTypes[i + 1].name, core::kElementTypes[i + 1].type};
  return names;
}();
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

using Field = FieldOf<Problem>;

Field Required(Field field) {
  field.required = true;
  return field;
}

template <class T, class Of>
Field Number(std::string_view key, T Of::*member) {
  return NumberField<Problem>(key, member);
}

template <class E, class Of, class Names>
Field Choice(std::string_view key, E Of::*member, const Names& names) {
  return ChoiceField<Problem>(key, member, names);
}

// ----- convolutions ---------------------------------------------------------------------------------------

using reference::Axis;
using reference::ConvGeometry;

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

Field Count(std::string_view key, int64_t ConvGeometry::*member) {
  return {key, [member](const Problem& p) { return fmt::format("{}", (*p.conv).*member); },
          [key, member](std::string_view text, Problem* p) -> std::optional<Error> {
            ASSIGN_OR_RETURN((*p->conv).*member, NumberOf(key, text));
            return std::nullopt;
          }};
}

// ----- all keys -------------------------------------------------------------------------------------------

Field Quantization() { return Choice("quant", &Problem::quantization, kQuantizations); }
Field Source() { return Choice("src", &Problem::source, kSources).Needs(INTACT_TARGET_DYNAMIC_F16); }
Field NumbersField() { return Choice("x", &Problem::numbers, kNumbers); }

const std::vector<Field>& SharedFields() {
  static const std::vector<Field> kFields = {
      Number("za", &Problem::za),
      Number("zb", &Problem::zb).Needs(INTACT_TARGET_B_ZERO_POINT),
      Choice("zbper", &Problem::zb_kind, kZeroPointKinds).Needs(INTACT_TARGET_B_ZERO_POINTS),
      Number("zc", &Problem::zc).Needs(INTACT_TARGET_C_ZERO_POINT),
      Number("amax", &Problem::amax),
      Number("wmax", &Problem::wmax),
      Number("arangemin", &Problem::range_min),
      Number("arange", &Problem::range_max),
      Choice("rangecheck", &Problem::range_check, kRangeChecks),
      Choice("overflow", &Problem::overflow, kOverflows).Needs(INTACT_TARGET_OVERFLOW_WRAPS),
      Choice("bias", &Problem::bias, kBiases),
      Choice("scale", &Problem::scale, kScales).Needs(INTACT_TARGET_CHANNEL_SCALES, INTACT_TARGET_SCALE_ZERO),
      Choice("fixed", &Problem::fixed, kFixed).Needs(INTACT_TARGET_FIXED_POINT),
      Choice("act", &Problem::activation, kActivations),
      Choice("table", &Problem::has_table, kNoYes).Needs(INTACT_TARGET_LOOKUP_TABLE),
      Choice("res", &Problem::residual, kResiduals).Needs(INTACT_TARGET_RESIDUAL),
      Number("zres", &Problem::zres).Needs(INTACT_TARGET_RESIDUAL),
      Choice("inplace", &Problem::in_place, kNoYes)
          .Needs(INTACT_TARGET_RESIDUAL, INTACT_TARGET_RESIDUAL_IN_PLACE),
      Choice("fill", &Problem::fill, kFills),
      Number("seed", &Problem::seed),
      Number("apad", &Problem::a_pad).Needs(INTACT_TARGET_STRIDES),
      Number("cpad", &Problem::c_pad).Needs(INTACT_TARGET_STRIDES),
      Number("respad", &Problem::res_pad).Needs(INTACT_TARGET_STRIDES, INTACT_TARGET_RESIDUAL),
      Choice("open", &Problem::open_extents, kNoYes),
      Choice("scratch", &Problem::own_scratch, kNoYes),
      Choice("saved", &Problem::saved, kNoYes),
      Number("threads", &Problem::threads).Needs(INTACT_TARGET_THREADS),
      Number("calls", &Problem::calls),
      Choice("reused", &Problem::reused, kNoYes),
      Choice("mode", &Problem::mode, kModes),
      Choice("isa", &Problem::isa, Isas()),
  };
  return kFields;
}

// How a line begins, and the keys that precede SharedFields().
struct Kind {
  std::string_view name;
  std::vector<Field> fields;
};

const Kind& GemmKind() {
  static const Kind kGemm = {
      "gemm",
      {Required(Number("m", &Problem::m)), Required(Number("n", &Problem::n)),
       Required(Number("k", &Problem::k)), Number("batch", &Problem::batch).Needs(INTACT_TARGET_BATCH),
       Choice("items", &Problem::item_pointers, kItems)
           .Needs(INTACT_TARGET_BATCH, INTACT_TARGET_BATCH_POINTERS),
       Number("itempad", &Problem::item_pad).Needs(INTACT_TARGET_BATCH),
       Choice("alayout", &Problem::a_by_columns, kALayouts).Needs(INTACT_TARGET_A_TRANSPOSED),
       Choice("runtimeb", &Problem::runtime_b, kNoYes),
       Choice("blayout", &Problem::b_by_columns, kBLayouts).Needs(INTACT_TARGET_B_LAYOUTS),
       Number("bpad", &Problem::b_pad).Needs(INTACT_TARGET_B_LAYOUTS), Quantization(),
       Choice("zaper", &Problem::row_zero_points, kTensorOrRow), Source(), NumbersField(),
       Number("usual", &Problem::usual_m)}};
  return kGemm;
}

const Kind& ConvKind() {
  static const Kind kConv = {
      "conv",
      {Required(InputExtents()), Required(Count("c", &ConvGeometry::input_channels)),
       Required(Count("o", &ConvGeometry::output_channels)), Required(Extents("kernel", &Axis::kernel)),
       Extents("stride", &Axis::stride), Extents("dilation", &Axis::dilation), Padding(), Transposed(),
       Extents("outpad", &Axis::output_pad), Count("groups", &ConvGeometry::groups),
       Count("batch", &ConvGeometry::batch), Choice("pairing", &Problem::pairing, kPairings), Quantization(),
       Source(), NumbersField()}};
  return kConv;
}

const Kind& KindOf(const Problem& p) { return p.conv ? ConvKind() : GemmKind(); }

const Field* FindField(const Kind& kind, std::string_view key) {
  for (const std::vector<Field>* fields : {&kind.fields, &SharedFields()}) {
    const auto found = std::ranges::find(*fields, key, &Field::key);
    if (found != fields->end()) return &*found;
  }
  return nullptr;
}

// The values of keys that a line leaves out. A scale is the default if the output needs one.
Problem Defaults(intact_type a, intact_type b, intact_type c, const std::optional<ConvGeometry>& conv) {
  Problem p;
  p.a_type = a;
  p.b_type = b;
  p.c_type = c;
  p.scale = c == INTACT_S32 ? ScaleKind::kNone : ScaleKind::kTensor;
  if (!conv) return p;
  p.conv.emplace();
  p.conv->dims = conv->dims;
  return p;
}

// "u8s8s32" → three types.
Result<Problem> ParseTypes(std::string_view word, const std::optional<ConvGeometry>& conv) {
  std::array<intact_type, 3> types = {};
  std::string_view rest = word;
  for (intact_type& type : types) {
    const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                     [rest](const auto& name) { return rest.starts_with(name.text); });
    if (found == std::end(kTypes)) {
      return Invalid(fmt::format("types: '{}' is not like u8s8s32: activations, weights, output", word));
    }
    type = found->value;
    rest.remove_prefix(found->text.size());
  }
  if (!rest.empty()) {
    return Invalid(fmt::format("types: '{}' has '{}' too much; expected three, like u8s8s32", word, rest));
  }
  return Defaults(types[0], types[1], types[2], conv);
}

std::optional<Error> ReadWord(std::string_view word, std::set<std::string_view>* seen, Problem* problem) {
  const size_t equals = word.find('=');
  if (equals == std::string_view::npos) return Invalid(fmt::format("'{}' is not key=value", word));
  const std::string_view key = word.substr(0, equals);
  const Field* field = FindField(KindOf(*problem), key);
  if (field == nullptr) {
    const Kind& kind = KindOf(*problem);
    std::vector<std::string_view> keys;
    for (const std::vector<Field>* fields : {&kind.fields, &SharedFields()}) {
      for (const Field& known : *fields) keys.push_back(known.key);
    }
    return Invalid(fmt::format("'{}': key '{}' is unknown to a {}; expected one of {}", word, key, kind.name,
                               fmt::join(keys, ", ")));
  }
  if (!seen->insert(key).second) return Invalid(fmt::format("'{}': {} is given twice", word, key));
  return field->read(word.substr(equals + 1), problem);
}

struct Range {
  std::string_view key;
  int64_t value, low, high;
};

std::optional<Error> CheckRanges(std::initializer_list<Range> ranges) {
  for (const Range& r : ranges) {
    if (r.value < r.low || r.value > r.high) {
      return Invalid(fmt::format("{}: {} is out of range; expected {} to {}", r.key, r.value, r.low, r.high));
    }
  }
  return std::nullopt;
}

std::optional<Error> CheckTypes(const Problem& p) {
  if (p.a_type != INTACT_U8 && p.a_type != INTACT_S8) {
    return Invalid(fmt::format("types: activations are {}; expected u8 or s8", ToString(p.a_type)));
  }
  if (p.b_type != INTACT_U8 && p.b_type != INTACT_S8) {
    return Invalid(fmt::format("types: weights are {}; expected u8 or s8", ToString(p.b_type)));
  }
  if (std::ranges::find(core::kOutputTypes, p.c_type) == core::kOutputTypes.end()) {
    return Invalid(fmt::format("types: outputs are {}; expected {}", ToString(p.c_type),
                               fmt::join(core::kOutputTypes | std::views::transform(core::NameOf), ", ")));
  }
  return std::nullopt;
}

std::optional<Error> CheckActivationRange(const Problem& p) {
  const int64_t highest = core::LowestOf(p.a_type) + p.range_max;
  if (p.IsDynamic()) {
    if (p.range_max == 255 && p.range_min == 0) return std::nullopt;
    return Invalid("arange: a dynamic quantization needs the whole range of the type");
  }
  if (p.za > highest) {
    return Invalid(fmt::format("za: {} is beyond the activation range, which ends at {}", p.za, highest));
  }
  const int64_t lowest = core::LowestOf(p.a_type) + p.range_min;
  if (p.za < lowest) {
    return Invalid(fmt::format("za: {} is beyond the activation range, which begins at {}", p.za, lowest));
  }
  if (p.fill == Fill::kStray && p.range_check == INTACT_RANGE_UNCHECKED) {
    return Invalid("fill: stray activations have no defined result with rangecheck=unchecked");
  }
  return std::nullopt;
}

std::optional<Error> CheckEpilogue(const Problem& p) {
  const bool s32 = p.c_type == INTACT_S32;
  if (s32 && p.scale != ScaleKind::kNone) return Invalid("scale: an s32 output has none");
  if (s32 && p.bias == BiasKind::kF32) return Invalid("bias: an s32 output takes s32 only");
  if (s32 && p.activation != INTACT_ACTIVATION_NONE) return Invalid("act: an s32 output has none");
  if (!s32 && p.scale == ScaleKind::kNone) {
    return Invalid(fmt::format("scale: output {} needs tensor or channel", ToString(p.c_type)));
  }
  return std::nullopt;
}

std::optional<Error> CheckFixed(const Problem& p) {
  if (p.has_table && !core::IsInt8(p.c_type)) return Invalid("table: needs 8-bit outputs");
  if (p.fixed == FixedKind::kNone) return std::nullopt;
  const bool is_alone = core::IsInt8(p.c_type) && p.bias != BiasKind::kF32 &&
                        p.residual == INTACT_TYPE_NONE && p.quantization == INTACT_QUANTIZATION_STATIC;
  if (!is_alone) return Invalid("fixed: needs 8-bit outputs, no f32 bias, no residual and no quant");
  if (p.scale == ScaleKind::kTensor || p.scale == ScaleKind::kChannel) return std::nullopt;
  return Invalid("fixed: needs scale=tensor or scale=channel");
}

std::optional<Error> CheckQuantization(const Problem& p) {
  const bool has_za =
      p.quantization == INTACT_QUANTIZATION_STATIC || p.quantization == INTACT_QUANTIZATION_TENSOR;
  if (!has_za && p.za != 0) return Invalid(fmt::format("za: {} with this quant; expected 0", p.za));
  const bool by_rows =
      p.quantization == INTACT_QUANTIZATION_ROWS || p.quantization == INTACT_QUANTIZATION_DYNAMIC_ROWS;
  if (p.conv && by_rows) {
    return Invalid("quant: a convolution has no rows; expected static, tensor or dynamic_tensor");
  }
  if (p.row_zero_points && p.quantization != INTACT_QUANTIZATION_ROWS) {
    return Invalid("zaper: row needs quant=rows");
  }
  if (p.IsDynamic()) {
    if (p.c_type == INTACT_S32) return Invalid("quant: an s32 output cannot have a dynamic quantization");
  } else if (p.source != INTACT_F32 || p.numbers != Numbers::kScaled) {
    return Invalid("src and x need a dynamic quantization");
  }
  return std::nullopt;
}

std::optional<Error> CheckItems(const Problem& p) {
  if (p.item_pointers && p.item_pad != 0) return Invalid("itempad: needs items=strided");
  if (p.runtime_b && p.batch == 0) return Invalid("batch: 0 with runtimeb=yes; expected at least 1");
  if (p.runtime_b && p.saved) return Invalid("saved: a plan with runtimeb=yes cannot be saved");
  if (p.runtime_b && p.reused) return Invalid("reused: with runtimeb=yes a plan has no weights");
  if (p.runtime_b) return std::nullopt;
  if (IsOfItems(p.scale)) return Invalid("scale: item and item_column need runtimeb=yes");
  if (IsOfItems(p.zb_kind)) return Invalid("zbper: item and item_column need runtimeb=yes");
  return std::nullopt;
}

std::optional<Error> CheckResidual(const Problem& p) {
  if (p.c_type == INTACT_S32 && p.residual != INTACT_TYPE_NONE) return Invalid("res: an s32 output has none");
  if (p.residual == INTACT_TYPE_NONE && p.res_pad != 0) return Invalid("respad: there is no residual");
  if (!p.in_place) return std::nullopt;
  if (p.residual == INTACT_TYPE_NONE || core::BytesOf(p.residual) != core::BytesOf(p.c_type)) {
    return Invalid(fmt::format("inplace: a residual in place of {} output must have elements of its size",
                               ToString(p.c_type)));
  }
  if (p.res_pad != 0) return Invalid("respad: with inplace=yes the residual has cpad");
  return std::nullopt;
}

std::optional<Error> CheckGemm(const Problem& p) {
  if (auto error = CheckRanges({{"m", p.m, 0, kMaxDimension},
                                {"n", p.n, 1, kMaxDimension},
                                {"k", p.k, 1, kMaxDimension},
                                {"batch", p.batch, 0, kMaxExtent},
                                {"itempad", p.item_pad, 0, 1 << 16},
                                {"bpad", p.b_pad, 0, 1 << 16},
                                {"usual", p.usual_m, 0, kMaxDimension}})) {
    return error;
  }
  if (auto error = CheckQuantization(p)) return error;
  if (auto error = CheckItems(p)) return error;
  return CheckSizes(p);
}

std::optional<Error> CheckOutputPad(const Axis& axis) {
  if (!axis.transposed && axis.output_pad != 0) {
    return Invalid(fmt::format("outpad: {} without transposed=yes; expected 0", axis.output_pad));
  }
  return CheckRanges({{"outpad", axis.output_pad, 0, std::max(axis.stride, axis.dilation) - 1}});
}

std::optional<Error> CheckAxis(const Axis& axis) {
  if (auto error = CheckRanges({{"in", axis.input, 1, kMaxDimension},
                                {"kernel", axis.kernel, 1, kMaxExtent},
                                {"stride", axis.stride, 1, kMaxExtent},
                                {"dilation", axis.dilation, 1, kMaxExtent},
                                {"pad", axis.pad_begin, 0, kMaxExtent},
                                {"pad", axis.pad_end, 0, kMaxExtent}})) {
    return error;
  }
  if (auto error = CheckOutputPad(axis)) return error;
  if (axis.Output() > 0) return std::nullopt;
  if (axis.transposed) {
    return Invalid(fmt::format(
        "pad: crops {} pixels; expected less than the {} that there are", axis.pad_begin + axis.pad_end,
        (axis.input - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + axis.output_pad + 1));
  }
  return Invalid(fmt::format("kernel: reaches over {} pixels, and the padded input has {}: no output",
                             axis.dilation * (axis.kernel - 1) + 1,
                             axis.input + axis.pad_begin + axis.pad_end));
}

std::optional<Error> CheckConv(const Problem& p) {
  const ConvGeometry& g = *p.conv;
  if (auto error = CheckQuantization(p)) return error;
  if (p.pairing != INTACT_PAIRING_WITHIN_TAP && p.mode != INTACT_SATURATING) {
    return Invalid("pairing: flattened needs mode=saturating");
  }
  if (auto error = CheckItems(p)) return error;
  if (auto error = CheckRanges({{"c", g.input_channels, 1, kMaxDimension},
                                {"o", g.output_channels, 1, kMaxDimension},
                                {"groups", g.groups, 1, kMaxDimension},
                                {"batch", g.batch, 0, kMaxDimension}})) {
    return error;
  }
  for (const auto& [key, channels] : {std::pair{"c", g.input_channels}, {"o", g.output_channels}}) {
    if (channels % g.groups == 0) continue;
    return Invalid(fmt::format("groups: {} does not divide {}={}", g.groups, key, channels));
  }
  for (const Axis& axis : AxesOf(g)) {
    if (auto error = CheckAxis(axis)) return error;
  }
  return CheckSizes(p);
}

}  // namespace

void Problem::Reset(std::string_view key) {
  const Problem defaults = Defaults(a_type, b_type, c_type, conv);
  for (const std::vector<Field>* fields : {&KindOf(*this).fields, &SharedFields()}) {
    for (const Field& field : *fields) {
      if (field.key == key) (void)field.read(field.print(defaults), this);
    }
  }
}

void ResetNeeding(intact_target_feature feature, Problem* problem) {
  for (const std::vector<Field>* fields : {&KindOf(*problem).fields, &SharedFields()}) {
    for (const Field& field : *fields) {
      if ((field.needs & INTACT_TARGET_BIT(feature)) != 0) problem->Reset(field.key);
    }
  }
}

void Problem::SetOutput(intact_type type) {
  c_type = type;
  if (core::IsInt8(type)) return;
  for (const std::string_view key : {"zc", "fixed", "table"}) Reset(key);
}

Problem Problem::Of(const GroupedProblem& grouped) {
  Problem problem;
  problem.grouped = grouped;
  problem.isa = grouped.isa;
  return problem;
}

void Problem::SetIsa(intact_isa named) {
  isa = named;
  if (grouped) grouped->isa = named;
}

std::string Problem::ToString() const {
  if (grouped) return grouped->ToString();
  const Problem defaults = Defaults(a_type, b_type, c_type, conv);
  const Kind& kind = KindOf(*this);
  std::string line = fmt::format("{} {}{}{}", kind.name, verify::ToString(a_type), verify::ToString(b_type),
                                 verify::ToString(c_type));
  for (const std::vector<Field>* fields : {&kind.fields, &SharedFields()}) {
    for (const Field& field : *fields) {
      const std::string value = field.print(*this);
      if (field.required || value != field.print(defaults)) line += fmt::format(" {}={}", field.key, value);
    }
  }
  return line;
}

Result<Problem> Problem::Parse(std::string_view line) {
  if (GroupedProblem::IsLine(line)) {
    ASSIGN_OR_RETURN(const GroupedProblem grouped, GroupedProblem::Parse(line));
    return Of(grouped);
  }
  std::vector<std::string_view> words = WordsOf(line);
  if (words.empty() || (words[0] != GemmKind().name && words[0] != ConvKind().name)) {
    return Invalid(
        fmt::format("'{}' does not begin with 'gemm', 'conv' or 'grouped'", words.empty() ? "" : words[0]));
  }
  if (words.size() < 2) {
    return Invalid(fmt::format("types are missing after '{}'; expected three, like u8s8s32", words[0]));
  }
  std::optional<ConvGeometry> conv;
  if (words[0] == ConvKind().name) conv.emplace();
  Result<Problem> problem = ParseTypes(words[1], conv);
  if (!problem) return problem;
  const auto others = std::stable_partition(words.begin() + 2, words.end(), [](std::string_view word) {
    return word.starts_with("in=");  // first, because it gives the number of dimensions
  });
  if (conv && others == words.begin() + 2) return Invalid("in is missing");
  std::set<std::string_view> seen;
  for (size_t i = 2; i < words.size(); ++i) {
    if (std::optional<Error> error = ReadWord(words[i], &seen, &*problem)) return *error;
  }
  for (const Field& field : KindOf(*problem).fields) {
    if (field.required && !seen.contains(field.key)) return Invalid(fmt::format("{} is missing", field.key));
  }
  if (std::optional<Error> error = problem->Check()) return *error;
  return problem;
}

std::optional<Error> Problem::Check() const {
  if (grouped) return grouped->Check();
  if (std::optional<Error> types = CheckTypes(*this)) return types;
  std::optional<Error> error =
      CheckRanges({{"za", za, core::LowestOf(a_type), core::HighestOf(a_type)},
                   {"zb", zb, core::LowestOf(b_type), core::HighestOf(b_type)},
                   {"zc", zc, core::LowestOf(c_type), core::HighestOf(c_type)},
                   {"amax", amax, 0, 255},
                   {"wmax", wmax, 1, 128},
                   {"arange", range_max, 1, 255},
                   {"arangemin", range_min, 0, range_max},
                   {"apad", a_pad, 0, 1 << 16},
                   {"cpad", c_pad, 0, 1 << 16},
                   {"zres", zres, core::LowestOf(residual), core::HighestOf(residual)},
                   {"respad", res_pad, 0, 1 << 16},
                   {"threads", threads, 0, 1024},
                   {"calls", calls, 1, 1 << 20},
                   {"seed", static_cast<int64_t>(seed), 0, std::numeric_limits<int64_t>::max()}});
  if (error) return error;
  if (std::optional<Error> range = CheckActivationRange(*this)) return range;
  if (std::optional<Error> epilogue = CheckEpilogue(*this)) return epilogue;
  if (std::optional<Error> fixed_error = CheckFixed(*this)) return fixed_error;
  if (std::optional<Error> residual_error = CheckResidual(*this)) return residual_error;
  if (open_extents && !conv) return Invalid("open: only a convolution has extents");
  return conv ? CheckConv(*this) : CheckGemm(*this);
}

namespace {

// Fills the common part of a GEMM and a convolution, without the epilogue. `a` and `b` are as the fills make
// them.
void FillLinear(const Problem& problem, reference::Linear* operation) {
  operation->a_type = problem.a_type;
  operation->b_type = problem.b_type;
  operation->c_type = problem.c_type;
  operation->mode = problem.mode;
  operation->pairing = problem.pairing;
  if (problem.quantization == INTACT_QUANTIZATION_STATIC) operation->a_zero_point = problem.za;
  operation->c_zero_point = problem.zc;
  if (problem.range_min > 0 || problem.range_max < 255) {
    operation->a_min = core::LowestOf(problem.a_type) + problem.range_min;
    operation->a_max = core::LowestOf(problem.a_type) + problem.range_max;
  }
  operation->range_check = problem.range_check;
  operation->overflow = problem.overflow;
  operation->a_quantization = problem.quantization;
  operation->a = FillActivations(problem);
  if (problem.a_type == INTACT_S8) {
    for (uint8_t& a : operation->a) a = static_cast<uint8_t>(a ^ 0x80);  // the distance d becomes d − 128
  }
  operation->b = FillWeights(problem);
  if (problem.b_type == INTACT_U8) {
    for (int8_t& b : operation->b) b = static_cast<int8_t>(b ^ 0x80);  // w becomes w + 128
  }
  operation->b_zero_points = FillWeightZeroPoints(problem);
}

}  // namespace

reference::Operation Materialize(const Problem& problem) {
  if (problem.conv) return MaterializeConv(problem);
  return MaterializeGemm(problem);
}

reference::Gemm MaterializeGemm(const Problem& problem) {
  assert(!problem.conv && !problem.grouped);
  reference::Gemm gemm;
  gemm.m = problem.m;
  gemm.n = problem.n;
  gemm.k = problem.k;
  gemm.batch = problem.batch;
  gemm.has_runtime_b = problem.runtime_b;
  FillLinear(problem, &gemm);
  if (IsOfItems(problem.zb_kind)) {
    gemm.item_zero_points = std::exchange(gemm.b_zero_points, {problem.zb});
  }
  gemm.b = reference::FromColumns(gemm.b, gemm.n, gemm.k);
  FillQuantization(problem, &gemm);
  const reference::Gemm first = gemm.has_runtime_b ? reference::Item(gemm, 0) : gemm;
  FillEpilogue(problem, {&first, 1}, &gemm);
  if (IsOfItems(problem.scale)) FillItemScales(problem, &gemm);
  return gemm;
}

reference::Conv MaterializeConv(const Problem& problem) {
  assert(problem.conv);
  reference::Conv conv;
  conv.geometry = *problem.conv;
  FillLinear(problem, &conv);
  FillQuantization(problem, &conv);
  FillEpilogue(problem, reference::Lower(conv), &conv);
  return conv;
}

RunOptions RunOptionsOf(const Problem& problem) { return {problem, problem.ToString(), false, {}}; }

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
