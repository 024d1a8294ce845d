// The verifier's unit of work: a GEMM, a convolution or a product with grouped weights, as a value whose text
// form round-trips. verify/problem/fields.h lists the fields.
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
// `in`, kernel, stride and dilation have an extent for each spatial dimension, outermost first. pad=1x1:0x2
// is the padding before and behind the input; pad=1x1 is the same at both ends. c and o count all channels of
// input and output. transposed=yes: a transposed convolution, in which padding crops the output; outpad=1x0
// extends the output's end.
//
// A batch of GEMMs has `batch` items of m rows. itempad elements lie between adjacent items of A, C, the
// residual and runtime B. With items=pointers, a pointer to each item is passed instead. runtimeb=yes: runs
// pass a B for each item. alayout: A is M×K or K×M in memory; blayout: B is K×N or N×K.
//
// quant: how activations are quantized. zaper=row: runs pass a zero point for each row in addition to its
// scale. quant=tensor: each run passes za and a scale. A dynamic quantization reads real numbers of type src
// and quantizes these numbers to a_type. x names the kind of numbers.
//
// Grouped weights (include/intact/grouped.h):
//
//   grouped s8u4f32 m=1 n=64 k=4096 group=128 gscale=f16 zb=yes seed=7 isa=avx2
//   grouped u8s8bf16 m=5 n=16 k=100 group=0 src=none per=group bias=yes act=relu fill=bounds threads=3
//
// src is the type of A before runs quantize it, or none. za=no: zero points of A are 0. group=0: all depths are
// one group. experts: matrices of weights; each row of A belongs to a random expert, and rows are sorted by
// expert. per: whether A has a scale for each row, or for each group of each row. split: rows of a run; 0: one
// run has all rows. item: rows of an item; the run is a batch of all items; 0: no batch. parts: parts that a run
// is computed in, one after the other; 0: the run is computed as a whole.
//
// Every failure prints such a line and `intact verify replay '<line>'` runs it again, on any machine.
#ifndef INTACT_VERIFY_PROBLEM_PROBLEM_H_
#define INTACT_VERIFY_PROBLEM_PROBLEM_H_

#include <intact/intact.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <intact/intact.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/weight_format.h"
#include "reference/contract/operation.h"
#include "verify/problem/target.h"

