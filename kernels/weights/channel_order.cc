#include "kernels/weights/channel_order.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/weights/schedule.h"

namespace intact::kernels {
namespace {

class GroupOrder {
 public:
  GroupOrder(const LinearProblem& problem, const WeightView& view, const ConvGeometry& geometry,
             int64_t group)
      : channels_(static_cast<size_t>(geometry.group_inputs())),
        weights_(static_cast<size_t>(geometry.group_outputs() * geometry.taps())) {
    std::vector<int16_t> by_channel(channels_ * weights_);
    for (size_t i = 0; i < weights_; ++i) {
      const int64_t column = group * geometry.group_outputs() + static_cast<int64_t>(i) / geometry.taps();
      const int64_t tap = static_cast<int64_t>(i) % geometry.taps();
      const int32_t zero_point = problem.WeightZeroPoint(column);
      for (size_t channel = 0; channel < channels_; ++channel) {
        const int64_t depth = tap * geometry.group_inputs() + static_cast<int64_t>(channel);
        by_channel[channel * weights_ + i] = static_cast<int16_t>(view.At(depth, column) - zero_point);
      }
    }
    const LaneCapacity capacity = CapacityFor(problem.range.high);
    heavy_.resize(channels_ * channels_);
    for (size_t x = 0; x < channels_; ++x) {
      for (size_t y = 0; y < x; ++y) {
        heavy_[x * channels_ + y] = heavy_[y * channels_ + x] =
            CountHeavy(&by_channel[x * weights_], &by_channel[y * weights_], capacity);
      }
    }
  }

  // The channel at each place.
  std::vector<size_t> Find() const {
    std::vector<size_t> order(channels_);
    std::iota(order.begin(), order.end(), size_t{0});
    while (Improve(&order)) {
    }
    return order;
  }

 private:
  // The number of pairs of weights that are too heavy for one item.
  int32_t CountHeavy(const int16_t* x, const int16_t* y, const LaneCapacity& capacity) const {
    int32_t count = 0;
    for (size_t i = 0; i < weights_; ++i) {
      const int positive = std::max<int>(x[i], 0) + std::max<int>(y[i], 0);
      const int negative = std::max<int>(-x[i], 0) + std::max<int>(-y[i], 0);
      count += static_cast<int32_t>(positive > capacity.positive) |
               static_cast<int32_t>(negative > capacity.negative);
    }
    return count;
  }

  int32_t Heavy(const std::vector<size_t>& order, size_t place) const {
    return heavy_[order[place] * channels_ + order[place ^ 1]];
  }

  // Exchanges any two channels if that lowers the number of heavy pairs; false if no exchange does.
  bool Improve(std::vector<size_t>* order) const {
    bool improved = false;
    for (size_t i = 0; i < channels_; ++i) {
      for (size_t j = (i | 1) + 1; j < channels_; ++j) {
        const int32_t before = Heavy(*order, i) + Heavy(*order, j);
        std::swap((*order)[i], (*order)[j]);
        if (Heavy(*order, i) + Heavy(*order, j) < before) {
          improved = true;
        } else {
          std::swap((*order)[i], (*order)[j]);
        }
      }
    }
    return improved;
  }

  size_t channels_, weights_;   // weights_: of each channel
  std::vector<int32_t> heavy_;  // CountHeavy() of each two channels
};

}  // namespace

std::vector<int64_t> PairChannels(const LinearProblem& problem, const WeightView& weights,
                                  const ConvGeometry& geometry) {
  std::vector<int64_t> order;
  order.reserve(static_cast<size_t>(geometry.input_channels));
  for (int64_t group = 0; group < geometry.groups; ++group) {
    for (const size_t channel : GroupOrder(problem, weights, geometry, group).Find()) {
      order.push_back(group * geometry.group_inputs() + static_cast<int64_t>(channel));
    }
  }
  return order;
}

}  // namespace intact::kernels
