#include "lstm.h"

#include <intact/intact.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "avx512.h"

namespace intact::onnxruntime {
namespace {

// Where the operator has the input `name`.
consteval size_t Input(std::string_view name) {
  const auto& inputs = DynamicQuantizeLstm::kInputs;
  const auto place = std::ranges::find(inputs, name);
  if (place == inputs.end()) throw std::invalid_argument("no input of the operator");
  return static_cast<size_t>(place - inputs.begin());
}

// The number of chunks in which a step multiplies `weights` bytes. Each chunk is a call, so few weights, which
// most L2 caches hold, are one chunk.
int ChunksOf(int64_t weights) {
  constexpr int64_t kOfChunk = 1 << 18, kFew = 1 << 20;
  return weights < kFew ? 1 : static_cast<int>(weights / kOfChunk);
}

// The fewest states of a step's part: they take about two microseconds with AVX2.
constexpr int64_t kStatesOfPart = 1 << 10;

using Bounds = DynamicQuantizeLstm::Bounds;

// x within ±bound.
[[gnu::always_inline]] inline float Clamped(float x, float bound) {
  const float size = std::fabs(x);
  return std::copysign(size > bound ? bound : size, x);
}

// Eigen's rational function, plus 0.5. Rounding makes it 1 + 2^-23 for few arguments.
[[gnu::always_inline]] inline float Sigmoid(float x, Bounds bounds) {
  x = Clamped(x, bounds.sigmoid);
  const float square = x * x;
  float p = std::fma(square, 4.37031012579801e-11f, 1.15627324459942e-07f);
  p = std::fma(p, square, 6.08574864600143e-05f);
  p = std::fma(p, square, 8.51377133304701e-03f);
  p = std::fma(p, square, 2.48287947061529e-01f);
  float q = std::fma(square, 6.10247389755681e-13f, 5.76102136993427e-09f);
  q = std::fma(q, square, 6.29106785017040e-06f);
  q = std::fma(q, square, 1.70198817374094e-03f);
  q = std::fma(q, square, 1.16817656904453e-01f);
  q = std::fma(q, square, 9.93151921023180e-01f);
  const float value = p * x / q + 0.5f;
  return value < bounds.least ? bounds.least : value;
}

// Eigen's rational function.
[[gnu::always_inline]] inline float Tanh(float x, Bounds bounds) {
  x = Clamped(x, bounds.tanh);
  const float square = x * x;
  float p = std::fma(square, -2.76076847742355e-16f, 2.00018790482477e-13f);
  p = std::fma(p, square, -8.60467152213735e-11f);
  p = std::fma(p, square, 5.12229709037114e-08f);
  p = std::fma(p, square, 1.48572235717979e-05f);
  p = std::fma(p, square, 6.37261928875436e-04f);
  p = std::fma(p, square, 4.89352455891786e-03f);
  float q = std::fma(square, 1.19825839466702e-06f, 1.18534705686654e-04f);
  q = std::fma(q, square, 2.26843463243900e-03f);
  q = std::fma(q, square, 4.89352518554385e-03f);
  return p * x / q;
}

// A row's next states. `gates`: 4·hidden values z. Every product is rounded before it is added.
[[gnu::always_inline]] inline void Step(const float* __restrict gates, const float* __restrict bias,
                                        float* __restrict c, float* __restrict h, int64_t hidden,
                                        Bounds bounds) {
  for (int64_t n = 0; n < hidden; ++n) {
    const float i = Sigmoid(gates[n] + bias[n], bounds);
    const float o = Sigmoid(gates[hidden + n] + bias[hidden + n], bounds);
    const float f = Sigmoid(gates[2 * hidden + n] + bias[2 * hidden + n], bounds);
    const float g = Tanh(gates[3 * hidden + n] + bias[3 * hidden + n], bounds);
    c[n] = c[n] * f + i * g;
    h[n] = Tanh(c[n], bounds) * o;
  }
}

void StepOfAnyCpu(const float* __restrict gates, const float* __restrict bias, float* __restrict c,
                  float* __restrict h, int64_t hidden, Bounds bounds) {
  Step(gates, bias, c, h, hidden, bounds);
}

// The loop compiled for more instructions.
[[gnu::target("avx2,fma")]] void StepAvx2(const float* __restrict gates, const float* __restrict bias,
                                          float* __restrict c, float* __restrict h, int64_t hidden,
                                          Bounds bounds) {
  Step(gates, bias, c, h, hidden, bounds);
}

[[INTACT_AVX512]] void StepAvx512(const float* __restrict gates, const float* __restrict bias,
                                  float* __restrict c, float* __restrict h, int64_t hidden, Bounds bounds) {
  Step(gates, bias, c, h, hidden, bounds);
}

std::string InWords(const Shape& shape) {
  std::string words;
  for (const int64_t extent : shape) words += (words.empty() ? "" : "×") + std::to_string(extent);
  return words;
}

void CheckShape(const char* name, const Shape& shape, const Shape& expected) {
  if (shape != expected)
    throw std::invalid_argument(std::string(name) + ": has shape " + InWords(shape) + "; expected " +
                                InWords(expected));
}

// One or `columns` values of direction `d` of `directions`.
template <class T>
std::vector<T> OfDirection(const char* name, const std::vector<T>& values, size_t d, size_t directions,
                           int64_t columns) {
  const size_t count = values.size() / directions;
  if (values.size() % directions != 0 || (count != 1 && count != static_cast<size_t>(columns)))
    throw Refusal(std::string(name) + ": has " + std::to_string(values.size()) + " values; expected 1 or " +
                  std::to_string(columns) + " for each direction");
  const auto begin = values.begin() + static_cast<std::ptrdiff_t>(d * count);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

// The plan of direction `d` of a product with the weights of an input, which are directions × depth × columns.
GemmPlan PlanOf(const Node& node, const Context& context, size_t weights, size_t scale, size_t zero_point,
                int64_t depth, int64_t columns, size_t d, size_t directions, int32_t residual_type) {
  const intact_type b = node.Type(weights, {INTACT_U8, INTACT_S8});
  const Constant constant = node.Weights(weights, b);
  const Shape expected{static_cast<int64_t>(directions), depth, columns};
  if (constant.shape != expected)
    throw Refusal(std::string(node.Name(weights)) + ": has shape " + InWords(constant.shape) + "; expected " +
                  InWords(expected));
  Linear linear(context, {"DynamicQuantizeLSTM", depth}, INTACT_U8, b, INTACT_F32);
  const auto scales = node.ConstantOf(scale, INTACT_F32).As<float>();
  linear.SetDynamicQuantization(OfDirection(
      node.Name(scale), std::vector<float>(scales.begin(), scales.end()), d, directions, columns));
  const Constant zero_points = node.ConstantOf(zero_point, b);
  std::vector<int32_t> values;
  for (int64_t i = 0; i < zero_points.count; ++i) values.push_back(zero_points.Integer(i));
  linear.b_zero_points = OfDirection(node.Name(zero_point), values, d, directions, columns);
  linear.desc.residual_type = residual_type;
  if (residual_type != INTACT_TYPE_NONE) linear.desc.residual_scale = 1;
  intact_gemm_desc desc = INTACT_GEMM_DESC_INIT;
  desc.k = depth;
  desc.n = columns;
  return MakeGemmPlan(
      desc, linear, static_cast<const std::byte*>(constant.data) + static_cast<int64_t>(d) * depth * columns);
}

}  // namespace

DynamicQuantizeLstm::DynamicQuantizeLstm(const Node& node, const Context& context)
    : step_(HasAvx512(context.settings) ? StepAvx512
            : HasAvx2(context.settings) ? StepAvx2
                                        : StepOfAnyCpu) {
  node.Type(Input("X"), {INTACT_F32});
  for (const size_t input : {Input("sequence_lens"), Input("P")})
    if (node.Has(input)) throw Refusal(std::string(node.Name(input)) + ": is given; expected none");
  for (const char* const attribute : {"clip", "input_forget"})
    if (node.HasAttribute(attribute) && (std::string(attribute) == "clip" || node.Integer(attribute, 0) != 0))
      throw Refusal(std::string(attribute) + ": is given; expected none");
  const std::string direction = node.String("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    throw Refusal("direction: is " + direction + "; expected forward, reverse or bidirectional");
  const size_t directions = direction == "bidirectional" ? 2 : 1;
  const auto activations = node.Strings("activations");
  for (size_t i = 0; i < activations.size(); ++i) {
    const std::string expected = i % 3 == 0 ? "Sigmoid" : "Tanh";
    if (activations[i] != expected)
      throw Refusal("activations: has " + activations[i] + "; expected " + expected);
  }

  const Constant w = node.Weights(Input("W"), node.Type(Input("W"), {INTACT_U8, INTACT_S8}));
  if (w.shape.size() != 3)
    throw Refusal("W: has " + std::to_string(w.shape.size()) + " dimensions; expected 3");
  input_ = w.shape[1];
  hidden_ = node.Integer("hidden_size", w.shape[2] / 4);
  const int64_t columns = 4 * hidden_;
  std::vector<float> biases;
  if (node.Has(Input("B"))) {
    const Constant constant = node.ConstantOf(Input("B"), INTACT_F32);
    const Shape expected{static_cast<int64_t>(directions), 2 * columns};
    if (constant.shape != expected)
      throw Refusal("B: has shape " + InWords(constant.shape) + "; expected " + InWords(expected));
    const auto values = constant.As<float>();
    biases.assign(values.begin(), values.end());
  } else {
    biases.assign(directions * static_cast<size_t>(2 * columns), 0);
  }
  for (size_t d = 0; d < directions; ++d) {
    Direction each;
    each.input = PlanOf(node, context, Input("W"), Input("W_scale"), Input("W_zero_point"), input_, columns,
                        d, directions, INTACT_TYPE_NONE);
    each.recurrent = PlanOf(node, context, Input("R"), Input("R_scale"), Input("R_zero_point"), hidden_,
                            columns, d, directions, INTACT_F32);
    const float* const bias = biases.data() + static_cast<int64_t>(d) * 2 * columns;
    for (int64_t n = 0; n < columns; ++n) each.bias.push_back(bias[n] + bias[columns + n]);
    each.is_reverse = d == 1 || direction == "reverse";
    directions_.push_back(std::move(each));
  }
  h_ = ReadInitialState(node, Input("initial_h"));
  c_ = ReadInitialState(node, Input("initial_c"));
}

DynamicQuantizeLstm::InitialState DynamicQuantizeLstm::ReadInitialState(const Node& node,
                                                                        size_t input) const {
  if (!node.Has(input)) return {};
  if (node.IsFromRun(input)) return {.input = input};
  const auto values = node.ConstantOf(input, INTACT_F32).As<float>();
  return {.constant = {values.begin(), values.end()}};
}

void DynamicQuantizeLstm::StartState(const Run& run, const InitialState& initial, size_t direction,
                                     int64_t count, float* state) const {
  const float* given = nullptr;
  if (initial.input) {
    const auto value = run.Input(*initial.input);
    CheckShape("initial state", value.GetTensorTypeAndShapeInfo().GetShape(),
               {std::ssize(directions_), count / hidden_, hidden_});
    given = value.GetTensorData<float>();
  } else if (!initial.constant.empty()) {
    if (std::ssize(initial.constant) != std::ssize(directions_) * count)
      throw std::invalid_argument("initial state: has " + std::to_string(initial.constant.size()) +
                                  " values; expected " + std::to_string(std::ssize(directions_) * count));
    given = initial.constant.data();
  }
  if (given == nullptr) {
    std::fill_n(state, count, 0.0f);
  } else {
    std::copy_n(given + static_cast<int64_t>(direction) * count, count, state);
  }
}

void DynamicQuantizeLstm::Compute(Run& run) const {
  const auto x = run.Input(Input("X"));
  const Shape shape = x.GetTensorTypeAndShapeInfo().GetShape();
  if (shape.size() != 3 || shape[2] != input_)
    throw std::invalid_argument("X: has shape " + InWords(shape) + "; expected steps × batch × " +
                                std::to_string(input_));
  const int64_t steps = shape[0], batch = shape[1], state = batch * hidden_, columns = 4 * hidden_;
  const auto directions = std::ssize(directions_);
  auto* const y = static_cast<float*>(run.Output({steps, directions, batch, hidden_}, 0));
  auto* const y_h = static_cast<float*>(run.Output({directions, batch, hidden_}, 1));
  auto* const y_c = static_cast<float*>(run.Output({directions, batch, hidden_}, 2));
  if (batch == 0) return;
  const auto allocate = [&](int64_t count) {
    return static_cast<float*>(run.Allocate(static_cast<size_t>(count) * sizeof(float)));
  };
  struct Buffers {
    float *gates, *h, *c;
  };
  std::vector<Buffers> buffers;
  for (size_t d = 0; d < directions_.size(); ++d) {
    const Buffers& own =
        buffers.emplace_back(allocate(steps * batch * columns), allocate(state), allocate(state));
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    args.m = steps * batch;
    args.a = x.GetTensorRawData();
    args.c = own.gates;
    if (steps > 0) run.Compute(*directions_[d].input, args, {steps * batch, columns, input_});
    StartState(run, h_, d, state, own.h);
    StartState(run, c_, d, state, own.c);
  }
  // Each step reads all recurrent weights. Every other step begins with the last chunk, which L2 may still hold.
  const int chunks = ChunksOf(hidden_ * columns);
  const PlanWork work_of_step{batch, columns, hidden_};
  // Threads that compute a direction each do not wait for each other. They pay unless a step has work for more threads.
  const bool has_thread_each = directions == 2 && run.PartsOf(work_of_step) <= 2;
  const auto compute_steps = [&](int64_t d) {
    const Direction& direction = directions_[static_cast<size_t>(d)];
    const auto& [gates, h, c] = buffers[static_cast<size_t>(d)];
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    args.m = batch;
    args.a = h;
    for (int64_t step = 0; step < steps; ++step) {
      const int64_t time = direction.is_reverse ? steps - 1 - step : step;
      float* const of_step = gates + time * batch * columns;
      args.c = of_step;
      args.residual = of_step;
      run.Compute(*direction.recurrent, args, has_thread_each ? PlanWork() : work_of_step,
                  {chunks, step % 2 != 0});
      const auto compute_row = [&](int64_t row) {
        step_(of_step + row * columns, direction.bias.data(), c + row * hidden_, h + row * hidden_, hidden_,
              Bounds());
      };
      run.ForEach(batch, compute_row, has_thread_each ? 1 : state / kStatesOfPart);
      if (y != nullptr) std::copy_n(h, state, y + (time * directions + d) * state);
    }
    if (y_h != nullptr) std::copy_n(h, state, y_h + d * state);
    if (y_c != nullptr) std::copy_n(c, state, y_c + d * state);
  };
  run.ForEach(directions, compute_steps, has_thread_each ? directions : 1);
}

std::string DynamicQuantizeLstm::Kernel() const { return KernelOf(*directions_.front().recurrent); }

}  // namespace intact::onnxruntime
