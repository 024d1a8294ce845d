#include "core/operation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>
#include <variant>
#include <vector>

namespace intact::core {
namespace {

// A descriptor in which no field has the initializer's value. A new field of intact_linear_desc does not
// compile here until it gets a value.
intact_linear_desc FullDesc(const Linear& vectors) {
  intact_linear_desc desc = INTACT_LINEAR_DESC_INIT;
  auto& [struct_size, a_type, b_type, c_type, mode, max_isa, a_zero_point, c_zero_point, activation,
         b_zero_points, b_zero_point_count, bias_s32, bias_f32, scales, scale_count, clamp_min, clamp_max,
         a_min, a_max, range_check, residual_type, residual_scale, residual_zero_point, a_quantization,
         a_source_type, multipliers, shifts, fixed_point, lookup_table, overflow, pairing] = desc;
  a_type = INTACT_S8;
  b_type = INTACT_U8;
  c_type = INTACT_F32;
  mode = INTACT_SATURATING;
  max_isa = INTACT_ISA_AVX2;
  a_zero_point = 1;
  c_zero_point = 2;
  activation = INTACT_ACTIVATION_CLAMP;
  b_zero_points = vectors.b_zero_points.data();
  b_zero_point_count = std::ssize(vectors.b_zero_points);
  bias_s32 = vectors.bias_s32.data();
  bias_f32 = vectors.bias_f32.data();
  scales = vectors.scales.data();
  multipliers = vectors.multipliers.data();
  shifts = vectors.shifts.data();
  scale_count = std::ssize(vectors.shifts);
  fixed_point = INTACT_FIXED_POINT_HALF_UP;
  lookup_table = vectors.lookup_table.data();
  overflow = INTACT_OVERFLOW_WRAPS;
  pairing = INTACT_PAIRING_FLATTENED;
  clamp_min = -3.0f;
  clamp_max = 4.0f;
  a_min = -5;
  a_max = 6;
  range_check = INTACT_RANGE_UNCHECKED;
  residual_type = INTACT_U8;
  residual_scale = 0.5f;
  residual_zero_point = 7;
  a_quantization = INTACT_QUANTIZATION_DYNAMIC_ROWS;
  a_source_type = INTACT_BF16;
  return desc;
}

TEST(Linear, HoldsAllOfADescriptorButTheCap) {
  Linear vectors;
  vectors.b_zero_points = {1, 2};
  vectors.bias_s32 = {3, 4};
  vectors.bias_f32 = {5.0f, 6.0f};
  vectors.scales = {7.0f};
  vectors.multipliers = {8};
  vectors.shifts = {9};
  vectors.lookup_table = {10};
  intact_linear_desc desc = FullDesc(vectors);
  Linear linear = NumbersOf(desc);
  EXPECT_TRUE(linear.IsDynamic());
  EXPECT_EQ(linear.residual_type(), INTACT_U8);
  ForEachColumnVector([](auto, auto& to, auto& from) { to.swap(from); }, linear, vectors);
  linear.lookup_table.swap(vectors.lookup_table);
  const intact_linear_desc again = DescOf(linear);
  EXPECT_EQ(again.max_isa, INTACT_ISA_ANY);
  desc.max_isa = INTACT_ISA_ANY;
  EXPECT_EQ(std::memcmp(&again, &desc, sizeof desc), 0);
}

TEST(Linear, OfNoVectorsHasNone) {
  const intact_linear_desc plain = INTACT_LINEAR_DESC_INIT;
  const intact_linear_desc again = DescOf(NumbersOf(plain));
  EXPECT_EQ(std::memcmp(&again, &plain, sizeof plain), 0);
}

TEST(Linear, ListsEachOfItsFieldsOnce) {
  Linear linear;
  std::vector<std::string_view> names;
  ForEachField([&names](std::string_view name, auto&) { names.push_back(name); }, linear);
  std::ranges::sort(names);
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
  [[maybe_unused]] auto& [a_type, b_type, c_type, mode, a_zero_point, c_zero_point, a_min, a_max, range_check,
                          a_quantization, a_source_type, post_ops, b_zero_points, bias_s32, bias_f32, scales,
                          fixed_point, multipliers, shifts, lookup_table, overflow, pairing] = linear;
  EXPECT_EQ(names.size(), 22u) << "the number of names bound above";
}

TEST(PostOps, AreKeptInTheirOrder) {
  PostOps ops;
  EXPECT_TRUE(ops.empty() && !ops.HasActivation());
  ops.Add(Relu{});
  ops.Add(AddResidual{INTACT_S8, 2.0f, 3});
  ops.Add(Clamp{-1.0f, 1.0f});
  EXPECT_TRUE(std::holds_alternative<Relu>(*ops.begin()));
  EXPECT_EQ(ops.Find<AddResidual>()->zero_point, 3);
  EXPECT_EQ(ops.Find<Clamp>()->low, -1.0f);
  PostOps others;
  others.Add(AddResidual{INTACT_S8, 2.0f, 3});
  EXPECT_EQ(ops.WithoutActivation(), others);
  EXPECT_FALSE(ops == others);
  others.Add(Relu{});
  others.Add(Clamp{-1.0f, 1.0f});
  EXPECT_FALSE(ops == others) << "the order counts";
}

TEST(PostOps, OfTheFieldsAddTheResidualFirst) {
  intact_linear_desc desc = INTACT_LINEAR_DESC_INIT;
  EXPECT_TRUE(PostOpsOf(desc).empty());
  desc.residual_type = INTACT_F32;
  desc.residual_scale = 2.0f;
  desc.activation = INTACT_ACTIVATION_RELU;
  PostOps ops;
  ops.Add(AddResidual{INTACT_F32, 2.0f, 0});
  ops.Add(Relu{});
  EXPECT_EQ(PostOpsOf(desc), ops);
  intact_linear_desc again = INTACT_LINEAR_DESC_INIT;
  SetPostOps(ops, &again);
  EXPECT_EQ(std::memcmp(&again, &desc, sizeof desc), 0);
}

}  // namespace
}  // namespace intact::core
