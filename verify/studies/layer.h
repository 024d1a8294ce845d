// A quantized layer out of a framework, as a folder:
//
//   layer.json       operator, geometry, scales, zero points, relu (see below)
//   activations.npy  u1 (or i1); linear [M, K], conv2d [batch, H, W, C]
//   weights.npy      i1 (or u1); linear [N, K], conv2d [N, KH, KW, C/groups], transposed too
//   bias.npy         f4, [N]; absent when the layer has none
//   bias_int32.npy   i4, [N]: the bias in units of si·sw[n], added to the sums; bias.npy is then not read
//   output_*.npy     what some engine computed; of the activations' type; [M, N] or [batch, OH, OW, N]
//
// layer.json:
//   { "operator": "linear", "relu": false,                         or "conv1d", "conv2d", "conv3d",
//                                                                  "conv_transpose1d", …2d, …3d
//     "input":  {"scale": 0.032, "zero_point": 146},
//     "output": {"scale": 0.017, "zero_point": 139},
//     "weight": {"scales": [0.001, …], "zero_points": [0, …]},      1 or N of each; scales ≥ 0
//     "stride": [2, 2], "padding": [1, 1], "dilation": [1, 1],     convolutions, a value for each dimension;
//     "groups": 1, "output_padding": [0, 0],                       none needs to be there; padding at both
//                                                                  ends, unless "padding_end" is there too;
//                                                                  output_padding of transposed ones
//     "reduce_range": false,                                       optional: calibrated for 7 bits
//     "ramp": {"from": -4.0, "to": 4.0, "step": 0.01} }             optional: rows hold rising constants
//
// A layer that quantizes its activations as they come has operator "linear_dynamic", real numbers in
// activations.npy and output_*.npy (f4), and in place of the scales and zero points of input and output
//
//     "input":  {"type": "u8", "per": "tensor"},                   or "s8"; or "row"
//
// A key that is not among these, that has no meaning for the operator or that stands there twice is an error.
//
// The requantization is the frameworks': the output type is the activations' type, scale[n] = si·sw[n]/so
// rounded to float32 once, bias_f32[n] = bias[n]/so, and ReLU where the layer has one. PyTorch's own outputs
// confirm it byte for byte (tests/verify/layer_test.cc). A dynamic layer's output is that of the contract,
// with the weights' scales and the bias as they are.
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
  std::string op;      // "linear", "conv2d", …
  bool reduce_range = false;
  bool is_ramp = false;
  reference::Operation operation;

  /// Of a linear layer.
  const reference::Gemm& gemm() const { return std::get<reference::Gemm>(operation); }
  reference::Gemm& gemm() { return std::get<reference::Gemm>(operation); }
  /// nullptr for a linear layer.
  const reference::Conv* conv() const { return std::get_if<reference::Conv>(&operation); }
};

/// Errors are one line that names the file and the field, what was wrong and what was expected.
Result<Layer> ReadLayer(const std::string& folder);

/// The output that `file` (absolute, or relative to the layer's folder) says the layer should have,
/// dense.
Result<std::vector<uint8_t>> ReadExpected(const Layer& layer, const std::string& file);

/// Layers made by code, the same on every machine, for those who have none at hand: 64×10 with uniform
/// weights, each probed with every activation of its range as a constant row. In order: full range;
/// activations reduced to 7 bits; weights reduced to 7 bits; s8 activations reduced to 7 bits.
std::vector<Layer> BuiltinLayers();

}  // namespace intact::verify
#endif  // INTACT_VERIFY_STUDIES_LAYER_H_
