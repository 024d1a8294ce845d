#include "kernels/engines/portable_engine.h"

#include <emmintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>
#include <span>

#include "core/types.h"

namespace intact::kernels {
namespace {

constexpr int64_t kQuads = 16;                  // widened at a time
constexpr size_t kVectors = kPanelColumns / 4;  // vectors of int32 in a row of a panel

/// Values of a panel's columns.
struct Row {
  __m128i vectors[kVectors];  // NOLINT(*-avoid-c-arrays): the type has attributes, which std::array ignores
};

/// A quad of a panel as int16: depths 0 and 2 of each column side by side, then depths 1 and 3.
struct WideQuad {
  std::array<Row, 2> pairs;
};

WideQuad Widen(const int8_t* quad) noexcept {
  WideQuad wide;
  for (size_t i = 0; i < kVectors; ++i) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(quad) + i);
    wide.pairs[0].vectors[i] = _mm_srai_epi16(_mm_slli_epi16(bytes, 8), 8);
    wide.pairs[1].vectors[i] = _mm_srai_epi16(bytes, 8);
  }
  return wide;
}

// Like VMAXPS and VMINPS: the bound if both are equal or if f is NaN.
float Max(float f, float bound) { return f > bound ? f : bound; }
float Min(float f, float bound) { return f < bound ? f : bound; }

float ResidualAt(const Requantization& output, const uint8_t* residual, size_t i) noexcept {
  if (output.residual_type == INTACT_F32) {
    float value = 0;
    std::memcpy(&value, residual + i * sizeof(value), sizeof(value));
    return value;
  }
  const int32_t value =
      output.residual_type == INTACT_S8 ? static_cast<int8_t>(residual[i]) : int32_t{residual[i]};
  return static_cast<float>(value - output.residual.zero_point);
}

/// Column `column` of EpilogueArgs::factors or addends.
template <class T>
T ColumnValue(const void* columns, size_t column) {
  T value;
  std::memcpy(&value, ColumnAt(columns, static_cast<int64_t>(column)), sizeof(value));
  return value;
}

/// The values of a row; defaults if rows have none.
struct OwnValues {
  uint32_t sum = 0, zero_point = 0;
  float scale = 1.0f;

  OwnValues(const EpilogueSpec& spec, const uint8_t* row) {
    if (row == nullptr) return;
    RowValues values = {0, 0, 1.0f};
    std::memcpy(&values, row, static_cast<size_t>(spec.row_value_bytes()));
    sum = static_cast<uint32_t>(values.sum);
    zero_point = static_cast<uint32_t>(values.zero_point);
    scale = values.scale;
  }
  /// The terms of zero points that are subtracted from column `i` of the outputs, modulo 2³².
  uint32_t ZeroPointTerms(const EpilogueSpec& spec, const EpilogueArgs& args, size_t i) const {
    uint32_t terms = spec.has_one_b_zero_point ? sum : 0;
    const bool has_many = spec.has_b_zero_points && !spec.has_one_b_zero_point;
    if (has_many) terms += sum * static_cast<uint32_t>(args.b_zero_points[i]);
    if (spec.has_row_zero_points) terms += zero_point * static_cast<uint32_t>(args.column_sums[i]);
    return terms;
  }
};

// The fixed-point arithmetic of the contract (include/intact/intact.h), with 64-bit integers.
int32_t MultiplyFixed(int32_t y, std::optional<int32_t> multiplier, int32_t shift, bool is_away) noexcept {
  using Limits = std::numeric_limits<int32_t>;
  int64_t v = std::clamp(int64_t{y} * (int64_t{1} << std::max(shift, 0)), int64_t{Limits::min()},
                         int64_t{Limits::max()});
  if (multiplier) v = (v * *multiplier + (int64_t{1} << 30)) >> 31;
  if (shift >= 0) return static_cast<int32_t>(v);
  const int64_t below_half = (int64_t{1} << (-shift - 1)) - 1;
  return static_cast<int32_t>((v + below_half + (is_away && v < 0 ? 0 : 1)) >> -shift);
}

