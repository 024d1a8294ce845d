// The verifier's unit of work: a GEMM or a convolution as a value whose text form round-trips.
//
//   gemm u8s8s32 m=5 n=16 k=64 za=3 fill=bait seed=7 mode=saturating isa=avx2
//   gemm u8s8bf16 m=5 n=16 k=64 batch=3 items=pointers quant=dynamic_rows src=bf16 x=outlier bias=f32
//   gemm u8u8f32 m=5 n=16 k=64 batch=3 itempad=7 runtimeb=yes blayout=nk bpad=1 zb=9 zbper=item scale=item
//   gemm s8u8f32 m=5 n=16 k=64 batch=3 alayout=km runtimeb=yes zb=9 zbper=item_column scale=item_column
//   gemm u8s8s8 m=5 n=16 k=64 scale=channel fixed=away
//   conv u8u8f32 in=8x8 c=3 o=4 kernel=3x3 pad=1x1 quant=dynamic_tensor src=f32 x=normal
//   conv u8s8u8 in=56x56 c=64 o=32 kernel=3x3 stride=2x2 pad=1x1 groups=4 batch=2 za=3 isa=avx512
//   conv u8s8s32 in=56x56 c=3 o=32 kernel=3x3 pairing=flattened fill=bait mode=saturating isa=avx2
//
// `in` has an extent for each spatial dimension, outermost first, and so have kernel, stride and dilation;
// pad=1x1:0x2 is what stands before and behind the input, pad=1x1 the same on both sides; c and o are all
// channels of input and output. transposed=yes: a transposed convolution, whose padding crops the output;
// outpad=1x0 adds to its end.
//
// A batch of GEMMs is `batch` items of m rows, itempad elements apart (A, C, the residual, Bs), or each where
// its pointer says. runtimeb=yes: B is no constant, each item has its own. alayout: A is M×K or K×M in memory;
// blayout: B is K×N or N×K.
// quant: whose the quantization of activations is; zaper=row: the caller gives rows' zero points beside their
// scales. With quant=tensor each run gives za, and a scale. A dynamic one takes real numbers of type src,
// which x makes; a_type is what they become.
//
// Every failure prints such a line and `intact verify replay '<line>'` runs it again, on any machine.
#ifndef INTACT_VERIFY_PROBLEM_PROBLEM_H_
#define INTACT_VERIFY_PROBLEM_PROBLEM_H_

#include <intact/intact.h>

#include <algorithm>
#include <cstdint>
#include <intact/intact.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "reference/contract/operation.h"
#include "verify/problem/target.h"

