#include "fuzz/linear.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <string_view>

#include "core/isas.h"
#include "core/operation.h"
#include "core/types.h"
#include "support/random.h"

namespace intact::fuzz {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
constexpr int32_t kLowestInt = std::numeric_limits<int32_t>::min();
constexpr int32_t kHighestInt = std::numeric_limits<int32_t>::max();

struct Limits {
  int32_t low, high;
};
Limits LimitsOf(int32_t type) {
  const auto known = static_cast<intact_type>(type);
  return {core::LowestOf(known), core::HighestOf(known)};
}

float FiniteFloat(uint64_t bits) {
  const auto value = std::bit_cast<float>(static_cast<uint32_t>(bits));
  return value - value == 0.0f ? value : 1.0f;
}

std::vector<float> Scales(Input* input, int64_t columns) {
  const float first = ReadScale(input);
  const uint64_t step = input->Byte();
  std::vector<float> scales(static_cast<size_t>(columns), first);
  for (size_t i = 0; i < scales.size() && step != 0; ++i) {
    scales[i] = std::min(first * static_cast<float>(1 + i * step % 7), kLargest);
  }
  if (input->OneIn(8)) scales[static_cast<size_t>(input->Byte()) % scales.size()] = 0.0f;
  input->Spoil(&scales[static_cast<size_t>(input->Byte()) % scales.size()],
               {-kSmallest, -1.0f, kNan, kInfinity, -kInfinity});
  return scales;
}

void ReadZeroPoints(Input* input, int64_t columns, Linear* linear) {
  intact_linear_desc& desc = linear->desc;
  const Limits b = LimitsOf(desc.b_type);
  if (input->OneIn(3)) {
    const int64_t first = input->Byte(), step = input->Byte();
    for (int64_t i = 0; i < columns; ++i) {
      linear->b_zero_points.push_back(b.low + static_cast<int32_t>((first + i * step) % 256));
    }
    input->Spoil(&linear->b_zero_points.back(), {b.low - 1, b.high + 1, kLowestInt, kHighestInt});
    desc.b_zero_points = linear->b_zero_points.data();
    desc.b_zero_point_count = input->OneIn(2) ? columns : 1;
  }
  input->Spoil(&desc.b_zero_point_count, {-1, 0, columns + 1, std::numeric_limits<int64_t>::max()});
  input->Spoil(&desc.b_zero_points, {nullptr});
}

void ReadRange(Input* input, Linear* linear) {
  intact_linear_desc& desc = linear->desc;
  Limits a = LimitsOf(desc.a_type);
  if (input->OneIn(4)) {
    const auto low = static_cast<int32_t>(input->OneIn(4) ? input->Integer(0, 255) : 0);
    a = {a.low + low, a.low + std::max(low, static_cast<int32_t>(input->Integer(0, 255)))};
    if (a.low == 0 && a.high == 0) a.high = 1;  // two zeros mean the full range
    desc.a_min = a.low;
    desc.a_max = a.high;
  }
  desc.range_check = input->OneIn(3) ? INTACT_RANGE_UNCHECKED : INTACT_RANGE_CHECKED;
  desc.a_zero_point = a.low + static_cast<int32_t>(input->Integer(0, a.high - a.low));
  input->Spoil(&desc.a_min, {-129, 256, kLowestInt, kHighestInt, 1});
  input->Spoil(&desc.a_max, {-129, 256, kLowestInt, kHighestInt, -1});
  input->Spoil(&desc.range_check, {2, -1, kLowestInt});
  input->Spoil(&desc.a_zero_point, {-129, 256, kLowestInt, kHighestInt});
}

void ReadBiases(Input* input, int64_t columns, Linear* linear) {
  intact_linear_desc& desc = linear->desc;
  const uint8_t kind = input->Byte() % 4;
  const uint64_t seed = input->Byte();
  support::Random random(seed, 1, 0);
  if (kind == 1 || kind == 3) {
    const bool is_large = input->OneIn(8);
    for (int64_t i = 0; i < columns; ++i) {
      const auto drawn = static_cast<int32_t>(random.Next());
      linear->bias_s32.push_back(is_large ? drawn : drawn >> 12);
    }
    if (input->OneIn(16)) linear->bias_s32.back() = input->Pick({kLowestInt, kHighestInt, kLowestInt + 1});
    if (is_large) desc.overflow = input->Pick({INTACT_OVERFLOW_WRAPS, INTACT_OVERFLOW_REFUSED});
    input->Spoil(&desc.overflow, {2, -1, kLowestInt, INTACT_OVERFLOW_WRAPS});
    desc.bias_s32 = linear->bias_s32.data();
  }
  if (kind >= 2 && desc.c_type != INTACT_S32) {
    const bool is_any = input->OneIn(8);
    for (int64_t i = 0; i < columns; ++i) {
      linear->bias_f32.push_back(is_any ? FiniteFloat(random.Next())
                                        : static_cast<float>(random.Integer(-400, 400)) / 4.0f);
    }
    input->Spoil(&linear->bias_f32.back(), {kNan, kInfinity, -kInfinity});
    desc.bias_f32 = linear->bias_f32.data();
  }
}

void ReadEpilogue(Input* input, int64_t columns, Linear* linear) {
  intact_linear_desc& desc = linear->desc;
  if (desc.c_type != INTACT_S32) {
    linear->scales = Scales(input, columns);
    desc.scales = linear->scales.data();
    desc.scale_count = input->OneIn(2) ? columns : 1;
    desc.activation = input->Pick({INTACT_ACTIVATION_NONE, INTACT_ACTIVATION_RELU, INTACT_ACTIVATION_CLAMP});
    desc.clamp_min = static_cast<float>(input->Integer(-200, 55)) / 2.0f;
    desc.clamp_max = desc.clamp_min + static_cast<float>(input->Byte());
    if (desc.c_type == INTACT_U8 || desc.c_type == INTACT_S8) {
      desc.c_zero_point = LimitsOf(desc.c_type).low + static_cast<int32_t>(input->Byte());
    }
    desc.residual_type = input->Pick<int32_t>(
        {INTACT_TYPE_NONE, INTACT_TYPE_NONE, INTACT_U8, INTACT_S8, INTACT_F32, INTACT_TYPE_NONE});
  }
  if (desc.residual_type != INTACT_TYPE_NONE) {
    desc.residual_scale = std::max(ReadScale(input), kSmallest);
    if (desc.residual_type != INTACT_F32) {
      desc.residual_zero_point = LimitsOf(desc.residual_type).low + static_cast<int32_t>(input->Byte());
    }
  }
  input->Spoil(&desc.scales, {nullptr});
  input->Spoil(&desc.scale_count, {-1, 0, 2, columns + 1, std::numeric_limits<int64_t>::max()});
  input->Spoil(&desc.activation, {3, -1, kLowestInt, INTACT_ACTIVATION_RELU});
  input->Spoil(&desc.clamp_min, {kNan, kInfinity, -kInfinity, kLargest, -0.0f});
  input->Spoil(&desc.clamp_max, {kNan, kInfinity, -kInfinity, -kLargest, -0.0f});
  input->Spoil(&desc.c_zero_point, {-129, 256, kLowestInt, kHighestInt, 1});
  input->Spoil(&desc.residual_type, {INTACT_S32, 5, -1, INTACT_U8});
  input->Spoil(&desc.residual_scale, {0.0f, -1.0f, kNan, kInfinity, kSmallest, 1.0f});
  input->Spoil(&desc.residual_zero_point, {-129, 256, kLowestInt, kHighestInt, 1});
}

// Fixed-point requantization replaces scales, float bias and residual.
void ReadFixedPoint(Input* input, int64_t columns, Linear* linear) {
  intact_linear_desc& desc = linear->desc;
  const bool may_be_fixed = core::IsInt8(static_cast<intact_type>(desc.c_type)) &&
                            desc.a_quantization == INTACT_QUANTIZATION_STATIC;
  if (may_be_fixed && input->OneIn(4)) {
    desc.fixed_point = input->Pick({INTACT_FIXED_POINT_HALF_AWAY, INTACT_FIXED_POINT_HALF_UP});
    support::Random random(input->Byte(), 2, 0);
    const bool is_steep = input->OneIn(4);
    for (int64_t i = 0; i < columns; ++i) {
      linear->multipliers.push_back(static_cast<int32_t>(random.Integer(1 << 30, kHighestInt)));
      linear->shifts.push_back(
          static_cast<int32_t>(is_steep ? random.Integer(-31, 30) : random.Integer(-12, 0)));
    }
    input->Spoil(&linear->multipliers.back(), {0, -1, 1, kLowestInt, kHighestInt});
    input->Spoil(&linear->shifts.back(), {-32, 31, kLowestInt, kHighestInt});
    if (!input->OneIn(3)) desc.multipliers = linear->multipliers.data();
    desc.shifts = linear->shifts.data();
    desc.scales = nullptr;
    desc.bias_f32 = nullptr;
    desc.residual_type = INTACT_TYPE_NONE;
    desc.residual_scale = 0.0f;
    desc.residual_zero_point = 0;
  }
  input->Spoil(&desc.fixed_point, {3, -1, kLowestInt, INTACT_FIXED_POINT_HALF_UP, INTACT_FIXED_POINT_NONE});
  input->Spoil(&desc.shifts, {nullptr});
}

template <class T>
std::vector<T> Copy(const T* from, int64_t count) {
  return from == nullptr ? std::vector<T>() : std::vector<T>(from, from + count);
}

}  // namespace