namespace intact::verify {

/// How tensors are filled. Every fill is a function of the seed, on every platform.
enum class Fill : uint8_t {
  kUniform,   // full range, uniform
  kExtremes,  // only the types' extremes; first row and first column hold the largest values: the largest sum
  kOneHot,    // one non-zero activation a row, uniform weights
  kBait,      // pairs that saturate in every second row: heavy weight pairs of one sign, large activations
  kGauss,     // bell-shaped weights, per-channel symmetric, largest at ±127; half-normal activations
  kLaplace,   // as kGauss, with heavier tails
  kStudent,   // as kGauss, with Student's t-distribution of 4 degrees of freedom
  kRelu,      // bell-shaped weights; activations half at the zero point, half one-sided
  kRamp,      // row m holds a constant that rises with m
  kTies,      // accumulators and scales (powers of two) such that many outputs are rounding ties
  kBound,     // weights that fill int16 sums to their bound, or to one beyond, and activations that reach it:
              // see fill.h
  kStray,     // uniform, but every 155th row, from the first on, leaves the activation range: see fill.h
};

/// The real numbers of a dynamic quantization. Each unit has its own scale; a unit is a row or the tensor.
enum class Numbers : uint8_t {
  kScaled,     // (the fill's activation − a zero point) · a scale
  kNormal,     // bell-shaped, of scales from 2⁻²⁰ to 2²⁰
  kHalves,     // x/scale is k + ½, except for the largest and the smallest number
  kConstant,   // a range of one value, of either sign
  kZeros,      // every second unit is zeros of both signs, the others are bell-shaped
  kTiny,       // denormals and zeros of both signs; the scale is denormal, or would underflow to 0
  kOutlier,    // bell-shaped, but one number of each row is a million times larger
  kNonFinite,  // a NaN, an infinity, or a range beyond float32 in four of five units
};

/// The optional parts of a problem's epilogue.
enum class BiasKind : uint8_t { kNone, kS32, kF32 };
enum class ScaleKind : uint8_t {
  kNone,
  kTensor,
  kChannel,
  kTiny,    // one per channel: denormal, also after the row's scale
  kPruned,  // one per channel; 0 for every third channel, from the first on
  kHuge,  // one per channel: the largest float32. Times most scales of A it is infinite, and 0·∞ is a NaN
  kItem,
  kItemColumn,  // one per column of each item
};

/// Fixed point instead of scales: how ties are rounded, and whether there are multipliers or only shifts.
enum class FixedKind : uint8_t { kNone, kAway, kUp, kAwayShift, kUpShift };

/// The part of the weights that has one zero point.
enum class ZeroPointKind : uint8_t {
  kTensor,
  kChannel,     // one per column: column 0 has Problem::zb, others have extremes or random values
  kItem,        // one per item: item 0 has Problem::zb, others as for kChannel
  kItemColumn,  // one per column of each item: column 0 of item 0 has Problem::zb
};

/// How tensors of a product with grouped weights are filled, as functions of the seed.
enum class GroupedFill : uint8_t {
  kUniform,    // full range, uniform; bell-shaped numbers
  kBounds,     // weights, zero points and activations at their bounds: sums of groups as large as possible
  kOneHot,     // one activation of each row is not at the zero point
  kSpread,     // scales from 2⁻²⁰ to 2²⁰, so that the order of the groups matters
  kHuge,       // scales near the largest number of their type, and 0: infinities, and NaNs before the end
  kTiny,       // denormal scales
  kNonFinite,  // as uniform, but a NaN or an infinity in two rows of three; A must be quantized by runs
};

/// Depths of groups; 0: all depths.
inline constexpr std::array kGroups = {int64_t{0},  int64_t{16},  int64_t{32},
                                       int64_t{64}, int64_t{128}, int64_t{256}};

/// The fields of a product with grouped weights that other problems lack.
struct GroupedFields : core::WeightFormat {
  int64_t experts = 1;
  bool has_group_scales = false;  // whether A has a scale for each group of each row, or one for each row
  bool has_a_zero_points = true;  // false: zero points of A are 0; only if runs give A
  GroupedFill fill = GroupedFill::kUniform;
  bool operator==(const GroupedFields&) const = default;
};

/// Whether each item of a batch has its own values.
constexpr bool IsOfItems(ScaleKind kind) {
  return kind == ScaleKind::kItem || kind == ScaleKind::kItemColumn;
}
constexpr bool IsOfItems(ZeroPointKind kind) {
  return kind == ZeroPointKind::kItem || kind == ZeroPointKind::kItemColumn;
}

struct Problem : RunSettings {
  intact_type a_type = INTACT_U8;  // "u8s8s32" names a_type, b_type, c_type
  intact_type b_type = INTACT_S8;
  intact_type c_type = INTACT_S32;
  intact_mode mode = INTACT_EXACT;
  intact_pairing pairing = INTACT_PAIRING_WITHIN_TAP;  // only for convolutions in saturating mode
  int64_t m = 1, n = 1, k = 1;                         // only for GEMMs; m or batch may be 0: an empty run
  std::optional<reference::ConvGeometry> conv;         // set for a convolution; m, n, k are then 1
  int64_t batch = 1;                                   // GEMMs only
  bool runtime_b = false;
  bool row_zero_points = false;
  intact_quantization quantization = INTACT_QUANTIZATION_STATIC;
  intact_type source = INTACT_F32;  // the type of the real numbers of a dynamic quantization
  Numbers numbers = Numbers::kScaled;
  int32_t za = 0;  // a_zero_point
  int32_t zb = 0;  // zero point of the weights
  ZeroPointKind zb_kind = ZeroPointKind::kTensor;
  int32_t zc = 0;      // c_zero_point
  int32_t amax = 255;  // largest activation that the fill makes, as distance from the type's minimum
  int32_t wmax = 127;  // weights (for u8: less 128) lie in [−wmax, wmax]; 128 allows −128
  // The activation range, [arangemin, arange] as distances from the type's minimum. Fills other than kStray
  // keep within it. 0 and 255: no range is given.
  int32_t range_min = 0;
  int32_t range_max = 255;
  intact_range_check range_check = INTACT_RANGE_CHECKED;
  intact_overflow overflow = INTACT_OVERFLOW_REFUSED;  // WRAPS: biases are at the ends of int32
  BiasKind bias = BiasKind::kNone;
  ScaleKind scale = ScaleKind::kNone;  // kTensor unless s32 output
  FixedKind fixed = FixedKind::kNone;  // 8-bit outputs only; for what `scale` names
  intact_activation activation = INTACT_ACTIVATION_NONE;
  bool has_table = false;  // a lookup table; 8-bit outputs only
  intact_type residual = INTACT_TYPE_NONE;
  int32_t zres = 0;  // residual_zero_point
  Fill fill = Fill::kUniform;
  uint64_t seed = 1;
  // Set for a product with grouped weights. Such a product also has types (b_type is grouped->b_type), m, n,
  // k, source (INTACT_TYPE_NONE: runs give A and its scales), an f32 bias, activation, seed, and the
  // RunSettings of its line.
  std::optional<GroupedFields> grouped;

