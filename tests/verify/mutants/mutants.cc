#include "tests/verify/mutants/mutants.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>
#include <variant>

#include "core/types.h"
#include "reference/contract/quantize.h"
#include "reference/models/arithmetic.h"
#include "reference/models/fixed_point.h"
#include "reference/models/lowering.h"
#include "reference/models/operands.h"
#include "tests/verify/mutants/mutant_parts.h"
#include "verify/explain/diagnose_gemm.h"
#include "verify/targets/intact_target.h"
#include "verify/targets/wrong_quantizers.h"

namespace intact::verify {
namespace {

using reference::Model;
using reference::Requantization;

// Appends f as an output, rounded to its type.
void Store(float f, const Requantization& q, std::vector<uint8_t>* bytes) {
  std::array<uint8_t, 4> element;
  const bool is_float = core::IsFloat(q.c_type);
  if (!is_float && std::isnan(f)) f = -std::numeric_limits<float>::infinity();
  core::Encode(
      q.c_type,
      is_float ? reference::RoundToFloat(f, q.c_type) : reference::RoundToType(f, q.c_type, q.zero_point),
      element.data());
  bytes->insert(bytes->end(), element.begin(), element.begin() + core::BytesOf(q.c_type));
}

// Output bytes of the floats value(accumulator, requantization of the output, scale of its row, scale of its
// column).
template <class Value>
std::vector<uint8_t> ComputeValues(const reference::Gemm& gemm, Model model, Value value) {
  if (gemm.c_type == INTACT_S32) return Compute(gemm, model);
  std::vector<uint8_t> bytes;
  ForEachOutput(gemm, model, [&](int32_t y, const Requantization& q, float row_scale, float column_scale) {
    Store(std::isnan(q.scale) ? q.scale : value(y, q, row_scale, column_scale), q, &bytes);
  });
  return bytes;
}

// Adds the residual to f and applies the activation.
float Finish(float f, Requantization q) {
  q.has_bias_f32 = true;
  q.bias_f32 = f;
  q.scale = 0.0f;
  return reference::Dequantize(0, q);
}

std::vector<uint8_t> SwapPairOrder(const reference::Gemm& honest, Model model) {
  reference::Gemm gemm = honest;
  for (int64_t k = 0; k + 3 < gemm.k; k += 4) {
    for (int64_t m = 0; m < gemm.m; ++m) {
      const auto at = static_cast<size_t>(m * gemm.k + k);
      std::swap(gemm.a[at + 1], gemm.a[at + 2]);
    }
    for (int64_t n = 0; n < gemm.n; ++n) {
      std::swap(gemm.b[static_cast<size_t>((k + 1) * gemm.n + n)],
                gemm.b[static_cast<size_t>((k + 2) * gemm.n + n)]);
    }
  }
  return Compute(gemm, model);
}

std::vector<uint8_t> DropDepthTail(const reference::Gemm& honest, Model model) {
  reference::Gemm gemm = honest;
  const int64_t kept = (gemm.k - 1) / 4 * 4;
  std::fill(gemm.b.begin() + kept * gemm.n, gemm.b.end(), int8_t{0});
  return Compute(gemm, model);
}

std::vector<uint8_t> ForgetZeroPoint(const reference::Gemm& honest, Model model) {
  reference::Gemm gemm = honest;
  gemm.a_zero_point = 0;
  return Compute(gemm, model);
}

// Reads A, B or both with the wrong sign.
auto ReadWithOtherSign(bool a, bool b) {
  return [=](const reference::Gemm& honest, Model model) {
    reference::Gemm gemm = honest;
    if (a) gemm.a_type = core::OtherSign(gemm.a_type);
    if (b) gemm.b_type = core::OtherSign(gemm.b_type);
    return Compute(gemm, model);
  };
}

std::vector<uint8_t> AddNothing(const reference::Gemm& honest, Model model) {
  reference::Gemm gemm = honest;
  std::fill(gemm.b.begin(), gemm.b.end(), int8_t{0});
  return Compute(gemm, model);
}

std::vector<uint8_t> ForgetWeightZeroPoints(const reference::Gemm& honest, Model model) {
  reference::Gemm gemm = honest;
  gemm.b_zero_points.clear();
  return Compute(gemm, model);
}

std::vector<uint8_t> DropRowSums(const reference::Gemm& gemm, Model model) {
  reference::Operands operands(gemm);
  std::fill(operands.row_sums.begin(), operands.row_sums.end(), 0);
  return reference::Outputs(gemm, reference::Accumulators(operands, model));
}

std::vector<uint8_t> ReuseLastScale(const reference::Gemm& honest, Model model) {
  reference::Gemm gemm = honest;
  if (gemm.scales.size() > 1) gemm.scales.back() = gemm.scales[gemm.scales.size() - 2];
  return Compute(gemm, model);
}

std::vector<uint8_t> RoundHalfUp(const reference::Gemm& gemm, Model model) {
  return ComputeValues(gemm, model, [](int32_t y, const Requantization& q, float, float) {
    const float f = reference::Dequantize(y, q);
    return core::BytesOf(q.c_type) == 1 ? std::floor(f + 0.5f) : f;
  });
}

// Fixed point with the other rounding rule.
std::vector<uint8_t> RoundHalfAway(const reference::Gemm& honest, Model model) {
  reference::Gemm gemm = honest;
  if (gemm.fixed_point != INTACT_FIXED_POINT_NONE) gemm.fixed_point = INTACT_FIXED_POINT_HALF_AWAY;
  return Compute(gemm, model);
}

std::vector<uint8_t> RoundShiftsUp(const reference::Gemm& honest, Model model) {
  reference::Gemm gemm = honest;
  if (gemm.fixed_point != INTACT_FIXED_POINT_NONE) gemm.fixed_point = INTACT_FIXED_POINT_HALF_UP;
  return Compute(gemm, model);
}

std::vector<uint8_t> RoundProductOnce(const reference::Gemm& gemm, Model model) {
  if (gemm.fixed_point == INTACT_FIXED_POINT_NONE) return Compute(gemm, model);
  return ComputeValues(gemm, model, [](int32_t y, const Requantization& q, float, float) {
    return reference::AfterBias(static_cast<float>(reference::MultiplyRoundedOnce(y, q.fixed)), q);
  });
}

std::vector<uint8_t> RoundThroughBfloat16(const reference::Gemm& gemm, Model model) {
  return ComputeValues(gemm, model, [](int32_t y, const Requantization& q, float, float) {
    const uint32_t bits = std::bit_cast<uint32_t>(reference::Dequantize(y, q));
    const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);  // to nearest, ties to even
    return core::BytesOf(q.c_type) == 1 ? std::bit_cast<float>(rounded & 0xffff0000u)
                                        : std::bit_cast<float>(bits);
  });
}

// bfloat16 outputs of a product of bfloat16 numbers.
std::vector<uint8_t> RoundSumToBfloat16(const reference::Gemm& gemm, Model model) {
  return ComputeValues(gemm, model, [](int32_t y, const Requantization& q, float row, float column) {
    if (q.c_type != INTACT_BF16) return reference::Dequantize(y, q);
    const auto rounded = [](float f) { return static_cast<float>(reference::RoundToFloat(f, INTACT_BF16)); };
    const float f = rounded(rounded(rounded(static_cast<float>(y)) * row) * column);
    return q.has_bias_f32 ? rounded(f + q.bias_f32) : f;
  });
}

// Looks up with an index that is `offset` too large. Its top bit is inverted if `flip` is 0x80.
auto LookUpElsewhere(int offset, int flip) {
  return [=](const reference::Gemm& honest, Model model) {
    reference::Gemm gemm = honest;
    if (flip != 0 && gemm.c_type != INTACT_S8) return Compute(gemm, model);
    for (size_t i = 0; i < gemm.lookup_table.size(); ++i) {
      gemm.lookup_table[i] =
          honest.lookup_table[((i ^ static_cast<size_t>(flip)) + static_cast<size_t>(offset)) % 256];
    }
    return Compute(gemm, model);
  };
}

std::vector<uint8_t> AddResidualLast(const reference::Gemm& gemm, Model model) {
  return ComputeValues(gemm, model, [](int32_t y, Requantization q, float, float) {
    const std::optional<float> residual = TakeResidual(&q);
    return residual ? reference::Dequantize(y, q) + *residual : reference::Dequantize(y, q);
  });
}

std::vector<uint8_t> FuseBias(const reference::Gemm& gemm, Model model) {
  return ComputeValues(gemm, model, [](int32_t y, const Requantization& q, float, float) {
    return q.has_bias_f32 ? Finish(std::fma(static_cast<float>(y), q.scale, q.bias_f32), q)
                          : reference::Dequantize(y, q);
  });
}

std::vector<uint8_t> ScaleTwice(const reference::Gemm& gemm, Model model) {
  return ComputeValues(gemm, model, [](int32_t y, const Requantization& q, float row, float column) {
    const float f = static_cast<float>(y) * row * column;
    return Finish(q.has_bias_f32 ? f + q.bias_f32 : f, q);
  });
}

std::vector<uint8_t> TruncateBfloat16(const reference::Gemm& honest, Model model) {
  if (honest.c_type != INTACT_BF16) return Compute(honest, model);
  reference::Gemm gemm = honest;
  gemm.c_type = INTACT_F32;
  const std::vector<uint8_t> floats = Compute(gemm, model);
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < floats.size(); i += 4) bytes.insert(bytes.end(), &floats[i + 2], &floats[i] + 4);
  return bytes;
}

