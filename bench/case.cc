#include "bench/case.h"

#include <fmt/format.h>

namespace intact::bench {
namespace {

constexpr int64_t kFirstLayerChannels = 4;

/// "2", or "2x1" where they differ.
std::string Text(const Extents& extents, std::string_view by) {
  if (extents.height == extents.width) return fmt::format("{}", extents.height);
  return fmt::format("{}{}{}", extents.height, by, extents.width);
}

std::string NameOf(const Shape& shape) {
  if (!shape.conv) return fmt::format("/m:{}/n:{}/k:{}", shape.m, shape.n, shape.k);
  const Geometry& g = *shape.conv;
  std::string name = fmt::format("/in:{}x{}/c_in:{}/c_out:{}/kernel:{}x{}/stride:{}", g.height, g.width,
                                 g.c_in, g.c_out, g.kernel.height, g.kernel.width, Text(g.stride, "x"));
  if (g.dilation != 1) name += fmt::format("/dilation:{}", g.dilation);
  name += fmt::format("/groups:{}/batch:{}", g.groups, g.batch);
  return name + (g.transposed ? "/transposed" : "");
}

constexpr std::array kTypes = {INTACT_S32, INTACT_U8, INTACT_F32};
constexpr size_t kInt8Types = 2;

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

std::string Shape::ToString() const { return conv ? conv->ToString() : fmt::format("{}×{}×{}", m, n, k); }

Kind KindOf(const Shape& shape) {
  if (!shape.conv) return Kind::kGemm;
  const Geometry& g = *shape.conv;
  if (g.transposed) return Kind::kTransposed;
  if (g.groups == 1) return g.c_in <= kFirstLayerChannels ? Kind::kFirstLayer : Kind::kDense;
  return g.Channels() == 1 ? Kind::kDepthwise : Kind::kGrouped;
}

std::string Case::Name() const {
  std::string name = fmt::format("{}/isa:{}/", shape.conv ? "conv" : "gemm", jit::ToString(isa));
  name += peer.empty() ? fmt::format("mode:{}", verify::ToString(mode)) : "peer:" + peer;
  name += fmt::format("/weights:{}", weights.name);
  if (amax != 0) name += fmt::format("/amax:{}", amax);
  if (shape.conv || c_type != INTACT_S32) name += fmt::format("/c:{}", verify::ToString(c_type));
  name += NameOf(shape);
  if (threads != 1) name += fmt::format("/threads:{}", threads);
  if (is_open) name += "/open";
  if (is_tuned) name += "/tuned";
  return name;
}

std::span<const intact_type> TypesOf(const Case& c) {
  const std::span<const intact_type> all = kTypes;
  const bool has_float = c.shape.conv ? !c.shape.conv->transposed : c.weights.trained.has_value();
  return has_float && !c.peer.empty() ? all : all.first(kInt8Types);
}

}  // namespace intact::bench
