// The operators that the provider takes: each node becomes a layer, a plan of intact and how a run feeds it.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_OPERATORS_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_OPERATORS_H_

#include <memory>
#include <string>

#include "groups.h"
#include "run.h"

namespace intact::onnxruntime {

/// An operator that the provider computes.
class Layer {
 public:
  virtual ~Layer() = default;
  /// Computes the output. Any number of threads may.
  virtual void Compute(Run& run) const = 0;
  /// What its plan chose: the name of the kernel.
  virtual std::string Kernel() const = 0;
};

/// The layer of an operator. Throws Refusal if its nodes are to stay with ONNX Runtime.
std::unique_ptr<Layer> MakeLayer(const Group& group, const Settings& settings);

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_OPERATORS_H_
