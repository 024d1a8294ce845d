// Which QDQ groups ONNX Runtime computes in integers.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_RULES_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_RULES_H_

#include <cstddef>
#include <string>

#include "ort.h"

namespace intact::onnxruntime {

/// The version of the ONNX Runtime that loaded the provider, 1.32.0 for instance. Set once, when it is loaded.
std::string& RuntimeVersion();
/// Its minor version: 32 of 1.32.0. 0 if the version has another form.
int RuntimeMinor();

/// Since these minor versions ONNX Runtime makes no such operator of scales that the operator does not have
/// (checks_scales_since in onnxruntime_rules.json).
extern const int kChecksScalesOfQLinearMatMul, kChecksScalesOfQLinearAdd, kChecksScalesOfQLinearMul;

/// Since this minor version ONNX Runtime makes a MatMulNBits of floats and dequantized weights (matmul_nbits_since).
extern const int kMakesMatMulNBits;

/// A row of python/intact/onnxruntime_rules.json: when ONNX Runtime computes a group around an operator in integers.
struct Rule {
  const char* type;        ///< the operator
  bool float_output;       ///< also without a QuantizeLinear behind the operator
  bool s8_input;           ///< also with an A that stays s8
  bool one_type;           ///< A and B must have one type; else an s8 A needs an s8 B
  bool needs_zero_points;  ///< A and B must have zero points
  bool needs_scalars;      ///< scales and zero points must have no dimensions
  bool checks_bias;        ///< the bias must have the zero point 0 and about the scale a_scale·b_scale
};

/// The rule of a node's operator; null: ONNX Runtime computes its groups in floats.
const Rule* FindRule(Ort::ConstNode node);

/// Throws Refusal if ONNX Runtime computes floats because a scale or a zero point of A, B or the output is not given, or
/// has dimensions. `quantizer`: null if the output stays float.
void CheckQuantization(const Rule& rule, Ort::ConstNode a, Ort::ConstNode b, Ort::ConstNode quantizer);

/// What a QDQ bias stands for.
struct BiasFit {
  bool is_own =
      false;         ///< its scale or zero point is not the one that ONNX Runtime's integer operator assumes
  std::string note;  ///< if it is its own: what ONNX Runtime computes
};

/// Compares the scale and the zero point of a bias with a_scale·b_scale and 0. Throws Refusal if ONNX Runtime computes floats
/// because of them, or if a run gives them.
BiasFit FitBias(const Rule& rule, Ort::ConstNode a, Ort::ConstNode b, Ort::ConstNode bias);

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_RULES_H_
