#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/types.h"
#include "reference/models/fixed_point.h"
#include "reference/models/lowering.h"
#include "reference/models/operands.h"
#include "tests/verify/mutants/mutant_parts.h"
#include "verify/explain/diagnose_conv.h"

namespace intact::verify {
namespace {

using reference::Conv;
using reference::Gemm;
using reference::Model;
using reference::Requantization;

// ----- accumulators ---------------------------------------------------------------------------------------

int32_t ActivationAt(const Gemm& gemm, int64_t m, int64_t k) {
  return core::DecodeInt8(gemm.a_type, gemm.a[static_cast<size_t>(m * gemm.k + k)]);
}
int32_t WeightAt(const Gemm& gemm, int64_t k, int64_t n) {
  return core::DecodeInt8(gemm.b_type, static_cast<uint8_t>(gemm.b[static_cast<size_t>(k * gemm.n + n)]));
}

// Outputs of accumulators plus error(GEMM, m, n).
template <class ErrorOf>
std::vector<uint8_t> ComputeOffBy(const Gemm& gemm, Model model, ErrorOf error) {
  assert(gemm.batch == 1);
  std::vector<int32_t> y = reference::Accumulators(gemm, model);
  for (size_t i = 0; i < y.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const int64_t wrong = y[i] + error(gemm, at / gemm.n, at % gemm.n);
    y[i] = static_cast<int32_t>(static_cast<uint32_t>(wrong));
  }
  return reference::Outputs(gemm, y);
}

std::vector<uint8_t> WrapPairs(const Gemm& gemm, Model model) {
  return ComputeOffBy(gemm, model, [](const Gemm& g, int64_t m, int64_t n) {
    int64_t error = 0;
    for (int64_t k = 0; k < g.k; ++k) {
      if (k % 16 >= 8 || k + 8 >= g.k) continue;
      const int32_t pair =
          ActivationAt(g, m, k) * WeightAt(g, k, n) + ActivationAt(g, m, k + 8) * WeightAt(g, k + 8, n);
      error += static_cast<int16_t>(pair) - pair;
    }
    return error;
  });
}

std::vector<uint8_t> NegateMinimum(const Gemm& gemm, Model model) {
  return ComputeOffBy(gemm, model, [](const Gemm& g, int64_t m, int64_t n) {
    int64_t error = 0;
    for (int64_t k = 0; k < g.k; ++k) {
      const int64_t a = ActivationAt(g, m, k);
      if (a < 0 && WeightAt(g, k, n) == -128) error += 256 * a;  // −|a|·128 instead of |a|·128
    }
    return error;
  });
}

std::vector<uint8_t> WrapCentered(const Gemm& gemm, Model model) {
  return ComputeOffBy(gemm, model, [](const Gemm& g, int64_t m, int64_t n) {
    int64_t error = 0;
    for (int64_t k = 0; k < g.k; ++k) {
      const int32_t centered = ActivationAt(g, m, k) - g.a_zero_point;
      error += int64_t{static_cast<int8_t>(centered) - centered} *
               (WeightAt(g, k, n) - reference::WeightZeroPoint(g, n));
    }
    return error;
  });
}

std::vector<uint8_t> ForgetShiftOfZeroPoint(const Gemm& gemm, Model model) {
  if (gemm.a_type != INTACT_S8) return Compute(gemm, model);
  return ComputeOffBy(gemm, model, [](const Gemm& g, int64_t /*m*/, int64_t n) {
    int64_t weights = 0;
    for (int64_t k = 0; k < g.k; ++k) weights += WeightAt(g, k, n) - reference::WeightZeroPoint(g, n);
    return 128 * weights;
  });
}

std::vector<uint8_t> ForgetBothZeroPoints(const Gemm& honest, Model model) {
  Gemm gemm = honest;
  gemm.a_zero_point = 0;
  gemm.b_zero_points.clear();
  return Compute(gemm, model);
}

// Zero points are 64-bit elements with two columns each. Takes the low half, and 0 beyond the end.
std::vector<uint8_t> TakeEverySecondZeroPoint(const Gemm& honest, Model model) {
  Gemm gemm = honest;
  const size_t count = gemm.b_zero_points.size();
  if (count < 2) return Compute(gemm, model);
  for (size_t n = 0; n < count; ++n) {
    gemm.b_zero_points[n] = 2 * n < count ? honest.b_zero_points[2 * n] : 0;
  }
  return Compute(gemm, model);
}

std::vector<uint8_t> AccumulateInFloat(const Gemm& gemm, Model /*model*/) {
  constexpr int64_t kBlock = 32;  // depths between two conversions to float32 and back
  std::vector<int32_t> y;
  for (int64_t m = 0; m < gemm.m; ++m) {
    for (int64_t n = 0; n < gemm.n; ++n) {
      int64_t sum = 0;
      for (int64_t k = 0; k < gemm.k; ++k) {
        sum += (ActivationAt(gemm, m, k) - gemm.a_zero_point) *
               (WeightAt(gemm, k, n) - reference::WeightZeroPoint(gemm, n));
        const bool ends = k % kBlock == kBlock - 1 || k == gemm.k - 1;
        if (ends) sum = static_cast<int64_t>(static_cast<float>(sum));
      }
      y.push_back(static_cast<int32_t>(sum));
    }
  }
  return reference::Outputs(gemm, y);
}

template <class Operation>
std::vector<uint8_t> ClampPairs(const Operation& operation, Model /*model*/) {
  return Compute(operation, Model::kMaddubs);
}

// w/2, rounded to even, and twice the sum of products.
std::vector<uint8_t> HalveWeights(const Conv& honest, Model model) {
  Conv conv = honest;
  for (int8_t& w : conv.b) w = static_cast<int8_t>(std::nearbyint(w / 2.0));
  std::vector<int32_t> y = reference::Accumulators(conv, model);
  for (int32_t& sum : y) sum = static_cast<int32_t>(int64_t{sum} * 2);
  return reference::Outputs(honest, y);
}

// ----- outputs --------------------------------------------------------------------------------------------

int32_t LowestOf(const Requantization& q) { return q.c_type == INTACT_U8 ? 0 : -128; }

// 8-bit outputs: the low bits of value(accumulator, requantization). Other outputs are correct.
template <class Operation, class Value>
std::vector<uint8_t> ComputeInt8(const Operation& operation, Model model, Value value) {
  if (core::BytesOf(operation.c_type) != 1) return Compute(operation, model);
  std::vector<uint8_t> bytes;
  ForEachOutput(operation, model, [&](int32_t y, const Requantization& q, float, float) {
    bytes.push_back(static_cast<uint8_t>(value(y, q)));
  });
  return bytes;
}

// Rounds f to even, and clamps it to the type.
int32_t Saturate(float f, const Requantization& q) { return reference::RoundToType(f, q.c_type, 0); }

int32_t WrapOutput(int32_t y, const Requantization& q) {
  const float f = std::nearbyint(reference::Dequantize(y, q));
  return static_cast<int32_t>(static_cast<int64_t>(f)) + q.zero_point;
}

int32_t AddZeroPointLast(int32_t y, const Requantization& q) {
  const int32_t lowest = LowestOf(q);
  return std::clamp(Saturate(reference::Dequantize(y, q), q) + q.zero_point, lowest, lowest + 255);
}

int32_t ClampAtZero(int32_t y, Requantization q) {
  const bool is_relu = q.post_ops.Has<core::Relu>();
  q.post_ops = q.post_ops.Without<core::Relu>();
  const int32_t output = reference::Requantize(y, q);
  return is_relu ? std::max(output, 0) : output;
}

int32_t ForgetActivation(int32_t y, Requantization q) {
  q.post_ops = q.post_ops.WithoutActivation();
  return reference::Requantize(y, q);
}

int32_t AddResidualToOutput(int32_t y, Requantization q) {
  const std::optional<float> residual = TakeResidual(&q);
  if (!residual) return reference::Requantize(y, q);
  const auto rounded = static_cast<float>(Saturate(reference::Dequantize(y, q), q));
  return reference::RoundToType(rounded + *residual, q.c_type, q.zero_point);
}

int32_t RoundTwice(int32_t y, const Requantization& q) {
  const int32_t lowest = LowestOf(q);
  return std::clamp(
      reference::MultiplyRoundedTwice(y, reference::FixedPointOf(q.scale, INTACT_FIXED_POINT_HALF_AWAY)) +
          q.zero_point,
      lowest, lowest + 255);
}

int32_t RoundHalfAway(int32_t y, const Requantization& q) {
  return reference::RoundToType(std::round(reference::Dequantize(y, q)), q.c_type, q.zero_point);
}

template <int32_t (*kValue)(int32_t, const Requantization&)>
std::vector<uint8_t> Int8(const Gemm& gemm, Model model) {
  return ComputeInt8(gemm, model, kValue);
}
template <int32_t (*kValue)(int32_t, Requantization)>
std::vector<uint8_t> Int8Of(const Gemm& gemm, Model model) {
  return ComputeInt8(gemm, model, kValue);
}

std::vector<uint8_t> LeaveColumns(const Gemm& gemm, Model model) {
  constexpr int64_t kBlock = 64;
  std::vector<uint8_t> bytes = Compute(gemm, model);
  const int64_t size = core::BytesOf(gemm.c_type);
  for (int64_t row = 0; row < gemm.rows(); ++row) {
    std::fill(bytes.begin() + (row * gemm.n + gemm.n / kBlock * kBlock) * size,
              bytes.begin() + (row + 1) * gemm.n * size, uint8_t{0});
  }
  return bytes;
}

std::vector<uint8_t> LeaveUnaligned(const Gemm& gemm, Model model) {
  std::vector<uint8_t> bytes = Compute(gemm, model);
  if (gemm.k % 8 != 0) std::ranges::fill(bytes, uint8_t{0});
  return bytes;
}

// ----- convolutions ---------------------------------------------------------------------------------------

std::vector<uint8_t> PadWithLowest(const Conv& conv, Model model) {
  return PadWith(conv, conv.a_type == INTACT_S8 ? 0x80 : 0, model);
}

// Taps beyond an end of the input read the next pixels in memory, if there are any.
std::vector<uint8_t> ReadOn(const Conv& conv, Model model) {
  const reference::ConvGeometry& g = conv.geometry;
  std::vector<int32_t> y = reference::Accumulators(conv, model);
  for (int64_t m = 0; m < g.OutputPixels(); ++m) {
    const reference::Pixel pixel = reference::PixelOf(g, m);
    for (int64_t tap = 0; tap < g.Taps(); ++tap) {
      const std::optional<int64_t> row = RowThatFollows(g, pixel, reference::TapOf(g, tap));
      if (!row) continue;
      for (int64_t n = 0; n < g.output_channels; ++n) {
        for (int64_t c = 0; c < g.GroupInputs(); ++c) {
          const int64_t channel = n / g.GroupOutputs() * g.GroupInputs() + c;
          const uint8_t a = conv.a[static_cast<size_t>(*row * g.input_channels + channel)];
          const int8_t b = conv.b[static_cast<size_t>((n * g.Taps() + tap) * g.GroupInputs() + c)];
          int32_t& sum = y[static_cast<size_t>(m * g.output_channels + n)];
          const int64_t product =
              int64_t{core::DecodeInt8(conv.a_type, a) - conv.a_zero_point} *
              (core::DecodeInt8(conv.b_type, static_cast<uint8_t>(b)) - reference::WeightZeroPoint(conv, n));
          sum = static_cast<int32_t>(sum + product);
        }
      }
    }
  }
  return reference::Outputs(conv, y);
}

// All axes have the dilation of the width. The number of outputs is unchanged.
std::vector<uint8_t> ShareDilation(const Conv& honest, Model model) {
  Conv conv = honest;
  const auto axes = std::span(conv.geometry.axes).last(static_cast<size_t>(conv.geometry.dims));
  for (reference::Axis& axis : axes) {
    const int64_t dilation = std::exchange(axis.dilation, axes.back().dilation);
    axis.pad_end += (axis.dilation - dilation) * (axis.kernel - 1);
  }
  return Compute(conv, model);
}

// Each image has one scale: the scale of the channel with its number.
std::vector<uint8_t> ScaleByImage(const Conv& conv, Model model) {
  if (conv.scales.empty()) return Compute(conv, model);
  const std::vector<int32_t> y = reference::Accumulators(conv, model);
  std::vector<uint8_t> bytes;
  const int64_t image_outputs = std::ssize(y) / conv.geometry.batch;
  for (int64_t image = 0; image < conv.geometry.batch; ++image) {
    Conv one = conv;
    one.scales = {conv.scales[static_cast<size_t>(image) % conv.scales.size()]};
    const auto begin = y.begin() + image * image_outputs;
    const std::vector<uint8_t> outputs = reference::Outputs(one, {begin, begin + image_outputs});
    bytes.insert(bytes.end(), outputs.begin(), outputs.end());
  }
  return bytes;
}

// Rows are written one too early, as if the output's padding began with one more row.
std::vector<uint8_t> ShiftRows(const Conv& honest, Model model) {
  Conv conv = honest;
  ++conv.geometry.axes[1].pad_begin;
  --conv.geometry.axes[1].pad_end;
  return Compute(conv, model);
}

// Leaves out the outputs that output_pad adds at the end.
std::vector<uint8_t> ForgetOutputPad(const Conv& honest, Model model) {
  Conv conv = honest;
  for (reference::Axis& axis : conv.geometry.axes) axis.output_pad = 0;
  const std::vector<uint8_t> written = Compute(conv, model);
  const int64_t pixel_bytes = conv.geometry.output_channels * core::BytesOf(conv.c_type);
  std::vector<uint8_t> bytes(static_cast<size_t>(honest.geometry.OutputPixels() * pixel_bytes));
  for (int64_t m = 0; m < conv.geometry.OutputPixels(); ++m) {
    const auto [image, at] = reference::PixelOf(conv.geometry, m);
    const auto& [d, h, w] = honest.geometry.axes;
    const int64_t to = ((image * d.Output() + at[0]) * h.Output() + at[1]) * w.Output() + at[2];
    std::copy_n(written.begin() + m * pixel_bytes, pixel_bytes, bytes.begin() + to * pixel_bytes);
  }
  return bytes;
}

Mutant OfGemm(const char* name, Computation compute, std::string fault, std::string_view line, Cause cause,
              std::string detail) {
  return MakeMutant(name, std::move(compute), nullptr, std::move(fault), line, cause, std::move(detail));
}

Mutant OfConv(const char* name, ConvComputation compute, std::string fault, std::string_view line,
              std::string detail) {
  return MakeMutant(name, nullptr, std::move(compute), std::move(fault), line, Cause::kImplementationError,
                    std::move(detail));
}

void AddAccumulators(std::vector<Mutant>* mutants) {
  constexpr Cause kError = Cause::kImplementationError;
  mutants->push_back(MakeMutant("clamped_pairs", ClampPairs<Gemm>, ClampPairs<Conv>,
                                "exact mode with VPMADDUBSW: sums of pairs are clamped to int16",
                                "gemm u8s8s32 m=1 n=1 k=2 fill=extremes", Cause::kInt16Saturation,
                                "accumulator 32767 instead of 64770"));
  mutants->push_back(OfGemm("wrapped_pairs", WrapPairs, "products 8 depths apart wrap in a lane of int16",
                            "gemm s8s8s32 m=4 n=4 k=16 wmax=128 fill=extremes", kError,
                            "int16 sums wrapped"));
  mutants->push_back(OfGemm("negated_minimum", NegateMinimum,
                            "|a|·sign(b, a): a weight of -128 stays negative where it changes sign",
                            "gemm s8s8s32 m=5 n=7 k=32 wmax=128 fill=extremes", kError,
                            "weights of -128 keep their sign under a negative activation"));
  mutants->push_back(OfGemm(
      "wrapped_zero_point", WrapCentered, "activations less their zero point wrap in 8 bits",
      "gemm s8s8s32 m=5 n=17 k=33 za=-7", kError, "activations less their zero point wrapped to 8 bits"));
  mutants->push_back(OfGemm("unshifted_zero_point", ForgetShiftOfZeroPoint,
                            "s8 activations are shifted to u8, and their zero point is not",
                            "gemm s8s8s32 m=5 n=17 k=33 za=-7", kError,
                            "shift of s8 activations by 128 not compensated"));
  mutants->push_back(OfGemm("forgotten_zero_points", ForgetBothZeroPoints, "neither zero point is subtracted",
                            "gemm u8u8s32 m=8 n=17 k=16 za=100 zb=120", kError, "no zero point subtracted"));
  mutants->push_back(OfGemm("glued_zero_points", TakeEverySecondZeroPoint,
                            "32-bit zero points of weights are read as 64-bit ones",
                            "gemm u8s8s32 m=3 n=4 k=16 zb=30 zbper=channel", kError,
                            "the zero point of column 2 taken for that of column 1"));
  mutants->push_back(OfGemm("float_accumulators", AccumulateInFloat,
                            "the accumulator goes through float32 every 32 depths",
                            "gemm u8s8s32 m=2 n=3 k=3000 fill=extremes", Cause::kFloatSums,
                            "exact sums of 32 depths added in float32"));
  mutants->push_back(MakeMutant("halved_weights", nullptr, HalveWeights,
                                "weights are halved lest pairs of them saturate, and the sum is doubled",
                                "conv s8s8s32 in=5x5 c=3 o=8 kernel=5x5", Cause::kReducedWeights,
                                "weights halved"));
}

void AddOutputs(std::vector<Mutant>* mutants) {
  constexpr Cause kError = Cause::kImplementationError;
  mutants->push_back(OfGemm("wrapped_output", Int8<WrapOutput>, "outputs wrap instead of being clamped",
                            "gemm s8s8s8 m=6 n=17 k=33 fill=extremes", kError,
                            "wrapped to 8 bits instead of clamped"));
  mutants->push_back(OfGemm(
      "late_output_zero_point", Int8<AddZeroPointLast>, "the output's zero point is added after clamping",
      "gemm u8s8s8 m=6 n=17 k=33 za=128 zc=-5 fill=extremes", kError, "the zero point added after clamping"));
  mutants->push_back(MakeMutant(
      "residual_to_output", Int8Of<AddResidualToOutput>,
      [](const Conv& conv, Model model) { return ComputeInt8(conv, model, AddResidualToOutput); },
      "the residual is added to outputs that are already 8 bits",
      "conv s8s8s8 in=9x9 c=8 o=8 kernel=3x3 stride=2x2 res=s8 fill=extremes", Cause::kRequantization,
      "the residual added after rounding to 8 bits"));
  mutants->push_back(OfGemm("relu_at_zero", Int8Of<ClampAtZero>,
                            "ReLU clamps outputs at 0 instead of at their zero point",
                            "gemm s8s8s8 m=6 n=17 k=33 zc=-20 act=relu res=s8 zres=3", kError,
                            "ReLU at 0 instead of at the output's zero point"));
  mutants->push_back(OfGemm("forgotten_relu", Int8Of<ForgetActivation>,
                            "ReLU is left to the range of the output, whose zero point is not its lowest",
                            "gemm u8s8u8 m=6 n=17 k=33 za=128 zc=40 act=relu", kError,
                            "the activation left out"));
  mutants->push_back(OfGemm("rounded_twice", Int8<RoundTwice>,
                            "the multiplier is fixed-point, and rounds twice",
                            "gemm u8s8u8 m=60 n=40 k=33 za=128 zc=128", Cause::kRequantization,
                            "fixed-point multiplier, rounded twice"));
  mutants->push_back(OfGemm("half_away", Int8<RoundHalfAway>, "ties are rounded away from zero",
                            "gemm u8s8s8 m=16 n=16 k=64 za=9 fill=ties", Cause::kRequantization,
                            "half away from zero"));
  mutants->push_back(
      OfGemm("forgotten_columns", LeaveColumns, "columns beyond the last whole block of 64 are not computed",
             "gemm u8s8s32 m=2 n=96 k=40", kError, "0, as if nothing was added up or written"));
  mutants->push_back(OfGemm("refused_depth", LeaveUnaligned,
                            "a depth that is no multiple of 8 is refused, and the output left as it was",
                            "gemm s8s8s32 m=4 n=8 k=10", kError, "0, as if nothing was added up or written"));
}

void AddConvolutions(std::vector<Mutant>* mutants) {
  mutants->push_back(OfConv("unshifted_padding", PadWithLowest,
                            "s8 input is shifted to u8, and padding is not",
                            "conv s8s8s32 in=8x9 c=1 o=4 kernel=4x4 pad=1x1:2x2",
                            "padding read as -128, which is 0 after the shift"));
  mutants->push_back(OfConv("unpadded_end", ReadOn, "the end of the input is not padded",
                            "conv s8s8s32 in=8x8 c=3 o=8 kernel=3x3 stride=2x2 pad=0x0:1x1 za=-5",
                            "pixels that follow in memory read for padding at the end"));
  mutants->push_back(OfConv("shared_dilation", ShareDilation,
                            "the dilation of the width is taken for that of the height",
                            "conv u8s8s32 in=9x9 c=5 o=4 kernel=3x3 dilation=3x2 pad=3x2 za=3",
                            "taps read 2x2 pixels apart instead of 3x2"));
  mutants->push_back(OfConv("scale_by_image", ScaleByImage,
                            "scales of output channels are indexed by the image",
                            "conv u8s8f32 in=5x5 c=20 o=40 kernel=3x3 groups=2 za=128 scale=channel",
                            "the scale of column 0 gives this output of column 1"));
  mutants->push_back(
      OfConv("shifted_rows", ShiftRows,
             "rows of a transposed convolution are written one too early: padding is no multiple of strides",
             "conv s8s8s32 in=4x4 c=8 o=4 kernel=4x4 stride=2x2 pad=1x1 transposed=yes za=-3",
             "that of output oh + 1 instead: of another phase"));
  mutants->push_back(OfConv(
      "forgotten_output_pad", ForgetOutputPad, "a transposed convolution's output padding is not computed",
      "conv u8s8s32 in=5x5 c=5 o=4 kernel=3x3 stride=2x2 pad=1x1 transposed=yes outpad=1x1 za=3",
      "0, as if nothing was added up or written"));
}

}  // namespace

std::vector<Mutant> ReportedMutants() {
  std::vector<Mutant> mutants;
  AddAccumulators(&mutants);
  AddOutputs(&mutants);
  AddConvolutions(&mutants);
  return mutants;
}

}  // namespace intact::verify
