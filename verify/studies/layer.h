// A quantized layer from a framework, as a folder. grouped_layer.h describes layers with grouped weights.
// Other layers are:
//
//   layer.json       operator, geometry, scales, zero points, relu (see below)
//   activations.npy  u1 (or i1); linear [M, K], conv2d [batch, H, W, C]
//   weights.npy      i1 (or u1); linear [N, K], conv2d [N, KH, KW, C/groups], transposed too
//   bias.npy         f4, [N]; absent when the layer has none
//   bias_int32.npy   i4, [N]: the bias in units of si·sw[n], added to the sums; bias.npy is then not read
//   residual.npy     u1, i1 or f4, shaped as the output; absent when the layer adds no residual
//   output_*.npy     an engine's output, in the output's type; [M, N] or [batch, OH, OW, N]
//
// layer.json:
//   { "operator": "linear",                                        or "conv1d", "conv2d", "conv3d",
//                                                                  "conv_transpose1d", …2d, …3d
//     "activation": "none",                                        or "relu", "relu6", or bounds in real
//                                                                  numbers, {"min": -1, "max": 1};
//                                                                  or "relu": true or false instead
//     "input":  {"scale": 0.032, "zero_point": 146},
//     "output": {"scale": 0.017, "zero_point": 139,
//                "type": "u8"},                                    or "s8", "s32", "f32", "f16"; without it
//                                                                  the activations' type
//     "weight": {"scales": [0.001, …], "zero_points": [0, …]},      1 or N of each; scales ≥ 0
//     "residual": {"scale": 0.02, "zero_point": 128},              with residual.npy; f4 has no zero point
//     "stride": [2, 2], "padding": [1, 1], "dilation": [1, 1],     convolutions, a value for each dimension;
//     "groups": 1, "output_padding": [0, 0],                       all are optional; padding at both
//                                                                  ends, unless there is "padding_end",
//                                                                  or a word, see below; output_padding
//                                                                  of transposed ones only
//     "reduce_range": false,                                       optional: calibrated for 7 bits
//     "overflow": "refused",                                       optional; or "wraps": sums beyond int32
//                                                                  are taken modulo 2³²
//     "ramp": {"from": -4.0, "to": 4.0, "step": 0.01} }             optional: rows hold rising constants
//
// Outputs of type f32 and f16 are real numbers: "output" then has neither scale nor zero point. Outputs of
// type s32 are the sums (ConvInteger, MatMulInteger): there are no scales, no activation and no residual, and
// the bias is bias_int32.npy.
//
// Words for padding: "VALID" means none. "SAME" (TensorFlow Lite; SAME_UPPER in ONNX) means the padding with
// which the output has ⌈input/stride⌉ pixels. If this padding is odd, the larger half is behind the input.
// With "SAME_LOWER" the larger half is before the input.
//
// The operator of a layer that quantizes its activations at run time ends in "_dynamic" ("linear_dynamic",
// "conv2d_dynamic"). The layer's activations.npy has real numbers (f4). Its outputs are f32, unless
// output.type says otherwise. Its input is
//
//     "input":  {"type": "u8", "per": "tensor"},                   or "s8"; of linear layers also "row"
//
// The library quantizes the activations of dynamic layers whose outputs have scales. If the outputs are sums,
// the reader quantizes the activations like DynamicQuantizeLinear of ONNX. The layer then runs with the
// resulting zero point.
//
// An unknown key, a key without a meaning for the layer, and a key that is given twice are errors.
//
// Layers are requantized as frameworks do it. si, sw, so and sr are the scales of input, weights, output and
// residual: scale[n] = si·sw[n]/so rounded to float32 once, bias_f32[n] = bias[n]/so, residual_scale = sr/so.
// The activation's bounds are divided by so, and rounded to integers for 8-bit outputs. Outputs of other
// types have so = 1. PyTorch's own outputs confirm these rules byte for byte (tests/verify/studies/layer_test.cc). A
// dynamic layer computes the contract with scales[n] = sw[n]/so.
#ifndef INTACT_VERIFY_STUDIES_LAYER_H_
#define INTACT_VERIFY_STUDIES_LAYER_H_

#include <cstdint>
#include <intact/intact.hpp>
#include <optional>
#include <string>
#include <vector>

#include "reference/contract/operation.h"

namespace intact::verify {

struct Layer {
  std::string name;    // the folder's own name
  std::string folder;  // as given; empty for a layer made by code
  std::string op;      // "linear", "conv2d", "conv2d_dynamic", "linear_grouped", …
  bool reduce_range = false;
  bool is_ramp = false;
  reference::Operation operation;

  /// For a linear layer.
  const reference::Gemm& gemm() const { return std::get<reference::Gemm>(operation); }
  reference::Gemm& gemm() { return std::get<reference::Gemm>(operation); }
  /// nullptr for a layer that is no convolution.
  const reference::Conv* conv() const { return std::get_if<reference::Conv>(&operation); }
  /// nullptr for a layer without grouped weights.
  const reference::Grouped* grouped() const { return std::get_if<reference::Grouped>(&operation); }
};

/// Errors are one line with the file, the field, what was wrong and what was expected.
Result<Layer> ReadLayer(const std::string& folder);

/// Reads the output that the layer should have, dense, from `file` (absolute, or relative to the layer's
/// folder).
Result<std::vector<uint8_t>> ReadExpected(const Layer& layer, const std::string& file);

/// Layers made by code, identical on every machine, for users without layers of their own. Each has 64×10
/// uniform weights, and a constant row for every activation of its range. In order: full range; activations
/// reduced to 7 bits; weights reduced to 7 bits; s8 activations reduced to 7 bits.
std::vector<Layer> BuiltinLayers();

}  // namespace intact::verify
#endif  // INTACT_VERIFY_STUDIES_LAYER_H_