std::vector<uint8_t> FlushFloat16(const reference::Gemm& gemm, Model model) {
  std::vector<uint8_t> bytes = Compute(gemm, model);
  for (size_t i = 0; gemm.c_type == INTACT_F16 && i < bytes.size(); i += 2) {
    if ((bytes[i + 1] & 0x7c) != 0) continue;
    bytes[i] = 0;
    bytes[i + 1] &= 0x80;
  }
  return bytes;
}

// ----- quantizations of rows, and batches ------------------------------------------------------------------

Computation QuantizeWrongly(const WrongQuantizer& wrong) {
  return [&wrong](const reference::Gemm& honest, Model model) {
    if (!honest.IsDynamic()) return Compute(honest, model);
    reference::Operation operation = honest;
    wrong.quantize(&operation);
    return Compute(std::get<reference::Gemm>(operation), model);
  };
}

ConvComputation QuantizeConvWrongly(const WrongQuantizer& wrong) {
  return [&wrong](const reference::Conv& honest, Model model) {
    if (!honest.IsDynamic()) return Compute(honest, model);
    reference::Operation operation = honest;
    wrong.quantize(&operation);
    return Compute(std::get<reference::Conv>(operation), model);
  };
}

// Rotates the values: each gets the next one's.
template <class T>
void TakeNext(std::vector<T>* values, int64_t size) {
  if (!values->empty()) std::rotate(values->begin(), values->begin() + size, values->end());
}

