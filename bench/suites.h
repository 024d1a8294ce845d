// Named sets of shapes.
#ifndef INTACT_BENCH_SUITES_H_
#define INTACT_BENCH_SUITES_H_

#include <span>
#include <string_view>

#include "bench/case.h"

namespace intact::bench {

struct Layer {
  Shape shape;
  int times = 1;  // that the network has it
};

struct Suite {
  std::string_view name;
  std::string_view what;
  std::span<const Layer> layers;
};

/// "short" first.
std::span<const Suite> Suites();

/// nullptr if there is none of that name.
const Suite* FindSuite(std::string_view name);

/// One shape large enough for several threads: the suites' `threads:2` variant.
inline constexpr Shape kThreadsShape = {1024, 1024, 1024};

}  // namespace intact::bench
#endif  // INTACT_BENCH_SUITES_H_
