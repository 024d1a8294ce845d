// The weights that `verify certify` reads: .npy files of int8 or uint8. The user names the order of their
// dimensions, because frameworks differ and files do not contain the order.
#ifndef INTACT_TOOLS_COMMANDS_CERTIFY_WEIGHTS_H_
#define INTACT_TOOLS_COMMANDS_CERTIFY_WEIGHTS_H_

#include <cstdint>
#include <intact/intact.hpp>
#include <optional>
#include <string>
#include <vector>

#include "verify/problem/place.h"

namespace intact::tools {

/// Which dimensions are output channels O (or columns N) and input channels I (or depths K).
enum class Order : uint8_t {
  kInputsLast,    // O…I, NK: intact, TensorFlow Lite
  kInputsSecond,  // OI…: ONNX, PyTorch
  kOutputsLast,   // …IO, KN: TensorFlow; ONNX's MatMul
};

/// "ohwi", "oiw", "kn": the name of an order for a number of dimensions.
std::string NameOf(Order order, size_t dimensions, bool is_conv);
/// The names of all orders, for --layout.
std::vector<std::string> OrderNames();

struct WeightChoice {
  // Names of orders: at most one order for convolutions, and one for matrices.
  std::vector<std::string> layouts;
  int64_t groups = 1;
  std::string op;           // "linear", "conv" or "": decided by the file's number of dimensions
  std::string zero_points;  // a number, a .npy file, or ""

  /// An error if `layouts` name two orders for one kind of weights.
  std::optional<Error> WhyNot() const;
  /// The order that the user named; nothing: the usual order, O…I or NK. An error if `layouts` name orders of
  /// the other kind only.
  Result<std::optional<Order>> OrderOf(bool is_conv) const;
};

struct Weights {
  std::vector<int64_t> shape;  // as in the file
  std::string order;           // how it was read: "ohwi"
  std::string warning;         // if another order, or a depthwise kernel, is plausible
  int64_t n = 0, k = 0;
  verify::MaybeConv conv;  // with the weights' channels, kernel and groups
  intact_type type = INTACT_S8;
  std::vector<int32_t> zero_points;  // 1, n or none
  std::vector<uint8_t> values;       // n×k; s8 in two's complement
  /// "64 depths", "3×3 taps × 20 channels"
  std::string Depths() const;
  std::vector<int64_t> Kernel() const;
};

/// Errors are one line that names the file or the option, what was wrong and what was expected.
Result<Weights> ReadWeights(const std::string& file, const WeightChoice& choice);

}  // namespace intact::tools
#endif  // INTACT_TOOLS_COMMANDS_CERTIFY_WEIGHTS_H_
