#include "qmoe.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "float_function.h"
#include "matmul_nbits.h"

namespace intact::onnxruntime {
namespace {

constexpr float kLeastWeight = 1e-8f;

enum Input : size_t { kX, kProbabilities, kFc1, kFc1Scales, kFc1Bias, kFc2, kFc2Scales, kFc2Bias, kFc3 };
constexpr size_t kFc1Points = 11, kFc2Points = 12, kWeights = 14, kInputCount = 21;

void RefuseOthers(const Node& node) {
  const auto expect = [](const char* name, const std::string& value, const std::string& expected) {
    if (value != expected) throw Refusal(std::string(name) + ": is " + value + "; expected " + expected);
  };
  expect("quant_type", node.String("quant_type", "int"), "int");
  for (const char* const name : {"use_sparse_mixer", "swiglu_limit_after_activation"})
    expect(name, std::to_string(node.Integer(name, 0)), "0");
  if (node.Integer("weights_prepacked", -1) == 1) throw Refusal("weights_prepacked: is 1; expected 0 or -1");
  if (!node.HasAttribute("block_size"))
    throw Refusal("block_size: is not given; expected blocks of 16 to 256 depths");
  for (size_t input = kFc3; input < kInputCount; ++input)
    if (input != kFc1Points && input != kFc2Points && input != kWeights && node.Has(input))
      throw Refusal(std::string(node.Name(input)) + ": is given; expected none");
}

// The extents of weights: experts × rows × bytes.
Shape WeightsShape(const Node& node, size_t input) {
  const Shape shape = node.ConstantOf(input, INTACT_U8).shape;
  if (shape.size() != 3)
    throw Refusal(std::string(node.Name(input)) + ": has " + std::to_string(shape.size()) +
                  " dimensions; expected 3");
  return shape;
}

// The elements of an input of float32 or float16, as floats.
const float* Floats(Run& run, size_t input, bool is_half, int64_t count) {
  const auto value = run.Input(input);
  if (static_cast<int64_t>(value.GetTensorTypeAndShapeInfo().GetElementCount()) != count)
    throw std::invalid_argument(std::string(QMoE::kInputs[input]) + ": has another number of elements than " +
                                std::to_string(count) + ", one for each row and expert");
  if (!is_half) return value.GetTensorData<float>();
  auto* const floats = static_cast<float*>(run.Allocate(static_cast<size_t>(count) * sizeof(float)));
  const auto* const halves = value.GetTensorData<Ort::Float16_t>();
  std::transform(halves, halves + count, floats, [](Ort::Float16_t half) { return half.ToFloat(); });
  return floats;
}

float InverseOf(float sum) { return sum == 0 ? 0 : 1 / sum; }

}  // namespace

QMoE::QMoE(const Node& node, const Context& context)
    : is_half_(node.Type(kX, {INTACT_F32, INTACT_F16}) == INTACT_F16),
      normalizes_(node.Integer("normalize_routing_weights", 0) == 1),
      has_weights_(node.Has(kWeights)),
      top_(node.Integer("k", 1)),
      alpha_(node.Float("activation_alpha", 1)),
      beta_(node.Float("activation_beta", 0)),
      limit_(node.Float("swiglu_limit", std::numeric_limits<float>::infinity())) {
  CheckIsQuantized(context.settings, "accuracy_level", node.Integer("accuracy_level", 0));
  RefuseOthers(node);
  constexpr std::array kActivations = {"identity", "relu", "silu", "gelu", "swiglu"};
  const std::string activation = node.String("activation_type", "relu");
  const auto* const found = std::ranges::find(kActivations, activation);
  if (found == kActivations.end())
    throw Refusal("activation_type: is " + activation + "; expected relu, gelu, silu, swiglu or identity");
  activation_ = static_cast<Activation>(found - kActivations.begin());
  const bool is_swiglu = activation_ == Activation::kSwiglu;
  if (node.Integer("swiglu_fusion", 0) != (is_swiglu ? 1 : 0))
    throw Refusal("swiglu_fusion: is " + std::to_string(node.Integer("swiglu_fusion", 0)) +
                  "; expected 1 with swiglu, else 0");
  if (is_swiglu && !(limit_ >= 0)) throw Refusal("swiglu_limit: is negative; expected at least 0");

  const int64_t bits = node.Integer("expert_weight_bits", 4), block = PositiveOf(node, "block_size");
  const int64_t bits1 = node.Integer("fc1_expert_weight_bits", bits),
                bits2 = node.Integer("fc2_expert_weight_bits", bits);
  const Shape fc1 = WeightsShape(node, kFc1), fc2 = WeightsShape(node, kFc2);
  experts_ = fc1[0];
  hidden_ = fc2[1];
  inter_ = fc1[1] / (is_swiglu ? 2 : 1);
  if (fc1[1] != inter_ * (is_swiglu ? 2 : 1))
    throw Refusal("fc1_experts_weights: has " + std::to_string(fc1[1]) +
                  " columns; expected an even number with swiglu");
  if (fc2[0] != experts_ || fc1[2] * 8 != hidden_ * bits1 || fc2[2] * 8 != inter_ * bits2)
    throw Refusal("fc2_experts_weights: has a shape that does not fit fc1_experts_weights");
  if (hidden_ % block != 0 || inter_ % block != 0)
    throw Refusal("block_size: is " + std::to_string(block) + "; expected a divisor of " +
                  std::to_string(hidden_) + " and " + std::to_string(inter_));
  if (top_ < 1 || top_ > experts_)
    throw Refusal("k: is " + std::to_string(top_) + "; expected 1 to " + std::to_string(experts_));
  // With one block ONNX Runtime packs zero points along the rows.
  for (const auto& [points, depths] : {std::pair{kFc1Points, hidden_}, {kFc2Points, inter_}})
    if (node.Has(points) && depths == block)
      throw Refusal(std::string(node.Name(points)) + ": are given; expected none with one block");
  const intact_type type = is_half_ ? INTACT_F16 : INTACT_F32;
  const Settings& settings = context.settings;
  fc1_ = MakePlanOfBlocks(node, settings,
                          {kFc1, kFc1Scales, kFc1Points, kFc1Bias, bits1, experts_, fc1[1], hidden_, block},
                          type, type, INTACT_F32);
  fc2_ = MakePlanOfBlocks(node, settings,
                          {kFc2, kFc2Scales, kFc2Points, kFc2Bias, bits2, experts_, hidden_, inter_, block},
                          INTACT_F32, type, INTACT_F32);
}

void QMoE::Choose(const float* probabilities, const float* weights, Route* routes) const {
  const auto key = [&](int64_t expert) {
    const float value = probabilities[expert];
    return std::pair(std::isnan(value) ? -std::numeric_limits<float>::infinity() : value, expert);
  };
  std::vector<int64_t> order(static_cast<size_t>(experts_));
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + top_, order.end(),
                    [&](int64_t a, int64_t b) { return key(a) > key(b); });
  std::vector<float> factors(static_cast<size_t>(top_));
  for (size_t j = 0; j < factors.size(); ++j)
    factors[j] = weights != nullptr ? weights[order[j]] : probabilities[order[j]] - probabilities[order[0]];
  if (weights == nullptr) Exponential(factors.data(), factors.data(), top_);
  if (weights == nullptr || normalizes_) {
    const float inverse = InverseOf(std::accumulate(factors.begin(), factors.end(), 0.0f));
    for (float& factor : factors) factor *= inverse;
  }
  for (size_t j = 0; j < factors.size(); ++j) routes[j] = {order[j], factors[j]};
}

