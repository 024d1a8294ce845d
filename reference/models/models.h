// Scalar models of what int8 instruction sequences compute, bit for bit, so that any machine can predict what
// any other will output. Each is checked against the real instruction in tests/reference/models_test.cc.
//
// A model works on a u8 activation vector and an s8 weight vector of one output. s8 activations are fed to
// u8×s8 instructions shifted by +128, u8 weights by −128 (compensation is the caller's): see
// ShiftedActivation and ShiftedWeight in operands.h. So what clamps is the pair sum of the shifted operands.
#ifndef INTACT_REFERENCE_MODELS_MODELS_H_
#define INTACT_REFERENCE_MODELS_MODELS_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace intact::reference {

/// How products are summed.
enum class Summation : uint8_t {
  kExact,          // Σ a·b in integers, modulo 2³²: VPDPBUSD, TDPBUSD, int16-wide VPMADDWD
  kInt16,          // VPMADDUBSW, then VPMADDWD by ones: pair sums are clamped to int16
  kInt32,          // VPDPBUSDS: exact quads, but each accumulation saturates to int32
  kHalvedWeights,  // exact, of weights halved and rounded to even; twice the sum. oneDNN's convolutions of s8
                   // activations before VNNI: no pair clamps, and odd weights are off by one
};

/// How the depths of an output stand in a row, of which the instructions take pairs. Of a GEMM all are one.
enum class DepthOrder : uint8_t {
  kTaps,       // channels of a tap, tap after tap; each tap's are filled up with zeros: oneDNN
  kFlattened,  // the same without filling: pairs cross taps. ONNX Runtime, and whoever lowers to a GEMM
  kChannels,   // taps of a channel, channel after channel, without filling: lowering of NCHW
};

/// Which operand of VPMADDUBSW is what.
enum class Signs : uint8_t {
  kUnsignedActivations,  // activations are the u8 operand: s8 shifted by +128; u8 weights by −128
  kUnsignedWeights,      // weights are the u8 operand: s8 shifted by +128; u8 activations by −128
  kMoved,  // |a| and sign(b, a), of s8 both (VPSIGNB): −128 stays what it is when it is negated
};

/// Rows of as many depths are cut in two, ⌈K/2⌉ of them first, and pairs begin anew with the second part; as
/// do oneDNN's GEMMs whose depth is a little too large for a cache.
struct Cut {
  int32_t from = 0, to = 0;  // both are cut; 0: none is

  bool operator==(const Cut&) const = default;
  bool IsNone() const { return to == 0; }
  bool Cuts(int64_t depths) const { return from <= depths && depths <= to; }
};

/// A way to compute Σ a·b. The fields after `sum` mean something where operands or sums are narrow: kInt16,
/// and of them order, distance and signs with kInt32 too.
///
/// The depths in their order are cut into blocks of 2·distance; depths i and distance + i of a block are a
/// pair. The pairs are dealt to `lanes` int16 sums in turn; each is widened to int32 after every `spill` of
/// its pairs. So of VPMADDUBSW on rows of quads, widened at once, lanes and spill are 1.
struct Model {
  Summation sum = Summation::kExact;
  DepthOrder order = DepthOrder::kTaps;
  int32_t distance = 1;  // kHalfDepth: half of a row of depths
  Signs signs = Signs::kUnsignedActivations;
  int32_t spill = 1;  // kWholeDepth: at the end only
  int32_t lanes = 1;
  bool wraps = false;  // int16 sums are added by VPADDW instead of VPADDSW
  Cut cut = {};
  // Taps in the padding, which hold the zero point, are not multiplied: their activations count as 0 in what
  // is clamped, and exactly in the sum. oneDNN's convolutions.
  bool skips_padding = false;

  bool operator==(const Model&) const = default;