std::vector<uint8_t> TakeNextRows(const reference::Gemm& honest, Model model) {
  reference::Gemm gemm = honest;
  TakeNext(&gemm.a_zero_points, 1);
  TakeNext(&gemm.a_scales, 1);
  return Compute(gemm, model);
}

std::vector<uint8_t> TakeNextB(const reference::Gemm& honest, Model model) {
  reference::Gemm gemm = honest;
  if (gemm.has_runtime_b) TakeNext(&gemm.b, gemm.k * gemm.n);
  return Compute(gemm, model);
}

// Leaves out the part of a pair of weights that exceeds int16 with the largest activation.
std::vector<uint8_t> LoseExcess(const reference::Gemm& honest, Model model) {
  constexpr int kMost = 128;
  reference::Gemm gemm = honest;
  for (int64_t depth = 0; depth + 1 < gemm.k; depth += 2) {
    for (int64_t n = 0; n < gemm.n; ++n) {
      int8_t& first = gemm.b[static_cast<size_t>(depth * gemm.n + n)];
      const int sum = first + gemm.b[static_cast<size_t>((depth + 1) * gemm.n + n)];
      first = static_cast<int8_t>(first - (sum - std::clamp(sum, -kMost, kMost)));
    }
  }
  return Compute(gemm, model);
}

// Rotates the values of items. An item has one or n.
template <class T>
void TakeNextOfItems(const reference::Gemm& gemm, std::vector<T>* values) {
  if (!values->empty()) TakeNext(values, std::ssize(*values) / gemm.batch);
}

std::vector<uint8_t> TakeNextItemScale(const reference::Gemm& honest, Model model) {
  reference::Gemm gemm = honest;
  TakeNextOfItems(gemm, &gemm.item_scales);
  return Compute(gemm, model);
}

std::vector<uint8_t> TakeNextItemZeroPoint(const reference::Gemm& honest, Model model) {
  reference::Gemm gemm = honest;
  TakeNextOfItems(gemm, &gemm.item_zero_points);
  return Compute(gemm, model);
}

std::vector<uint8_t> ForgetResidualZeroPoint(const reference::Gemm& honest, Model model) {
  reference::Gemm gemm = honest;
  if (auto* added = gemm.post_ops.Find<core::AddResidual>()) added->zero_point = 0;
  return Compute(gemm, model);
}

// Takes sums beyond int32 unchanged or clamped, although they should wrap.
template <class Operation>
std::vector<uint8_t> KeepSums(const Operation& honest, Model model) {
  if (model != Model::kExact) return Compute(honest, model);
  Operation operation = honest;
  operation.overflow = INTACT_OVERFLOW_REFUSED;
  return reference::Predict(operation, {});
}
template <class Operation>
std::vector<uint8_t> ClampSums(const Operation& honest, Model model) {
  Operation operation = honest;
  operation.overflow = INTACT_OVERFLOW_REFUSED;
  std::vector<int32_t> y = reference::Accumulators(honest, model);
  using Limits = std::numeric_limits<int32_t>;
  for (const auto& [output, sum] : reference::Predictor(operation).Overflows()) {
    y[static_cast<size_t>(output)] = sum < 0 ? Limits::min() : Limits::max();
  }
  return reference::Outputs(honest, y);
}

// Treats a scale of 0 as 1, like code that divides by scales.
template <class Operation>
std::vector<uint8_t> ScaleByOne(const Operation& honest, Model model) {
  Operation operation = honest;
  std::ranges::replace(operation.scales, 0.0f, 1.0f);
  return Compute(operation, model);
}

std::vector<uint8_t> SaturateInt32(const reference::Gemm& gemm, Model /*model*/) {
  return Compute(gemm, Model::kDpbusds);
}

// The outputs of all items, from compute(item).
template <class Compute>
std::vector<uint8_t> OfItems(const reference::Gemm& gemm, const Compute& compute) {
  std::vector<uint8_t> outputs;
  for (int64_t i = 0; i < gemm.batch; ++i) {
    const std::vector<uint8_t> item = compute(reference::Item(gemm, i));
    outputs.insert(outputs.end(), item.begin(), item.end());
  }
  return outputs;
}

// VPDPBUSDS with accumulators that start from the compensation.
std::vector<uint8_t> SaturateItemFromCompensation(const reference::Gemm& gemm) {
  using Limits = std::numeric_limits<int32_t>;
  constexpr int64_t kQuad = 4;
  const reference::Operands operands(gemm);
  std::vector<int32_t> y;
  for (int64_t m = 0; m < gemm.m; ++m) {
    for (int64_t n = 0; n < gemm.n; ++n) {
      int64_t sum = operands.Compensation(m, n);
      for (int64_t k = 0; k < gemm.k; ++k) {
        sum += reference::ShiftedActivation(gemm, m, k) * reference::ShiftedWeight(gemm, k, n);
        const bool ends = k % kQuad == kQuad - 1 || k == gemm.k - 1;
        if (ends) sum = std::clamp<int64_t>(sum, Limits::min(), Limits::max());
      }
      y.push_back(static_cast<int32_t>(sum));
    }
  }
  return reference::Outputs(gemm, y);
}
std::vector<uint8_t> SaturateFromCompensation(const reference::Gemm& gemm, Model /*model*/) {
  return OfItems(gemm, SaturateItemFromCompensation);
}

