// The saturation map: the share of a GEMM's outputs that saturation changes, over the ranges of activations
// and weights. Each cell is one problem with uniform activations in [0, amax] and weights in [−wmax, wmax].
// The kernel runs the problem in saturating mode (measured). The maddubs model computes the problem too
// (predicted). Both outputs are compared with the exact reference.
//
//   wmax ▲            ░▒▓█ share of outputs that differ
//        │         ░▒▒▓██
//        └──────────────► amax
#ifndef INTACT_VERIFY_STUDIES_SATURATION_MAP_H_
#define INTACT_VERIFY_STUDIES_SATURATION_MAP_H_

#include <cstdint>
#include <intact/intact.hpp>
#include <optional>
#include <string>
#include <vector>

#include "verify/explain/compare.h"
#include "verify/problem/problem.h"
#include "verify/problem/target.h"

namespace intact::verify {

struct SaturationCell {
  Problem problem;  // with amax and wmax
  int64_t outputs = 0;
  int64_t predicted = 0;                 // outputs that the maddubs model changes
  std::optional<int64_t> measured;       // outputs that the kernel changed; absent if the ISA cannot run here
  int64_t mispredicted = 0;              // measured outputs that differ from the model's
  double max_abs_error = 0;              // of the accumulators
  std::optional<SaturatedPair> witness;  // the first clamped pair of the first differing output
  double Share() const {
    return static_cast<double>(measured.value_or(predicted)) / static_cast<double>(outputs);
  }
};

struct SaturationMap {
  intact_isa isa = INTACT_ISA_AVX2;
  bool measured = false;
  std::vector<int32_t> amax;          // ascending
  std::vector<int32_t> wmax;          // ascending
  std::vector<SaturationCell> cells;  // wmax-major
  const SaturationCell& At(size_t w, size_t a) const { return cells[w * amax.size() + a]; }
  /// Whether every measured output is as predicted.
  bool Agrees() const;
};

/// The map of our own kernels.
Result<SaturationMap> MapSaturation();
/// The map of `target`, whatever `target` claims to compute. UNSUPPORTED if `target` does not run GEMMs u8×s8
/// to s32.
Result<SaturationMap> MapSaturation(const Target& target);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_STUDIES_SATURATION_MAP_H_
