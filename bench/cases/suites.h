// Named sets of shapes.
#ifndef INTACT_BENCH_CASES_SUITES_H_
#define INTACT_BENCH_CASES_SUITES_H_

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "bench/cases/case.h"

namespace intact::bench {

/// The trained layer's own weights, or kLaplace.
Weights DefaultWeights(const Layer& layer);

struct Suite {
  std::string_view name;
  std::string_view what;
  std::span<const Layer> layers;
  bool HasBlocks() const;  // whether weights of any layer are in blocks
};

/// "short" first.
std::span<const Suite> Suites();

/// What the time of a trap is compared with.
struct Neighbour {
  enum class Kind : uint8_t {
    kShape,      // another shape or format, on the trap's ISA
    kNaive,      // a plain loop over the trap's shape
    kLowerCaps,  // the trap's shape with weaker ISAs: the fastest counts
    kReadB,      // reading B once
    kTime,       // a fixed time
  };
  Kind kind = Kind::kShape;
  Shape shape = {};         // of kShape
  Format format = {};       // of kShape
  double microseconds = 0;  // of kTime
};

/// A shape that is or was much slower than its neighbour, for no reason in its arithmetic.
struct Trap {
  int number = 0;  // traps of one cause share a number
  Shape shape;
  Format format;
  Neighbour neighbour;
  double target = 1;      // the largest ratio of the trap's time to its neighbour's
  bool is_bound = false;  // Case::is_bound
};

/// All traps, by number.
std::span<const Trap> Traps();

/// nullptr if no suite has that name.
const Suite* FindSuite(std::string_view name);

/// One shape that is large enough for several threads.
inline constexpr Shape kThreadsShape = {1024, 1024, 1024};

}  // namespace intact::bench
#endif  // INTACT_BENCH_CASES_SUITES_H_