float ReadScale(Input* input) {
  const float plain = static_cast<float>(1 + input->Byte()) / 4096.0f;
  if (!input->OneIn(16)) return plain;
  return input->Pick({kLargest, kSmallest, 1.0f, 0.5f, 0x1p-126f, 0x1p100f, 0x1p-100f, 3.0f, 0.0f, -0.0f});
}

void ReadLinear(Input* input, int64_t columns, std::span<const int32_t> c_types,
                intact_quantization quantization, Linear* linear) {
  intact_linear_desc& desc = linear->desc;
  desc.a_quantization = quantization;
  desc.a_type = input->Pick({INTACT_U8, INTACT_S8});
  desc.b_type = input->Pick({INTACT_S8, INTACT_S8, INTACT_U8});
  desc.c_type = c_types[input->Byte() % c_types.size()];
  desc.mode = input->OneIn(8) ? INTACT_SATURATING : INTACT_EXACT;
  constexpr auto kHighestIsa = static_cast<int32_t>(core::kIsaLadder.size());
  desc.max_isa = static_cast<int32_t>(input->Integer(INTACT_ISA_ANY, kHighestIsa));
  ReadRange(input, linear);
  ReadZeroPoints(input, columns, linear);
  ReadBiases(input, columns, linear);
  ReadEpilogue(input, columns, linear);
  ReadFixedPoint(input, columns, linear);
  const bool is_8_bit = core::IsInt8(static_cast<intact_type>(desc.c_type));
  if (is_8_bit && input->OneIn(4)) linear->lookup_table = ReadTensor(input, 256);
  if (!linear->lookup_table.empty()) desc.lookup_table = linear->lookup_table.data();
  input->Spoil(&desc.a_type, {0, INTACT_S32, INTACT_F32, 5, -1, kLowestInt});
  input->Spoil(&desc.b_type, {0, INTACT_S32, INTACT_F32, 5, -1, kLowestInt});
  input->Spoil(&desc.c_type, {0, 5, -1, kHighestInt});
  input->Spoil(&desc.mode, {2, -1, kHighestInt});
  input->Spoil(&desc.max_isa, {kHighestIsa + 1, -1, kHighestInt, kLowestInt});
  if (desc.mode == INTACT_SATURATING && input->OneIn(2)) desc.pairing = INTACT_PAIRING_FLATTENED;
  input->Spoil(&desc.pairing, {2, -1, kHighestInt, kLowestInt});
}

