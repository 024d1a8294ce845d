// Which nodes of ONNX Runtime have the same bytes on every CPU.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_SAME_BYTES_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_SAME_BYTES_H_

#include <string>

#include "ort.h"

namespace intact::onnxruntime {

/// Why the outputs of a node that stays with ONNX Runtime's CPU provider may have other bytes on another x86-64 CPU with AVX2, or
/// with another number of threads; "" if they have the same ones. python/intact/onnxruntime_operators.json says which ones do, for
/// the versions of ONNX Runtime that it names. Nodes of inner graphs are asked about on their own.
std::string WhyBytesMayDiffer(Ort::ConstNode node);

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_SAME_BYTES_H_
