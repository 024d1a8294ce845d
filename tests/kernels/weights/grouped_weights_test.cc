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

  // −128 as kernels see weights of 8 bits.
  static uint8_t LeastByte(const GroupedProblem& p) { return p.codes().is_signed() ? 0x80 : 0; }

  explicit Case(support::Random& random) {
    GroupedProblem& p = problem;
    p.n = random.Integer(1, 70);
    p.k = random.Integer(1, 600);
    const int64_t group = random.Of({16, 32, 64, 128, 256, 0});
    p.group = group == 0 ? p.k : group;
    p.b_type = random.Of(core::kGroupedWeightTypes);
    p.scale_type = random.Of({INTACT_F32, INTACT_BF16, INTACT_F16});
    p.a_type = random.Of({INTACT_U8, INTACT_S8});
    p.a_source_type = random.Of({INTACT_TYPE_NONE, INTACT_F32});
    const bool has_zero_points = random.OneIn(2);
    const bool by_depths = p.codes().bits == 8 && random.OneIn(2);
    const int64_t pad = random.Integer(0, 3), row = p.codes().bits == 4 ? (p.k + 1) / 2 : p.k;
    const int64_t stride_n = by_depths ? 1 : row + pad, stride_k = by_depths ? p.n + pad : 1;
    // The last element is the last byte, so that sanitizers find reads beyond it.
    const auto fill = [&](std::vector<uint8_t>* bytes, int64_t size, int64_t lowest, int64_t highest) {
      bytes->resize(static_cast<size_t>(size));
      for (uint8_t& byte : *bytes) byte = static_cast<uint8_t>(random.Integer(lowest, highest));
    };
    const int64_t bytes =
        p.codes().bits == 4 ? (p.n - 1) * stride_n + row : (p.n - 1) * stride_n + (p.k - 1) * stride_k + 1;
    fill(&b, bytes, 0, 255);
    if (random.OneIn(2)) std::ranges::replace(b, LeastByte(p), static_cast<uint8_t>(LeastByte(p) + 1));
    fill(&scales, p.n * p.groups() * core::BytesOf(p.scale_type), 0, 63);
    fill(&zero_points, p.n * p.groups(), p.codes().lowest, p.codes().highest);
    view = {p,
            b.data(),
            stride_n,
            stride_k,
            scales.data(),
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
  const bool is_nibble = p.codes().bits == 4;
  const bool has_vnni = core::TraitsOf(isa).dot_products != core::DotProducts::kNone;
  const bool has_sign_bytes = layout.step == GroupedStep::kSignBytes;
  ASSERT_TRUE(!has_sign_bytes || (!is_nibble && isa == core::Isa::kAvx2 && p.a_type == INTACT_S8));
  const bool is_signed = has_sign_bytes || (!is_nibble && has_vnni && p.a_type == INTACT_U8);
  const int32_t middle = 1 << (p.codes().bits - 1);
  const int32_t shift = is_signed == p.codes().is_signed() ? 0 : is_signed ? -middle : middle;
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

// Unpacked weights are the weights that were packed, and packed weights pass their own check.
TEST(GroupedWeightsTest, UnpacksWhatItPacked) {
  for (int i = 0; i < 400; ++i) {
    support::Random random(12, static_cast<uint64_t>(i), 0);
    Case c(random);
    GroupedProblem& p = c.problem;
    p.has_b_zero_points = c.view.zero_points != nullptr;
    for (const core::Isa isa :
         {core::Isa::kAvx2, core::Isa::kAvxVnni, core::Isa::kAvx512, core::Isa::kAvx512Vnni}) {
      SCOPED_TRACE("case " + std::to_string(i) + ", " + std::string(core::ToString(isa)));
      const auto packed = GroupedWeights::Pack(p, c.view, isa);
      ASSERT_TRUE(packed) << packed.error().message;
      const Error checked = (*packed)->Check(p);
      ASSERT_TRUE(checked.ok()) << checked.message;
      const GroupedColumns columns = (*packed)->Unpacked(p);
      const GroupedWeightView view = columns.View(p);
      for (int64_t n = 0; n < p.n; ++n) {
        for (int64_t k = 0; k < p.k; ++k) ASSERT_EQ(view.At(k, n), c.view.At(k, n));
        for (int64_t g = 0; g < p.groups(); ++g) {
          ASSERT_EQ(view.ZeroPoint(g, n), c.view.ZeroPoint(g, n));
          ASSERT_EQ(view.ScaleBits(g, n), c.view.ScaleBits(g, n));
        }
      }
      const bool is_odd = p.codes().bits == 4 && p.k % 2 != 0;
      for (int64_t n = 0; is_odd && n < p.n; ++n) {
        ASSERT_EQ(columns.weights[static_cast<size_t>((n + 1) * p.column_bytes() - 1)] >> 4, 0);
      }
    }
  }
}

// Kernels of vectors of one size read the same weights, and others do not.
TEST(GroupedWeightsTest, AreForIsasWithTheirLayout) {
  constexpr core::Isa kIsas[] = {core::Isa::kAvx2, core::Isa::kAvxVnni, core::Isa::kAvx512,
                                 core::Isa::kAvx512Vnni};
  std::array<int, 2> pairs = {};  // of ISAs: without and with one layout
  for (int i = 0; i < 100; ++i) {
    support::Random random(14, static_cast<uint64_t>(i), 0);
    const Case c(random);
    for (const core::Isa isa : kIsas) {
      const auto packed = GroupedWeights::Pack(c.problem, c.view, isa);
      ASSERT_TRUE(packed) << packed.error().message;
      for (const core::Isa other : kIsas) {
        const auto packed_for_other = GroupedWeights::Pack(c.problem, c.view, other);
        ASSERT_TRUE(packed_for_other) << packed_for_other.error().message;
        const bool has_one_width = core::TraitsOf(isa).vectors.bytes == core::TraitsOf(other).vectors.bytes;
        const bool has_one_step = c.problem.codes().bits == 4 ||
                                  (core::TraitsOf(isa).dot_products == core::DotProducts::kNone) ==
                                      (core::TraitsOf(other).dot_products == core::DotProducts::kNone);
        const bool is_one = has_one_width && has_one_step;
        EXPECT_EQ((*packed)->AreFor(c.problem, other), is_one)
            << "case " << i << ", " << core::ToString(isa) << " for " << core::ToString(other);
        ++pairs[is_one ? 1 : 0];
        if (!is_one) continue;
        ASSERT_EQ((*packed)->bytes(), (*packed_for_other)->bytes());
        EXPECT_EQ(std::memcmp((*packed)->data(), (*packed_for_other)->data(),
                              static_cast<size_t>((*packed)->bytes())),
                  0);
      }
    }
  }
  EXPECT_GT(std::min(pairs[0], pairs[1]), 100);
}

// Depths beyond the last one: of nibbles in one byte with it, in its step, and in the last byte.
TEST(GroupedWeightsTest, ChecksPadding) {
  for (const int bits : {4, 8}) {
    for (const core::Isa isa : {core::Isa::kAvx2, core::Isa::kAvxVnni, core::Isa::kAvx512Vnni}) {
      support::Random random(15, static_cast<uint64_t>(bits), 0);
      Case c(random);
      while (c.problem.codes().bits != bits || c.problem.GroupDepth(c.problem.groups() - 1) % 16 == 0 ||
             c.problem.HasAZeroPoints()) {
        c = Case(random);
      }
      c.problem.has_b_zero_points = c.view.zero_points != nullptr;
      const auto packed = GroupedWeights::Pack(c.problem, c.view, isa);
      ASSERT_TRUE(packed) << packed.error().message;
      const GroupedWeights& weights = **packed;
      const int64_t last = weights.layout().StepBytes(weights.columns());
      int64_t refused = 0;
      for (int64_t at = weights.panel_bytes() - last; at < weights.panel_bytes(); ++at) {
        for (const uint8_t flip : {uint8_t{0x01}, uint8_t{0x10}}) {
          std::vector<uint8_t> bytes(weights.data(), weights.data() + weights.bytes());
          bytes[static_cast<size_t>(at)] ^= flip;
          const std::string message =
              GroupedWeights(c.problem, weights.packing(), bytes.data(), nullptr, nullptr)
                  .Check(c.problem)
                  .message;
          if (message.empty()) continue;
          ASSERT_EQ(message, "corrupted: the padding of the weights is not zero");
          ++refused;
        }
      }
      const int64_t padding = 16 - c.problem.GroupDepth(c.problem.groups() - 1) % 16;
      EXPECT_EQ(refused, padding * weights.columns() * (bits == 4 ? 1 : 2))
          << bits << " bits, " << core::ToString(isa);
    }
  }
}

// Kernels of kSignBytes would compute a wrong product of −128.
TEST(GroupedWeightsTest, SignBytesExcludeTheLeastWeight) {
  support::Random random(16, 0, 0);
  Case c(random);
  const auto has_least = [&] { return std::ranges::find(c.b, Case::LeastByte(c.problem)) != c.b.end(); };
  while (c.problem.codes().bits != 8 || c.problem.a_type != INTACT_S8 || c.problem.HasAZeroPoints() ||
         has_least()) {
    c = Case(random);
  }
  c.problem.has_b_zero_points = c.view.zero_points != nullptr;
  const auto packed = GroupedWeights::Pack(c.problem, c.view, core::Isa::kAvx2);
  ASSERT_TRUE(packed) << packed.error().message;
  ASSERT_EQ((*packed)->layout().step, GroupedStep::kSignBytes);
  std::vector<uint8_t> bytes((*packed)->data(), (*packed)->data() + (*packed)->bytes());
  bytes[static_cast<size_t>((*packed)->layout().HeaderBytes((*packed)->columns()))] = 0x80;
  EXPECT_EQ(GroupedWeights(c.problem, (*packed)->packing(), bytes.data(), nullptr, nullptr)
                .Check(c.problem)
                .message,
            "corrupted: a weight is -128, which these weights exclude");
  c.b.front() = Case::LeastByte(c.problem);
  const auto with_least = GroupedWeights::Pack(c.problem, c.view, core::Isa::kAvx2);
  ASSERT_TRUE(with_least) << with_least.error().message;
  EXPECT_EQ((*with_least)->layout().step, GroupedStep::kSplitBytes);
}

TEST(GroupedWeightsTest, ChecksScalesZeroPointsAndSums) {
  support::Random random(13, 0, 0);
  Case c(random);
  while (c.problem.b_type != INTACT_U4 || c.problem.a_type != INTACT_U8 || c.view.zero_points == nullptr ||
         c.problem.scale_type != INTACT_F16 || c.problem.n < 3) {
    c = Case(random);
  }
  c.zero_points[0] = 1;
  c.zero_points[1] = 2;                              // not all are equal
  const int64_t scale = 2 * c.problem.groups() * 2;  // of column 2, in bytes
  c.scales[static_cast<size_t>(scale)] = 0;
  c.scales[static_cast<size_t>(scale + 1)] = 0x3c;
  c.problem.has_b_zero_points = true;
  const auto packed = GroupedWeights::Pack(c.problem, c.view, core::Isa::kAvx2);
  ASSERT_TRUE(packed);
  const GroupedWeights& weights = **packed;
  const int columns = weights.columns();
  const auto message = [&](int64_t at, uint8_t flip) {
    std::vector<uint8_t> bytes(weights.data(), weights.data() + weights.bytes());
    bytes[static_cast<size_t>(at)] ^= flip;
    return GroupedWeights(c.problem, weights.packing(), bytes.data(), nullptr, nullptr)
        .Check(c.problem)
        .message;
  };
  EXPECT_EQ(message(0, 0), "");
  EXPECT_EQ(message(2 * 2 + 1, 0x40), "b_scales of column 2, group 0 is inf; expected a finite value");
  EXPECT_TRUE(message(weights.layout().ZeroPointOffset(columns) + 1, 0x40).starts_with("b_zero_points of "));
  EXPECT_EQ(message(weights.layout().SumOffset(columns), 1), "corrupted: a sum of weights is wrong");
  EXPECT_EQ(message(weights.layout().HeaderBytes(columns) + 4, 1), "corrupted: a sum of weights is wrong");
}

}  // namespace
}  // namespace intact::kernels
