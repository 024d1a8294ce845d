// A benchmark as a value: what is computed, by whom and on which ISA. The table and the named benchmarks are
// made of the same cases.
#ifndef INTACT_BENCH_CASE_H_
#define INTACT_BENCH_CASE_H_

#include <intact/intact.h>

#include <array>
#include <cstdint>
#include <string>

#include "jit/isa.h"
#include "verify/problem.h"

namespace intact::bench {

/// C is m×n, the depth is k.
struct Shape {
  int64_t m = 1, n = 1, k = 1;
  bool operator==(const Shape&) const = default;
  /// Multiplications and additions, without padding.
  double Operations() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
  int64_t WeightBytes() const { return n * k; }
  std::string ToString() const;  // "128×768×3072"
};

/// Per-channel symmetric weights of some distribution, the largest at ±127.
struct Weights {
  const char* name;
  verify::Fill fill;
};

inline constexpr std::array kWeights = {
    Weights{"t4", verify::Fill::kStudent}, Weights{"laplace", verify::Fill::kLaplace},
    Weights{"gauss", verify::Fill::kGauss}, Weights{"uniform", verify::Fill::kUniform}};
/// What networks have; the default.
inline constexpr Weights kLaplace = kWeights[1];

struct Case {
  Shape shape;
  Weights weights = kLaplace;
  int amax = 0;  // the declared range of activations, and the largest of them; 0 = full range
  jit::Isa isa = jit::Isa::kAvx2;
  std::string peer;                 // "" for intact
  intact_mode mode = INTACT_EXACT;  // of intact
  intact_type c_type = INTACT_S32;  // or u8: per-channel scales and ReLU
  int threads = 1;

  /// gemm/isa:avx2/mode:exact/weights:laplace/m:128/n:768/k:3072; a peer's has peer:onednn in mode's place;
  /// /amax:127, /c:u8 and /threads:2 where they differ from the default.
  std::string Name() const;
};

}  // namespace intact::bench
#endif  // INTACT_BENCH_CASE_H_
