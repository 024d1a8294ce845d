// PyTorch's tensors, through LibTorch's stable ABI.
#ifndef INTACT_INTEGRATIONS_PYTORCH_TENSORS_H_
#define INTACT_INTEGRATIONS_PYTORCH_TENSORS_H_

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace intact::pytorch {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

using Sizes = std::vector<int64_t>;

Sizes SizesOf(const Tensor& tensor);

std::string TextOf(const Sizes& sizes);

/// Throws: the argument, what it is, and what was expected.
[[noreturn]] void Refuse(const char* name, const std::string& is, const std::string& expected);

/// The element type in intact.
int32_t TypeOf(ScalarType type);

/// The elements of a dense float32 tensor. Refuses others. `name`: of the argument.
std::vector<float> FloatsOf(const char* name, const Tensor& tensor);

/// The tensor, or a copy of it, without gaps: row-major, images channels-last.
Tensor Dense(const Tensor& tensor, bool is_image);

/// A tensor without gaps and without values.
Tensor Empty(const Sizes& sizes, bool is_image, ScalarType type);

/// The address of packed weights, which have no storage.
int64_t AddressOf(const Tensor& packed);

/// Whether dense tensors have memory in common.
bool Overlap(const Tensor& a, const Tensor& b);

/// The only element, or nothing if there are more, or if it has another type or lies on another device.
std::optional<float> ScaleOf(const Tensor& tensor);
std::optional<int64_t> ZeroPointOf(const Tensor& tensor);

}  // namespace intact::pytorch

#endif  // INTACT_INTEGRATIONS_PYTORCH_TENSORS_H_