uint8_t FixedPointOutput(const LinearProblem& problem, int32_t y, const EpilogueArgs& args,
                         size_t i) noexcept {
  std::optional<int32_t> multiplier;
  if (args.factors != nullptr) multiplier = ColumnValue<int32_t>(args.factors, i);
  const int32_t v = MultiplyFixed(y, multiplier, ColumnValue<int32_t>(args.addends, i),
                                  problem.fixed_point == INTACT_FIXED_POINT_HALF_AWAY);
  const OutputBounds& bounds = problem.output.bounds;
  const float f = ClampTo(bounds, static_cast<float>(v));
  return static_cast<uint8_t>(_mm_cvtss_si32(_mm_set_ss(f)) + bounds.zero_point);
}

// Removes `count` low bits, at most 31, rounding to nearest even: see Epilogue.
uint32_t CutOff(uint32_t bits, uint32_t count) noexcept {
  return (bits + (uint32_t{1} << (count - 1)) - 1 + (bits >> count & 1)) >> count;
}

// Rounds to nearest even. f is not NaN.
uint16_t ToFloat16(float f) noexcept {
  constexpr uint32_t kExcess = 112;  // a float's exponent minus a float16's
  constexpr uint32_t kInfinity = 0x7c00;
  const auto bits = std::bit_cast<uint32_t>(f);
  const uint32_t sign = bits >> 31 << 15, magnitude = bits & 0x7fffffff, exponent = magnitude >> 23;
  uint32_t half = 0;
  if (exponent > kExcess) {
    half = std::min(CutOff(magnitude - (kExcess << 23), 13), kInfinity);
  } else if (exponent + 11 > kExcess) {  // subnormal numbers and the least normal number
    half = CutOff((magnitude & 0x7fffff) | 0x800000, 14 + kExcess - exponent);
  }
  return static_cast<uint16_t>(sign | half);
}

}  // namespace

float ClampTo(const OutputBounds& bounds, float f) noexcept { return Min(Max(f, bounds.lo), bounds.hi); }

void StoreFloat(intact_type type, float f, size_t i, uint8_t* c) noexcept {
  if (type == INTACT_F32) {
    std::memcpy(c + i * sizeof(f), &f, sizeof(f));
    return;
  }
  const auto rounded =
      type == INTACT_F16 ? ToFloat16(f) : static_cast<uint16_t>(CutOff(std::bit_cast<uint32_t>(f), 16));
  std::memcpy(c + i * sizeof(rounded), &rounded, sizeof(rounded));
}

std::string PortableEngine::KernelName() const {
  return (data_.a_shift() == 0 ? "u8s8" : "s8s8") + data_.epilogue.Name() + "_gemm_" + std::to_string(kRows) +
         "x" + std::to_string(kPanelColumns) + "c4_portable";
}

void PortableEngine::RunRange(const RunBuffers& buffers, const Range& range,
                              uint8_t* /*scratch*/) const noexcept {
  const Taps& taps = data_.taps();
  std::array<const uint8_t*, kRows> pointers;
  std::array<Sums, kRows> sums;
  RowCursor cursor(buffers.rows(), range.row_begin);
  for (int64_t row = range.row_begin; row < range.row_end; row += kRows) {
    const int64_t rows = std::min<int64_t>(kRows, range.row_end - row);
    cursor.Take(rows, pointers.data());
    for (int64_t column = range.column_begin; column < range.column_end; column += kPanelColumns) {
      const int64_t panel = column / kPanelColumns;
      for (int64_t i = 0; i < rows; ++i)
        std::copy_n(data_.CompensationOf(buffers) + column, kPanelColumns, sums[i].data());
      for (int64_t tap = 0; tap < taps.count(); ++tap) {
        AddTap(pointers.data(), rows, taps.offsets[static_cast<size_t>(tap)] + panel * taps.vector_step,
               data_.PanelsOf(buffers) + panel * data_.weights.panel_stride_bytes(), tap * taps.depth,
               sums.data());
      }
      const auto columns = static_cast<size_t>(std::min<int64_t>(kPanelColumns, range.column_end - column));
      for (int64_t i = 0; i < rows; ++i) {
        StoreOutputs(data_, {sums[i].data(), columns}, data_.EpilogueAt(buffers, row + i, column),
                     buffers.output.C(row + i, column));
      }
    }
  }
}