void Describe(const intact_linear_desc& desc, int64_t columns, reference::Linear* operation) {
  static_cast<core::Linear&>(*operation) = core::NumbersOf(desc);
  const auto copy = [&](std::string_view name, auto& to, const auto* from) {
    to = Copy(from, core::ElementsOf(name, desc, columns));
  };
  core::ForEachColumnVector(copy, *operation, desc);
  operation->lookup_table = core::LookupTableOf(desc);
}

std::vector<uint8_t> ReadTensor(Input* input, int64_t count) {
  const uint8_t style = input->Byte() % 4;
  support::Random random(input->Byte(), 0, 0);
  std::vector<uint8_t> bytes(static_cast<size_t>(count));
  if (style == 1) {
    constexpr std::array<uint8_t, 4> kExtremes = {0, 127, 128, 255};
    for (uint8_t& byte : bytes) byte = kExtremes[static_cast<size_t>(random.Integer(0, 3))];
  } else if (style == 2) {
    const std::array<uint8_t, 4> few = {input->Byte(), input->Byte(), input->Byte(), input->Byte()};
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = few[i % few.size()];
  } else {
    const int shift = style == 3 ? 60 : 56;  // small values, or all values
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.Next() >> shift);
  }
  return bytes;
}

void ClampToActivationRange(const intact_linear_desc& desc, std::vector<uint8_t>* a) {
  if (desc.a_min == 0 && desc.a_max == 0) return;
  for (uint8_t& byte : *a) {
    const int32_t value = core::DecodeInt8(static_cast<intact_type>(desc.a_type), byte);
    byte = static_cast<uint8_t>(std::clamp(value, desc.a_min, desc.a_max));
  }
}

}  // namespace intact::fuzz
