// Scalar models of what int8 instruction sequences compute, bit for bit, so that any machine can predict the
// outputs of any other. tests/reference/models_test.cc compares each model with the real instruction.
//
// A model works on a u8 activation vector and an s8 weight vector of one output. u8×s8 instructions get s8
// activations shifted by +128 and u8 weights shifted by −128: see ShiftedActivation() and ShiftedWeight() in
// operands.h. So pair sums of shifted operands are clamped. The caller compensates the shift.
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
  kProducts16,     // products are added in int16, modulo 2¹⁶: VPMULLW, VPADDW
  kFloat32,        // int32 sums of quads are converted to float32 and added there: ggml
  kHalvedWeights,  // exact, with weights halved and rounded to even; the sum is doubled. No pair saturates,
                   // and odd weights are off by one. oneDNN, s8 convolutions without VNNI
};

/// The order of an output's depths, from which the instructions take pairs. For a GEMM all orders are equal.
enum class DepthOrder : uint8_t {
  kTaps,       // channels of a tap, tap after tap; each tap is padded with zeros: oneDNN
  kFlattened,  // the same order without padding: pairs cross taps. ONNX Runtime, and other engines that lower
               // to a GEMM
  kChannels,   // taps of a channel, channel after channel, without padding: lowering of NCHW
  kRows,       // kFlattened for each row of the kernel; each row is padded: oneDNN, one input channel
  kColumns,    // the same for each plane of the kernel, column after column: oneDNN, one input channel
};

/// Which operand of VPMADDUBSW is unsigned.
enum class Signs : uint8_t {
  kUnsignedActivations,  // activations are the u8 operand: s8 shifted by +128; u8 weights by −128
  kUnsignedWeights,      // weights are the u8 operand: s8 shifted by +128; u8 activations by −128
  kMoved,                // s8 a and w: u8 operand |a|, s8 operand w·sign(a) (VPSIGNB); −(−128) = −128
};

/// Rows of `from` to `to` depths are cut in two. The first part has ⌈K/2⌉ depths. No pair spans both parts.
/// oneDNN does this to GEMMs whose depth is a little too large for a cache.
struct Cut {
  int32_t from = 0, to = 0;  // both inclusive; 0: no row is cut

  bool operator==(const Cut&) const = default;
  bool IsNone() const { return to == 0; }
  bool Cuts(int64_t depths) const { return from <= depths && depths <= to; }
};

/// When the compensation of an output is added to saturating int32 sums. All other sums are modulo 2³², so
/// the time makes no difference.
enum class CompensationTime : uint8_t {
  kLast,         // after all products, modulo 2³²
  kFirst,        // the accumulator starts from it, and saturates from there on
  kLastClamped,  // after all products, and this sum is clamped to int32 too
};

/// A way to compute Σ a·b. kExact uses no field after `sum`, kHalvedWeights only skips_padding.
///
/// kInt16 uses all fields except compensation. The ordered depths are split into blocks of 2·distance; depths
/// i and distance + i of a block are a pair. Pairs are added to `lanes` int16 sums in turn. Each sum is
/// widened to int32 after every `spill` of its pairs. VPMADDUBSW on quads, widened at once, has 1 lane and
/// spill 1.
///
/// kInt32 uses all fields except spill, lanes and wraps. The four products of a quad are added exactly. One
/// saturating addition adds this sum to the accumulator. Quads are added in the order of depths. A row, with
/// kTaps a tap, is padded to whole quads.
///
/// kProducts16 and kFloat32 use order, spill and lanes. They add the contract's products, (a − za)·(b − zb).
/// Taps are not padded, so kTaps and kFlattened are equal. kFloat32 has no spill of kWholeDepth.
/// kProducts16 adds products to `lanes` int16 sums in turn, and widens each sum to int32 after every `spill`
/// of its products. kFloat32 adds quads to `lanes` int32 sums in turn. After every `spill` of its quads each
/// sum is converted to float32 and added to the float32 sum of its lane. The lanes' sums are added at the
/// end, the upper half to the lower half until one is left. The compensation is added last, in float32.
struct Model {
  Summation sum = Summation::kExact;
  DepthOrder order = DepthOrder::kTaps;
  int32_t distance = 1;  // kHalfDepth: half the depths of a row
  Signs signs = Signs::kUnsignedActivations;
  int32_t spill = 1;  // pairs, products or quads; kWholeDepth: widened only at the end
  int32_t lanes = 1;
  bool wraps = false;  // kInt16: int16 sums are added by VPADDW instead of VPADDSW
  Cut cut = {};
  // Whether taps in the padding are not multiplied, as in oneDNN's convolutions. The activations there are
  // the zero point. If set, clamped sums use 0 instead, and the products with the zero point are added
  // exactly.
  bool skips_padding = false;
  CompensationTime compensation = CompensationTime::kLast;

  bool operator==(const Model&) const = default;
  /// Whether int16 sums wrap.
  bool WrapsInt16() const { return wraps || sum == Summation::kProducts16; }
  /// Whether it adds the contract's products instead of the instruction's factors.
  bool AddsProducts() const { return sum == Summation::kProducts16 || sum == Summation::kFloat32; }

