// Named sets of shapes.
#ifndef INTACT_BENCH_SUITES_H_
#define INTACT_BENCH_SUITES_H_

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "bench/case.h"

namespace intact::bench {

struct Layer {
  Shape shape;
  int times = 1;                                        // occurrences in the network
  std::optional<WeightFigures> weights = std::nullopt;  // set for a trained network's layer
};

/// The trained layer's own weights, or kLaplace.
Weights DefaultWeights(const Layer& layer);
/// The trained layer's own weights, or all of kWeights.
std::vector<Weights> WeightsOf(const Layer& layer);

struct Suite {
  std::string_view name;
  std::string_view what;
  std::span<const Layer> layers;
};

/// "short" first.
std::span<const Suite> Suites();

/// nullptr if no suite has that name.
const Suite* FindSuite(std::string_view name);

/// One shape large enough for several threads: the suites' `threads:2` variant.
inline constexpr Shape kThreadsShape = {1024, 1024, 1024};

}  // namespace intact::bench
#endif  // INTACT_BENCH_SUITES_H_
