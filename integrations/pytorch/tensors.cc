#include "tensors.h"

#include <intact/intact.h>
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

namespace intact::pytorch {

Sizes SizesOf(const Tensor& tensor) {
  Sizes sizes;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) sizes.push_back(tensor.size(dim));
  return sizes;
}

std::string TextOf(const Sizes& sizes) {
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

[[noreturn]] void Refuse(const char* name, const std::string& is, const std::string& expected) {
  throw std::runtime_error(std::string("intact: ") + name + " " + is + "; expected " + expected);
}

int32_t TypeOf(ScalarType type) {
  switch (type) {
    case ScalarType::Byte:
      return INTACT_U8;
    case ScalarType::Char:
      return INTACT_S8;
    case ScalarType::Float:
      return INTACT_F32;
    case ScalarType::BFloat16:
      return INTACT_BF16;
    default:
      Refuse("type", std::string("is ") + torch::headeronly::toString(type), "Byte, Char, Float or BFloat16");
  }
}

std::vector<float> FloatsOf(const char* name, const Tensor& tensor) {
  if (tensor.scalar_type() != ScalarType::Float)
    Refuse(name, std::string("has the type ") + torch::headeronly::toString(tensor.scalar_type()), "Float");
  if (!tensor.is_contiguous()) Refuse(name, "has gaps", "adjacent elements");
  const auto* const begin = static_cast<const float*>(tensor.const_data_ptr());
  return {begin, begin + tensor.numel()};
}

namespace {

/// The elements lie row-major, images channels-last, without gaps.
bool IsDense(const Tensor& tensor, bool is_image) {
  if (!is_image) return tensor.is_contiguous();
  const auto sizes = tensor.sizes(), strides = tensor.strides();
  int64_t adjacent = 1;
  for (const size_t dim : {1, 3, 2, 0}) {
    if (sizes[dim] != 1 && strides[dim] != adjacent) return false;
    adjacent *= sizes[dim];
  }
  return true;
}

}  // namespace

Tensor Dense(const Tensor& tensor, bool is_image) {
  if (IsDense(tensor, is_image)) return tensor;
  using torch::headeronly::MemoryFormat;
  return torch::stable::contiguous(tensor, is_image ? MemoryFormat::ChannelsLast : MemoryFormat::Contiguous);
}

Tensor Empty(const Sizes& sizes, bool is_image, ScalarType type) {
  Sizes strides(sizes.size());
  int64_t adjacent = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    const size_t dim = is_image ? std::array<size_t, 4>{0, 2, 3, 1}[i] : i;
    strides[dim] = adjacent;
    adjacent *= sizes[dim];
  }
  AtenTensorHandle handle = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(
      aoti_torch_empty_strided(static_cast<int64_t>(sizes.size()), sizes.data(), strides.data(),
                               torch::stable::detail::to<int32_t>(torch::stable::detail::from(type)),
                               aoti_torch_device_type_cpu(), 0, &handle));
  return Tensor(handle);
}

int64_t AddressOf(const Tensor& packed) {
  std::array stack{torch::stable::detail::from(packed)};
  STABLE_TORCH_ERROR_CODE_CHECK(
      torch_call_dispatcher("mkldnn::data_ptr", "", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<int64_t>(stack[0]);
}

bool Overlap(const Tensor& a, const Tensor& b) {
  const auto range = [](const Tensor& tensor) {
    const auto begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
    return std::pair(begin, begin + static_cast<size_t>(tensor.numel()) * tensor.element_size());
  };
  const auto [a_begin, a_end] = range(a);
  const auto [b_begin, b_end] = range(b);
  return a_begin < b_end && b_begin < a_end;
}

std::optional<float> ScaleOf(const Tensor& tensor) {
  if (!tensor.is_cpu() || tensor.numel() != 1 || tensor.scalar_type() != ScalarType::Float)
    return std::nullopt;
  return *static_cast<const float*>(tensor.const_data_ptr());
}
std::optional<int64_t> ZeroPointOf(const Tensor& tensor) {
  if (!tensor.is_cpu() || tensor.numel() != 1) return std::nullopt;
  if (tensor.scalar_type() == ScalarType::Int) return *static_cast<const int32_t*>(tensor.const_data_ptr());
  if (tensor.scalar_type() == ScalarType::Long) return *static_cast<const int64_t*>(tensor.const_data_ptr());
  return std::nullopt;
}

}  // namespace intact::pytorch