  static const Model kExact;    // the contract
  static const Model kMaddubs;  // the contract's saturating mode: adjacent pairs, widened at once
  static const Model kDpbusds;  // adjacent quads, the compensation last
};
inline constexpr int32_t kHalfDepth = 0;
inline constexpr int32_t kWholeDepth = 0;
inline constexpr int32_t kMaxLanes = 64;
inline constexpr Model Model::kExact = {};
inline constexpr Model Model::kMaddubs = {Summation::kInt16};
inline constexpr Model Model::kDpbusds = {Summation::kInt32};

/// "exact", "maddubs", "maddubs, flattened depth, depths 4 apart", "acc16, widened every 8 pairs, 2 lanes",
/// "maddubs, cut in two from 257 to 767 depths", "maddubs, without padding", "dpbusds, compensation first",
/// "halved weights", "products16, widened every 32 products, 16 lanes",
/// "float32 sums, converted every 8 quads", …
std::string ToString(const Model& model);
/// The inverse of ToString().
std::optional<Model> ParseModel(std::string_view text);

/// The depths k of an output: k = tap·stride + channel. Taps are numbered plane by plane, row by row.
struct Depths {
  int64_t taps = 1, channels = 0, stride = 0;
  int64_t height = 1, width = 1;  // taps of a column and of a row of the kernel
};
/// The depths of a GEMM.
constexpr Depths DepthsOf(int64_t k) noexcept { return {1, k, k}; }

inline constexpr int64_t kNoDepth = -1;
/// The depths as `model` pairs them: elements 2i and 2i+1 are a pair. kNoDepth stands for a missing partner. If
/// model.AddsProducts(), the depths in its order, without pairs.
std::vector<int64_t> InPairs(const Model& model, const Depths& depths);

/// The exact sum of a pair of products.
constexpr int32_t PairSum(uint8_t a0, uint8_t a1, int8_t w0, int8_t w1) noexcept { return a0 * w0 + a1 * w1; }

/// One int16 lane of VPMADDUBSW: the pair's sum, clamped to [−32768, 32767]. Inline, like PairSum(): the pair
/// map calls it for all 2³² inputs.
constexpr int16_t Maddubs(uint8_t a0, uint8_t a1, int8_t w0, int8_t w1) noexcept {
  return static_cast<int16_t>(std::clamp(PairSum(a0, a1, w0, w1), -32768, 32767));
}

/// The operand bytes of one product as an instruction gets them.
struct Factors {
  uint8_t u = 0;
  int8_t s = 0;
};
/// The factors for `signs`. `a` and `w` are shifted as for kUnsignedActivations.
Factors FactorsOf(Signs signs, uint8_t a, int8_t w) noexcept;

/// One lane of VPDPBUSD: acc + Σ a[i]·w[i] over four products, modulo 2³².
int32_t Dpbusd(int32_t acc, const uint8_t a[4], const int8_t w[4]) noexcept;

/// One lane of VPDPBUSDS: like Dpbusd(), but the final sum is clamped to int32.
int32_t Dpbusds(int32_t acc, const uint8_t a[4], const int8_t w[4]) noexcept;

/// How many adjacent pairs VPMADDUBSW clamps. a.size() == w.size(); an unpaired last product never clamps.
int64_t CountClampedPairs(std::span<const uint8_t> a, std::span<const int8_t> w) noexcept;

/// The pair sums of an output: equal for all models with equal signs and InPairs().
struct PairSums {
  std::vector<int32_t> sums;  // unclamped
  int32_t meant = 0;          // exact sum of the products, modulo 2³²; with kMoved: Σ (a − 128)·w
};
PairSums PairSumsOf(Signs signs, std::span<const uint8_t> a, std::span<const int8_t> w,
                    std::span<const int64_t> in_pairs);
/// Adds up pair sums as `model` does; its sum must be kInt16.
int32_t SumInt16(const Model& model, std::span<const int32_t> pair_sums) noexcept;
/// Adds up products and the compensation as `model` does; model.AddsProducts() must hold. A float32 sum
/// beyond int32 is taken modulo 2³².
int32_t SumProducts(const Model& model, int32_t compensation, std::span<const int32_t> products) noexcept;

/// What `model` accumulates over all depths, the compensation included. `in_pairs` is InPairs(model, …).
/// If FactorsOf() changes a and w, the compensation is corrected by the exact difference. If
/// model.AddsProducts(), zero points are taken for 0. a.size() == w.size().
int32_t Accumulate(const Model& model, int32_t compensation, std::span<const uint8_t> a,
                   std::span<const int8_t> w, std::span<const int64_t> in_pairs);
/// Accumulate() for the depths of a GEMM.
int32_t Accumulate(const Model& model, int32_t compensation, std::span<const uint8_t> a,
                   std::span<const int8_t> w);

/// 2·rne(w/2).
int32_t TwiceHalf(int8_t w) noexcept;

}  // namespace intact::reference
#endif  // INTACT_REFERENCE_MODELS_MODELS_H_
