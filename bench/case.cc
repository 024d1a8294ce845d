#include "bench/case.h"

#include <fmt/format.h>

namespace intact::bench {

std::string Shape::ToString() const { return fmt::format("{}×{}×{}", m, n, k); }

std::string Case::Name() const {
  std::string name = fmt::format("gemm/isa:{}/", jit::ToString(isa));
  name += peer.empty() ? fmt::format("mode:{}", verify::ToString(mode)) : "peer:" + peer;
  name += fmt::format("/weights:{}", weights.name);
  if (amax != 0) name += fmt::format("/amax:{}", amax);
  if (c_type != INTACT_S32) name += fmt::format("/c:{}", verify::ToString(c_type));
  name += fmt::format("/m:{}/n:{}/k:{}", shape.m, shape.n, shape.k);
  if (threads != 1) name += fmt::format("/threads:{}", threads);
  return name;
}

}  // namespace intact::bench
