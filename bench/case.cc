#include "bench/case.h"

#include <fmt/format.h>

namespace intact::bench {
namespace {

constexpr int64_t kFirstLayerChannels = 4;

/// "2", or "2x1" if height and width differ.
std::string Text(const Extents& extents, std::string_view by) {
  if (extents.height == extents.width) return fmt::format("{}", extents.height);
  return fmt::format("{}{}{}", extents.height, by, extents.width);
}

std::string NameOf(const Shape& shape) {
  if (!shape.conv) {
    std::string name = fmt::format("/m:{}/n:{}/k:{}", shape.m, shape.n, shape.k);
    if (!shape.batch) return name;
    name += fmt::format("/batch:{}/b:runtime", shape.batch->items);
    if (shape.batch->b_type != INTACT_S8)
      name += fmt::format("/b_type:{}", verify::ToString(shape.batch->b_type));
    return name + (shape.batch->b_by_columns ? "/b_order:nk" : "");
  }
  const Geometry& g = *shape.conv;
  std::string name = fmt::format("/in:{}x{}/c_in:{}/c_out:{}/kernel:{}x{}/stride:{}", g.height, g.width,
                                 g.c_in, g.c_out, g.kernel.height, g.kernel.width, Text(g.stride, "x"));
  if (g.dilation != 1) name += fmt::format("/dilation:{}", g.dilation);
  name += fmt::format("/groups:{}/batch:{}", g.groups, g.batch);
  return name + (g.transposed ? "/transposed" : "");
}

// The format that only peers have is last.
constexpr std::array kStaticFormats = {kS32, kU8, kFloat};
constexpr std::array kDynamicFormats = {kF32, kByTensor, kByRow, kFloat};
constexpr std::array kBatchFormats = {kS32, kF32, kFloat};

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
  if (!batch) return item;
  return fmt::format("{}×({}) u8×{}{}", batch->items, item, verify::ToString(batch->b_type),
                     batch->b_by_columns ? "ᵀ" : "");
}

Kind KindOf(const Shape& shape) {
  if (shape.batch) return Kind::kBatch;
  if (!shape.conv) return shape.is_dynamic ? Kind::kDynamic : Kind::kGemm;
  const Geometry& g = *shape.conv;
  if (g.transposed) return Kind::kTransposed;
  if (g.groups == 1) return g.c_in <= kFirstLayerChannels ? Kind::kFirstLayer : Kind::kDense;
  return g.Channels() == 1 ? Kind::kDepthwise : Kind::kGrouped;
}

std::string_view ToString(Quantization quantization) {
  constexpr std::array<std::string_view, 4> kNames = {"static", "tensor", "row", "none"};
  return kNames.at(static_cast<size_t>(quantization));
}

std::string ToString(const Format& format) {
  std::string type(verify::ToString(format.c_type));
  if (format.quantization == Quantization::kStatic) return type;
  if (format.quantization == Quantization::kNone) return "float";
  return fmt::format("{} by {}", type, ToString(format.quantization));
}

std::string Case::Name() const {
  std::string name = fmt::format("{}/isa:{}/", shape.conv ? "conv" : "gemm", core::ToString(isa));
  name += peer.empty() ? fmt::format("mode:{}", verify::ToString(mode)) : "peer:" + peer;
  name += fmt::format("/weights:{}", weights.name);
  if (amax != 0) name += fmt::format("/amax:{}", amax);
  if (format.quantization != Quantization::kStatic) {
    name += fmt::format("/quant:{}", ToString(format.quantization));
  }
  if (shape.conv || format.c_type != INTACT_S32) {
    name += fmt::format("/c:{}", verify::ToString(format.c_type));
  }
  name += NameOf(shape);
  if (threads != 1) name += fmt::format("/threads:{}", threads);
  if (pairing == INTACT_PAIRING_FLATTENED) name += "/flattened";
  if (is_open) name += "/open";
  if (is_tuned) name += "/tuned";
  return name;
}

std::span<const Format> FormatsOf(const Case& c) {
  const Kind kind = KindOf(c.shape);
  const std::span<const Format> all = AllFormatsOf(kind);
  if (!c.peer.empty() && c.shape.batch && c.shape.batch->b_type == INTACT_U8) return {};
  const bool is_static_gemm = kind == Kind::kGemm && !c.weights.trained;
  const bool has_float = !c.peer.empty() && !is_static_gemm && kind != Kind::kTransposed;
  return has_float ? all : all.first(all.size() - 1);
}

}  // namespace intact::bench
