// The pair map: the result of one int16 lane of VPMADDUBSW for each of its 2³² inputs (a0, a1, w0, w1).
//
// The lane computes a0·w0 + a1·w1 and clamps it to [−32768, 32767]. This is the only place where int8
// arithmetic before VNNI saturates. The map counts which of all inputs clamp:
//
//   by the instruction   the lane of the real VPMADDUBSW is not the sum in 32 bits
//   by the model         reference::Maddubs is not the sum
//
// The counts are kept by the larger activation and by the larger weight magnitude. They show from which
// activations and weights on inputs clamp. On machines with AVX2 the lane is also compared, input by input,
// with the clamped 32-bit sum.
#ifndef INTACT_VERIFY_STUDIES_PAIRS_H_
#define INTACT_VERIFY_STUDIES_PAIRS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

namespace intact::verify {

/// How many inputs clamp, at either end.
struct ClampCount {
  int64_t high = 0;  // at +32767
  int64_t low = 0;   // at −32768
  int64_t Total() const { return high + low; }
  ClampCount& operator+=(const ClampCount& other) {
    high += other.high;
    low += other.low;
    return *this;
  }
  bool operator==(const ClampCount&) const = default;
};

/// Clamping inputs by the larger of their two activations (0 … 255) and the larger of their two weight
/// magnitudes (0 … 128).
class ClampTable {
 public:
  ClampTable() : counts_(kActivations * kMagnitudes) {}
  ClampCount& At(int activation, int magnitude) { return counts_[Index(activation, magnitude)]; }
  /// Inputs with both activations ≤ amax and both weights in [−wmax, wmax] that clamp.
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

/// Whether this CPU can run VPMADDUBSW on ymm registers.
bool HasMaddubs();

/// The part of the map with w0 in [w0_begin, w0_end), for tests that have no time for the whole map.
PairMap MapPairs(int w0_begin, int w0_end, int threads);

/// All 2³² inputs. A few seconds.
PairMap MapAllPairs(int threads);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_STUDIES_PAIRS_H_