// VPDPBUSDS from the compensation on in every third output, with quads that cross taps; VPMADDUBSW in the
// others.
std::vector<uint8_t> SaturateThirdsFromCompensation(const reference::Conv& conv, Model /*model*/) {
  constexpr size_t kEvery = 3;
  Model pairs = Model::kMaddubs, quads = Model::kDpbusds;
  pairs.order = quads.order = reference::DepthOrder::kFlattened;
  quads.compensation = reference::CompensationTime::kFirst;
  std::vector<int32_t> y = reference::Accumulators(conv, pairs);
  const std::vector<int32_t> saturated = reference::Accumulators(conv, quads);
  for (size_t i = 0; i < y.size(); i += kEvery) y[i] = saturated[i];
  return reference::Outputs(conv, y);
}

// Adds products in int16, which wraps, and widens the sum every 16 depths.
std::vector<uint8_t> WrapItemProducts(const reference::Gemm& gemm) {
  const reference::Operands operands(gemm);
  std::vector<int32_t> y;
  for (int64_t m = 0; m < gemm.m; ++m) {
    for (int64_t n = 0; n < gemm.n; ++n) {
      const std::vector<int32_t> weights = operands.CenteredColumn(n);
      int32_t total = 0;
      int16_t sum = 0;
      for (size_t k = 0; k < weights.size(); ++k) {
        const int32_t a = operands.Row(m)[k] - operands.a_zero_points[static_cast<size_t>(m)];
        sum = static_cast<int16_t>(sum + a * weights[k]);
        if (k % 16 == 15 || k + 1 == weights.size()) total += std::exchange(sum, int16_t{0});
      }
      y.push_back(total);
    }
  }
  return reference::Outputs(gemm, y);
}
std::vector<uint8_t> WrapProducts(const reference::Gemm& gemm, Model /*model*/) {
  return OfItems(gemm, WrapItemProducts);
}

// ----- convolutions ---------------------------------------------------------------------------------------

std::vector<uint8_t> PadWithZero(const reference::Conv& honest, Model model) {
  return PadWith(honest, 0, model);
}

// The same fault, with the run's zero point.
std::vector<uint8_t> PadRunWithZero(const reference::Conv& honest, Model model) {
  const bool is_static = honest.a_quantization == INTACT_QUANTIZATION_STATIC;
  return is_static ? Compute(honest, model) : PadWith(honest, 0, model);
}

// Taps are one pixel too near. The number of outputs is unchanged.
std::vector<uint8_t> NarrowDilation(const reference::Conv& honest, Model model) {
  reference::Conv conv = honest;
  for (reference::Axis& axis : conv.geometry.axes) {
    if (axis.dilation == 1) continue;
    --axis.dilation;
    axis.pad_end -= axis.kernel - 1;
  }
  return Compute(conv, model);
}

// The last output channel of each group reads the input of the next group.
std::vector<uint8_t> ShiftGroupBoundary(const reference::Conv& honest, Model model) {
  const reference::ConvGeometry& g = honest.geometry;
  reference::Conv next = honest;
  for (auto pixel = next.a.begin(); pixel != next.a.end(); pixel += g.input_channels) {
    std::rotate(pixel, pixel + g.GroupInputs(), pixel + g.input_channels);
  }
  std::vector<int32_t> y = reference::Accumulators(honest, model);
  const std::vector<int32_t> of_next = reference::Accumulators(next, model);
  for (size_t i = 0; i < y.size(); ++i) {
    const int64_t channel = static_cast<int64_t>(i) % g.output_channels;
    const bool is_last = channel % g.GroupOutputs() == g.GroupOutputs() - 1;
    if (is_last && channel + 1 < g.output_channels) y[i] = of_next[i];
  }
  return reference::Outputs(honest, y);
}

// Swaps kh and kw of a square filter.
std::vector<uint8_t> TransposeTaps(const reference::Conv& honest, Model model) {
  const reference::ConvGeometry& g = honest.geometry;
  reference::Conv conv = honest;
  if (g.axes[1].kernel != g.axes[2].kernel) return Compute(conv, model);
  for (int64_t plane = 0; plane < g.output_channels * g.axes[0].kernel; ++plane) {
    for (int64_t kh = 0; kh < g.axes[1].kernel; ++kh) {
      for (int64_t kw = 0; kw < g.axes[2].kernel; ++kw) {
        const int64_t from = (plane * g.axes[1].kernel + kw) * g.axes[2].kernel + kh;
        const int64_t to = (plane * g.axes[1].kernel + kh) * g.axes[2].kernel + kw;
        std::copy_n(honest.b.begin() + from * g.GroupInputs(), g.GroupInputs(),
                    conv.b.begin() + to * g.GroupInputs());
      }
    }
  }
  return Compute(conv, model);
}

// Reverses the taps: a transposed convolution with the order of an ordinary one.
std::vector<uint8_t> ReverseTaps(const reference::Conv& honest, Model model) {
  reference::Conv conv = honest;
  const int64_t inputs = conv.geometry.GroupInputs();
  const int64_t filter = conv.geometry.Taps() * inputs;
  for (auto begin = conv.b.begin(); begin != conv.b.end(); begin += filter) {
    std::reverse(begin, begin + filter);
    for (auto tap = begin; tap != begin + filter; tap += inputs) std::reverse(tap, tap + inputs);
  }
  return Compute(conv, model);
}

