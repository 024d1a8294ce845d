// What the operators over PyTorch's tensors have alike: the options of a layer, its weights' quantization,
// how a call is keyed, and the cache of plans behind it.
//
// A layer ("params" of a TorchScript program) holds weights and bias as PyTorch quantized them, and the
// options that it was converted with. What a call brings beyond that, the quantization of its input and
// output, decides which plan serves it: each plan is made when it is wanted first, and kept.
#ifndef INTEGRATIONS_PYTORCH_OPERATORS_COMMON_H_
#define INTEGRATIONS_PYTORCH_OPERATORS_COMMON_H_

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

/// Which layer of the model it is, and how it is to compute.
struct Options {
  std::string layer;    // its qualified name, for messages
  std::string mode;     // "exact" or "saturating"
  std::string max_isa;  // the cap, as intact_isa_name() names it
};

/// The intact_isa of that name, or -1.
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

/// What distinguishes the calls of one layer: how input, residual and output stand for real numbers. 8-bit
/// outputs are of the input's type.
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

/// The plans of a layer, by call. Any number of threads may ask at once.
template <class Key, class Plan>
class PlanCache {
 public:
  /// The plan of `key`, which make() creates where there is none.
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
  // A model quantized statically has one for each layer; inputs whose scales change must not fill the memory.
  static constexpr size_t kMost = 8;

  std::mutex mutex_;
  std::list<std::pair<Key, std::shared_ptr<const Plan>>> plans_;  // the one used last is first
};

/// Weights' scales and zero points, one for each output channel.
struct WeightQuantization {
  std::vector<double> scales;
  std::vector<int32_t> zero_points;
};

/// Whether `tensor` is what the operators take for an activation: quint8 or qint8, per tensor, on the CPU.
bool IsActivation(const at::Tensor& tensor);

/// Throws unless `tensor` is float32, dense in memory or strided, on the CPU.
void CheckReal(const char* argument, const at::Tensor& tensor, const Options& options);

/// Throws unless `scale` is a finite float32 above 0 and `zero_point` a value of `type`. `whose` stands
/// before both names: "input's ", or "output_".
void CheckAffine(const std::string& whose, double scale, int64_t zero_point, at::ScalarType type,
                 const Options& options);

/// Of `weight`, qint8 per tensor or per channel of `axis`. The axis may hold the output channels of one group
/// only, as a transposed convolution's does.
WeightQuantization QuantizationOf(const at::Tensor& weight, int64_t axis, int64_t output_channels,
                                  const Options& options);

/// Throws unless there is none or it is a value for each output channel.
void CheckBias(const c10::optional<at::Tensor>& bias, int64_t output_channels, const Options& options);

/// An intact_linear_desc with the arrays that it points to.
class Arithmetic {
 public:
  /// Of a call that is quantized statically.
  Arithmetic(const CallKey& key, const WeightQuantization& weights, const c10::optional<at::Tensor>& bias,
             const Options& options);

  /// Of a call that quantizes float32 activations as they come, per row or per tensor, to float32 outputs.
  Arithmetic(bool per_row, bool relu, const WeightQuantization& weights,
             const c10::optional<at::Tensor>& bias, const Options& options);

  /// Refers to this object.
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

/// The key of a call, whose tensors and numbers it checks.
CallKey KeyOf(const at::Tensor& input, const c10::optional<at::Tensor>& residual, double output_scale,
              int64_t output_zero_point, bool relu, const Options& options);

/// Throws unless `status` is INTACT_OK.
inline void Check(intact_status status, const Options& options) {
  if (status != INTACT_OK) Fail(options.layer, intact_last_error());
}

/// The plan in `result`; throws if there is none.
template <class Plan>
Plan Made(intact::Result<Plan> result, const Options& options) {
  if (!result) Fail(options.layer, result.error().message);
  return std::move(*result);
}

/// The threads that PyTorch allows a call of this thread.
inline int32_t Threads() { return at::in_parallel_region() ? 1 : at::get_num_threads(); }

/// Memory of PyTorch's allocator for a run to work in.
inline at::Tensor Scratch(size_t bytes) {
  return at::empty({static_cast<int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte));
}

}  // namespace intact_torch
#endif  // INTEGRATIONS_PYTORCH_OPERATORS_COMMON_H_
