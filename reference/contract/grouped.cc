#include "reference/contract/grouped.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include "reference/contract/quantize.h"
#include "reference/contract/requantize.h"

namespace intact::reference {
namespace {

bool HasScale(const Grouped& grouped, int64_t m) {
  for (int64_t g = 0; g < grouped.groups(); ++g) {
    if (std::isnan(grouped.a_scales[grouped.APlace(m, g)])) return false;
  }
  return true;
}

// The number of column n among the columns of all experts, for row m.
int64_t ColumnOf(const Grouped& grouped, int64_t m, int64_t n) { return grouped.ExpertOf(m) * grouped.n + n; }

float Output(const Grouped& grouped, int64_t m, int64_t n) {
  if (!HasScale(grouped, m)) return std::numeric_limits<float>::quiet_NaN();
  const int64_t column = ColumnOf(grouped, m, n);
  // A factor of a group's integer, with the scale of A if each group has one.
  const auto scaled = [&](float factor, int64_t g) {
    return grouped.HasGroupScales() ? grouped.a_scales[grouped.APlace(m, g)] * factor : factor;
  };
  float f = 0.0f;
  for (int64_t g = 0; grouped.has_b_minimums && g < grouped.groups(); ++g) {
    const float factor = scaled(static_cast<float>(ActivationSum(grouped, m, g)), g);
    f = std::fma(factor, grouped.b_minimums[grouped.Place(column, g)], f);
  }
  for (int64_t g = 0; g < grouped.groups(); ++g) {
    f = std::fma(static_cast<float>(GroupSum(grouped, m, n, g)), scaled(grouped.Scale(column, g), g), f);
  }
  if (!grouped.HasGroupScales()) f = f * grouped.a_scales[grouped.APlace(m, 0)];
  if (!grouped.bias_f32.empty()) f = f + grouped.bias_f32[static_cast<size_t>(column)];
  Requantization post;
  post.post_ops = grouped.post_ops;
  return AfterBias(f, post);
}

// The sum over group g of (a − za)·factor(k).
template <class Factor>
int64_t SumOf(const Grouped& grouped, int64_t m, int64_t g, const Factor& factor) {
  const int64_t za = grouped.a_zero_points[grouped.APlace(m, g)];
  const int64_t begin = g * grouped.depth();
  int64_t sum = 0;
  for (int64_t k = begin; k < begin + grouped.GroupDepth(grouped.k, g); ++k) {
    const int64_t a = core::DecodeInt8(grouped.a_type, grouped.a[static_cast<size_t>(m * grouped.k + k)]);
    sum += (a - za) * factor(k);
  }
  return sum;
}

}  // namespace

int64_t GroupSum(const Grouped& grouped, int64_t m, int64_t n, int64_t g) {
  const int64_t column = ColumnOf(grouped, m, n), zb = grouped.ZeroPoint(column, g);
  return SumOf(grouped, m, g,
               [&](int64_t k) { return grouped.b[static_cast<size_t>(column * grouped.k + k)] - zb; });
}

int64_t ActivationSum(const Grouped& grouped, int64_t m, int64_t g) {
  return SumOf(grouped, m, g, [](int64_t) { return int64_t{1}; });
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
  const int64_t unit = grouped->HasGroupScales() ? grouped->depth() : grouped->k;
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
  const int64_t column_bytes = grouped.ColumnBytes(grouped.k);
  std::vector<uint8_t> bytes(static_cast<size_t>(grouped.columns() * column_bytes));
  for (int64_t i = 0; i < grouped.columns() * grouped.k; ++i) {
    grouped.StoreCode(grouped.b[static_cast<size_t>(i)], i % grouped.k,
                      bytes.data() + i / grouped.k * column_bytes);
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
