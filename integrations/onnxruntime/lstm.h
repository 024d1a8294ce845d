// DynamicQuantizeLSTM: two dynamically quantized products and float gates in each step.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_LSTM_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_LSTM_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layer.h"
#include "linear.h"
#include "node.h"
#include "plans.h"

namespace intact::onnxruntime {

/// An LSTM whose inputs and states are quantized by each run, with one range for all rows: X for all its steps at once, the
/// state h before each step. In float32, with one rounding for each operation:
///
///     z = float(x·W)·(x_scale·w_scale) + float(h·R)·(h_scale·r_scale)          gates i, o, f, g; products are int32
///     i, o, f = sigmoid(z + bias)      g = tanh(z + bias)      bias = bias_w + bias_r
///     c = c·f + i·g                    h = tanh(c)·o
///
/// sigmoid and tanh are ONNX Runtime's rational functions, with a fused multiplication and addition for each coefficient.
class DynamicQuantizeLstm : public Layer {
 public:
  /// The operator's inputs in order, as its definition names them.
  static constexpr std::array kInputs = {"X",         "W",           "R", "B",       "sequence_lens",
                                         "initial_h", "initial_c",   "P", "W_scale", "W_zero_point",
                                         "R_scale",   "R_zero_point"};

  /// Limits of the arguments of sigmoid and tanh, and the smallest sigmoid. Loops take them as a parameter, because GCC does
  /// not vectorize them with constants.
  struct Bounds {
    float sigmoid = 18, tanh = 9, least = 0;
  };

  DynamicQuantizeLstm(const Node& node, const Context& context);

  void Compute(Run& run) const override;
  std::string Kernel() const override;

 private:
  struct Direction {
    GemmPlan input, recurrent;
    std::vector<float> bias;  // 4·hidden_ values, or none
    bool is_reverse;
  };
  // A state before the first step: each run's, a constant, or zeros.
  struct InitialState {
    std::optional<size_t> input = {};
    std::vector<float> constant = {};
  };

  InitialState ReadInitialState(const Node& node, size_t input) const;
  // Copies the state of `direction`, `count` floats, to `state`.
  void StartState(const Run& run, const InitialState& initial, size_t direction, int64_t count,
                  float* state) const;

  void (*step_)(const float* gates, const float* bias, float* c, float* h, int64_t hidden, Bounds bounds);
  int64_t hidden_ = 0, input_ = 0;
  std::vector<Direction> directions_;
  InitialState h_, c_;
};

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_LSTM_H_
