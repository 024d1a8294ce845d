// The weights that `verify certify` reads: .npy files of int8 or uint8, whose dimensions come in the order
// that the user names. Frameworks differ in it, and a file does not say which it is.
#ifndef INTACT_TOOLS_COMMANDS_CERTIFY_WEIGHTS_H_
#define INTACT_TOOLS_COMMANDS_CERTIFY_WEIGHTS_H_

#include <cstdint>
#include <intact/intact.hpp>
#include <optional>
#include <string>
#include <vector>

#include "verify/problem/place.h"

namespace intact::tools {

/// Where output channels O (or columns N) and input channels I (or depths K) stand among the dimensions.
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
  std::vector<std::string>
      layouts;  // names: one of convolutions, for any number of dimensions, and one of matrices
  int64_t groups = 1;
  std::string op;           // "linear", "conv" or "": as the file's dimensions say
  std::string zero_points;  // a number, a .npy file, or ""

  /// Nothing, or what is wrong with `layouts`: each kind of weights has one order.
  std::optional<Error> WhyNot() const;
  /// The order that was asked for; nothing: the usual one, O…I or NK. An error if `layouts` are of the other
  /// kind alone.
  Result<std::optional<Order>> OrderOf(bool is_conv) const;
};

struct Weights {
  std::vector<int64_t> shape;  // as in the file
  std::string order;           // how it was read: "ohwi"
  std::string warning;         // if another order is plausible, and was not ruled out
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