void PortableEngine::AddTap(const uint8_t* const* rows, int64_t row_count, int64_t offset,
                            const int8_t* panel, int64_t first_depth, Sums* sums) const noexcept {
  const uint8_t shift = data_.a_shift();
  const int64_t depth = data_.taps().depth;
  std::array<WideQuad, kQuads> wide;
  for (int64_t begin = 0; begin < depth; begin += kQuads * kQuad) {
    const int64_t quads = std::min(kQuads, (depth - begin + kQuad - 1) / kQuad);
    for (int64_t i = 0; i < quads; ++i) {
      wide[static_cast<size_t>(i)] =
          Widen(panel + OffsetInPanel(first_depth + begin + i * kQuad, 0, data_.weights.quad_bytes()));
    }
    for (int64_t row = 0; row < row_count; ++row) {
      const uint8_t* const a = rows[row] + offset + begin;
      Row own;
      std::memcpy(&own, sums[row].data(), sizeof(own));
      for (int64_t i = 0; i < quads; ++i) {
        const uint32_t quad = FirstQuad(a + i * kQuad, depth - begin - i * kQuad, shift);
        for (size_t pair = 0; pair < 2; ++pair) {
          const __m128i activations = _mm_set1_epi32(static_cast<int>((quad >> (8 * pair)) & 0x00ff00ff));
          for (size_t n = 0; n < kVectors; ++n) {
            const __m128i weights = wide[static_cast<size_t>(i)].pairs[pair].vectors[n];
            own.vectors[n] = _mm_add_epi32(own.vectors[n], _mm_madd_epi16(weights, activations));
          }
        }
      }
      std::memcpy(sums[row].data(), &own, sizeof(own));
    }
  }
}

void StoreOutputs(const KernelData& data, std::span<const uint32_t> sums, const EpilogueArgs& args,
                  uint8_t* c) noexcept {
  const Requantization& requantization = data.problem.output;
  const OutputBounds& bounds = requantization.bounds;
  const OwnValues row(data.epilogue, args.row_values);
  const bool is_float = core::IsFloat(requantization.c_type);
  for (size_t i = 0; i < sums.size(); ++i) {
    const auto y = static_cast<int32_t>(sums[i] - row.ZeroPointTerms(data.epilogue, args, i));
    if (requantization.c_type == INTACT_S32) {
      std::memcpy(c + i * sizeof(y), &y, sizeof(y));
      continue;
    }
    if (data.epilogue.is_fixed()) {
      c[i] = FixedPointOutput(data.problem, y, args, i);
      continue;
    }
    const auto scale = ColumnValue<float>(args.factors, i);
    float f = static_cast<float>(y) * (data.epilogue.has_row_scales ? row.scale * scale : scale);
    if (args.addends != nullptr) f += ColumnValue<float>(args.addends, i);
    if (args.residual != nullptr) {
      f += ResidualAt(requantization, args.residual, i) * requantization.residual.scale;
    }
    f = ClampTo(bounds, f);
    if (is_float) {
      StoreFloat(requantization.c_type, f, i, c);
    } else {
      c[i] = static_cast<uint8_t>(_mm_cvtss_si32(_mm_set_ss(f)) + bounds.zero_point);
    }
  }
}

}  // namespace intact::kernels
