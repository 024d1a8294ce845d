// Scalar models of what int8 instruction sequences compute, bit for bit, so that any machine can predict what
// any other will output. Each is checked against the real instruction in tests/models_test.cc.
//
// A model works on a u8 activation vector and an s8 weight vector of one output. s8 activations are fed to
// u8×s8 instructions shifted by +128, u8 weights by −128 (compensation is the caller's): see
// ShiftedActivation and ShiftedWeight in gemm.h. So what clamps is the pair sum of the shifted operands.
#ifndef INTACT_REFERENCE_MODELS_H_
#define INTACT_REFERENCE_MODELS_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

namespace intact::reference {

enum class Model : uint8_t {
  kExact,    // Σ a·b in integers, modulo 2³²: VPDPBUSD, TDPBUSD, int16-wide VPMADDWD
  kTriple,   // VPMADDUBSW, VPMADDWD by ones, VPADDD: each adjacent pair's sum is clamped to int16
  kDpbusds,  // VPDPBUSDS: exact quads, but each accumulation saturates to int32
};

std::string_view ToString(Model model);

/// A pair of products in integers, unclamped.
constexpr int32_t PairSum(uint8_t a0, uint8_t a1, int8_t w0, int8_t w1) noexcept { return a0 * w0 + a1 * w1; }

/// One int16 lane of VPMADDUBSW: the pair's sum, clamped to [−32768, 32767]. Inline, as is the sum: the pair
/// map asks for all 2³² inputs.
constexpr int16_t Maddubs(uint8_t a0, uint8_t a1, int8_t w0, int8_t w1) noexcept {
  return static_cast<int16_t>(std::clamp(PairSum(a0, a1, w0, w1), -32768, 32767));
}

/// One lane of VPDPBUSD: acc + Σ a[i]·w[i] over four products, modulo 2³².
int32_t Dpbusd(int32_t acc, const uint8_t a[4], const int8_t w[4]) noexcept;

/// One lane of VPDPBUSDS: the same, but the final sum is clamped to int32.
int32_t Dpbusds(int32_t acc, const uint8_t a[4], const int8_t w[4]) noexcept;

/// How many adjacent pairs of a depth VPMADDUBSW clamps. a.size() == w.size(); an odd last one never does.
int64_t CountClampedPairs(std::span<const uint8_t> a, std::span<const int8_t> w) noexcept;

/// What `model` accumulates over a whole depth, starting from `initial`; pairs and quads are adjacent and the
/// depth is padded with zeros. a.size() == w.size().
int32_t Accumulate(Model model, int32_t initial, std::span<const uint8_t> a,
                   std::span<const int8_t> w) noexcept;

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_MODELS_H_
