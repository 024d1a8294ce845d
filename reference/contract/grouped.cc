#include "reference/contract/grouped.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include "reference/contract/quantize.h"
#include "reference/contract/requantize.h"

namespace intact::reference {
namespace {

// The number of the scale of (row, group) in a_scales and a_zero_points.
size_t ScaleOf(const Grouped& grouped, int64_t m, int64_t g) {
  const bool is_by_groups = grouped.a_granularity == INTACT_GRANULARITY_GROUPS;
  return static_cast<size_t>(is_by_groups ? m * grouped.groups() + g : m);
}

float WeightScale(const Grouped& grouped, int64_t column, int64_t g) {
  const auto bytes = static_cast<size_t>(core::BytesOf(grouped.scale_type));
  const auto place = static_cast<size_t>(column * grouped.groups() + g) * bytes;
  return static_cast<float>(core::Decode(grouped.scale_type, &grouped.b_scales[place]));
}

bool HasScale(const Grouped& grouped, int64_t m) {
  for (int64_t g = 0; g < grouped.groups(); ++g) {
    if (std::isnan(grouped.a_scales[ScaleOf(grouped, m, g)])) return false;
  }
  return true;
}

// The number of column n among the columns of all experts, for row m.
int64_t ColumnOf(const Grouped& grouped, int64_t m, int64_t n) { return grouped.ExpertOf(m) * grouped.n + n; }

float Output(const Grouped& grouped, int64_t m, int64_t n) {
  if (!HasScale(grouped, m)) return std::numeric_limits<float>::quiet_NaN();
  const bool is_by_groups = grouped.a_granularity == INTACT_GRANULARITY_GROUPS;
  const int64_t column = ColumnOf(grouped, m, n);
  float f = 0.0f;
  for (int64_t g = 0; !grouped.b_minimums.empty() && g < grouped.groups(); ++g) {
    auto factor = static_cast<float>(ActivationSum(grouped, m, g));
    if (is_by_groups) factor = grouped.a_scales[ScaleOf(grouped, m, g)] * factor;
    f = std::fma(factor, grouped.b_minimums[static_cast<size_t>(column * grouped.groups() + g)], f);
  }
  for (int64_t g = 0; g < grouped.groups(); ++g) {
    float scale = WeightScale(grouped, column, g);
    if (is_by_groups) scale = grouped.a_scales[ScaleOf(grouped, m, g)] * scale;
    f = std::fma(static_cast<float>(GroupSum(grouped, m, n, g)), scale, f);
  }
  if (!is_by_groups) f = f * grouped.a_scales[ScaleOf(grouped, m, 0)];
  if (!grouped.bias_f32.empty()) f = f + grouped.bias_f32[static_cast<size_t>(column)];
  Requantization post;
  post.post_ops = grouped.post_ops;
  return AfterBias(f, post);
}

}  // namespace

int64_t GroupSum(const Grouped& grouped, int64_t m, int64_t n, int64_t g) {
  const int64_t column = ColumnOf(grouped, m, n);
  const auto place = static_cast<size_t>(column * grouped.groups() + g);
  const int64_t za = grouped.a_zero_points[ScaleOf(grouped, m, g)];
  const int64_t zb = grouped.b_zero_points.empty() ? grouped.Middle() : grouped.b_zero_points[place];
  int64_t sum = 0;
  for (int64_t k = g * grouped.depth(); k < std::min(grouped.k, (g + 1) * grouped.depth()); ++k) {
    const int64_t a = core::DecodeInt8(grouped.a_type, grouped.a[static_cast<size_t>(m * grouped.k + k)]);
    const int64_t b = grouped.b[static_cast<size_t>(column * grouped.k + k)];
    sum += (a - za) * (b - zb);
  }
  return sum;
}

int64_t ActivationSum(const Grouped& grouped, int64_t m, int64_t g) {
  const int64_t za = grouped.a_zero_points[ScaleOf(grouped, m, g)];
  int64_t sum = 0;
  for (int64_t k = g * grouped.depth(); k < std::min(grouped.k, (g + 1) * grouped.depth()); ++k) {
    sum += core::DecodeInt8(grouped.a_type, grouped.a[static_cast<size_t>(m * grouped.k + k)]) - za;
  }
  return sum;
}

void QuantizeActivations(Grouped* grouped) {
  const auto bytes = static_cast<size_t>(core::BytesOf(grouped->a_source_type));
  std::vector<float> x(grouped->a_source.size() / bytes);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(core::Decode(grouped->a_source_type, &grouped->a_source[i * bytes]));
  }
  grouped->a.clear();
  grouped->a_zero_points.clear();
  grouped->a_scales.clear();
  const bool is_by_groups = grouped->a_granularity == INTACT_GRANULARITY_GROUPS;
  const int64_t unit = is_by_groups ? grouped->depth() : grouped->k;
  for (int64_t m = 0; m < grouped->m; ++m) {
    for (int64_t k = 0; k < grouped->k; k += unit) {
      const auto numbers = std::span(x).subspan(static_cast<size_t>(m * grouped->k + k),
                                                static_cast<size_t>(std::min(unit, grouped->k - k)));
      const Quantization q = ChooseQuantization(grouped->a_type, numbers);
      for (const float number : numbers) {
        grouped->a.push_back(static_cast<uint8_t>(Quantize(number, grouped->a_type, q)));
      }
      grouped->a_zero_points.push_back(q.zero_point);
      grouped->a_scales.push_back(q.scale);
    }
  }
}

std::vector<uint8_t> BytesOfB(const Grouped& grouped) {
  if (!grouped.Is4Bit()) return {grouped.b.begin(), grouped.b.end()};
  const auto k = static_cast<size_t>(grouped.k), n = static_cast<size_t>(grouped.columns());
  const size_t column_bytes = (k + 1) / 2;
  std::vector<uint8_t> bytes(n * column_bytes);
  for (size_t i = 0; i < n * k; ++i) {
    const size_t depth = i % k;
    uint8_t& byte = bytes[i / k * column_bytes + depth / 2];
    byte = static_cast<uint8_t>(byte | (grouped.b[i] & 15) << (depth % 2 * 4));
  }
  return bytes;
}

std::vector<uint8_t> Outputs(const Grouped& grouped) {
  const auto bytes = static_cast<size_t>(core::BytesOf(grouped.c_type));
  std::vector<uint8_t> c(static_cast<size_t>(grouped.m * grouped.n) * bytes);
  for (int64_t m = 0; m < grouped.m; ++m) {
    for (int64_t n = 0; n < grouped.n; ++n) {
      core::Encode(grouped.c_type, RoundToFloat(Output(grouped, m, n), grouped.c_type),
                   &c[static_cast<size_t>(m * grouped.n + n) * bytes]);
    }
  }
  return c;
}

}  // namespace intact::reference
