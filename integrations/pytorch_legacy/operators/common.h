// Code that the operators share: the options of a layer, the quantization of its weights, the keys of calls,
// and the cache of plans.
//
// A layer ("params" of a TorchScript program) holds weights and bias as PyTorch quantized them, and the
// options of its conversion. A call adds the quantization of its input and output, which selects the plan. A
// plan is made when it is first needed, and kept.
#ifndef INTEGRATIONS_PYTORCH_LEGACY_OPERATORS_COMMON_H_
#define INTEGRATIONS_PYTORCH_LEGACY_OPERATORS_COMMON_H_

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <cstdint>
#include <intact/intact.hpp>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace intact_torch {

/// Throws an exception that names the layer: `"intact: features.0.conv: input is Float; expected …"`.
template <class... Words>
[[noreturn]] void Fail(const std::string& layer, const Words&... words) {
  TORCH_CHECK(false, "intact: ", layer.empty() ? "" : layer + ": ", words...);
}

/// The name of a layer and the options of its conversion.
struct Options {
  std::string layer;    // its qualified name, for messages
  std::string mode;     // "exact" or "saturating"
  std::string max_isa;  // a name of intact_isa_name()
};

/// The intact_isa called `name`, or -1.
inline int32_t IsaNamed(const std::string& name) {
  for (int32_t isa = INTACT_ISA_ANY; intact_isa_name(isa) != nullptr; ++isa) {
    if (name == intact_isa_name(isa)) return isa;
  }
  return -1;
}

inline void CheckOptions(const Options& options) {
  if (options.mode != "exact" && options.mode != "saturating") {
    Fail(options.layer, "mode is '", options.mode, "'; expected 'exact' or 'saturating'");
  }
  if (IsaNamed(options.max_isa) < 0) {
    Fail(options.layer, "max_isa is '", options.max_isa,
         "'; expected 'any' or an ISA's name, such as 'avx2'");
  }
}

/// Distinguishes calls of a layer: types, scales and zero points of input, residual and output. 8-bit outputs
/// have the input's type.
struct CallKey {
  at::ScalarType type = at::ScalarType::QUInt8;
  double input_scale = 1;
  int64_t input_zero_point = 0;
  double output_scale = 1;
  int64_t output_zero_point = 0;
  bool relu = false;
  bool has_residual = false;
  at::ScalarType residual_type = at::ScalarType::QUInt8;
  double residual_scale = 1;
  int64_t residual_zero_point = 0;

  bool operator==(const CallKey&) const = default;
};

/// The plans of a layer, by call. Thread-safe.
template <class Key, class Plan>
class PlanCache {
 public:
  /// The plan of `key`. make() creates it if there is none.
  template <class Make>
  std::shared_ptr<const Plan> Get(const Key& key, const Make& make) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto entry = plans_.begin(); entry != plans_.end(); ++entry) {
      if (entry->first != key) continue;
      plans_.splice(plans_.begin(), plans_, entry);
      return entry->second;
    }
    plans_.emplace_front(key, std::make_shared<const Plan>(make()));
    if (plans_.size() > kMost) plans_.pop_back();
    return plans_.front().second;
  }

 private:
  // A statically quantized model has one plan for each layer. Inputs with changing scales must not fill
  // memory.
  static constexpr size_t kMost = 8;

  std::mutex mutex_;
  std::list<std::pair<Key, std::shared_ptr<const Plan>>> plans_;  // the most recently used first
};

/// Scales and zero points of weights, one for each output channel.
struct WeightQuantization {
  std::vector<double> scales;
  std::vector<int32_t> zero_points;
};

/// Whether the operators accept `tensor` as an activation: quint8 or qint8, per tensor, on the CPU.
bool IsActivation(const at::Tensor& tensor);

/// Throws unless `tensor` is float32, dense in memory or strided, on the CPU.
void CheckReal(const char* argument, const at::Tensor& tensor, const Options& options);

/// Throws unless `scale` is a finite float32 above 0 and `zero_point` is a value of `type`. `whose` precedes
/// both names in messages: "input's ", or "output_".
void CheckAffine(const std::string& whose, double scale, int64_t zero_point, at::ScalarType type,
                 const Options& options);

/// The quantization of `weight`, which must be qint8 per tensor or per channel of `axis`. The axis may have
/// the output channels of one group only, as in a transposed convolution.
WeightQuantization QuantizationOf(const at::Tensor& weight, int64_t axis, int64_t output_channels,
                                  const Options& options);

/// Throws unless there is no bias, or it has a value for each output channel.
void CheckBias(const c10::optional<at::Tensor>& bias, int64_t output_channels, const Options& options);

/// An intact_linear_desc with the arrays that it points to.
class Arithmetic {
 public:
  /// For a call with static quantization.
  Arithmetic(const CallKey& key, const WeightQuantization& weights, const c10::optional<at::Tensor>& bias,
             const Options& options);

  /// For a call that quantizes float32 activations itself, per row or per tensor, and has float32 outputs.
  Arithmetic(bool per_row, bool relu, const WeightQuantization& weights,
             const c10::optional<at::Tensor>& bias, const Options& options);

  /// The descriptor. It points into this object.
  intact_linear_desc desc() const;

 private:
  Arithmetic(const WeightQuantization& weights, const Options& options);
  void SetScales(double input_scale, const WeightQuantization& weights, double output_scale,
                 const c10::optional<at::Tensor>& bias);

  intact_linear_desc desc_ = INTACT_LINEAR_DESC_INIT;
  std::vector<float> scales_;
  std::vector<float> bias_;
  std::vector<int32_t> weight_zero_points_;
};

/// The key of a call. Throws if its tensors or numbers are wrong.
CallKey KeyOf(const at::Tensor& input, const c10::optional<at::Tensor>& residual, double output_scale,
              int64_t output_zero_point, bool relu, const Options& options);

/// Throws unless `status` is INTACT_OK.
inline void Check(intact_status status, const Options& options) {
  if (status != INTACT_OK) Fail(options.layer, intact_last_error());
}

/// The plan in `result`. Throws if it is an error.
template <class Plan>
Plan Made(intact::Result<Plan> result, const Options& options) {
  if (!result) Fail(options.layer, result.error().message);
  return std::move(*result);
}

/// The number of threads that PyTorch allows for a call from this thread.
inline int32_t Threads() { return at::in_parallel_region() ? 1 : at::get_num_threads(); }

/// Scratch memory for a run, from PyTorch's allocator.
inline at::Tensor Scratch(size_t bytes) {
  return at::empty({static_cast<int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte));
}

}  // namespace intact_torch
#endif  // INTEGRATIONS_PYTORCH_LEGACY_OPERATORS_COMMON_H_