  static const Model kExact;    // the contract
  static const Model kMaddubs;  // the contract's saturating mode: adjacent pairs, widened at once
  static const Model kDpbusds;  // adjacent quads
};
inline constexpr int32_t kHalfDepth = 0;
inline constexpr int32_t kWholeDepth = 0;
inline constexpr int32_t kMaxLanes = 64;
inline constexpr Model Model::kExact = {};
inline constexpr Model Model::kMaddubs = {Summation::kInt16};
inline constexpr Model Model::kDpbusds = {Summation::kInt32};

/// "exact", "maddubs", "maddubs, flattened depth, depths 4 apart", "acc16, widened every 8 pairs, 2 lanes",
/// "maddubs, cut in two from 257 to 767 depths", "maddubs, without padding", "dpbusds", "halved weights", …
std::string ToString(const Model& model);
/// What ToString() gave.
std::optional<Model> ParseModel(std::string_view text);

/// How the depths k of an output come about: k = tap·stride + channel.
struct Depths {
  int64_t taps = 1, channels = 0, stride = 0;
};
/// A GEMM's.
constexpr Depths DepthsOf(int64_t k) noexcept { return {1, k, k}; }

inline constexpr int64_t kNoDepth = -1;
/// The depths as `model` pairs them: numbers 2i and 2i+1 are a pair; kNoDepth where one has none.
std::vector<int64_t> InPairs(const Model& model, const Depths& depths);

/// A pair of products in integers, unclamped.
constexpr int32_t PairSum(uint8_t a0, uint8_t a1, int8_t w0, int8_t w1) noexcept { return a0 * w0 + a1 * w1; }

/// One int16 lane of VPMADDUBSW: the pair's sum, clamped to [−32768, 32767]. Inline, as is the sum: the pair
/// map asks for all 2³² inputs.
constexpr int16_t Maddubs(uint8_t a0, uint8_t a1, int8_t w0, int8_t w1) noexcept {
  return static_cast<int16_t>(std::clamp(PairSum(a0, a1, w0, w1), -32768, 32767));
}

/// The bytes of a product as an instruction gets them.
struct Factors {
  uint8_t u = 0;
  int8_t s = 0;
};
/// Of an activation and a weight shifted as kUnsignedActivations has them.
Factors FactorsOf(Signs signs, uint8_t a, int8_t w) noexcept;

/// One lane of VPDPBUSD: acc + Σ a[i]·w[i] over four products, modulo 2³².
int32_t Dpbusd(int32_t acc, const uint8_t a[4], const int8_t w[4]) noexcept;

/// One lane of VPDPBUSDS: the same, but the final sum is clamped to int32.
int32_t Dpbusds(int32_t acc, const uint8_t a[4], const int8_t w[4]) noexcept;

/// How many adjacent pairs of a depth VPMADDUBSW clamps. a.size() == w.size(); an odd last one never does.
int64_t CountClampedPairs(std::span<const uint8_t> a, std::span<const int8_t> w) noexcept;

/// The pairs of a depth, for models that share their pairing.
struct PairSums {
  std::vector<int32_t> sums;  // unclamped
  int32_t meant = 0;          // what they are to add up to, modulo 2³²
};
PairSums PairSumsOf(Signs signs, std::span<const uint8_t> a, std::span<const int8_t> w,
                    std::span<const int64_t> in_pairs);
/// What a model of Summation::kInt16 makes of pair sums.
int32_t SumInt16(const Model& model, std::span<const int32_t> pair_sums) noexcept;

/// What `model` accumulates over a whole depth, starting from `compensation`. `in_pairs` is InPairs(model, …).
/// Where factors are not a and w themselves, the difference is compensated. a.size() == w.size().
int32_t Accumulate(const Model& model, int32_t compensation, std::span<const uint8_t> a,
                   std::span<const int8_t> w, std::span<const int64_t> in_pairs);
/// The same of a GEMM's depth.
int32_t Accumulate(const Model& model, int32_t compensation, std::span<const uint8_t> a,
                   std::span<const int8_t> w);

/// 2·rne(w/2).
int32_t TwiceHalf(int8_t w) noexcept;

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_MODELS_MODELS_H_
