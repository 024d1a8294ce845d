#include "reference/contract/linear.h"

#include <cstring>

#include "core/types.h"

namespace intact::reference {

int32_t ActivationZeroPoint(const Linear& linear, int64_t row) noexcept {
  if (linear.a_zero_points.empty()) return linear.a_zero_point;
  return linear.a_zero_points[linear.a_zero_points.size() == 1 ? 0 : static_cast<size_t>(row)];
}

float ActivationScale(const Linear& linear, int64_t row) noexcept {
  if (linear.a_scales.empty()) return 1.0f;
  return linear.a_scales[linear.a_scales.size() == 1 ? 0 : static_cast<size_t>(row)];
}

int32_t WeightZeroPoint(const Linear& linear, int64_t n) noexcept {
  if (linear.b_zero_points.empty()) return 0;
  return linear.b_zero_points[linear.b_zero_points.size() == 1 ? 0 : static_cast<size_t>(n)];
}

Requantization RequantizationOf(const Linear& linear, int64_t n) {
  const auto column = static_cast<size_t>(n);
  Requantization q;
  q.c_type = linear.c_type;
  if (!linear.scales.empty()) q.scale = linear.scales[linear.scales.size() == 1 ? 0 : column];
  const auto of_column = [column](const auto& values) { return values[values.size() == 1 ? 0 : column]; };
  q.fixed.rule = linear.fixed_point;
  if (!linear.multipliers.empty()) q.fixed.multiplier = of_column(linear.multipliers);
  if (!linear.shifts.empty()) q.fixed.shift = of_column(linear.shifts);
  q.has_bias_f32 = !linear.bias_f32.empty();
  if (q.has_bias_f32) q.bias_f32 = linear.bias_f32[column];
  if (!linear.float_steps.empty()) q.float_steps = linear.float_steps[column];
  if (!linear.lookup_table.empty()) q.lookup_table = linear.lookup_table.data();
  q.post_ops = linear.post_ops;
  q.zero_point = linear.c_zero_point;
  return q;
}

Requantization AtOutput(Requantization q, const Linear& linear, int64_t columns, int64_t output) {
  if (!linear.a_scales.empty()) q.scale *= ActivationScale(linear, output / columns);
  const auto* const added = linear.post_ops.Find<core::AddResidual>();
  if (added == nullptr) return q;
  const auto size = static_cast<size_t>(core::BytesOf(added->type));
  const uint8_t* const element = &linear.residual[static_cast<size_t>(output) * size];
  if (added->type == INTACT_F32) {
    std::memcpy(&q.residual, element, size);
  } else {
    q.residual = static_cast<float>(core::DecodeInt8(added->type, *element) - added->zero_point);
  }
  return q;
}

}  // namespace intact::reference
