#include "rules.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "graph.h"
#include "node.h"

namespace intact::onnxruntime {
namespace {

#include "rules_table.inc"

// Scales of a bias that differ by less are a quantizer's rounding.
constexpr float kRounding = 1e-6F;

// "0.02"
std::string InDigits(float value) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.9g", static_cast<double>(value));
  return text.data();
}

Node QuantizationOf(Ort::ConstNode node) { return {node, {"x", "scale", "zero point"}}; }

// The constant scales of a DequantizeLinear.
std::vector<float> ScalesOf(Ort::ConstNode dequantizer, const char* name) {
  const auto scales = QuantizationOf(dequantizer).FindConstant(1);
  if (!scales || scales->type != INTACT_F32)
    throw Refusal(std::string(name) + ": has scales that are no float constants; expected constants");
  const auto values = scales->As<float>();
  return {values.begin(), values.end()};
}

}  // namespace

const int kChecksScalesOfQLinearMatMul = kQLinearMatMulChecksScalesSince,
          kChecksScalesOfQLinearAdd = kQLinearAddChecksScalesSince,
          kChecksScalesOfQLinearMul = kQLinearMulChecksScalesSince;
const int kMakesMatMulNBits = kMatMulNBitsSince;

std::string& RuntimeVersion() {
  static std::string version;
  return version;
}

int RuntimeMinor() {
  int minor = 0;
  return std::sscanf(RuntimeVersion().c_str(), "1.%d", &minor) == 1 ? minor : 0;
}

const Rule* FindRule(Ort::ConstNode node) {
  const auto found = std::ranges::find_if(kRules, [&](const Rule& rule) { return Is(node, rule.type); });
  return found == std::end(kRules) ? nullptr : found;
}

void CheckQuantization(const Rule& rule, Ort::ConstNode a, Ort::ConstNode b, Ort::ConstNode quantizer) {
  for (const auto& [name, node] : {std::pair{"A", a}, {"B", b}, {"output", quantizer}}) {
    if (node == nullptr) continue;
    const Node quantization = QuantizationOf(node);
    if (rule.needs_zero_points && node != quantizer && !quantization.Has(2))
      throw Refusal(std::string(name) +
                    ": has no zero point, where ONNX Runtime computes floats; expected one");
    for (size_t i = 1; rule.needs_scalars && i < 3; ++i)
      if (quantization.Has(i) && !quantization.ShapeOf(i).empty())
        throw Refusal(std::string(name) + ": has a " + quantization.Name(i) +
                      " with dimensions, where ONNX Runtime computes floats; expected a scalar");
  }
}

BiasFit FitBias(const Rule& rule, Ort::ConstNode a, Ort::ConstNode b, Ort::ConstNode bias) {
  const Node quantization = QuantizationOf(bias);
  BiasFit fit;
  if (const auto zero_point = quantization.FindConstant(2)) {
    for (int64_t i = 0; i < zero_point->count; ++i)
      if (zero_point->type == INTACT_S32 && zero_point->Integer(i) != 0)
        fit = {true, "bias: has the zero point " + std::to_string(zero_point->Integer(i)) +
                         ", which ONNX Runtime ignores"};
  } else if (quantization.Has(2)) {
    throw Refusal("bias: has a zero point that is no constant; expected a constant");
  }
  if (rule.checks_bias && fit.is_own)
    throw Refusal("bias: has a zero point that is not 0, where ONNX Runtime computes floats; expected 0");
  const auto given = ScalesOf(bias, "bias"), a_scales = ScalesOf(a, "A"), b_scales = ScalesOf(b, "B");
  const size_t count = std::max(given.size(), b_scales.size());
  if (a_scales.size() != 1 || given.empty() || b_scales.empty() || count % given.size() != 0 ||
      count % b_scales.size() != 0)
    throw Refusal("bias: has " + std::to_string(given.size()) + " scales, and the weights " +
                  std::to_string(b_scales.size()) + "; expected 1, or one for each channel");
  for (size_t i = 0; i < count; ++i) {
    const float scale = given[i % given.size()], expected = a_scales[0] * b_scales[i % b_scales.size()];
    const float difference = std::fabs(scale - expected);
    if (difference <= kRounding * std::fabs(expected)) continue;
    const std::string scales[] = {InDigits(scale), InDigits(expected)};
    const auto words = [&scales](const char* then) {
      return std::string("bias: has the scale ")
          .append(scales[0])
          .append(then)
          .append(scales[1])
          .append(", a_scale·b_scale");
    };
    if (rule.checks_bias && !(difference <= kBiasScaleAbsolute + kBiasScaleRelative * std::fabs(expected)))
      throw Refusal(words(", where ONNX Runtime computes floats; expected "));
    fit = {true, words(", where ONNX Runtime assumes ")};
  }
  return fit;
}

}  // namespace intact::onnxruntime