namespace intact::verify {

/// How tensors are made. All are deterministic in the seed, on every platform.
enum class Fill : uint8_t {
  kUniform,   // full range, uniform
  kExtremes,  // the types' extremes only; first row and first column hold the largest: the largest sum
  kOneHot,    // one non-zero activation a row, uniform weights
  kBait,      // pairs that saturate in every second row: heavy same-sign weight pairs under large activations
  kGauss,     // bell-shaped weights, per-channel symmetric, largest at ±127; half-normal activations
  kLaplace,   // heavier tails, the same way
  kStudent,   // Student-t with 4 degrees of freedom, the same way
  kRelu,      // bell-shaped weights; activations half at the zero point, half one-sided
  kRamp,      // row m holds a constant that rises with m
  kTies,      // accumulators and scales (powers of two) chosen so that many outputs are rounding ties
  kBound,  // weights that fill int16 sums to their bound or one beyond; activations that reach it: see fill.h
  kStray,  // uniform, but every 155th row, from the first on, leaves the activation range: see fill.h
};

/// The real numbers that a dynamic quantization takes; each unit, a row or the tensor, has a scale of its
/// own.
enum class Numbers : uint8_t {
  kScaled,     // the fill's activations less a zero point, times the scale
  kNormal,     // bell-shaped, of scales from 2⁻²⁰ to 2²⁰
  kHalves,     // x/scale is k + ½, but for the largest and the smallest
  kConstant,   // a range of one value, of either sign
  kZeros,      // every second unit zeros of both signs, the others bell-shaped
  kTiny,       // denormals and zeros of both signs; the scale is denormal, or would be 0
  kOutlier,    // bell-shaped, and one number of the row a million times as large
  kNonFinite,  // a NaN, an infinity, or a range beyond float32 in four of five units
};

/// The optional parts of a problem's epilogue.
enum class BiasKind : uint8_t { kNone, kS32, kF32 };
enum class ScaleKind : uint8_t {
  kNone,
  kTensor,
  kChannel,
  kTiny,    // channels have their own, which are denormal, or would be times the scale of a row
  kPruned,  // channels have their own; that of every third, from the first on, is 0
  kItem,
  kItemColumn,  // each column of each item
};

/// Fixed point in place of scales: how ties are rounded, and whether there are multipliers beside shifts.
enum class FixedKind : uint8_t { kNone, kAway, kUp, kAwayShift, kUpShift };

/// Whose a zero point of weights is.
enum class ZeroPointKind : uint8_t {
  kTensor,
  kChannel,     // column 0 has Problem::zb, the others have extremes and values of their own
  kItem,        // item 0 likewise
  kItemColumn,  // column 0 of item 0 likewise
};

/// Whether items of a batch have values of their own.
constexpr bool IsOfItems(ScaleKind kind) {
  return kind == ScaleKind::kItem || kind == ScaleKind::kItemColumn;
}
constexpr bool IsOfItems(ZeroPointKind kind) {
  return kind == ZeroPointKind::kItem || kind == ZeroPointKind::kItemColumn;
}

struct Problem : RunSettings {
  intact_type a_type = INTACT_U8;  // u8s8s32: a, b, c
  intact_type b_type = INTACT_S8;
  intact_type c_type = INTACT_S32;
  intact_mode mode = INTACT_EXACT;
  intact_pairing pairing = INTACT_PAIRING_WITHIN_TAP;  // of a convolution in saturating mode
  int64_t m = 1, n = 1, k = 1;                  // of a GEMM; m, or a batch, of 0: there is nothing to do
  std::optional<reference::ConvGeometry> conv;  // it is a convolution; m, n, k are 1
  int64_t batch = 1;                            // of GEMMs
  bool runtime_b = false;
  bool row_zero_points = false;
  intact_quantization quantization = INTACT_QUANTIZATION_STATIC;
  intact_type source = INTACT_F32;  // of a dynamic quantization, as the numbers are
  Numbers numbers = Numbers::kScaled;
  int32_t za = 0;  // a_zero_point
  int32_t zb = 0;  // of the weights
  ZeroPointKind zb_kind = ZeroPointKind::kTensor;
  int32_t zc = 0;      // c_zero_point
  int32_t amax = 255;  // largest activation the fill makes, as distance from the type's minimum
  int32_t wmax = 127;  // weights, u8 ones less 128, lie in [−wmax, wmax]; 128 allows −128
  // Declared range of activations, [arangemin, arange] as distances from the type's minimum: fills other than
  // kStray keep within it. 0 and 255: none.
  int32_t range_min = 0;
  int32_t range_max = 255;
  intact_range_check range_check = INTACT_RANGE_CHECKED;
  intact_overflow overflow = INTACT_OVERFLOW_REFUSED;  // WRAPS: biases lie at the ends of int32
  BiasKind bias = BiasKind::kNone;
  ScaleKind scale = ScaleKind::kNone;  // kTensor unless s32 output
  FixedKind fixed = FixedKind::kNone;  // of 8-bit outputs; `scale` says whose the multipliers and shifts are
  intact_activation activation = INTACT_ACTIVATION_NONE;
  bool has_table = false;  // a lookup table, of 8-bit outputs
  intact_type residual = INTACT_TYPE_NONE;
  int32_t zres = 0;  // residual_zero_point
  Fill fill = Fill::kUniform;
  uint64_t seed = 1;

  bool operator==(const Problem&) const = default;

  bool IsDynamic() const {
    return quantization == INTACT_QUANTIZATION_DYNAMIC_ROWS ||
           quantization == INTACT_QUANTIZATION_DYNAMIC_TENSOR;
  }
  /// The largest activation that fills other than kStray make, as distance from the type's minimum.
  int32_t LargestActivation() const { return std::clamp(amax, range_min, range_max); }
  /// The line; fields at their defaults are left out.
  std::string ToString() const;
  /// Nothing, or which field is out of range: what Parse() checks.
  std::optional<Error> Check() const;
  /// Gives `key` the value that it has in a line without it.
  void Reset(std::string_view key);
  /// Changes c_type; what only 8-bit outputs have is reset for other types.
  void SetOutput(intact_type type);
  /// Errors name the word at fault and what was expected.
  static Result<Problem> Parse(std::string_view line);
};

/// The operation with its tensors. The problem must be one that Parse() would accept.
reference::Operation Materialize(const Problem& problem);
/// Of a problem that is a GEMM, or a convolution.
reference::Gemm MaterializeGemm(const Problem& problem);
reference::Conv MaterializeConv(const Problem& problem);

/// How `problem` asks to be run.
RunOptions RunOptionsOf(const Problem& problem);

/// All fills, and all kinds of numbers, in the order of the enumeration.
std::span<const Fill> AllFills();
std::span<const Numbers> AllNumbers();

std::string_view ToString(Fill fill);
std::string_view ToString(Numbers numbers);
std::string_view ToString(intact_mode mode);
std::string_view ToString(intact_type type);
Result<intact_isa> ParseIsa(std::string_view name);          // "avx2", …; the error lists what is known
Result<intact_mode> ParseMode(std::string_view name);        // "exact", "saturating"
Result<intact_pairing> ParsePairing(std::string_view name);  // "within_tap", "flattened"

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_PROBLEM_H_
