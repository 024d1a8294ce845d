// The arithmetic of a layer, as its operator and the session's options have it.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_LINEAR_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_LINEAR_H_

#include <intact/intact.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "groups.h"
#include "node.h"
#include "run.h"

namespace intact::onnxruntime {

/// What decides the arithmetic of a layer besides its operator.
struct Context {
  const Settings& settings;
  bool is_moved_to_u8, is_b_moved_to_u8, is_output_moved_to_u8;  ///< see Group
  ConvNeighbors neighbors = {};                                  ///< see Group

  /// Throws Refusal if the session is not reproducible.
  void RequireReproducible() const;
};

/// What the table of engines needs to know of a layer besides its types; see intact_engine_layer.
struct Product {
  const char* op;
  int64_t depth;
  int64_t groups = 1, group_inputs = 1, group_outputs = 1;
};
/// A convolution of weights (O, I/groups, kernel…).
Product ConvProduct(const char* op, const Shape& weights, int64_t groups);

/// A descriptor with the memory that it points to.
struct Linear {
  intact_linear_desc desc = INTACT_LINEAR_DESC_INIT;
  std::vector<int32_t> b_zero_points = {}, bias_s32 = {};
  std::vector<float> scales = {}, bias_f32 = {};

  /// The option `like` makes the descriptor saturating if ONNX Runtime adds the layer's products in int16. Throws Refusal if
  /// the table of engines does not know the layer.
  Linear(const Context& context, const Product& product, intact_type a, intact_type b, intact_type c);

  /// A is float, and each run quantizes it; outputs have the scales of A and of the columns as factors.
  void SetDynamicQuantization(std::vector<float> b_scales);
  /// Points to the vectors.
  const intact_linear_desc* Complete();
};

/// Throws a Refusal with intact's message, unless `status` is INTACT_OK: no plan can compute the node.
void RefuseUnlessOk(intact_status status);

/// Scales of outputs as ONNX Runtime computes them: each product and the quotient rounded to float32, in this order.
std::vector<float> OutputScales(float a_scale, std::vector<float> b_scales, std::optional<float> y_scale);

/// The bias of an input, if there is one: one value, repeated, or one for each column. `behind`: how many
/// dimensions of extent 1 follow the columns.
template <class T>
std::vector<T> Bias(const Node& node, size_t input, intact_type type, int64_t columns, size_t behind = 0) {
  if (!node.Has(input)) return {};
  const Constant constant = node.ConstantOf(input, type);
  const auto values = constant.As<T>();
  if (constant.count == 1) return std::vector<T>(static_cast<size_t>(columns), values[0]);
  const size_t dimensions = constant.shape.size();
  const bool has_columns = dimensions > behind && constant.shape[dimensions - 1 - behind] == columns;
  if (constant.count != columns || !has_columns)
    throw Refusal("bias: has another shape than the columns; expected 1 or " + std::to_string(columns) +
                  " values");
  return {values.begin(), values.end()};
}

/// Sets the int32 bias of an input, if there is one. If the group gives the bias its own scale and zero point, inputs `scale`
/// and `scale` + 1, the bias becomes floats in steps of the output, `y_scale`, except with `like`: ONNX Runtime's operator
/// ignores them.
void SetBias(const Node& node, const Context& context, size_t bias, size_t scale, int64_t columns,
             float y_scale, Linear& linear);

/// An input of one element.
Ort::ConstValue ElementOf(const Run& run, size_t input, const char* name);

/// The zero point and the scale of A where each run gives at least one of them: its input, or else the constant.
struct FromRun {
  std::optional<size_t> zero_point_input = {}, scale_input = {};
  int32_t zero_point = 0;
  std::optional<float> scale = {};  // with neither, outputs have no scales

  struct Values {
    int32_t zero_point = 0;
    float scale = 1;
  };
  /// Reads a run's values, and lets `args` point to them.
  template <class Args>
  void Read(const Run& run, Values& values, Args& args) const {
    values.zero_point = zero_point;
    if (zero_point_input) {
      const auto given = ElementOf(run, *zero_point_input, "zero point of A");
      const bool is_signed =
          given.GetTensorTypeAndShapeInfo().GetElementType() == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8;
      values.zero_point = is_signed ? *static_cast<const int8_t*>(given.GetTensorRawData())
                                    : *static_cast<const uint8_t*>(given.GetTensorRawData());
    }
    args.a_zero_points = &values.zero_point;
    if (!scale_input && !scale) return;
    values.scale = scale_input ? *ElementOf(run, *scale_input, "scale of A").GetTensorData<float>() : *scale;
    args.a_scales = &values.scale;
  }
};

/// Sets the zero point of A and the scales of outputs, which are products with the scale of A. `scale`: none
/// where outputs are sums. Returns how runs give one of them, if they do.
std::optional<FromRun> SetQuantization(const Node& node, size_t zero_point, std::optional<size_t> scale,
                                       std::vector<float> b_scales, Linear& linear);

/// The arithmetic of QLinearMatMul and QLinearConv: the activations are inputs 0 to 2, each with its scale and its
/// zero point, the weights inputs 3 to 5. Inputs 6 and 7 are the scale and the zero point of the output.
Linear QLinear(const Node& node, const Context& context, const Product& product, intact_type b,
               int64_t columns);

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_LINEAR_H_
