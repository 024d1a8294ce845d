#include "reference/models/lowering.h"

#include <algorithm>
#include <numeric>

#include "core/types.h"
#include "reference/models/operands.h"

namespace intact::reference {
namespace {

// A group's share of per-column values; a single value for all columns, or none, stays as it is.
template <class T>
std::vector<T> GroupShare(const std::vector<T>& values, const ConvGeometry& g, int64_t group) {
  if (std::ssize(values) != g.output_channels) return values;
  const auto begin = values.begin() + group * g.GroupOutputs();
  return std::vector<T>(begin, begin + g.GroupOutputs());
}

// The residual of a group's columns, for some rows.
std::vector<uint8_t> GroupResidual(const Conv& conv, int64_t group, std::span<const int64_t> rows) {
  if (conv.residual.empty()) return {};
  const int64_t row_bytes = conv.geometry.output_channels * core::BytesOf(conv.residual_type());
  const int64_t group_bytes = row_bytes / conv.geometry.groups;
  std::vector<uint8_t> residual;
  for (const int64_t m : rows) {
    const auto row = conv.residual.begin() + m * row_bytes;
    residual.insert(residual.end(), row + group * group_bytes, row + (group + 1) * group_bytes);
  }
  return residual;
}

// Whether each tap of each row reads padding.
std::vector<bool> TapsOutside(const ConvGeometry& g, std::span<const int64_t> rows) {
  std::vector<bool> outside;
  for (const int64_t m : rows) {
    const Pixel pixel = PixelOf(g, m);
    for (int64_t tap = 0; tap < g.Taps(); ++tap) outside.push_back(InputRow(g, pixel, TapOf(g, tap)) < 0);
  }
  return outside;
}

// A group's GEMM for some rows; `a` and `b` are still the whole convolution's.
Gemm GroupOf(const Conv& conv, int64_t group, std::span<const int64_t> rows) {
  const ConvGeometry& g = conv.geometry;
  Gemm gemm;
  static_cast<Linear&>(gemm) = static_cast<const Linear&>(conv);
  core::ForEachColumnVector([&](auto, auto& values) { values = GroupShare(values, g, group); }, gemm);
  gemm.float_steps = GroupShare(conv.float_steps, g, group);
  gemm.residual = GroupResidual(conv, group, rows);
  gemm.m = std::ssize(rows);
  if (!conv.a_zero_points.empty()) gemm.a_zero_points.assign(rows.size(), conv.a_zero_points.front());
  if (!conv.a_scales.empty()) gemm.a_scales.assign(rows.size(), conv.a_scales.front());
  gemm.n = g.GroupOutputs();
  gemm.k = g.Taps() * g.TapDepth();
  gemm.taps = Taps{g.Taps(), g.GroupInputs(), g.axes[1].kernel, g.axes[2].kernel, TapsOutside(g, rows)};
  return gemm;
}

// The lowered A: im2col.
std::vector<uint8_t> LoweredActivations(const Conv& conv, int64_t group, std::span<const int64_t> rows) {
  const ConvGeometry& g = conv.geometry;
  const auto zero_point = static_cast<uint8_t>(ActivationZeroPoint(conv));
  std::vector<uint8_t> a(rows.size() * static_cast<size_t>(g.Taps() * g.TapDepth()), zero_point);
  auto to = a.begin();
  for (const int64_t m : rows) {
    const Pixel pixel = PixelOf(g, m);
    for (int64_t tap = 0; tap < g.Taps(); ++tap, to += g.TapDepth()) {
      const int64_t row = InputRow(g, pixel, TapOf(g, tap));
      if (row < 0) continue;
      const auto from = conv.a.begin() + row * g.input_channels + group * g.GroupInputs();
      std::copy_n(from, g.GroupInputs(), to);
    }
  }
  return a;
}

// The lowered B, k×n.
std::vector<int8_t> LoweredWeights(const Conv& conv, int64_t group) {
  const ConvGeometry& g = conv.geometry;
  const auto zero = static_cast<int8_t>(-WeightShift(conv));  // the instruction sees it as 0
  std::vector<int8_t> b(static_cast<size_t>(g.Taps() * g.TapDepth() * g.GroupOutputs()), zero);
  auto from = conv.b.begin() + group * g.GroupOutputs() * g.Taps() * g.GroupInputs();
  for (int64_t n = 0; n < g.GroupOutputs(); ++n) {
    for (int64_t tap = 0; tap < g.Taps(); ++tap) {
      for (int64_t c = 0; c < g.GroupInputs(); ++c) {
        b[static_cast<size_t>((tap * g.TapDepth() + c) * g.GroupOutputs() + n)] = *from++;
      }
    }
  }
  return b;
}

}  // namespace

std::vector<Gemm> Lower(const Conv& conv) {
  std::vector<int64_t> rows(static_cast<size_t>(conv.geometry.OutputPixels()));
  std::iota(rows.begin(), rows.end(), int64_t{0});
  return Lower(conv, rows);
}

std::vector<Gemm> Lower(const Conv& conv, std::span<const int64_t> rows) {
  std::vector<Gemm> gemms;
  for (int64_t group = 0; group < conv.geometry.groups; ++group) {
    Gemm& gemm = gemms.emplace_back(GroupOf(conv, group, rows));
    gemm.a = LoweredActivations(conv, group, rows);
    gemm.b = LoweredWeights(conv, group);
  }
  return gemms;
}

std::vector<int32_t> Accumulators(const Conv& conv, const Model& model) {
  const std::vector<Gemm> gemms = Lower(conv);
  return Accumulators(std::vector<Operands>(gemms.begin(), gemms.end()), model);
}

std::vector<int32_t> Accumulators(const Operation& operation, const Model& model) {
  return VisitLinear([&](const auto& one) { return Accumulators(one, model); }, operation);
}

}  // namespace intact::reference