// Each pixel of a row gets its neighbour's value, so phases have each other's taps.
std::vector<uint8_t> MixPhases(const reference::Conv& honest, Model model) {
  reference::Conv conv = honest;
  ++conv.geometry.axes.back().pad_begin;
  --conv.geometry.axes.back().pad_end;
  return Compute(conv, model);
}

std::vector<uint8_t> SwapCrop(const reference::Conv& honest, Model model) {
  reference::Conv conv = honest;
  for (reference::Axis& axis : conv.geometry.axes) std::swap(axis.pad_begin, axis.pad_end);
  return Compute(conv, model);
}

// Pairs end at the end of a tap.
std::vector<uint8_t> PairWithinTaps(const reference::Conv& conv, Model model) {
  model.order = reference::DepthOrder::kTaps;
  return Compute(conv, model);
}

// ----- targets --------------------------------------------------------------------------------------------

class Overeager : public IntactTarget {
 public:
  std::string Name() const override { return "one_pair_too_many"; }
  Result<std::vector<uint8_t>> Run(const reference::Operation& operation,
                                   const RunOptions& options) const override {
    reference::Operation narrowed = operation;
    Narrow(&LinearOf(narrowed));
    return IntactTarget::Run(narrowed, options);
  }

 private:
  static void Narrow(core::Linear* linear) {
    const int32_t lowest = core::LowestOf(linear->a_type);
    const bool has_range = linear->a_min != 0 || linear->a_max != 0;
    const int32_t highest = has_range ? linear->a_max : core::HighestOf(linear->a_type);
    if (!has_range) linear->a_min = lowest;
    // The range must contain the zero point.
    linear->a_max = std::max({highest - 1, linear->a_zero_point, lowest + 1});
    linear->range_check = INTACT_RANGE_UNCHECKED;
  }
};

// Reads a transposed A as if it were not transposed.
class RowReader : public ReferenceTarget {
 public:
  std::string Name() const override { return "transposed_a_read_by_rows"; }
  Result<std::vector<uint8_t>> Run(const reference::Operation& operation,
                                   const RunOptions& options) const override {
    const auto* gemm = std::get_if<reference::Gemm>(&operation);
    if (gemm == nullptr) return Error{INTACT_UNSUPPORTED, "target " + Name() + " runs no convolutions"};
    return ReferenceTarget::Run(options.a_by_columns ? ReadByRows(*gemm) : *gemm, options);
  }
};

Problem ProblemOf(std::string_view line) {
  const Result<Problem> problem = Problem::Parse(line);
  assert(problem);
  return *problem;
}

Mutant MakeMutant(const char* name, Computation compute, std::string fault, std::string_view line,
                  Cause cause, std::string detail) {
  return MakeMutant(name, std::move(compute), nullptr, std::move(fault), line, cause, std::move(detail));
}

Mutant MakeConvMutant(const char* name, ConvComputation compute, std::string fault, std::string_view line,
                      std::string detail) {
  return MakeMutant(name, nullptr, std::move(compute), std::move(fault), line, Cause::kImplementationError,
                    std::move(detail));
}

// A problem that shows this fault of a quantizer.
std::string_view ProblemOf(const WrongQuantizer& wrong) {
  static constexpr std::pair<std::string_view, std::string_view> kLines[] = {
      {"truncating_quantizer", "gemm u8s8f32 m=5 n=17 k=64 quant=dynamic_rows"},
      {"half_away_quantizer", "gemm s8s8f32 m=5 n=17 k=64 quant=dynamic_rows src=bf16 x=halves"},
      {"reciprocal_quantizer", "gemm s8s8f32 m=5 n=17 k=64 quant=dynamic_tensor x=tiny seed=2 scale=channel"},
      {"early_zero_point", "gemm u8s8f32 m=5 n=17 k=64 quant=dynamic_rows x=halves"},
      {"late_zero_point", "gemm u8u8f32 m=5 n=17 k=64 zb=131 quant=dynamic_rows x=normal bias=f32"},
      {"range_without_zero", "gemm u8s8f32 m=5 n=17 k=64 quant=dynamic_rows x=constant"},
      {"zeros_without_scale", "gemm u8s8f32 m=6 n=17 k=64 quant=dynamic_rows x=zeros"},
      {"rows_for_tensor", "gemm u8s8f32 m=5 n=17 k=64 batch=2 quant=dynamic_tensor x=normal"},
      {"range_of_first_item", "gemm u8s8f32 m=5 n=17 k=64 batch=2 quant=dynamic_tensor x=normal seed=2"},
  };
  const auto* line =
      std::ranges::find(kLines, wrong.name, &std::pair<std::string_view, std::string_view>::first);
  assert(line != std::end(kLines));
  return line->second;
}

}  // namespace

Result<std::vector<uint8_t>> ReferenceTarget::Run(const reference::Operation& operation,
                                                  const RunOptions& options) const {
  const Model model = ExpectedModel(LinearOf(operation), options.isa);
  const auto* conv = std::get_if<reference::Conv>(&operation);
  const bool is_exact_conv = conv != nullptr && model == Model::kExact;
  return reference::Outputs(
      operation, is_exact_conv ? reference::Convolve(*conv) : reference::Accumulators(operation, model));
}

std::unique_ptr<Target> OvereagerTarget() { return std::make_unique<Overeager>(); }

