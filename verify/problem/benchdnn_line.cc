// From a problem to a line of benchdnn.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "core/types.h"
#include "verify/problem/benchdnn.h"
#include "verify/problem/fields.h"
#include "verify/problem/line.h"

namespace intact::verify {
namespace {

using reference::Axis;
using reference::ConvGeometry;

// Keys that lines of benchdnn say, and keys that do not change what is computed from given tensors, or that only
// choose values. All others are refused.
constexpr std::string_view kSaid =
    " m n k batch alayout runtimeb blayout apad bpad cpad itempad in c o kernel stride dilation pad "
    "transposed outpad "
    "groups za zb zbper zc bias scale act res zres inplace ";
constexpr std::string_view kLeftOut =
    " usual amax wmax arangemin arange rangecheck fill seed open scratch saved threads calls reused isa ";

bool Holds(std::string_view keys, std::string_view key) {
  return keys.find(fmt::format(" {} ", key)) != std::string_view::npos;
}

// Refuses words that benchdnn lacks. Returns the words that are left out.
Result<std::string> CheckWords(const Problem& problem) {
  if (problem.grouped) return Invalid("grouped: weights in groups; expected a gemm or a conv");
  const Problem defaults = DefaultsOf(problem);
  std::vector<std::string> left_out;
  for (const Field& field : LineKindOf(problem).fields) {
    const std::string value = field.print(problem);
    // The first of several zero points is a value, as the others are.
    const bool is_said =
        Holds(kSaid, field.key) && !(field.key == "zb" && problem.zb_kind != ZeroPointKind::kTensor);
    if (value == field.print(defaults) || is_said) continue;
    const std::string word = fmt::format("{}={}", field.key, value);
    if (field.key != "zb" && !Holds(kLeftOut, field.key)) return Invalid(word + ": benchdnn cannot say it");
    left_out.push_back(word);
  }
  if (problem.residual != INTACT_TYPE_NONE && !problem.in_place) left_out.emplace_back("inplace=no");
  if (problem.runtime_b && problem.batch == 1) left_out.emplace_back("runtimeb=yes");
  if (problem.item_pad != 0 && problem.batch == 1)
    left_out.push_back(fmt::format("itempad={}", problem.item_pad));
  return fmt::format("{}", fmt::join(left_out, " "));
}

Error CheckValues(const Problem& p) {
  if (p.zb_kind != ZeroPointKind::kTensor && p.zb_kind != ZeroPointKind::kChannel) {
    return Invalid("zbper: items have their own zero points; expected tensor or channel");
  }
  if (IsOfItems(p.scale)) return Invalid("scale: items have their own scales; expected tensor or channel");
  if (p.bias == BiasKind::kS32 && p.c_type != INTACT_S32) {
    return Invalid("bias=s32: is added before the scale, and benchdnn's after it; expected f32");
  }
  if (p.residual != INTACT_TYPE_NONE && core::BytesOf(p.residual) != core::BytesOf(p.c_type)) {
    return Invalid(
        fmt::format("res={}: benchdnn adds to the outputs, which are {}; expected elements of one size",
                    ToString(p.residual), ToString(p.c_type)));
  }
  return {};
}

std::string Attributes(const Problem& p) {
  std::string text;
  const bool has_values = p.scale == ScaleKind::kTensor || p.activation == INTACT_ACTIVATION_CLAMP ||
                          p.residual != INTACT_TYPE_NONE;
  const reference::Operation operation = has_values ? Materialize(p) : reference::Operation();
  const reference::Linear& linear = reference::LinearOf(operation);
  if (p.scale == ScaleKind::kTensor) text += fmt::format(" --attr-scales=wei:common:{}", linear.scales.at(0));
  if (p.scale > ScaleKind::kTensor) text += " --attr-scales=wei:per_oc";

  std::vector<std::string> zero_points;
  if (p.za != 0) zero_points.push_back(fmt::format("src:common:{}", p.za));
  if (p.zb_kind == ZeroPointKind::kChannel) {
    zero_points.emplace_back("wei:per_oc");
  } else if (p.zb != 0) {
    zero_points.push_back(fmt::format("wei:common:{}", p.zb));
  }
  if (p.zc != 0) zero_points.push_back(fmt::format("dst:common:{}", p.zc));
  if (!zero_points.empty()) text += fmt::format(" --attr-zero-points={}", fmt::join(zero_points, "+"));

  std::vector<std::string> post_ops;
  if (const auto* residual = linear.post_ops.Find<core::AddResidual>()) {
    post_ops.push_back(
        fmt::format("sum:{}:{}:{}", residual->scale, residual->zero_point, ToString(residual->type)));
  }
  if (p.activation == INTACT_ACTIVATION_RELU) post_ops.emplace_back("relu");
  if (const auto* clamp = linear.post_ops.Find<core::Clamp>()) {
    post_ops.push_back(fmt::format("clip:{}:{}", clamp->low, clamp->high));
  }
  if (!post_ops.empty()) text += fmt::format(" --attr-post-ops={}", fmt::join(post_ops, "+"));
  return text;
}

std::string Types(const Problem& p) {
  return fmt::format("--dt={}:{}:{}", ToString(p.a_type), ToString(p.b_type), ToString(p.c_type));
}

// Strides of items × rows × columns.
std::string MatrixStrides(const Problem& p, int64_t rows, int64_t columns, bool by_columns, int64_t pad) {
  const int64_t stride = (by_columns ? rows : columns) + pad;
  const std::string matrix = by_columns ? fmt::format("1x{}", stride) : fmt::format("{}x1", stride);
  if (p.batch == 1) return matrix;
  return fmt::format("{}x{}", (by_columns ? columns : rows) * stride + p.item_pad, matrix);
}

std::string MatmulLine(const Problem& p) {
  const bool is_batch = p.batch != 1;
  std::string line = "--matmul " + Types(p);
  if (p.a_pad + p.b_pad + p.c_pad + (is_batch ? p.item_pad : 0) != 0) {
    line += fmt::format(" --strides={}:{}:{}", MatrixStrides(p, p.m, p.k, p.a_by_columns, p.a_pad),
                        MatrixStrides(p, p.k, p.n, p.b_by_columns, p.b_pad),
                        MatrixStrides(p, p.m, p.n, false, p.c_pad));
  } else {
    const auto tag = [is_batch](bool by_columns) {
      return is_batch ? (by_columns ? "acb" : "abc") : (by_columns ? "ba" : "ab");
    };
    line +=
        fmt::format(" --stag={} --wtag={} --dtag={}", tag(p.a_by_columns), tag(p.b_by_columns), tag(false));
  }
  if (p.bias != BiasKind::kNone) {
    line +=
        fmt::format(" --bia-dt={} --bia_mask={}", p.bias == BiasKind::kF32 ? "f32" : "s32", is_batch ? 4 : 2);
  }
  line += Attributes(p);
  if (!is_batch) return line + fmt::format(" {}x{}:{}x{}", p.m, p.k, p.k, p.n);
  return line + fmt::format(" {}x{}x{}:{}x{}x{}", p.batch, p.m, p.k, p.runtime_b ? p.batch : 1, p.k, p.n);
}

std::string ConvLine(const Problem& p) {
  const ConvGeometry& g = *p.conv;
  const auto axes = std::span(g.axes).last(static_cast<size_t>(g.dims));
  std::string line = fmt::format("--{} {}", g.IsTransposed() ? "deconv" : "conv", Types(p));
  if (p.a_pad + p.c_pad != 0) {
    std::vector<int64_t> inputs, outputs;
    for (const Axis& axis : axes) {
      inputs.push_back(axis.input);
      outputs.push_back(axis.Output());
    }
    line += fmt::format(" --strides={}::{}",
                        fmt::join(ChannelsLastStrides(inputs, g.input_channels + p.a_pad), "x"),
                        fmt::join(ChannelsLastStrides(outputs, g.output_channels + p.c_pad), "x"));
  } else {
    line += " --stag=axb --dtag=axb";
  }
  line += p.bias == BiasKind::kF32 ? " --dir=FWD_B" : " --dir=FWD_I";
  if (p.bias == BiasKind::kS32) line += " --bia-dt=s32";
  line += Attributes(p);
  line += g.groups == 1 ? " " : fmt::format(" g{}", g.groups);
  line += fmt::format("mb{}", g.batch);
  const auto add = [&](char prefix, const auto& value_of) {
    for (size_t i = 0; i < axes.size(); ++i) {
      line += fmt::format("{}{}{}", prefix, "dhw"[i + 3 - axes.size()], value_of(axes[i]));
    }
  };
  line += fmt::format("ic{}", g.input_channels);
  add('i', [](const Axis& axis) { return axis.input; });
  line += fmt::format("oc{}", g.output_channels);
  add('o', [](const Axis& axis) { return axis.Output(); });
  add('k', [](const Axis& axis) { return axis.kernel; });
  add('s', [](const Axis& axis) { return axis.stride; });
  add('p', [](const Axis& axis) { return axis.pad_begin; });
  add('d', [](const Axis& axis) { return axis.dilation - 1; });
  return line;
}

}  // namespace

Result<BenchdnnLine> BenchdnnLineOf(const Problem& problem) {
  ASSIGN_OR_RETURN(std::string left_out, CheckWords(problem));
  RETURN_IF_ERROR(CheckValues(problem));
  return BenchdnnLine{problem.conv ? ConvLine(problem) : MatmulLine(problem), std::move(left_out)};
}

}  // namespace intact::verify
