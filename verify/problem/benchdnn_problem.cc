// From a case of benchdnn to a problem.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <optional>
#include <utility>

#include "core/types.h"
#include "support/printable.h"
#include "verify/problem/benchdnn.h"
#include "verify/problem/line.h"

namespace intact::verify {
namespace {

using reference::Axis;
using reference::ConvGeometry;
using Dimensions = std::vector<int64_t>;

constexpr size_t kMostRank = 12;  // DNNL_MAX_NDIMS

constexpr auto kTypes =
    NamesOf(std::array{INTACT_U8, INTACT_S8, INTACT_S32, INTACT_F32, INTACT_BF16, INTACT_F16});

// What masks of attributes refer to.
struct Shape {
  uint64_t weight_columns = 0;  // bits of the dimensions that columns of the weights have
  bool is_matmul = false;
};

// "--attr-scales=src:common:2": an option as it stands in the line.
std::string Said(const BenchdnnCase& one, std::string_view option) {
  return fmt::format("--{}={}", option, support::Excerpt(one.Option(option)));
}

Error Refused(const BenchdnnCase& one, std::string_view option, std::string_view why) {
  return Invalid(fmt::format("{}: {}", Said(one, option), why));
}

Result<double> RealOf(std::string_view key, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  return Invalid(fmt::format("{}: '{}' is not a number", key, support::Excerpt(text)));
}

Result<Dimensions> DimensionsOf(std::string_view key, std::string_view text) {
  Dimensions dimensions;
  for (const std::string_view part : SplitAt('x', text)) {
    ASSIGN_OR_RETURN(const int64_t extent, NumberOf(key, part));
    if (auto error = CheckRange(key, extent, 0, kMaxDimension)) return *error;
    dimensions.push_back(extent);
  }
  return dimensions;
}

Error ReadTypes(const BenchdnnCase& one, Problem* problem) {
  if (one.Option("dt").empty()) return Invalid("--dt: the default is f32; expected types such as u8:s8:s32");
  const std::vector<std::string_view> names = SplitAt(':', one.Option("dt"));
  if (names.size() != 3) return Refused(one, "dt", "expected three types, such as u8:s8:s32");
  std::array<intact_type, 3> types = {};
  for (size_t i = 0; i < types.size(); ++i) {
    const auto* const found = std::ranges::find(kTypes, names[i], &Name<intact_type>::text);
    const bool fits = found != kTypes.end() && (i == 2 || core::IsInt8(found->value));
    if (!fits) {
      return Refused(
          one, "dt",
          "expected u8 or s8 for source and weights, and u8, s8, s32, f32, bf16 or f16 for outputs");
    }
    types[i] = found->value;
  }
  problem->a_type = types[0];
  problem->b_type = types[1];
  problem->c_type = types[2];
  problem->scale = problem->c_type == INTACT_S32 ? ScaleKind::kNone : ScaleKind::kTensor;
  return {};
}

Error ReadBias(const Problem& problem, std::string_view said, std::string_view type, BiasKind* bias) {
  const bool is_s32 = problem.c_type == INTACT_S32;
  if (type.empty()) return {};
  if (type == "f32" && !is_s32) {
    *bias = BiasKind::kF32;
    return {};
  }
  if (type == "s32" && is_s32) {
    *bias = BiasKind::kS32;
    return {};
  }
  return Invalid(
      fmt::format("{}: the bias is {}; expected s32 for s32 outputs and f32 for others", said, type));
}

// ----- attributes -----------------------------------------------------------------------------------------

// The mask of "common", "per_oc" or a number; nothing for other masks.
std::optional<uint64_t> MaskOf(std::string_view text, std::string_view argument, const Shape& shape) {
  uint64_t mask = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mask);
  if (error == std::errc() && end == text.data() + text.size()) return mask;
  if (text == "common" || text == "host_scalar") return 0;
  const bool is_column = text == "per_oc" || (shape.is_matmul && text == "per_dim_1");
  if (is_column && argument == "wei") return shape.weight_columns;
  if (!shape.is_matmul && argument == "wei" && (text == "per_dim_0" || text == "per_dim_01")) {
    return text == "per_dim_0" ? 1 : 3;
  }
  return std::nullopt;
}

// An entry of --attr-scales or --attr-zero-points: ARGUMENT:MASK[:VALUE][:TYPE[:GROUPS]].
struct Entry {
  std::string_view argument;
  bool is_per_column = false;
  double value = 0;
  std::string_view type = {};
};

Result<Entry> ReadEntry(std::string_view option, std::string_view text, const Shape& shape) {
  const std::string key = fmt::format("--{}={}", option, support::Excerpt(text));
  const std::vector<std::string_view> parts = SplitAt(':', text);
  if (parts.size() < 2) return Invalid(key + ": expected ARGUMENT:MASK");
  Entry entry = {.argument = parts[0]};
  if (entry.argument != "src" && entry.argument != "wei" && entry.argument != "dst") {
    return Invalid(key + ": expected src, wei or dst");
  }
  const std::optional<uint64_t> mask = MaskOf(parts[1], entry.argument, shape);
  const bool is_column = mask == shape.weight_columns && entry.argument == "wei";
  if (mask != 0 && !is_column) {
    return Invalid(key + ": expected one value for the tensor, or one for each output channel of wei");
  }
  entry.is_per_column = is_column;
  size_t next = 2;
  if (!is_column) {
    if (parts.size() == next) return Invalid(key + ": the value is missing");
    ASSIGN_OR_RETURN(entry.value, RealOf(key, parts[next++]));
  }
  if (next < parts.size()) entry.type = parts[next++];
  if (next < parts.size()) return Invalid(key + ": problem lines have no groups here");
  return entry;
}

Error ReadScales(const BenchdnnCase& one, const Shape& shape, Problem* problem) {
  constexpr std::string_view kOption = "attr-scales";
  if (one.Option(kOption).empty()) return {};
  for (const std::string_view text : SplitAt('+', one.Option(kOption))) {
    ASSIGN_OR_RETURN(const Entry entry, ReadEntry(kOption, text, shape));
    if (problem->c_type == INTACT_S32)
      return Refused(one, kOption, "s32 outputs have no scale in problem lines");
    if (!entry.type.empty() && entry.type != "f32")
      return Refused(one, kOption, "expected scales of type f32");
    if (entry.is_per_column) problem->scale = ScaleKind::kChannel;
  }
  return {};
}

Error ReadZeroPoints(const BenchdnnCase& one, const Shape& shape, Problem* problem) {
  constexpr std::string_view kOption = "attr-zero-points";
  if (one.Option(kOption).empty()) return {};
  for (const std::string_view text : SplitAt('+', one.Option(kOption))) {
    ASSIGN_OR_RETURN(const Entry entry, ReadEntry(kOption, text, shape));
    if (entry.is_per_column) {
      problem->zb_kind = ZeroPointKind::kChannel;
      continue;
    }
    const auto [zero_point, type] = entry.argument == "src"   ? std::pair(&problem->za, problem->a_type)
                                    : entry.argument == "wei" ? std::pair(&problem->zb, problem->b_type)
                                                              : std::pair(&problem->zc, problem->c_type);
    const std::string key = fmt::format("--{}={}", kOption, support::Excerpt(text));
    if (entry.value != 0 && !core::IsInt8(type)) {
      return Invalid(
          fmt::format("{}: problem lines have no zero points for {} outputs", key, ToString(type)));
    }
    const bool is_in_range = entry.value >= core::LowestOf(type) && entry.value <= core::HighestOf(type);
    if (!is_in_range || entry.value != static_cast<int32_t>(entry.value)) {
      return Invalid(fmt::format("{}: {} is out of range; expected {} to {}", key, entry.value,
                                 core::LowestOf(type), core::HighestOf(type)));
    }
    *zero_point = static_cast<int32_t>(entry.value);
  }
  return {};
}

// sum[:SCALE[:ZERO_POINT[:TYPE]]]
Error ReadSum(const std::vector<std::string_view>& parts, const std::string& key, Problem* problem) {
  intact_type type = problem->c_type;
  if (parts.size() > 3) {
    ASSIGN_OR_RETURN(type, ValueOf(kTypes, key, parts[3]));
  }
  const bool is_residual = type == INTACT_U8 || type == INTACT_S8 || type == INTACT_F32;
  if (!is_residual || core::BytesOf(type) != core::BytesOf(problem->c_type)) {
    return Invalid(key + ": expected u8, s8 or f32 elements of the outputs' size");
  }
  problem->residual = type;
  problem->in_place = true;
  if (parts.size() < 3) return {};
  ASSIGN_OR_RETURN(const int64_t zero_point, NumberOf(key, parts[2]));
  if (auto error = CheckRange(key, zero_point, core::LowestOf(type), core::HighestOf(type))) return *error;
  problem->zres = static_cast<int32_t>(zero_point);
  return {};
}

// relu[:ALPHA[:BETA[:SCALE]]], clip:LOW:HIGH and clip_v2:LOW:HIGH
Error ReadActivation(const std::vector<std::string_view>& parts, const std::string& key, Problem* problem) {
  const bool is_relu = parts[0] == "relu";
  std::array<double, 3> values = {0, 0, 1};
  if (parts.size() > 4) return Invalid(key + ": expected at most three values");
  for (size_t i = 1; i < parts.size(); ++i) {
    ASSIGN_OR_RETURN(values[i - 1], RealOf(key, parts[i]));
  }
  if (is_relu && values[0] != 0) return Invalid(key + ": problem lines have no slope below 0; expected relu");
  if (values[2] != 1) return Invalid(key + ": problem lines have no scale after an activation");
  if (!is_relu && parts.size() < 3) return Invalid(key + ": expected two values");
  problem->activation = is_relu ? INTACT_ACTIVATION_RELU : INTACT_ACTIVATION_CLAMP;
  return {};
}

Error ReadPostOps(const BenchdnnCase& one, Problem* problem) {
  constexpr std::string_view kOption = "attr-post-ops";
  if (one.Option(kOption).empty()) return {};
  for (const std::string_view text : SplitAt('+', one.Option(kOption))) {
    const std::vector<std::string_view> parts = SplitAt(':', text);
    const std::string key = fmt::format("--{}={}", kOption, support::Excerpt(text));
    const bool is_sum = parts[0] == "sum";
    if (!is_sum && parts[0] != "relu" && parts[0] != "clip" && parts[0] != "clip_v2") {
      return Invalid(key + ": expected sum, relu or clip");
    }
    if (problem->c_type == INTACT_S32) return Invalid(key + ": s32 outputs have no post-operations");
    const bool is_late =
        problem->activation != INTACT_ACTIVATION_NONE || (is_sum && problem->residual != INTACT_TYPE_NONE);
    if (is_late) return Refused(one, kOption, "expected at most one sum, then at most one relu or clip");
    RETURN_IF_ERROR(is_sum ? ReadSum(parts, key, problem) : ReadActivation(parts, key, problem));
  }
  return {};
}

Error ReadAttributes(const BenchdnnCase& one, const Shape& shape, Problem* problem) {
  RETURN_IF_ERROR(ReadScales(one, shape, problem));
  RETURN_IF_ERROR(ReadZeroPoints(one, shape, problem));
  return ReadPostOps(one, problem);
}

// Refuses what neither ReadAttributes() nor the driver has read.
Error RefuseOthers(const BenchdnnCase& one, std::initializer_list<std::string_view> read) {
  constexpr std::array<std::string_view, 8> kRead = {"dt",      "stag",   "wtag",        "dtag",
                                                     "strides", "bia-dt", "attr-scales", "attr-zero-points"};
  for (const auto& [name, value] : one.options) {
    if (name == "attr-post-ops" || std::ranges::find(kRead, name) != kRead.end()) continue;
    if (std::ranges::find(read, name) == read.end()) {
      return Refused(one, name, fmt::format("problem lines cannot say it of a {}", one.driver));
    }
  }
  return {};
}

// ----- layouts --------------------------------------------------------------------------------------------

// A tag with letters instead of "x", which means the dimensions that the tag does not name, in order.
std::string Spelled(std::string_view tag, size_t rank) {
  std::string spelled;
  for (const char letter : tag) {
    if (letter != 'x') {
      spelled += letter;
      continue;
    }
    for (size_t i = 0; i < rank; ++i) {
      const auto other = static_cast<char>('a' + i);
      if (tag.find(other) == std::string_view::npos) spelled += other;
    }
  }
  return spelled;
}

// The strides of tensor `number` of --strides; empty if they are not given.
Result<Dimensions> StridesOf(const BenchdnnCase& one, size_t number, size_t rank) {
  if (one.Option("strides").empty()) return Dimensions();
  const std::vector<std::string_view> parts = SplitAt(':', one.Option("strides"));
  if (parts.size() != 3) return Refused(one, "strides", "expected strides of source, weights and outputs");
  if (parts[number].empty()) return Dimensions();
  ASSIGN_OR_RETURN(const Dimensions strides, DimensionsOf(Said(one, "strides"), parts[number]));
  if (strides.size() != rank)
    return Refused(one, "strides", fmt::format("expected {} strides of a tensor", rank));
  return strides;
}

// ----- matmul ---------------------------------------------------------------------------------------------

struct Matrix {
  std::string_view tag;
  int64_t items, rows, columns;
};

struct MatrixLayout {
  bool is_by_columns = false;
  int64_t pad = 0;       // between rows, or columns
  int64_t item_pad = 0;  // between items
};

Result<MatrixLayout> ReadLayout(const BenchdnnCase& one, size_t number, size_t rank, const Matrix& matrix) {
  ASSIGN_OR_RETURN(const Dimensions strides, StridesOf(one, number, rank));
  MatrixLayout layout;
  if (strides.empty()) {
    std::string plain = Spelled("x", rank);
    const std::string_view tag = one.Option(matrix.tag);
    if (tag.empty() || Spelled(tag, rank) == plain) return layout;
    std::swap(plain[rank - 2], plain[rank - 1]);
    if (Spelled(tag, rank) != plain && !(rank == 2 && tag == "xba")) {
      return Refused(one, matrix.tag, "expected dense rows or columns");
    }
    layout.is_by_columns = true;
    return layout;
  }
  if (rank > 3) return Refused(one, "strides", "expected two or three dimensions");
  const int64_t row = strides[rank - 2], column = strides[rank - 1];
  layout.is_by_columns = column != 1 || (row == 1 && matrix.columns > 1);
  const int64_t count = layout.is_by_columns ? matrix.columns : matrix.rows;
  const int64_t stride = layout.is_by_columns ? column : row;
  layout.pad = stride - (layout.is_by_columns ? matrix.rows : matrix.columns);
  if (matrix.items > 1) layout.item_pad = strides[0] - count * stride;
  if (std::min(row, column) != 1 || layout.pad < 0 || layout.item_pad < 0) {
    return Refused(one, "strides", "expected elements of a row or of a column side by side, and no overlap");
  }
  return layout;
}

Error ReadLayouts(const BenchdnnCase& one, size_t rank, Problem* problem) {
  const int64_t b_items = problem->runtime_b ? problem->batch : 1;
  ASSIGN_OR_RETURN(const MatrixLayout a,
                   ReadLayout(one, 0, rank, {"stag", problem->batch, problem->m, problem->k}));
  ASSIGN_OR_RETURN(const MatrixLayout b, ReadLayout(one, 1, rank, {"wtag", b_items, problem->k, problem->n}));
  ASSIGN_OR_RETURN(const MatrixLayout c,
                   ReadLayout(one, 2, rank, {"dtag", problem->batch, problem->m, problem->n}));
  problem->a_by_columns = a.is_by_columns;
  problem->b_by_columns = b.is_by_columns;
  problem->a_pad = a.pad;
  problem->b_pad = b.pad;
  problem->c_pad = c.pad;
  problem->item_pad = c.item_pad;
  if (c.is_by_columns && one.Option("strides").empty()) return Refused(one, "dtag", "expected dense rows");
  if (c.is_by_columns)
    return Refused(one, "strides", "expected outputs with the elements of a row side by side");
  if (a.item_pad != c.item_pad || (b_items > 1 && b.item_pad != c.item_pad)) {
    return Refused(one, "strides", "expected the same number of elements between the items of all tensors");
  }
  return {};
}

// The batch of source and weights: equal dimensions, or weights that all items share.
Error ReadBatch(const std::string& key, const Dimensions& a, const Dimensions& b, Problem* problem) {
  const std::vector<int64_t> a_batch(a.begin(), a.end() - 2), b_batch(b.begin(), b.end() - 2);
  const auto product = [](const Dimensions& extents) {
    return std::accumulate(extents.begin(), extents.end(), int64_t{1},
                           [](int64_t x, int64_t y) { return std::min(x * y, kMaxDimension); });
  };
  problem->batch = product(a_batch);
  if (product(b_batch) == 1 && std::ranges::all_of(b_batch, [](int64_t extent) { return extent == 1; }))
    return {};
  problem->runtime_b = true;
  if (a_batch == b_batch) return {};
  return Invalid(key + ": expected weights for each item, or one matrix of weights for all");
}

Error ReadMatmulDescriptor(const BenchdnnCase& one, size_t* rank, Problem* problem) {
  std::string_view text = std::string_view(one.descriptor);
  text = text.substr(0, text.find('n'));
  if (text.ends_with('_')) text.remove_suffix(1);
  const std::string key = fmt::format("'{}'", support::Excerpt(one.descriptor));
  const std::vector<std::string_view> parts = SplitAt(':', text);
  if (parts.size() != 2 && parts.size() != 3) return Invalid(key + ": expected MxK:KxN");
  ASSIGN_OR_RETURN(const Dimensions a, DimensionsOf(key, parts[0]));
  ASSIGN_OR_RETURN(const Dimensions b, DimensionsOf(key, parts[1]));
  *rank = a.size();
  if (*rank > kMostRank) {
    return Invalid(
        fmt::format("{}: the tensors have {} dimensions; expected at most {}", key, *rank, kMostRank));
  }
  if (a.size() < 2 || b.size() != a.size() || a[*rank - 1] != b[*rank - 2]) {
    return Invalid(key + ": expected MxK:KxN, with batches of one rank before M and K");
  }
  problem->m = a[*rank - 2];
  problem->k = a[*rank - 1];
  problem->n = b[*rank - 1];
  RETURN_IF_ERROR(ReadBatch(key, a, b, problem));
  if (parts.size() == 2) return {};
  ASSIGN_OR_RETURN(const Dimensions c, DimensionsOf(key, parts[2]));
  Dimensions expected = a;
  expected.back() = problem->n;
  return c == expected ? Error() : Invalid(key + ": the outputs' dimensions do not follow from the others");
}

Error ReadMatmul(const BenchdnnCase& one, Problem* problem) {
  size_t rank = 0;
  RETURN_IF_ERROR(ReadMatmulDescriptor(one, &rank, problem));
  const Shape shape = {.weight_columns = uint64_t{1} << (rank - 1), .is_matmul = true};
  const std::string_view mask = one.Option("bia_mask").empty() ? "2" : one.Option("bia_mask");
  if (!one.Option("bia-dt").empty() && mask != fmt::format("{}", shape.weight_columns)) {
    return Invalid(
        fmt::format("--bia_mask={}: expected {}, a value for each column", mask, shape.weight_columns));
  }
  RETURN_IF_ERROR(ReadBias(*problem, Said(one, "bia-dt"), one.Option("bia-dt"), &problem->bias));
  RETURN_IF_ERROR(ReadAttributes(one, shape, problem));
  RETURN_IF_ERROR(ReadLayouts(one, rank, problem));
  return RefuseOthers(one, {"bia_mask"});
}

// ----- convolutions ---------------------------------------------------------------------------------------

constexpr std::array<std::string_view, 22> kEntries = {"g",  "mb", "ic", "id", "ih", "iw", "oc", "od",
                                                       "oh", "ow", "kd", "kh", "kw", "sd", "sh", "sw",
                                                       "pd", "ph", "pw", "dd", "dh", "dw"};
using Entries = std::map<std::string, int64_t, std::less<>>;

// The numbers of "g2mb1_ic8ih5…", without the name at the end.
Result<Entries> EntriesOf(const std::string& descriptor) {
  Entries entries;
  std::string_view rest = descriptor;
  while (!rest.empty() && rest.front() != 'n') {
    if (rest.front() == '_') {
      rest.remove_prefix(1);
      continue;
    }
    const auto* const entry =
        std::ranges::find_if(kEntries, [rest](std::string_view name) { return rest.starts_with(name); });
    const size_t digits = entry == kEntries.end() ? 0 : entry->size();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(rest.data() + digits, rest.data() + rest.size(), value);
    if (digits == 0 || error != std::errc() || value < 0 || value > kMaxDimension) {
      return Invalid(fmt::format("'{}': '{}' is no entry such as ic64, with a number up to {}",
                                 support::Excerpt(descriptor), support::Excerpt(rest), kMaxDimension));
    }
    entries[std::string(*entry)] = value;
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
  }
  return entries;
}

int64_t Number(const Entries& entries, const std::string& name, int64_t otherwise) {
  const auto found = entries.find(name);
  return found == entries.end() ? otherwise : found->second;
}

// The axis 'd', 'h' or 'w'; nothing if the descriptor does not have it. benchdnn gives the padding at the beginning
// and the output's extent. The padding at the end is the same if the output allows it, else as small as possible.
Result<std::optional<Axis>> AxisOf(const Entries& entries, char letter, bool is_transposed) {
  const auto number = [&](char prefix, int64_t otherwise) {
    return Number(entries, std::string{prefix, letter}, otherwise);
  };
  const bool is_absent = std::max({number('i', 0), number('k', 0), number('o', 0), number('d', 0),
                                   number('p', 0), number('s', 1) - 1}) == 0;
  if (is_absent) return std::optional<Axis>();
  Axis axis = {.input = number('i', 0),
               .kernel = number('k', 0),
               .stride = number('s', 1),
               .dilation = number('d', 0) + 1,
               .transposed = is_transposed};
  if (std::min({axis.input, axis.kernel, axis.stride}) == 0) {
    return Invalid(fmt::format("i{0}, k{0} or s{0} is missing or 0; expected at least 1", letter));
  }
  const int64_t reach = (axis.kernel - 1) * axis.dilation + 1;
  const int64_t output = number('o', 0);
  // What the output lacks or has too much without padding.
  const int64_t padding = is_transposed ? (axis.input - 1) * axis.stride + reach - output
                                        : (output - 1) * axis.stride + reach - axis.input;
  axis.pad_begin = number('p', output == 0 ? 0 : padding / 2);
  axis.pad_end = axis.pad_begin;
  if (axis.pad_begin < 0) return Invalid(fmt::format("o{}: {} needs a negative padding", letter, output));
  if (output == 0 || axis.Output() == output) return std::optional(axis);
  axis.pad_end = std::max<int64_t>(padding - axis.pad_begin, 0);
  if (is_transposed) axis.output_pad = std::max<int64_t>(axis.pad_begin - padding, 0);
  if (axis.Output() == output) return std::optional(axis);
  return Invalid(
      fmt::format("o{}: {} leaves out outputs; the input gives {}", letter, output, axis.Output()));
}

// Axes that are not given are as the next outer one.
Error ReadAxes(const Entries& entries, bool is_transposed, ConvGeometry* geometry) {
  std::array<std::optional<Axis>, reference::kMaxSpatial> axes;
  for (size_t i = 0; i < axes.size(); ++i) {
    ASSIGN_OR_RETURN(axes[i], AxisOf(entries, "dhw"[i], is_transposed));
  }
  const auto first = std::ranges::find_if(axes, [](const auto& axis) { return axis.has_value(); });
  if (first == axes.end()) return Invalid("there is no spatial dimension; expected iw or ih");
  const size_t begin = static_cast<size_t>(first - axes.begin());
  if (begin == 0 && axes[1].has_value() != axes[2].has_value()) {
    return Invalid("expected both h and w, or none of them");
  }
  geometry->dims = static_cast<int>(axes.size() - begin);
  for (size_t i = begin; i < axes.size(); ++i) {
    if (!axes[i]) axes[i] = axes[i - 1];
    geometry->axes[i] = *axes[i];
  }
  return {};
}

Error ReadConvDescriptor(const BenchdnnCase& one, bool* has_groups, ConvGeometry* geometry) {
  ASSIGN_OR_RETURN(const Entries entries, EntriesOf(one.descriptor));
  *has_groups = entries.contains("g");
  geometry->groups = Number(entries, "g", 1);
  geometry->batch = Number(entries, "mb", 2);
  geometry->input_channels = Number(entries, "ic", 0);
  geometry->output_channels = Number(entries, "oc", 0);
  if (!one.Option("mb").empty()) {
    ASSIGN_OR_RETURN(geometry->batch, NumberOf("--mb", one.Option("mb")));
  }
  const Error error = ReadAxes(entries, one.driver == "deconv", geometry);
  if (error.ok()) return {};
  return Invalid(fmt::format("'{}': {}", support::Excerpt(one.descriptor), error.message));
}

// The elements between pixels of an activation tensor, which must have its channels last.
Result<int64_t> PixelPad(const BenchdnnCase& one, size_t number, std::string_view tag_name, int64_t channels,
                         const Dimensions& extents) {
  const size_t rank = extents.size() + 2;
  ASSIGN_OR_RETURN(const Dimensions strides, StridesOf(one, number, rank));
  if (!strides.empty()) {
    const int64_t pixel = strides.back();
    if (pixel >= channels && strides == ChannelsLastStrides(extents, pixel)) return pixel - channels;
    return Refused(one, "strides", "expected channels last, with pixels side by side");
  }
  constexpr std::array<std::string_view, 3> kNames = {"nwc", "nhwc", "ndhwc"};
  const std::string_view tag = one.Option(tag_name);
  if (tag.empty() || tag == kNames[rank - 3] || Spelled(tag, rank) == Spelled("axb", rank)) return 0;
  return Refused(one, tag_name, "expected channels last, such as axb, or any");
}

Error ReadConvLayouts(const BenchdnnCase& one, bool has_groups, Problem* problem) {
  const ConvGeometry& geometry = *problem->conv;
  Dimensions inputs, outputs;
  for (size_t i = geometry.axes.size() - static_cast<size_t>(geometry.dims); i < geometry.axes.size(); ++i) {
    inputs.push_back(geometry.axes[i].input);
    outputs.push_back(geometry.axes[i].Output());
  }
  ASSIGN_OR_RETURN(problem->a_pad, PixelPad(one, 0, "stag", geometry.input_channels, inputs));
  ASSIGN_OR_RETURN(problem->c_pad, PixelPad(one, 2, "dtag", geometry.output_channels, outputs));
  const size_t rank = inputs.size() + (has_groups ? 3 : 2);
  ASSIGN_OR_RETURN(const Dimensions strides, StridesOf(one, 1, rank));
  if (!strides.empty()) return Refused(one, "strides", "expected none of the weights");
  const std::string_view tag = one.Option("wtag");
  if (tag.empty() || Spelled(tag, rank) == Spelled(has_groups ? "abxc" : "axb", rank)) return {};
  return Refused(one, "wtag", "expected output channels first and input channels last, or any");
}

Error ReadConv(const BenchdnnCase& one, Problem* problem) {
  const std::string_view direction = one.Option("dir").empty() ? "FWD_B" : one.Option("dir");
  if (!direction.starts_with("FWD_")) return Refused(one, "dir", "expected FWD_B, FWD_D or FWD_I");
  bool has_groups = false;
  RETURN_IF_ERROR(ReadConvDescriptor(one, &has_groups, &problem->conv.emplace()));
  const bool has_f32_bias = direction == "FWD_B";
  RETURN_IF_ERROR(ReadBias(*problem, has_f32_bias ? "--dir=FWD_B" : Said(one, "bia-dt"),
                           has_f32_bias ? "f32" : one.Option("bia-dt"), &problem->bias));
  const Shape shape = {.weight_columns = has_groups ? uint64_t{3} : uint64_t{1}, .is_matmul = false};
  RETURN_IF_ERROR(ReadAttributes(one, shape, problem));
  RETURN_IF_ERROR(ReadConvLayouts(one, has_groups, problem));
  return RefuseOthers(one, {"dir", "mb"});
}

}  // namespace

std::vector<int64_t> ChannelsLastStrides(const std::vector<int64_t>& extents, int64_t pixel) {
  std::vector<int64_t> strides(extents.size() + 2, 1);
  int64_t stride = pixel;
  for (size_t i = extents.size(); i-- > 0;) {
    strides[i + 2] = stride;
    stride = std::min(stride * extents[i], kMaxDimension + 1);  // a larger stride cannot be given
  }
  strides[0] = stride;
  return strides;
}

Result<Problem> ProblemOf(const BenchdnnCase& one) {
  Problem problem;
  RETURN_IF_ERROR(ReadTypes(one, &problem));
  RETURN_IF_ERROR(one.driver == "matmul" ? ReadMatmul(one, &problem) : ReadConv(one, &problem));
  if (std::optional<Error> error = problem.Check()) {
    return Invalid(fmt::format("'{}': {}", support::Excerpt(one.descriptor), error->message));
  }
  return problem;
}

}  // namespace intact::verify