std::vector<Mutant> Mutants() {
  std::vector<Mutant> mutants;
  mutants.push_back(MakeMutant("swapped_pair_order", SwapPairOrder,
                               "pairs (k, k+2) and (k+1, k+3) saturate instead of adjacent ones",
                               "gemm u8s8s32 m=4 n=16 k=64 fill=bait mode=saturating isa=avx2",
                               Cause::kInt16Saturation, "pairs of depths 2 apart clamped to int16"));
  mutants.push_back(MakeMutant("dropped_depth_tail", DropDepthTail, "the last K mod 4 depths are left out",
                               "gemm u8s8s32 m=5 n=17 k=67 za=3", Cause::kImplementationError,
                               "depth tail k=64…66 missing"));
  mutants.push_back(MakeMutant("dropped_last_quad", DropDepthTail, "the last four depths are left out",
                               "gemm u8s8s32 m=5 n=17 k=64 za=3", Cause::kImplementationError,
                               "depth tail k=60…63 missing"));
  mutants.push_back(MakeMutant("forgotten_zero_point", ForgetZeroPoint,
                               "the activation zero point is not subtracted",
                               "gemm u8s8u8 m=5 n=17 k=64 za=77 zc=128", Cause::kImplementationError,
                               "activation zero point not subtracted"));
  mutants.push_back(MakeMutant("forgotten_weight_zero_point", ForgetWeightZeroPoints,
                               "the weights' zero points are not subtracted",
                               "gemm u8u8u8 m=5 n=17 k=64 za=77 zb=131 zc=128", Cause::kImplementationError,
                               "weight zero point not subtracted"));
  mutants.push_back(MakeMutant("a_of_other_sign", ReadWithOtherSign(true, false),
                               "activations of u8 are read as s8", "gemm u8s8s32 m=5 n=17 k=64 za=3",
                               Cause::kImplementationError, "A read as s8"));
  mutants.push_back(MakeMutant("b_of_other_sign", ReadWithOtherSign(false, true),
                               "weights of s8 are read as u8", "gemm s8s8s32 m=5 n=17 k=64 za=-3",
                               Cause::kImplementationError, "B read as u8"));
  mutants.push_back(MakeMutant("both_of_other_sign", ReadWithOtherSign(true, true),
                               "s8 and u8 are taken for each other", "gemm s8u8s32 m=5 n=17 k=64 zb=7",
                               Cause::kImplementationError, "A read as u8 and B read as s8"));
  mutants.push_back(MakeMutant("nothing_added", AddNothing, "no product is added up",
                               "gemm u8s8s32 m=5 n=17 k=64 bias=s32", Cause::kImplementationError,
                               "nothing but the bias"));
  mutants.push_back(MakeMutant("dropped_row_sums", DropRowSums,
                               "the weights' zero points are not multiplied with the rows' sums",
                               "gemm s8u8s32 m=5 n=17 k=67 za=-3 zb=9 zbper=channel",
                               Cause::kImplementationError, "sum of the row's activations left out"));
  mutants.push_back(MakeMutant("reused_scale", ReuseLastScale, "the last column is scaled as the one before",
                               "gemm u8s8s8 m=16 n=17 k=64 za=128 scale=channel", Cause::kImplementationError,
                               "the scale of column 15 gives this output of column 16"));
  mutants.push_back(MakeMutant("half_up", RoundHalfUp, "ties are rounded up instead of to even",
                               "gemm u8s8u8 m=16 n=16 k=64 za=9 zc=128 fill=ties", Cause::kRequantization,
                               "half up"));
  mutants.push_back(MakeMutant("shift_half_up", RoundShiftsUp,
                               "a fixed-point shift rounds ties up instead of away from zero",
                               "gemm u8s8s8 m=16 n=16 k=64 za=9 fill=ties scale=channel fixed=away",
                               Cause::kRequantization, "fixed-point multiplier, rounded twice, half up"));
  mutants.push_back(MakeMutant("shift_half_away", RoundHalfAway,
                               "a fixed-point shift rounds ties away from zero instead of up",
                               "gemm u8s8s8 m=16 n=16 k=64 za=9 fill=ties scale=channel fixed=up_shift",
                               Cause::kRequantization, "fixed-point multiplier, rounded twice"));
  mutants.push_back(MakeMutant("rounded_once", RoundProductOnce,
                               "a fixed-point product is rounded once, by its whole shift",
                               "gemm u8s8s8 m=16 n=65 k=64 za=9 fill=ties scale=channel fixed=up",
                               Cause::kRequantization, "fixed-point multiplier, rounded once"));
  mutants.push_back(
      MakeMutant("next_of_table", LookUpElsewhere(1, 0), "outputs are the lookup table's next elements",
                 "gemm u8s8u8 m=5 n=17 k=64 za=9 zc=128 fixed=away table=yes", Cause::kImplementationError,
                 "the element after the lookup table's right one"));
  mutants.push_back(MakeMutant("unsigned_table", LookUpElsewhere(0, 0x80),
                               "s8 outputs are the lookup table's index as they are",
                               "gemm u8s8s8 m=5 n=17 k=64 za=9 table=yes", Cause::kImplementationError,
                               "the lookup table's element 0 taken for that of 0, not of -128"));
  mutants.push_back(MakeMutant("late_residual", AddResidualLast,
                               "the residual is added after the activation instead of before it",
                               "gemm u8s8u8 m=8 n=17 k=64 za=128 zc=128 act=relu res=s8 zres=-3",
                               Cause::kImplementationError, "residual added after the activation"));
  mutants.push_back(MakeMutant("forgotten_residual_zero_point", ForgetResidualZeroPoint,
                               "the residual's zero point is not subtracted",
                               "gemm u8s8f32 m=8 n=17 k=64 za=128 bias=f32 res=u8 zres=77",
                               Cause::kImplementationError, "residual's zero point not subtracted"));
  mutants.push_back(
      MakeMutant("saturating_int32_adds", SaturateInt32, "VPDPBUSDS: intermediate sums are clamped to int32",
                 "gemm u8s8s32 m=1 n=1 k=70000 za=128 fill=extremes", Cause::kInt32Overflow, "left int32"));
  mutants.push_back(MakeMutant("saturating_from_compensation", SaturateFromCompensation,
                               "VPDPBUSDS: sums are clamped to int32 from the compensation on",
                               "gemm u8s8s32 m=5 n=17 k=64 za=3 bias=s32 overflow=wraps",
                               Cause::kInt32Overflow, "from the compensation on"));
  mutants.push_back(MakeMutant("saturating_thirds", nullptr, SaturateThirdsFromCompensation,
                               "VPDPBUSDS in every third output of a depthwise convolution",
                               "conv u8s8s32 in=6x6 c=8 o=8 kernel=3x3 groups=8 za=3 bias=s32 fill=bait "
                               "overflow=wraps",
                               Cause::kInt32Overflow, "from the compensation on"));
  mutants.push_back(MakeMutant("wrapped_products", WrapProducts,
                               "products are added in int16, which wraps, and widened every 16 depths",
                               "gemm s8u8s32 m=5 n=17 k=100 za=3 zb=9", Cause::kInt16Saturation,
                               "products summed in int16, which wraps (products16, widened every 16"));
  mutants.push_back(MakeMutant("clamped_sums", ClampSums<reference::Gemm>, ClampSums<reference::Conv>,
                               "sums beyond int32 are clamped instead of wrapped",
                               "gemm s8s8s32 m=5 n=17 k=64 za=3 bias=s32 overflow=wraps",
                               Cause::kInt32Overflow, "was clamped instead of wrapped to int32"));
  mutants.push_back(
      MakeMutant("kept_sums", KeepSums<reference::Gemm>, KeepSums<reference::Conv>,
                 "sums beyond int32 are kept instead of wrapped",
                 "conv u8s8u8 in=6x6 c=5 o=9 kernel=3x3 pad=1x1 za=3 zc=128 bias=s32 overflow=wraps",
                 Cause::kInt32Overflow, "was kept instead of wrapped to int32"));
  mutants.push_back(MakeMutant("pruned_scale_of_one", ScaleByOne<reference::Gemm>,
                               ScaleByOne<reference::Conv>, "a scale of 0 is taken for 1",
                               "gemm u8s8f32 m=5 n=17 k=64 za=3 bias=f32 scale=pruned",
                               Cause::kImplementationError, "the scale 0 taken for 1"));
  mutants.push_back(MakeMutant("fused_bias", FuseBias, "scale and bias are rounded once, by an FMA",
                               "gemm u8s8f32 m=5 n=17 k=64 quant=dynamic_rows bias=f32",
                               Cause::kRequantization, "fused multiply-add"));
  mutants.push_back(MakeMutant("scaled_twice", ScaleTwice,
                               "accumulators are multiplied by their row's scale, then by their column's",
                               "gemm u8s8f32 m=5 n=17 k=64 quant=rows zaper=row scale=channel",
                               Cause::kRequantization, "scales multiplied one after the other"));
  mutants.push_back(MakeMutant("through_bfloat16", RoundThroughBfloat16,
                               "8-bit outputs are rounded to bfloat16 first",
                               "gemm u8s8s8 m=5 n=17 k=64 za=9 scale=channel", Cause::kRequantization,
                               "rounded to bfloat16, then to 8 bits"));
  mutants.push_back(MakeMutant("bfloat16_steps", RoundSumToBfloat16,
                               "the sum and each step after it are rounded to bfloat16",
                               "gemm u8s8bf16 m=5 n=17 k=64 quant=rows scale=channel bias=f32",
                               Cause::kRequantization, "each step rounded to the output's 16 bits"));
  mutants.push_back(MakeMutant("truncated_bfloat16", TruncateBfloat16, "bfloat16 outputs are truncated",
                               "gemm u8s8bf16 m=5 n=17 k=64 bias=f32", Cause::kRequantization, "truncation"));
  mutants.push_back(MakeMutant("flushed_float16", FlushFloat16, "subnormal float16 outputs are 0",
                               "gemm u8s8f16 m=5 n=17 k=64 quant=rows scale=tiny", Cause::kRequantization,
                               "denormals taken for 0"));
  for (const WrongQuantizer& wrong : WrongQuantizers()) {
    mutants.push_back(MakeMutant(wrong.name, QuantizeWrongly(wrong), wrong.fault, ProblemOf(wrong),
                                 Cause::kImplementationError, wrong.fault));
  }
  mutants.push_back(MakeMutant("next_row", TakeNextRows, "rows have the zero point and scale of the next",
                               "gemm s8s8f32 m=5 n=17 k=64 quant=rows zaper=row", Cause::kImplementationError,
                               "the quantization of row 1 taken for that of row 0"));
  mutants.push_back(MakeMutant("next_b", TakeNextB, "items of a batch have the B of the next",
                               "gemm u8u8f32 m=5 n=17 k=64 batch=3 runtimeb=yes zb=9",
                               Cause::kImplementationError, "B of item 1 taken for that of item 0"));
  mutants.push_back(MakeMutant("lost_excess", LoseExcess,
                               "weights of a runtime B lose what exceeds int16 with the pair's other weight",
                               "gemm u8s8s32 m=20 n=17 k=64 runtimeb=yes fill=gauss",
                               Cause::kImplementationError, ""));
  mutants.push_back(MakeMutant("next_item_scale", TakeNextItemScale,
                               "items of a batch have the scale of the next",
                               "gemm u8s8f32 m=5 n=17 k=64 batch=3 runtimeb=yes scale=item",
                               Cause::kImplementationError, "the scale of item 1 taken for that of item 0"));
  mutants.push_back(MakeMutant(
      "next_item_zero_point", TakeNextItemZeroPoint, "columns of an item have the zero points of the next",
      "gemm s8u8f32 m=5 n=17 k=64 batch=3 runtimeb=yes zb=9 zbper=item_column scale=item_column",
      Cause::kImplementationError, "the zero point of item 1 taken for that of item 0"));
  mutants.push_back({std::make_unique<RowReader>(), "a transposed A is read by rows",
                     ProblemOf("gemm u8s8s32 m=5 n=17 k=64 alayout=km za=3"), Cause::kImplementationError,
                     "A read as m×k, which is k×m"});
  mutants.push_back({OvereagerTarget(), "int16 groups take one pair too many",
                     ProblemOf("gemm u8s8s32 m=480 n=64 k=64 wmax=128 fill=bound isa=avx2"),
                     Cause::kImplementationError, "int16 sums wrapped"});
  mutants.push_back(
      {OvereagerTarget(), "the same in a convolution",
       ProblemOf("conv u8s8s32 in=9x9 c=32 o=32 kernel=2x2 stride=2x2 groups=2 wmax=128 fill=bound isa=avx2"),
       Cause::kImplementationError, "int16 sums wrapped"});
  mutants.push_back(MakeConvMutant("zero_padding", PadWithZero, "padding is 0 instead of the zero point",
                                   "conv u8s8s32 in=6x6 c=5 o=4 kernel=3x3 pad=1x1 za=77",
                                   "padding read as 0 instead of the zero point"));
  mutants.push_back(
      MakeConvMutant("zero_padding_of_a_run", PadRunWithZero, "padding is 0 instead of the run's zero point",
                     "conv u8s8f32 in=6x6 c=5 o=4 kernel=3x3 pad=1x1 quant=dynamic_tensor x=normal",
                     "padding read as 0 instead of the zero point"));
  const WrongQuantizer& of_first = WrongQuantizers().back();
  mutants.push_back(
      MakeConvMutant("range_of_first_image", QuantizeConvWrongly(of_first), of_first.fault,
                     "conv u8s8f32 in=6x6 c=5 o=4 kernel=3x3 pad=1x1 batch=2 quant=dynamic_tensor x=normal",
                     of_first.fault));
  mutants.push_back(MakeConvMutant("narrow_dilation", NarrowDilation, "taps lie one pixel too near",
                                   "conv u8s8s32 in=9x9 c=5 o=4 kernel=3x3 dilation=2x3 pad=2x3 za=3",
                                   "taps read 1x2 pixels apart instead of 2x3"));
  mutants.push_back(MakeConvMutant("shifted_group_boundary", ShiftGroupBoundary,
                                   "the last output channel of a group reads the next group's input",
                                   "conv u8s8s32 in=5x5 c=12 o=8 kernel=3x3 pad=1x1 groups=4 za=3",
                                   "read the channels of group 2 instead of group 1"));
  mutants.push_back(MakeConvMutant("transposed_taps", TransposeTaps,
                                   "rows and columns of a filter change places",
                                   "conv s8s8u8 in=6x6 c=5 o=4 kernel=3x3 pad=1x1 za=3 zc=128 bias=f32",
                                   "rows and columns of the filter swapped"));
  mutants.push_back(MakeConvMutant(
      "reversed_taps", ReverseTaps, "a transposed convolution with its taps in reverse",
      "conv u8s8s32 in=5x5 c=5 o=4 kernel=3x3 stride=2x2 pad=1x1 transposed=yes outpad=1x1 za=3",
      "taps of the filter in reverse order"));
  mutants.push_back(
      MakeConvMutant("mixed_phases", MixPhases, "phases of a transposed convolution have each other's taps",
                     "conv u8s8s32 in=5x4 c=5 o=4 kernel=4x4 stride=2x2 pad=1x1 transposed=yes za=3",
                     "that of output ow + 1 instead: of another phase"));
  mutants.push_back(MakeConvMutant("swapped_crop", SwapCrop, "output cropped at the wrong ends",
                                   "conv u8s8s32 in=5 c=5 o=4 kernel=6 stride=2 pad=3:1 transposed=yes za=3",
                                   "padding at the end taken for that at the beginning"));
  mutants.push_back(
      MakeMutant("pairs_within_taps", nullptr, PairWithinTaps, "pairs end with taps instead of crossing them",
                 "conv u8s8s32 in=6x6 c=5 o=4 kernel=3x3 pad=1x1 za=77 pairing=flattened fill=bait "
                 "mode=saturating isa=avx2",
                 Cause::kInt16Saturation, "pairs of adjacent depths clamped to int16 (maddubs)"));
  std::ranges::move(ReportedMutants(), std::back_inserter(mutants));
  return mutants;
}

}  // namespace intact::verify
