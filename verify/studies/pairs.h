// The pair map: the result of one int16 lane of VPMADDUBSW for each of its 2³² inputs (a0, a1, w0, w1).
//
// The lane computes a0·w0 + a1·w1 and clamps it to [−32768, 32767]. This is the only place where int8
// arithmetic before VNNI saturates. The map counts which of all inputs clamp:
//
//   by the instruction   the lane of the real VPMADDUBSW is not the sum in 32 bits
//   by the model         reference::Maddubs is not the sum
//
// There is a count for each value of the larger activation and of the larger weight magnitude. The counts
// show the smallest activations and weights that clamp. On machines with AVX2 the lane is also compared,
// input by input, with the clamped 32-bit sum.
#ifndef INTACT_VERIFY_STUDIES_PAIRS_H_
#define INTACT_VERIFY_STUDIES_PAIRS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "verify/studies/maddubs.h"

namespace intact::verify {

/// How many inputs clamp, for each value of the larger activation (0 … 255) and of the larger weight
/// magnitude (0 … 128).
class ClampTable {
 public:
  ClampTable() : counts_(kActivations * kMagnitudes) {}
  ClampCount& At(int activation, int magnitude) { return counts_[Index(activation, magnitude)]; }
  /// How many inputs with both activations ≤ amax and both weights in [−wmax, wmax] clamp.
  ClampCount Within(int amax, int wmax) const;
  void Add(const ClampTable& other);
  bool operator==(const ClampTable&) const = default;

  static constexpr int kActivations = 256;
  static constexpr int kMagnitudes = 129;

 private:
  static size_t Index(int activation, int magnitude) {
    return static_cast<size_t>(activation) * kMagnitudes + static_cast<size_t>(magnitude);
  }
  std::vector<ClampCount> counts_;
};

struct PairMap {
  int64_t inputs = 0;  // 2³², counted
  bool instruction_available = false;
  ClampTable by_model;
  ClampTable by_instruction;           // empty without AVX2
  int64_t instruction_mismatches = 0;  // lanes that are not the clamped 32-bit sum
  double seconds = 0;

  /// Whether the instruction, if it is available, equals the model on every input.
  bool Agrees() const {
    return !instruction_available || (instruction_mismatches == 0 && by_instruction == by_model);
  }
};

/// The part of the map with w0 in [w0_begin, w0_end), for tests that have no time for the whole map.
PairMap MapPairs(int w0_begin, int w0_end, int threads);

/// The whole map, of all 2³² inputs. Takes a few seconds.
PairMap MapAllPairs(int threads);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_STUDIES_PAIRS_H_
