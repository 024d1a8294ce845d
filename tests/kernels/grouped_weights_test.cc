// Packed grouped weights, compared with their definition element by element.
#include "kernels/weights/grouped_weights.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/isas.h"
#include "core/types.h"
#include "support/random.h"

namespace intact::kernels {
namespace {

// Weights with scales and zero points, and the strides of their columns and depths.
struct Case {
  GroupedProblem problem;
  std::vector<uint8_t> b, scales, zero_points;
  GroupedWeightView view;

  explicit Case(support::Random& random) {
    GroupedProblem& p = problem;
    p.n = random.Integer(1, 70);
    p.k = random.Integer(1, 600);
    const int64_t group = random.Of({16, 32, 64, 128, 256, 0});
    p.group = group == 0 ? p.k : group;
    p.b_type = {random.Of({4, 8}), random.OneIn(2)};
    p.scale_type = random.Of({INTACT_F32, INTACT_BF16, INTACT_F16});
    p.a_type = random.Of({INTACT_U8, INTACT_S8});
    p.a_source_type = random.Of({INTACT_TYPE_NONE, INTACT_F32});
    const bool has_zero_points = random.OneIn(2);
    const bool by_depths = p.b_type.bits == 8 && random.OneIn(2);
    const int64_t pad = random.Integer(0, 3), row = p.b_type.bits == 4 ? (p.k + 1) / 2 : p.k;
    const int64_t stride_n = by_depths ? 1 : row + pad, stride_k = by_depths ? p.n + pad : 1;
    // The last element is the last byte, so that sanitizers find reads beyond it.
    const auto fill = [&](std::vector<uint8_t>* bytes, int64_t size, int64_t lowest, int64_t highest) {
      bytes->resize(static_cast<size_t>(size));
      for (uint8_t& byte : *bytes) byte = static_cast<uint8_t>(random.Integer(lowest, highest));
    };
    const int64_t bytes =
        p.b_type.bits == 4 ? (p.n - 1) * stride_n + row : (p.n - 1) * stride_n + (p.k - 1) * stride_k + 1;
    fill(&b, bytes, 0, 255);
    fill(&scales, p.n * p.groups() * core::BytesOf(p.scale_type), 0, 63);
    fill(&zero_points, p.n * p.groups(), p.b_type.lowest(), p.b_type.highest());
    view = {p.b_type,
            b.data(),
            stride_n,
            stride_k,
            scales.data(),
            p.scale_type,
            has_zero_points ? zero_points.data() : nullptr,
            p.groups(),
            1};
  }
};

int32_t Load(const uint8_t* from, int bytes, bool is_signed) {
  int32_t value = 0;
  std::memcpy(&value, from, static_cast<size_t>(bytes));
  const int unused = 32 - 8 * bytes;
  if (bytes == 0 || !is_signed) return value;
  return static_cast<int32_t>(static_cast<uint32_t>(value) << unused) >> unused;
}

// The bytes of a panel's group must equal the definition in grouped_weights.h.
void ExpectGroup(const Case& c, core::Isa isa, const GroupedWeights& packed, int64_t panel, int64_t g,
                 const uint8_t* group) {
  const GroupedProblem& p = c.problem;
  const GroupedLayout& layout = packed.layout();
  const int columns = packed.columns();
  const bool is_nibble = p.b_type.bits == 4;
  const bool has_vnni = core::TraitsOf(isa).dot_products != core::DotProducts::kNone;
  const bool is_signed = !is_nibble && has_vnni && p.a_type == INTACT_U8;
  const int32_t middle = 1 << (p.b_type.bits - 1);
  const int32_t shift = is_signed == p.b_type.is_signed ? 0 : is_signed ? -middle : middle;
  const uint8_t* const steps = group + layout.HeaderBytes(columns);
  const int64_t padded = RoundUp(p.GroupDepth(g), GroupedLayout::kStepDepths);
  for (int64_t i = 0; i < columns; ++i) {
    const int64_t n = panel * columns + i;
    const bool is_column = n < p.n;
    int32_t sum = 0;
    for (int64_t k = 0; k < padded; ++k) {
      const bool is_weight = is_column && k < p.GroupDepth(g);
      const int32_t weight = is_weight ? c.view.At(g * p.group + k, n) + shift : 0;
      sum += weight;
      const int64_t quad = k / 4, word = is_nibble ? quad / 2 : quad;
      const int32_t byte = steps[(word * columns + i) * 4 + k % 4];
      const int32_t bits = is_nibble ? (byte >> (quad % 2 * 4)) & 15 : byte;
      ASSERT_EQ(bits, weight & (is_nibble ? 15 : 255))
          << "column " << n << ", depth " << k << " of group " << g;
    }
    const int scale_bytes = core::BytesOf(p.scale_type);
    ASSERT_EQ(Load(group + i * scale_bytes, scale_bytes, true),
              is_column ? Load(c.scales.data() + (n * p.groups() + g) * scale_bytes, scale_bytes, true) : 0);
    const int32_t zero_point = is_column ? c.view.ZeroPoint(g, n) + shift : 0;
    if (layout.zero_point_bytes != 0) {
      ASSERT_EQ(Load(group + layout.ZeroPointOffset(columns) + i, 1, is_signed), zero_point);
    } else if (is_column) {
      ASSERT_EQ(packed.uniform_zero_point(), zero_point);
    }
    if (layout.sum_bytes != 0) {
      ASSERT_EQ(Load(group + layout.SumOffset(columns) + i * layout.sum_bytes, layout.sum_bytes, true), sum);
    }
  }
}

TEST(GroupedWeightsTest, PacksTheDefinition) {
  for (int i = 0; i < 400; ++i) {
    support::Random random(11, static_cast<uint64_t>(i), 0);
    const Case c(random);
    for (const core::Isa isa :
         {core::Isa::kAvx2, core::Isa::kAvxVnni, core::Isa::kAvx512, core::Isa::kAvx512Vnni}) {
      const auto packed = GroupedWeights::Pack(c.problem, c.view, isa);
      ASSERT_TRUE(packed) << packed.error().message;
      const int columns = (*packed)->columns();
      for (int64_t panel = 0; panel * columns < c.problem.n; ++panel) {
        const uint8_t* group = (*packed)->Panel(0, panel);
        for (int64_t g = 0; g < c.problem.groups(); ++g) {
          ASSERT_NO_FATAL_FAILURE(ExpectGroup(c, isa, **packed, panel, g, group))
              << "case " << i << ", " << core::ToString(isa);
          const int64_t steps = CeilDivide(c.problem.GroupDepth(g), GroupedLayout::kStepDepths);
          group += (*packed)->layout().GroupBytes(columns, steps);
        }
      }
    }
  }
}

}  // namespace
}  // namespace intact::kernels
