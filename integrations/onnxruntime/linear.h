// The arithmetic of a layer, as its operator and the session's options have it.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_LINEAR_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_LINEAR_H_

#include <intact/intact.h>

#include <cstdint>
#include <vector>

#include "run.h"

namespace intact::onnxruntime {

/// What decides the arithmetic of a layer besides its operator.
struct Context {
  const Settings& settings;
  bool is_moved_to_u8, is_b_moved_to_u8, is_output_moved_to_u8;  ///< see Group
};

/// Whether ONNX Runtime's kernel of an operator adds pairs of products in int16 on a CPU with AVX2 and no VNNI. It does so
/// with u8 activations and s8 weights only.
enum class Pairs { kNone, kClamped };

/// A descriptor with the memory that it points to.
struct Linear {
  intact_linear_desc desc = INTACT_LINEAR_DESC_INIT;
  std::vector<int32_t> b_zero_points = {}, bias_s32 = {};
  std::vector<float> scales = {}, bias_f32 = {};

  Linear(const Context& context, Pairs pairs, intact_type a, intact_type b, intact_type c);

  /// A is float, and each run quantizes it; outputs have the scales of A and of the columns as factors.
  void SetDynamicQuantization(std::vector<float> b_scales);
  /// Points to the vectors.
  const intact_linear_desc* Complete();
};

/// Throws a Refusal with intact's message, unless `status` is INTACT_OK: no plan can compute the node.
void RefuseUnlessOk(intact_status status);

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_LINEAR_H_
