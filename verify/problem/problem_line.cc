// Problem lines: what problem.h declares of their text form and of checks.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <ranges>
#include <set>
#include <utility>

#include "core/result.h"
#include "core/types.h"
#include "verify/problem/fields.h"
#include "verify/problem/line.h"
#include "verify/problem/problem.h"
#include "verify/problem/problem_size.h"

namespace intact::verify {
namespace {

constexpr auto kTypes = [] {  // all except INTACT_TYPE_NONE, which is the first
  std::array<Name<intact_type>, core::kElementTypes.size() - 1> names = {};
  for (size_t i = 0; i < names.size(); ++i)
    names[i] = {core::kElementTypes[i + 1].name, core::kElementTypes[i + 1].type};
  return names;
}();

using reference::Axis;
using reference::ConvGeometry;

// The three types in `word`, like "u8s8s32", as a problem of `kind` with all other fields at their defaults.
Result<Problem> ParseTypes(const LineKind& kind, std::string_view word) {
  std::array<intact_type, 3> types = {};
  std::string_view rest = word;
  for (intact_type& type : types) {
    const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                     [rest](const auto& name) { return rest.starts_with(name.text); });
    if (found == std::end(kTypes)) {
      return Invalid(
          fmt::format("types: '{}' is not like {}: activations, weights, output", word, kind.example));
    }
    type = found->value;
    rest.remove_prefix(found->text.size());
  }
  if (!rest.empty()) {
    return Invalid(
        fmt::format("types: '{}' has '{}' too much; expected three, like {}", word, rest, kind.example));
  }
  Problem problem;
  problem.a_type = types[0];
  problem.b_type = types[1];
  problem.c_type = types[2];
  if (kind.name == "conv") problem.conv.emplace();
  if (kind.name == "grouped") problem.grouped.emplace().b_type = std::exchange(problem.b_type, INTACT_S8);
  return DefaultsOf(problem);
}

std::optional<Error> ReadWord(std::string_view word, std::set<std::string_view>* seen, Problem* problem) {
  const size_t equals = word.find('=');
  if (equals == std::string_view::npos) return Invalid(fmt::format("'{}' is not key=value", word));
  const std::string_view key = word.substr(0, equals);
  const LineKind& kind = LineKindOf(*problem);
  const Field* const field = kind.Find(key);
  if (field == nullptr) {
    const auto keys = kind.fields | std::views::transform(&Field::key);
    return Invalid(fmt::format("'{}': key '{}' is unknown to a {}; expected one of {}", word, key, kind.name,
                               fmt::join(keys, ", ")));
  }
  if (!seen->insert(key).second) return Invalid(fmt::format("'{}': {} is given twice", word, key));
  return field->read(word.substr(equals + 1), problem);
}

// "u8 or s8"
std::string Alternatives(std::span<const intact_type> types) {
  const auto names = types | std::views::transform(core::NameOf);
  const char* const between = types.size() == 2 ? " or " : ", ";
  return fmt::format("{}", fmt::join(names, between));
}

std::optional<Error> CheckTypes(const Problem& p) {
  constexpr std::array kActivations = {INTACT_U8, INTACT_S8};
  const LineKind& kind = LineKindOf(p);
  struct Role {
    std::string_view name;
    intact_type type;
    std::span<const intact_type> types;
  };
  for (const auto& [name, type, types] :
       {Role{"activations", p.a_type, kActivations}, Role{"weights", p.WeightType(), kind.weights},
        Role{"outputs", p.c_type, kind.outputs}}) {
    if (std::ranges::find(types, type) != types.end()) continue;
    return Invalid(fmt::format("types: {} are {}; expected {}", name, ToString(type), Alternatives(types)));
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
  if (s32 && p.bias == BiasKind::kF32) return Invalid("bias: an s32 output takes s32 only");
  if (!s32 && p.scale == ScaleKind::kNone) {
    return Invalid(fmt::format("scale: output {} needs tensor or channel", ToString(p.c_type)));
  }
  return std::nullopt;
}

std::optional<Error> CheckFixed(const Problem& p) {
  if (p.fixed == FixedKind::kNone) return std::nullopt;
  const bool is_alone = core::IsInt8(p.c_type) && p.bias != BiasKind::kF32 &&
                        p.residual == INTACT_TYPE_NONE && p.quantization == INTACT_QUANTIZATION_STATIC;
  if (!is_alone) return Invalid("fixed: needs 8-bit outputs, no f32 bias, no residual and no quant");
  if (p.scale == ScaleKind::kTensor || p.scale == ScaleKind::kChannel) return std::nullopt;
  const bool has_multipliers = p.fixed == FixedKind::kAway || p.fixed == FixedKind::kUp;
  if (p.scale == ScaleKind::kPruned && has_multipliers) return std::nullopt;
  return Invalid("fixed: needs scale=tensor or scale=channel, or with multipliers scale=pruned");
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
  if (!p.IsDynamic() || p.c_type != INTACT_S32) return std::nullopt;
  return Invalid("quant: an s32 output cannot have a dynamic quantization");
}

std::optional<Error> CheckItems(const Problem& p) {
  if (p.runtime_b && p.batch == 0) return Invalid("batch: 0 with runtimeb=yes; expected at least 1");
  if (p.runtime_b) return std::nullopt;
  if (IsOfItems(p.scale)) return Invalid("scale: item and item_column need runtimeb=yes");
  if (IsOfItems(p.zb_kind)) return Invalid("zbper: item and item_column need runtimeb=yes");
  return std::nullopt;
}

struct Extent {
  std::string_view key;
  int64_t value, low, high;
};
std::optional<Error> CheckExtents(std::initializer_list<Extent> extents) {
  for (const auto& [key, value, low, high] : extents) {
    if (auto error = CheckRange(key, value, low, high)) return error;
  }
  return std::nullopt;
}

std::optional<Error> CheckOutputPad(const Axis& axis) {
  if (!axis.transposed && axis.output_pad != 0) {
    return Invalid(fmt::format("outpad: {} without transposed=yes; expected 0", axis.output_pad));
  }
  return CheckExtents({{"outpad", axis.output_pad, 0, std::max(axis.stride, axis.dilation) - 1}});
}

std::optional<Error> CheckAxis(const Axis& axis) {
  if (auto error = CheckExtents({{"in", axis.input, 1, kMaxDimension},
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
  for (const auto& [key, channels] : {std::pair{"c", g.input_channels}, {"o", g.output_channels}}) {
    if (channels % g.groups == 0) continue;
    return Invalid(fmt::format("groups: {} does not divide {}={}", g.groups, key, channels));
  }
  for (const Axis& axis : std::span(g.axes).last(static_cast<size_t>(g.dims))) {
    if (auto error = CheckAxis(axis)) return error;
  }
  return std::nullopt;
}

}  // namespace

void Problem::SetOutput(intact_type type) {
  c_type = type;
  if (core::IsInt8(type)) return;
  for (const std::string_view key : {"zc", "fixed", "table"}) Reset(key);
}

std::string Problem::ToString() const {
  const Problem defaults = DefaultsOf(*this);
  const LineKind& kind = LineKindOf(*this);
  std::string line = fmt::format("{} {}{}{}", kind.name, verify::ToString(a_type),
                                 verify::ToString(WeightType()), verify::ToString(c_type));
  for (const Field& field : kind.fields) {
    const std::string value = field.print(*this);
    if (field.is_required || value != field.print(defaults)) line += fmt::format(" {}={}", field.key, value);
  }
  return line;
}

bool IsGroupedLine(std::string_view line) {
  const std::vector<std::string_view> words = WordsOf(line);
  return !words.empty() && words[0] == "grouped";
}

Result<Problem> Problem::Parse(std::string_view line) {
  std::vector<std::string_view> words = WordsOf(line);
  const auto kind = std::ranges::find(LineKinds(), words.empty() ? "" : words[0], &LineKind::name);
  if (kind == LineKinds().end()) {
    return Invalid(
        fmt::format("'{}' does not begin with 'gemm', 'conv' or 'grouped'", words.empty() ? "" : words[0]));
  }
  if (words.size() < 2) {
    return Invalid(
        fmt::format("types are missing after '{}'; expected three, like {}", words[0], kind->example));
  }
  Result<Problem> problem = ParseTypes(*kind, words[1]);
  if (!problem) return problem;
  const auto others = std::stable_partition(words.begin() + 2, words.end(), [](std::string_view word) {
    return word.starts_with("in=");  // first, because it gives the number of dimensions
  });
  if (problem->conv && others == words.begin() + 2) return Invalid("in is missing");
  std::set<std::string_view> seen;
  for (size_t i = 2; i < words.size(); ++i) {
    if (std::optional<Error> error = ReadWord(words[i], &seen, &*problem)) return *error;
  }
  for (const Field& field : kind->fields) {
    if (field.is_required && !seen.contains(field.key))
      return Invalid(fmt::format("{} is missing", field.key));
  }
  if (std::optional<Error> error = problem->Check()) return *error;
  return problem;
}

std::optional<Error> Problem::Check() const {
  if (std::optional<Error> types = CheckTypes(*this)) return types;
  if (std::optional<Error> fields = CheckFields(*this)) return fields;
  if (grouped) return CheckSizes(*this);
  if (std::optional<Error> range = CheckActivationRange(*this)) return range;
  if (std::optional<Error> epilogue = CheckEpilogue(*this)) return epilogue;
  if (std::optional<Error> fixed_error = CheckFixed(*this)) return fixed_error;
  if (std::optional<Error> error = CheckQuantization(*this)) return error;
  if (std::optional<Error> items = CheckItems(*this)) return items;
  if (std::optional<Error> geometry = conv ? CheckConv(*this) : std::nullopt) return geometry;
  return CheckSizes(*this);
}

}  // namespace intact::verify
