// Values and nodes of a model's graph: which nodes make and read a value.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_GRAPH_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_GRAPH_H_

#include <cstddef>
#include <string>
#include <vector>

#include "ort.h"

namespace intact::onnxruntime {

/// The domain of ONNX Runtime's own operators.
inline constexpr char kMicrosoft[] = "com.microsoft";

/// Whether a node, which may be null, has this operator of ONNX.
bool Is(Ort::ConstNode node, const char* type);

/// The node that computes a value; null if none does.
Ort::ConstNode ProducerOf(Ort::ConstValueInfo value);
/// The node that alone reads a value; null if there is none.
Ort::ConstNode SoleConsumer(Ort::ConstValueInfo value);
/// Whether a node or the session's caller reads a value.
bool IsRead(Ort::ConstValueInfo value);

/// An input of a node; null if it is not given.
Ort::ConstValueInfo InputOf(Ort::ConstNode node, size_t i);
Ort::ConstValueInfo OutputOf(Ort::ConstNode node, size_t i = 0);

/// The names of values; "" for null.
std::vector<std::string> NamesOf(const std::vector<Ort::ConstValueInfo>& values);

bool IsS8(Ort::ConstValueInfo value);
/// Whether ONNX Runtime moves the s8 tensor between both nodes to u8: nothing else reads it.
bool IsMovedToU8(Ort::ConstNode quantizer, Ort::ConstNode dequantizer);
/// Whether ONNX Runtime moves the s8 input of a DequantizeLinear to u8.
bool HasMovedInput(Ort::ConstNode dequantizer);

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_GRAPH_H_
