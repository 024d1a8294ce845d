#include "layer.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

namespace intact::pytorch {
namespace {

template <class Type>
std::shared_ptr<const Plan> Made(Result<Type> plan) {
  if (plan) return std::make_shared<const Plan>(std::move(*plan));
  const intact_status status = plan.error().status;
  const std::string message = "intact: " + plan.error().message;
  if (status == INTACT_INVALID_ARGUMENT || status == INTACT_UNSUPPORTED) throw NoPlan(message);
  throw std::runtime_error(message);
}

}  // namespace

void CheckWeights(const Tensor& weights) {
  if (weights.dim() != 2 && weights.dim() != 4)
    Refuse("weights", "have the sizes " + TextOf(SizesOf(weights)), "2 or 4 sizes");
  if (weights.scalar_type() != ScalarType::Char)
    Refuse("weights", std::string("have the type ") + torch::headeronly::toString(weights.scalar_type()),
           "Char");
  if (!weights.is_contiguous()) Refuse("weights", "are not contiguous", "adjacent elements");
}

Layer::Layer(const Tensor& weights) : sizes_(SizesOf(weights)) {
  const auto* const begin = static_cast<const int8_t*>(weights.const_data_ptr());
  weights_.assign(begin, begin + weights.numel());
}

bool Layer::Has(const Tensor& weights) const {
  return SizesOf(weights) == sizes_ &&
         std::memcmp(weights_.data(), weights.const_data_ptr(), weights_.size()) == 0;
}

std::shared_ptr<const Plan> Layer::Get(const Key& given) {
  const std::lock_guard lock(mutex_);
  auto plan = Find(given);
  if (plan != nullptr) return plan;
  Key key = given;
  if (!plans_.empty() && !key.extents.empty()) {
    key.extents = {INTACT_ANY_EXTENT, INTACT_ANY_EXTENT};
    plan = Find(key);
    if (plan != nullptr) return plan;
  }
  plan = Make(key);
  plans_.emplace_front(std::move(key), plan);
  if (plans_.size() > kMostPlans) plans_.pop_back();
  return plan;
}

std::shared_ptr<const Plan> Layer::Find(const Key& key) {
  const auto found =
      std::find_if(plans_.begin(), plans_.end(), [&](const auto& entry) { return entry.first == key; });
  if (found == plans_.end()) return nullptr;
  plans_.splice(plans_.begin(), plans_, found);
  return found->second;
}

std::shared_ptr<const Plan> Layer::Make(const Key& key) const {
  intact_linear_desc linear = INTACT_LINEAR_DESC_INIT;
  linear.a_type = key.a_type;
  linear.c_type = key.c_type;
  linear.c_zero_point = key.c_zero_point;
  linear.a_quantization = INTACT_QUANTIZATION_TENSOR;
  linear.scales = key.scales.data();
  linear.scale_count = static_cast<int64_t>(key.scales.size());
  linear.bias_f32 = key.bias.empty() ? nullptr : key.bias.data();
  linear.residual_type = key.residual_type;
  linear.residual_scale = key.residual_scale;
  linear.residual_zero_point = key.residual_zero_point;
  linear.overflow = INTACT_OVERFLOW_WRAPS;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (key.lowest == 0 && key.highest == kInfinity) {
    linear.activation = INTACT_ACTIVATION_RELU;
  } else if (key.lowest != -kInfinity || key.highest != kInfinity) {
    linear.activation = INTACT_ACTIVATION_CLAMP;
    linear.clamp_min = key.lowest;
    linear.clamp_max = key.highest;
  }
  return sizes_.size() == 2 ? MakeGemm(linear) : MakeConv(linear, key);
}

std::shared_ptr<const Plan> Layer::MakeGemm(const intact_linear_desc& linear) const {
  GemmDesc desc = MakeGemmDesc();
  desc.linear = linear;
  desc.k = sizes_[0];
  desc.n = sizes_[1];
  return Made(Gemm::Create(desc, weights_.data()));
}

std::shared_ptr<const Plan> Layer::MakeConv(const intact_linear_desc& linear, const Key& key) const {
  ConvDesc desc = MakeConvDesc();
  desc.linear = linear;
  desc.groups = key.window[6];
  desc.output_channels = sizes_[0];
  desc.input_channels = sizes_[3] * desc.groups;
  for (size_t i = 0; i < 2; ++i) {
    desc.input[i] = key.extents[i];
    desc.kernel[i] = sizes_[1 + i];
    desc.stride[i] = key.window[i];
    desc.pad_begin[i] = desc.pad_end[i] = key.window[2 + i];
    desc.dilation[i] = key.window[4 + i];
  }
  return Made(Conv::Create(desc, weights_.data()));
}

}  // namespace intact::pytorch
