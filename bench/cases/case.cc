#include "bench/cases/case.h"

#include <fmt/format.h>

#include <cstring>
#include <regex>
#include <string>
#include <utility>

#include "core/weight_format.h"

namespace intact::bench {
namespace {

constexpr int64_t kFirstLayerChannels = 4;

/// "2", or "2x1" if height and width differ.
std::string Text(const Extents& extents, std::string_view by) {
  if (extents.height == extents.width) return fmt::format("{}", extents.height);
  return fmt::format("{}{}{}", extents.height, by, extents.width);
}

// The format that only peers have is last.
constexpr std::array kStaticFormats = {kS32, kU8, kFloat};
constexpr std::array kDynamicFormats = {kF32, kByTensor, kByRow, kFloat};
constexpr std::array kBatchFormats = {kS32, kF32, kFloat};
constexpr std::array kBlockFormats = {kByRow, kByBlock};  // peers have the last

std::span<const Format> AllFormatsOf(Kind kind) {
  if (kind == Kind::kDynamic) return kDynamicFormats;
  if (kind == Kind::kBatch) return kBatchFormats;
  return kStaticFormats;
}

}  // namespace

std::string Geometry::ToString() const {
  const bool is_depthwise = groups > 1 && groups == c_in && groups == c_out;
  std::string text = transposed ? "transposed " : "";
  text += is_depthwise ? fmt::format("dw {}×{}×{}", c_in, height, width)
                       : fmt::format("{}×{}×{}→{}", c_in, height, width, c_out);
  text += fmt::format(" {}×{}", kernel.height, kernel.width);
  if (stride != 1) text += fmt::format("/{}", Text(stride, "×"));
  if (dilation != 1) text += fmt::format(" d{}", dilation);
  if (groups != 1 && !is_depthwise) text += fmt::format(" g{}", groups);
  if (batch != 1) text += fmt::format(" batch {}", batch);
  return text;
}

int64_t Shape::InputElements() const {
  const Geometry g = AsConvolution();
  return g.batch * g.height * g.width * g.c_in;
}

std::string Shape::ToString() const {
  if (conv) return conv->ToString();
  std::string item = fmt::format("{}×{}×{}", m, n, k);
  if (blocks) return fmt::format("{} {}/{}", item, core::NameOf(blocks->b_type), blocks->depth);
  if (!batch) return item;
  return fmt::format("{}×({}) u8×{}{}", batch->items, item, verify::ToString(batch->b_type),
                     batch->b_by_columns ? "ᵀ" : "");
}

int64_t Shape::WeightBytes() const {
  if (!blocks) return Items() * n * k;
  const core::WeightFormat format = {blocks->b_type, blocks->depth};
  return n * (format.ColumnBytes(k) + format.Groups(k) * core::BytesOf(format.scale_type));
}

Kind KindOf(const Shape& shape) {
  if (shape.blocks) return Kind::kBlocks;
  if (shape.batch) return Kind::kBatch;
  if (!shape.conv) return shape.is_dynamic ? Kind::kDynamic : Kind::kGemm;
  const Geometry& g = *shape.conv;
  if (g.transposed) return Kind::kTransposed;
  if (g.groups == 1) return g.c_in <= kFirstLayerChannels ? Kind::kFirstLayer : Kind::kDense;
  return g.Channels() == 1 ? Kind::kDepthwise : Kind::kGrouped;
}

std::string_view ToString(Quantization quantization) {
  constexpr std::array<std::string_view, 5> kNames = {"static", "tensor", "row", "block", "none"};
  return kNames.at(static_cast<size_t>(quantization));
}

std::string ToString(const Format& format) {
  std::string type(verify::ToString(format.c_type));
  if (format.quantization == Quantization::kStatic) return type;
  if (format.quantization == Quantization::kNone) return "float";
  return fmt::format("{} by {}", type, ToString(format.quantization));
}

std::optional<Shape> ParseShape(std::string_view text) {
  std::string plain(text);
  for (const auto& [sign, ascii] : {std::pair{"×", "x"}, std::pair{"→", "->"}, std::pair{"ᵀ", "T"}}) {
    for (size_t at; (at = plain.find(sign)) != std::string::npos;)
      plain.replace(at, std::strlen(sign), ascii);
  }
  static const std::regex kGemm("(\\d+)x(\\d+)x(\\d+)(?: (u4|s8)/(16|32|64|128|256))?");
  static const std::regex kBatch("(\\d+)x\\((\\d+)x(\\d+)x(\\d+)\\) u8x([us])8(T)?");
  static const std::regex kConv(
      "(transposed )?(dw )?(\\d+)x(\\d+)x(\\d+)(?:->(\\d+))? (\\d+)x(\\d+)(?:/(\\d+)(?:x(\\d+))?)?"
      "(?: d(\\d+))?(?: g(\\d+))?(?: batch (\\d+))?");
  std::smatch match;
  bool is_number = true;  // a positive one, small enough for products of extents
  const auto number = [&](size_t i, int64_t otherwise) {
    constexpr size_t kDigits = 7;
    if (!match[i].matched) return otherwise;
    is_number = is_number && match[i].length() <= static_cast<ptrdiff_t>(kDigits) && std::stoll(match[i]) > 0;
    return is_number ? int64_t{std::stoll(match[i])} : 1;
  };
  if (std::regex_match(plain, match, kGemm)) {
    Shape shape = {number(1, 1), number(2, 1), number(3, 1)};
    if (match[4].matched) shape.blocks = Blocks{match[4] == "u4" ? INTACT_U4 : INTACT_S8, number(5, 1)};
    return is_number ? std::optional(shape) : std::nullopt;
  }
  if (std::regex_match(plain, match, kBatch)) {
    const Batch batch = {number(1, 1), match[5] == "s" ? INTACT_S8 : INTACT_U8, match[6].matched};
    const Shape shape = {number(2, 1), number(3, 1), number(4, 1), std::nullopt, batch};
    return is_number ? std::optional(shape) : std::nullopt;
  }
  if (!std::regex_match(plain, match, kConv)) return std::nullopt;
  const bool is_depthwise = match[2].matched;
  if (is_depthwise == match[6].matched || (is_depthwise && match[12].matched)) return std::nullopt;
  Geometry g;
  g.transposed = match[1].matched;
  g.c_in = number(3, 1);
  g.height = number(4, 1);
  g.width = number(5, 1);
  g.c_out = number(6, g.c_in);
  g.kernel = {number(7, 1), number(8, 1)};
  g.stride.height = number(9, 1);
  g.stride.width = number(10, g.stride.height);
  g.dilation = number(11, 1);
  g.groups = number(12, is_depthwise ? g.c_in : 1);
  g.batch = number(13, 1);
  const bool has_outputs = g.OutHeight() > 0 && g.OutWidth() > 0;
  const bool has_groups = g.c_in % g.groups == 0 && g.c_out % g.groups == 0;
  const bool is_wide =
      !g.transposed || (g.kernel.height >= g.stride.height && g.kernel.width >= g.stride.width);
  if (!is_number || !has_outputs || !has_groups || !is_wide || (g.transposed && g.dilation != 1))
    return std::nullopt;
  return Shape::Of(g);
}

std::span<const Format> FormatsOf(const Case& c) {
  const Kind kind = KindOf(c.shape);
  if (kind == Kind::kBlocks) return std::span(kBlockFormats).last(c.peer.empty() ? 2 : 1);
  const std::span<const Format> all = AllFormatsOf(kind);
  if (!c.peer.empty() && c.shape.batch && c.shape.batch->b_type == INTACT_U8) return {};
  const bool is_static_gemm = kind == Kind::kGemm && !c.weights.trained;
  const bool has_float = !c.peer.empty() && !is_static_gemm && kind != Kind::kTransposed;
  return has_float ? all : all.first(all.size() - 1);
}

}  // namespace intact::bench
