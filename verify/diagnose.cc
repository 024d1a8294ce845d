#include "verify/diagnose.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "reference/quantize.h"

namespace intact::verify {
namespace {

using reference::Requantization;

bool SameElement(const Observation& seen, int32_t y, const Requantization& q) {
  uint8_t element[4] = {};
  reference::StoreOutput(y, q, element);
  return std::memcmp(element, seen.element, static_cast<size_t>(reference::ElementSize(q.c_type))) == 0;
}

// ----- other roundings ------------------------------------------------------------------------------------

double Activate(double f, const Requantization& q) {
  switch (q.activation) {
    case INTACT_ACTIVATION_RELU:
      return f > 0.0 ? f : 0.0;
    case INTACT_ACTIVATION_CLAMP:
      return std::clamp<double>(f, q.clamp_min, q.clamp_max);
    case INTACT_ACTIVATION_NONE:
      break;
  }
  return f;
}

// The value before rounding to the output's type, computed in three ways.
double Separate(int32_t y, const Requantization& q) { return reference::Dequantize(y, q); }
double Fused(int32_t y, const Requantization& q) {
  const float f = std::fma(static_cast<float>(y), q.scale, q.bias_f32);
  return Activate(q.has_residual ? std::fma(q.residual, q.residual_scale, f) : f, q);
}
double Double(int32_t y, const Requantization& q) {
  const double residual = static_cast<double>(q.residual) * q.residual_scale;
  return Activate(static_cast<double>(y) * q.scale + q.bias_f32 + residual, q);
}

double ToEven(double f) { return std::nearbyint(f); }
double HalfUp(double f) { return std::floor(f + 0.5); }
double HalfAway(double f) { return std::round(f); }
double Truncate(double f) { return std::trunc(f); }

bool IsInt8(double rounded, const Observation& seen, const Requantization& q) {
  const double low = q.c_type == INTACT_U8 ? 0.0 : -128.0;
  const double value = std::clamp(rounded + q.zero_point, low, low + 255.0);
  return static_cast<uint8_t>(static_cast<int32_t>(value)) == *seen.element;
}

bool IsBfloat16(uint32_t bits, const Observation& seen) {
  uint16_t actual = 0;
  std::memcpy(&actual, seen.element, sizeof actual);
  return bits == actual;
}

// Whether `f` is the output, rounded as it is to be.
bool IsFloat(float f, const Observation& seen, const Requantization& q) {
  if (q.c_type == INTACT_BF16) return IsBfloat16(reference::ToBfloat16(f), seen);
  if (q.c_type != INTACT_F32) return IsInt8(ToEven(f), seen, q);
  uint32_t actual = 0;
  std::memcpy(&actual, seen.element, sizeof actual);
  return std::bit_cast<uint32_t>(f) == actual;
}

std::optional<std::string> OtherInt8Rounding(const Observation& seen, const Requantization& q) {
  struct Way {
    const char* name;
    double (*value)(int32_t, const Requantization&);
    double (*round)(double);
  };
  static constexpr Way kWays[] = {
      {"half up", Separate, HalfUp},        {"half away from zero", Separate, HalfAway},
      {"truncation", Separate, Truncate},   {"fused multiply-add", Fused, ToEven},
      {"double precision", Double, ToEven},
  };
  for (const Way& way : kWays) {
    if (IsInt8(way.round(way.value(seen.exact, q)), seen, q)) return way.name;
  }
  return std::nullopt;
}

std::optional<std::string> OtherFloatRounding(const Observation& seen, const Requantization& q) {
  if (IsFloat(static_cast<float>(Fused(seen.exact, q)), seen, q)) return "fused multiply-add";
  if (IsFloat(static_cast<float>(Double(seen.exact, q)), seen, q)) return "double precision";
  if (q.c_type != INTACT_BF16) return std::nullopt;
  const auto bits = std::bit_cast<uint32_t>(reference::Dequantize(seen.exact, q));
  if (IsBfloat16(bits >> 16, seen)) return "truncation";
  if (IsBfloat16((bits + 0x8000) >> 16, seen)) return "half away from zero";
  return std::nullopt;
}

// The accumulator times the scale of its row, then times that of its column.
std::optional<std::string> ScalesOneByOne(const Observation& seen, Requantization q) {
  if (seen.gemm.a_scales.empty()) return std::nullopt;
  const float column = reference::RequantizationOf(seen.gemm, seen.n).scale;
  const auto y = static_cast<float>(seen.exact);
  const float bias = q.bias_f32;
  q.scale = 0.0f;
  q.has_bias_f32 = true;
  for (const float f : {y * seen.RowScale() * column, y * column * seen.RowScale()}) {
    q.bias_f32 = f + bias;
    if (IsFloat(reference::Dequantize(0, q), seen, q)) return "scales multiplied one after the other";
  }
  return std::nullopt;
}

std::optional<std::string> FloatRoundTrip(const Observation& seen) {
  // Converting through int64 keeps 2³¹ defined.
  const auto rounded = static_cast<int64_t>(static_cast<float>(seen.exact));
  if (rounded == seen.actual_accumulator) return "float round trip";
  return std::nullopt;
}

// ----- what a wrong accumulator looks like ----------------------------------------------------------------

int32_t Wrap(int64_t value) { return static_cast<int32_t>(static_cast<uint32_t>(value)); }

// Σ_k (a − a_offset)·(w − w_offset) over depths from `from` on.
int64_t Products(const Observation& seen, int64_t from, int64_t a_offset, int64_t w_offset) {
  const auto a = seen.operands.Row(seen.m);
  const auto w = seen.operands.Column(seen.n);
  int64_t sum = 0;
  for (auto k = static_cast<size_t>(from); k < a.size(); ++k) sum += (a[k] - a_offset) * (w[k] - w_offset);
  return sum;
}

int64_t ZeroPoint(const Observation& seen) {
  return seen.operands.w_zero_points[static_cast<size_t>(seen.n)];
}

// Pairs (k, k+2) and (k+1, k+3) of each quad clamped instead of adjacent ones.
int32_t SwappedPairs(const Observation& seen) {
  std::vector<uint8_t> a(seen.operands.Row(seen.m).begin(), seen.operands.Row(seen.m).end());
  std::vector<int8_t> w(seen.operands.Column(seen.n).begin(), seen.operands.Column(seen.n).end());
  a.resize((a.size() + 3) / 4 * 4);
  w.resize(a.size());
  for (size_t k = 0; k < a.size(); k += 4) {
    std::swap(a[k + 1], a[k + 2]);
    std::swap(w[k + 1], w[k + 2]);
  }
  return seen.WithCompensation(reference::Accumulate(reference::Model::kTriple, 0, a, w));
}

void SuspectZeroPoint(const Observation& seen, std::vector<Suspicion>* suspicions) {
  const auto column = static_cast<size_t>(seen.n);
  const int64_t weights = seen.operands.column_sums[column] - seen.operands.k * ZeroPoint(seen);
  const int64_t za =
      seen.operands.a_zero_points[static_cast<size_t>(seen.m)] - reference::ActivationShift(seen.gemm);
  if (za != 0) {
    suspicions->push_back({"activation zero point not subtracted", Wrap(seen.exact + za * weights)});
  }
  if (seen.gemm.a_type == INTACT_S8) {
    suspicions->push_back(
        {"shift of s8 activations by 128 not compensated", Wrap(seen.exact + 128 * weights)});
    suspicions->push_back(
        {"neither zero point nor shift compensated", Wrap(seen.exact + (za + 128) * weights)});
  }
}

void SuspectWeightZeroPoint(const Observation& seen, std::vector<Suspicion>* suspicions) {
  const reference::Operands& operands = seen.operands;
  const int64_t row_sum = operands.row_sums[static_cast<size_t>(seen.m)];
  const int64_t activations = row_sum - operands.k * operands.a_zero_points[static_cast<size_t>(seen.m)];
  const int64_t zb = reference::WeightZeroPoint(seen.gemm, seen.n);
  suspicions->push_back({"weight zero point not subtracted", Wrap(seen.exact + zb * activations)});
  if (seen.gemm.b_type == INTACT_U8) {
    suspicions->push_back(
        {"shift of u8 weights by 128 not compensated", Wrap(seen.exact - 128 * activations)});
  }
  suspicions->push_back(
      {"sum of the row's activations left out", Wrap(seen.exact + ZeroPoint(seen) * row_sum)});
}

void SuspectTail(const Observation& seen, std::vector<Suspicion>* suspicions) {
  const int64_t k = seen.gemm.k;
  for (const int64_t block : {2, 4, 8, 16, 32, 64}) {
    const int64_t from = k / block * block;
    if (from == k) continue;
    const std::string text = fmt::format("depth tail k={}…{} missing", from, k - 1);
    const int64_t zero_point = seen.operands.a_zero_points[static_cast<size_t>(seen.m)];
    suspicions->push_back({text, Wrap(seen.exact - Products(seen, from, 0, 0))});
    suspicions->push_back({text, Wrap(seen.exact - Products(seen, from, zero_point, 0))});
    suspicions->push_back({text, Wrap(seen.exact - Products(seen, from, zero_point, ZeroPoint(seen)))});
  }
}

std::vector<Suspicion> Suspicions(const Observation& seen, std::vector<Suspicion> suspicions) {
  SuspectZeroPoint(seen, &suspicions);
  SuspectWeightZeroPoint(seen, &suspicions);
  SuspectTail(seen, &suspicions);
  if (!seen.gemm.bias_s32.empty()) {
    const int64_t bias = seen.gemm.bias_s32[static_cast<size_t>(seen.n)];
    suspicions.push_back({"s32 bias missing", Wrap(seen.exact - bias)});
  }
  suspicions.push_back(
      {"pairs (k, k+2) and (k+1, k+3) clamped instead of adjacent ones", SwappedPairs(seen)});
  std::erase_if(suspicions, [&](const Suspicion& s) { return s.accumulator == seen.exact && !s.scale; });
  return suspicions;
}

// Another column's scale, nearest first.
std::optional<std::string> OtherScale(const Observation& seen) {
  if (seen.gemm.scales.size() < 2) return std::nullopt;
  Requantization q = seen.OwnRequantization();
  for (const int64_t column : {seen.n - 1, seen.n + 1, int64_t{0}, seen.gemm.n - 1}) {
    if (column < 0 || column >= seen.gemm.n || column == seen.n) continue;
    q.scale = seen.gemm.scales[static_cast<size_t>(column)] * seen.RowScale();
    if (SameElement(seen, seen.exact, q)) {
      return fmt::format("the scale of column {} gives this output of column {}", seen.first_column + column,
                         seen.first_column + seen.n);
    }
  }
  return std::nullopt;
}

// What may go wrong with a residual.
std::optional<std::string> OtherResidual(const Observation& seen) {
  const Requantization q = seen.OwnRequantization();
  if (!q.has_residual) return std::nullopt;
  Requantization other = q;
  other.has_residual = false;
  if (SameElement(seen, seen.exact, other)) return "the residual left out";
  other = q;
  other.residual = q.residual + static_cast<float>(seen.gemm.residual_zero_point);
  if (SameElement(seen, seen.exact, other)) return "the residual's zero point not subtracted";
  other = q;
  other.has_residual = false;
  const float last = reference::Dequantize(seen.exact, other) + q.residual * q.residual_scale;
  if (IsFloat(last, seen, q)) return "the residual added after the activation";
  return std::nullopt;
}

std::string DiagnoseRequantization(const Observation& seen) {
  std::string text = "accumulator right, requantization wrong";
  for (const auto& find : {OtherScale, OtherResidual}) {
    if (const std::optional<std::string> found = find(seen)) return text + ": " + *found;
  }
  return text;
}

}  // namespace

float Observation::RowScale() const {
  return gemm.a_scales.empty() ? 1.0f : gemm.a_scales[static_cast<size_t>(m)];
}

bool Observation::GivenBy(int32_t y, std::optional<float> scale) const {
  if (actual_accumulator && *actual_accumulator != y) return false;
  reference::Requantization q = OwnRequantization();
  q.scale = scale.value_or(q.scale);
  return SameElement(*this, y, q);
}

reference::Requantization Observation::OwnRequantization() const {
  return AtOutput(reference::RequantizationOf(gemm, n), gemm, gemm.n, m * gemm.n + n);
}

int32_t Observation::WithCompensation(int32_t sum) const {
  return Wrap(int64_t{sum} + operands.Compensation(m, n));
}

std::optional<std::string> OtherRounding(const Observation& seen) {
  if (seen.gemm.c_type == INTACT_S32) return FloatRoundTrip(seen);
  if (seen.actual_accumulator && *seen.actual_accumulator != seen.exact) return std::nullopt;
  const Requantization q = seen.OwnRequantization();
  if (std::isnan(q.scale)) return std::nullopt;
  const bool is_float = seen.gemm.c_type == INTACT_F32 || seen.gemm.c_type == INTACT_BF16;
  if (auto rounding = is_float ? OtherFloatRounding(seen, q) : OtherInt8Rounding(seen, q)) return rounding;
  return ScalesOneByOne(seen, q);
}

std::string Diagnose(const Observation& seen, std::vector<Suspicion> of_operation) {
  std::string text = "accumulator not known";
  if (seen.actual_accumulator) {
    text = fmt::format("accumulator {} instead of {}", *seen.actual_accumulator, seen.exact);
  }
  if (seen.actual_accumulator == seen.exact) text = DiagnoseRequantization(seen);
  for (const Suspicion& suspicion : Suspicions(seen, std::move(of_operation))) {
    if (seen.GivenBy(suspicion.accumulator, suspicion.scale))
      return fmt::format("{}: {}", text, suspicion.text);
  }
  if (seen.actual_accumulator == seen.exact) return text;
  if (seen.actual_accumulator) {
    const int64_t off = int64_t{*seen.actual_accumulator} - seen.exact;
    return off % 65536 == 0 ? fmt::format("{}: off by {}·65536, int16 sums wrapped", text, off / 65536)
                            : text;
  }
  const std::optional<std::string> scale = OtherScale(seen);
  return scale ? fmt::format("{}: {}", text, *scale) : text;
}

}  // namespace intact::verify
