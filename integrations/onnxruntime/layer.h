// What the provider computes of a model.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_LAYER_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_LAYER_H_

#include <string>

#include "run.h"

namespace intact::onnxruntime {

/// An operator that the provider computes.
class Layer {
 public:
  virtual ~Layer() = default;
  /// In which order it takes and makes the elements of tensors.
  virtual ElementOrder GetOrder() const { return ElementOrder::kChannelsFirst; }
  /// Computes the output. Any number of threads may.
  virtual void Compute(Run& run) const = 0;
  /// What its plan chose: the name of the kernel.
  virtual std::string Kernel() const = 0;
};

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_LAYER_H_