  bool operator==(const Problem&) const = default;

  intact_type WeightType() const { return grouped ? grouped->b_type : b_type; }
  bool IsDynamic() const {
    return quantization == INTACT_QUANTIZATION_DYNAMIC_ROWS ||
           quantization == INTACT_QUANTIZATION_DYNAMIC_TENSOR;
  }
  /// The largest activation that fills other than kStray make, as distance from the type's minimum.
  int32_t LargestActivation() const { return std::clamp(amax, range_min, range_max); }
  /// The problem line; fields at their defaults are left out.
  std::string ToString() const;
  /// nullopt, or the error that Parse() returns for these fields.
  std::optional<Error> Check() const;
  /// Sets the field of `key` to its default: the value for lines without the key.
  void Reset(std::string_view key);
  /// Changes c_type. If the new type is not 8-bit, resets the fields that only 8-bit outputs have.
  void SetOutput(intact_type type);
  /// Errors name the word at fault and what was expected.
  static Result<Problem> Parse(std::string_view line);
};

/// Whether `line` begins like the line of a product with grouped weights.
bool IsGroupedLine(std::string_view line);

/// The operation with its tensors. The problem must be one that Parse() would accept.
reference::Operation Materialize(const Problem& problem);
/// Materialize() for a problem that must be a GEMM.
reference::Gemm MaterializeGemm(const Problem& problem);
/// Materialize() for a problem that must be a convolution.
reference::Conv MaterializeConv(const Problem& problem);

/// Materialize() for a problem that must be a product with grouped weights.
reference::Grouped MaterializeGrouped(const Problem& problem);

/// The run options of `problem`. Grouped weights run in all places.
RunOptions RunOptionsOf(const Problem& problem);

/// All fills, and all kinds of numbers, in the order of the enumeration.
std::span<const Fill> AllFills();
std::span<const GroupedFill> AllGroupedFills();
std::span<const Numbers> AllNumbers();

std::string_view ToString(Fill fill);
std::string_view ToString(Numbers numbers);
std::string_view ToString(intact_mode mode);
std::string_view ToString(intact_type type);
Result<intact_isa> ParseIsa(std::string_view name);          // "avx2", …; the error lists the known names
Result<intact_mode> ParseMode(std::string_view name);        // "exact", "saturating"
Result<intact_pairing> ParsePairing(std::string_view name);  // "within_tap", "flattened"

}  // namespace intact::verify
#endif  // INTACT_VERIFY_PROBLEM_PROBLEM_H_