void QMoE::Activate(const float* h, float* scratch, float* activated) const {
  const auto n = static_cast<size_t>(inter_);
  // The gate and the argument of its sigmoid.
  float* const gate = activated;
  for (size_t i = 0; i < n; ++i) {
    const float x = h[activation_ == Activation::kSwiglu ? 2 * i : i];
    gate[i] = x;
    if (activation_ == Activation::kRelu) gate[i] = x < 0 ? 0 : x;
    if (activation_ == Activation::kSwiglu) gate[i] = std::min(x, limit_);
    scratch[i] = activation_ == Activation::kSwiglu ? alpha_ * gate[i]
                 : activation_ == Activation::kGelu ? 2 * (0.7978845608f * (x + 0.044715f * x * x * x))
                                                    : x;
  }
  if (activation_ == Activation::kIdentity || activation_ == Activation::kRelu) return;
  Sigmoid(scratch, scratch, inter_);
  for (size_t i = 0; i < n; ++i) activated[i] = gate[i] * scratch[i];
  if (activation_ != Activation::kSwiglu) return;
  for (size_t i = 0; i < n; ++i) activated[i] *= std::clamp(h[2 * i + 1], -limit_, limit_) + beta_;
}

void QMoE::Compute(Run& run) const {
  const auto input = run.Input(kX);
  const Shape shape = input.GetTensorTypeAndShapeInfo().GetShape();
  if (shape.empty() || shape.back() != hidden_)
    throw std::invalid_argument("input: has rows of another length than " + std::to_string(hidden_));
  const int64_t rows = CountOf(shape) / hidden_, count = rows * top_;
  void* const output = run.Output(shape);
  if (rows == 0) return;
  const float* const probabilities = Floats(run, kProbabilities, is_half_, rows * experts_);
  const float* const weights = has_weights_ ? Floats(run, kWeights, is_half_, rows * experts_) : nullptr;
  std::vector<Route> routes(static_cast<size_t>(count));
  for (int64_t row = 0; row < rows; ++row)
    Choose(probabilities + row * experts_, weights == nullptr ? nullptr : weights + row * experts_,
           &routes[static_cast<size_t>(row * top_)]);
  // Routes are sorted by expert. Each has a row of the products, at its place.
  std::vector<int64_t> counts(static_cast<size_t>(experts_)), order(routes.size()), places(routes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {},
                           [&](int64_t route) { return routes[static_cast<size_t>(route)].expert; });
  for (const Route& route : routes) ++counts[static_cast<size_t>(route.expert)];
  for (size_t place = 0; place < order.size(); ++place)
    places[static_cast<size_t>(order[place])] = static_cast<int64_t>(place);

  const size_t row_bytes = static_cast<size_t>(hidden_) * (is_half_ ? 2 : sizeof(float));
  const int64_t columns = inter_ * (activation_ == Activation::kSwiglu ? 2 : 1);
  auto* const a = static_cast<std::byte*>(run.Allocate(static_cast<size_t>(count) * row_bytes));
  const auto floats = [&](int64_t width) {
    return static_cast<float*>(run.Allocate(static_cast<size_t>(count * width) * sizeof(float)));
  };
  float *const h = floats(columns), *const scratch = floats(inter_), *const activated = floats(inter_),
               *const y = floats(hidden_);
  const auto* const x = static_cast<const std::byte*>(input.GetTensorRawData());
  for (size_t place = 0; place < order.size(); ++place)
    std::memcpy(a + place * row_bytes, x + static_cast<size_t>(order[place] / top_) * row_bytes, row_bytes);

  const auto multiply = [&](const intact_grouped& plan, const void* from, float* to, int64_t n, int64_t k) {
    intact_grouped_args args = INTACT_GROUPED_ARGS_INIT;
    args.m = count;
    args.a = from;
    args.c = to;
    args.expert_rows = counts.data();
    run.Compute(plan, args, {count, n, k});
  };
  multiply(*fc1_, a, h, columns, hidden_);
  run.ForEach(count,
              [&](int64_t i) { Activate(h + i * columns, scratch + i * inter_, activated + i * inter_); });
  multiply(*fc2_, activated, y, hidden_, inter_);
  run.ForEach(rows, [&](int64_t row) {
    std::vector<float> sums(static_cast<size_t>(hidden_));
    for (int64_t route = row * top_; route < (row + 1) * top_; ++route) {
      const float weight = routes[static_cast<size_t>(route)].weight;
      const float* const own = y + places[static_cast<size_t>(route)] * hidden_;
      if (!(weight > kLeastWeight)) continue;
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += weight * own[i];
    }
    if (is_half_)
      std::transform(sums.begin(), sums.end(), static_cast<Ort::Float16_t*>(output) + row * hidden_,
                     [](float sum) { return Ort::Float16_t(sum); });
    else
      std::ranges::copy(sums, static_cast<float*>(output) + row * hidden_);
  });
}

}  // namespace intact::onnxruntime
