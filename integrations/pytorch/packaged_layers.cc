// Quantized layers for packages of AOTInductor, which run without Python:
//
//   intact::packaged_layer    the output of a layer; its first call makes the plan
//
// layers.cc has the arithmetic.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "layer.h"
#include "step.h"

namespace intact::pytorch {
namespace {

/// A layer of a package. The package has its weights as a constant. Thread-safe.
class PackagedLayer {
 public:
  explicit PackagedLayer(const Tensor& weights) : layer_(weights) {}

  Layer& layer() { return layer_; }

  /// Compares weights with the first ones, unless they are at one of the last addresses: a package that was
  /// loaded again has equal weights. Other weights at these addresses are not noticed.
  void Check(const Tensor& weights) {
    const void* const address = weights.const_data_ptr();
    const std::lock_guard lock(mutex_);
    if (std::find(addresses_.begin(), addresses_.end(), address) != addresses_.end()) return;
    if (!layer_.Has(weights))
      Refuse("weights", "differ from the weights of the first call",
             "weights that the process did not replace");
    addresses_.insert(addresses_.begin(), address);
    if (addresses_.size() > kMostAddresses) addresses_.pop_back();
  }

  /// The last steps, the newest first.
  using Steps = std::vector<std::pair<Parameters, std::shared_ptr<const Step>>>;
  std::shared_ptr<const Steps> steps() const {
    const std::lock_guard lock(mutex_);
    return steps_;
  }
  /// Puts the step first.
  void Add(const Parameters& parameters, const std::shared_ptr<const Step>& step) {
    const std::lock_guard lock(mutex_);
    auto steps = std::make_shared<Steps>(*steps_);
    std::erase_if(*steps, [&](const auto& entry) { return entry.second == step; });
    steps->emplace(steps->begin(), parameters, step);
    if (steps->size() > kMostPlans) steps->pop_back();
    steps_ = std::move(steps);
  }

 private:
  static constexpr size_t kMostAddresses = 4;

  Layer layer_;
  mutable std::mutex mutex_;
  std::vector<const void*> addresses_;  // the newest first
  std::shared_ptr<const Steps> steps_ = std::make_shared<Steps>();
};

/// The layers of packages that ran last, by the digests of their weights. PyTorch does not report that a
/// package is unloaded. Thread-safe.
class PackagedLayers {
 public:
  std::shared_ptr<PackagedLayer> Get(const std::string& digest, const Tensor& weights) {
    std::shared_ptr<PackagedLayer> layer;
    {
      const std::lock_guard lock(mutex_);
      auto& entry = layers_[digest];
      if (entry.first == nullptr) entry.first = std::make_shared<PackagedLayer>(weights);
      entry.second = ++clock_;
      layer = entry.first;
      if (layers_.size() > kMost)
        layers_.erase(std::min_element(layers_.begin(), layers_.end(), [](const auto& a, const auto& b) {
          return a.second.second < b.second.second;
        }));
    }
    layer->Check(weights);
    return layer;
  }

 private:
  // Most processes run fewer layers. Models that come and go must not fill memory.
  static constexpr size_t kMost = 2048;

  std::mutex mutex_;
  int64_t clock_ = 0;
  std::unordered_map<std::string, std::pair<std::shared_ptr<PackagedLayer>, int64_t>> layers_;
};

/// `weight`: dense, as in Layer. `digest`: of the weights. A function may follow, if the type is Float.
/// AOTInductor passes no empty list, so linear layers have no window.
// NOLINTNEXTLINE(google-readability-function-size): the arguments of a PyTorch operator
Tensor RunPackaged(const Tensor& x, const Tensor& x_scale, const Tensor& x_zero_point, const Tensor& weight,
                   std::string digest, const Tensor& w_scale, std::optional<Tensor> bias,
                   std::optional<Tensor> other, std::optional<Window> given_window, ScalarType type,
                   double scale, int64_t zero_point, double other_scale, int64_t other_zero_point,
                   std::optional<double> lowest, std::optional<double> highest) {
  static PackagedLayers layers;
  Window window = std::move(given_window).value_or(Window{});
  CheckWeights(weight);
  Sizes x_sizes = SizesOf(x);
  const size_t images = std::min<size_t>(1, x_sizes.size()), rows = std::max<size_t>(x_sizes.size(), 1) - 1;
  const auto begin = static_cast<ptrdiff_t>(weight.dim() == 4 ? images : rows);
  x_sizes.erase(x_sizes.begin(), x_sizes.begin() + begin);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Parameters parameters{x.scalar_type(),
                              std::move(x_sizes),
                              std::move(window),
                              type,
                              scale,
                              zero_point,
                              other ? std::optional(other->scalar_type()) : std::nullopt,
                              other_scale,
                              other_zero_point,
                              false,
                              lowest.value_or(-kInfinity),
                              highest.value_or(kInfinity)};
  const auto layer = layers.Get(digest, weight);
  const auto run = [&](const Step& step) { return step.Run(x, x_scale, x_zero_point, w_scale, other, bias); };
  const auto steps = layer->steps();
  for (const auto& [given, step] : *steps) {
    if (given != parameters) continue;
    if (auto out = run(*step)) {
      if (step != steps->front().second) layer->Add(parameters, step);
      return *out;
    }
  }
  const std::shared_ptr<const Step> step = StepOf(layer->layer(), parameters, w_scale, bias);
  if (auto out = run(*step)) {
    layer->Add(parameters, step);
    return *out;
  }
  const auto number = [](const auto& value) { return value ? std::to_string(*value) : "not one number"; };
  if (const auto value = ScaleOf(x_scale); !step->TakesScale(value))
    Refuse("x_scale", "is " + number(value),
           "one normal float32 number above 0, also divided by the output's");
  if (const auto value = ZeroPointOf(x_zero_point); !step->TakesZeroPoint(value))
    Refuse("x_zero_point", "is " + number(value), "one int32 or int64 number that x's type has");
  Refuse("other", "has the sizes " + TextOf(other ? SizesOf(*other) : Sizes{}), TextOf(step->OutputSizes(x)));
}

}  // namespace
}  // namespace intact::pytorch

STABLE_TORCH_LIBRARY_FRAGMENT(intact, library) {
  library.def(
      "packaged_layer(Tensor x, Tensor x_scale, Tensor x_zero_point, Tensor weight, str digest, Tensor "
      "w_scale, Tensor? bias, Tensor? other, int[]? window, ScalarType type, float scale, int zero_point, "
      "float other_scale, int other_zero_point, float? lowest, float? highest) -> Tensor");
}
STABLE_TORCH_LIBRARY_IMPL(intact, CPU, library) {
  library.impl("packaged_layer", TORCH_BOX(&intact::pytorch::RunPackaged));
}
