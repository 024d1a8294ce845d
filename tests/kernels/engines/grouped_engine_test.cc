// The engine of grouped weights, compared with the definition in plain loops.
#include "kernels/engines/grouped_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/isas.h"
#include "core/types.h"
#include "kernels/codegen/dispatch.h"
#include "kernels/runtime/aligned_buffer.h"
#include "kernels/runtime/caches.h"
#include "kernels/weights/grouped_weights.h"
#include "support/random.h"
#include "tests/support/emulated_isas.h"
#include "tests/support/long.h"
#include "tests/support/require_isas.h"
#include "verify/targets/guarded_buffer.h"

namespace intact::kernels {
namespace {

const auto* const kEmulatedIsas = ::testing::AddGlobalTestEnvironment(new tests::EmulatedIsas);

constexpr std::array kFloats = {INTACT_F32, INTACT_BF16, INTACT_F16};

// A problem with its weights, and rows of A.
struct Case {
  GroupedProblem problem;
  int64_t m = 0;
  std::vector<uint8_t> b, b_scales, b_zero_points;
  std::vector<float> b_minimums;
  std::vector<int32_t> a_zero_points;  // [row][group]
  std::vector<uint8_t> a;
  std::vector<GroupedValues> values;
  std::vector<float> a_scales;  // [row]
  GroupedWeightView view;

  int32_t A(int64_t row, int64_t k) const {
    return core::DecodeInt8(problem.a_type, a[static_cast<size_t>(row * problem.padded_k() + k)]);
  }
  GroupedRows Rows() const { return {a.data(), problem.padded_k(), values.data(), a_scales.data(), m}; }
  std::string Text() const {
    return (problem.a_type == INTACT_S8 ? "s8" : "u8") +
           std::string(problem.codes().is_signed() ? " s" : " u") + std::to_string(problem.codes().bits) +
           " m=" + std::to_string(m) + " n=" + std::to_string(problem.n) + " k=" + std::to_string(problem.k) +
           " group=" + std::to_string(problem.group) +
           " scales=" + std::string(core::NameOf(problem.scale_type)) +
           (view.zero_points != nullptr ? " zb" : "") + (view.minimums != nullptr ? " minimums" : "") +
           (problem.HasAZeroPoints() ? " za" : "") + (problem.has_group_scales ? " groups" : "") +
           (problem.bias_f32.empty() ? "" : " bias") + " c=" + std::string(core::NameOf(problem.c_type));
  }
};

void StoreFloat(intact_type type, double value, uint8_t* to) {
  const double limit = type == INTACT_F16 ? 60000.0 : 1e30;
  // Rounds to the type: the nearest float with few bits.
  const int bits = core::TraitsOf(type).fraction;
  int exponent = 0;
  const double fraction = std::frexp(std::clamp(value, -limit, limit), &exponent);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(fraction, bits + 1)), exponent - bits - 1);
  core::Encode(type, std::fabs(rounded) < 1e-4 ? 0.0 : rounded, to);
}

// `extreme`: values at the bounds of their types, so that sums are largest.
Case MakeCase(support::Random& random, bool extreme) {
  Case c;
  GroupedProblem& p = c.problem;
  p.n = random.Integer(1, 100);
  p.group = random.Of({16, 32, 64, 128, 256, 0});
  p.k = random.OneIn(3) ? p.group * random.Integer(1, 4) : random.Integer(1, 700);
  if (p.k == 0) p.k = 77;
  if (p.group == 0) p.group = p.k;
  p.b_type = random.Of(core::kGroupedWeightTypes);
  p.scale_type = random.Of(kFloats);
  const bool has_zero_points = random.OneIn(2);
  p.a_type = random.Of({INTACT_U8, INTACT_S8});
  p.a_source_type = random.Of({INTACT_TYPE_NONE, INTACT_F32});
  p.has_group_scales = random.OneIn(2);
  p.c_type = random.Of(kFloats);
  const float infinity = std::numeric_limits<float>::infinity();
  p.bounds = {-infinity, infinity, 0};
  if (random.OneIn(3)) p.bounds = {0.0f, random.OneIn(2) ? 6.0f : infinity, 0};
  if (random.OneIn(2)) {
    p.bias_f32.assign(static_cast<size_t>(RoundUp(p.n, 16)), 0.0f);
    for (int64_t n = 0; n < p.n; ++n) p.bias_f32[static_cast<size_t>(n)] = static_cast<float>(random.Gauss());
  }
  c.m = random.OneIn(20) ? random.Integer(257, 300) : random.Integer(1, 60);
  const int64_t groups = p.groups();
  const int64_t column_bytes = p.codes().bits == 4 ? (p.k + 1) / 2 : p.k;
  c.b.resize(static_cast<size_t>(p.n * column_bytes));
  for (uint8_t& byte : c.b) {
    byte =
        static_cast<uint8_t>(extreme ? random.Of({0, 0xff, 0x80, 0x7f, 0x88, 0x77}) : random.Integer(0, 255));
  }
  // Then no weight of 8 bits is −128 as kernels see it: they take kSignBytes.
  if (random.OneIn(2)) {
    const uint8_t least = p.codes().is_signed() ? 0x80 : 0;
    std::ranges::replace(c.b, least, static_cast<uint8_t>(least + 1));
  }
  const int scale_bytes = core::BytesOf(p.scale_type);
  c.b_scales.resize(static_cast<size_t>(p.n * groups * scale_bytes));
  for (int64_t i = 0; i < p.n * groups; ++i) {
    StoreFloat(p.scale_type, random.Gauss(), c.b_scales.data() + i * scale_bytes);
  }
  const bool equal_zero_points = random.OneIn(4);
  if (has_zero_points) {
    for (int64_t i = 0; i < p.n * groups; ++i) {
      const int32_t zero_point =
          extreme ? random.Of({p.codes().lowest, p.codes().highest})
                  : static_cast<int32_t>(random.Integer(p.codes().lowest, p.codes().highest));
      c.b_zero_points.push_back(equal_zero_points && i > 0 ? c.b_zero_points[0]
                                                           : static_cast<uint8_t>(zero_point));
    }
  }
  p.has_b_minimums = !has_zero_points && random.OneIn(2);
  const bool are_halves = random.OneIn(2);
  for (int64_t i = 0; p.has_b_minimums && i < p.n * groups; ++i) {
    const auto minimum = static_cast<float>(random.Gauss());
    c.b_minimums.push_back(are_halves ? std::nearbyint(minimum * 256) / 256 : minimum);
  }
  c.view = {p,
            c.b.data(),
            column_bytes,
            1,
            c.b_scales.data(),
            has_zero_points ? c.b_zero_points.data() : nullptr,
            groups,
            1};
  if (p.has_b_minimums) c.view.minimums = c.b_minimums.data();
  c.a.assign(static_cast<size_t>(c.m * p.padded_k()), 0);
  for (int64_t row = 0; row < c.m; ++row) {
    c.a_scales.push_back(p.has_group_scales ? 1.0f : static_cast<float>(std::fabs(random.Gauss())));
    int32_t zero_point = 0;
    for (int64_t g = 0; g < groups; ++g) {
      GroupedValues values;
      if (p.has_group_scales) values.scale = static_cast<float>(std::fabs(random.Gauss()));
      const int32_t lowest = core::LowestOf(p.a_type), highest = core::HighestOf(p.a_type);
      if (p.HasAZeroPoints() && (g == 0 || p.has_group_scales)) {
        zero_point =
            extreme ? random.Of({lowest, highest}) : static_cast<int32_t>(random.Integer(lowest, highest));
      }
      values.zero_point = zero_point;
      for (int64_t k = g * p.group; k < g * p.group + p.GroupDepth(g); ++k) {
        const int64_t a = extreme ? random.Of({lowest, highest}) : random.Integer(lowest, highest);
        c.a[static_cast<size_t>(row * p.padded_k() + k)] = static_cast<uint8_t>(a);
        values.centered_sum += static_cast<int32_t>(a) - zero_point;
      }
      values.float_sum = static_cast<float>(values.centered_sum);
      c.values.push_back(values);
    }
  }
  return c;
}

// The bits of an output.
uint32_t Expected(const Case& c, int64_t row, int64_t n) {
  const GroupedProblem& p = c.problem;
  float f = 0.0f;
  for (int64_t g = 0; p.has_b_minimums && g < p.groups(); ++g) {
    const GroupedValues& values = c.values[static_cast<size_t>(row * p.groups() + g)];
    const auto sum = static_cast<float>(values.centered_sum);
    f = std::fma(p.has_group_scales ? values.scale * sum : sum, c.view.Minimum(g, n), f);
  }
  for (int64_t g = 0; g < p.groups(); ++g) {
    const GroupedValues& values = c.values[static_cast<size_t>(row * p.groups() + g)];
    int64_t sum = 0;
    for (int64_t k = g * p.group; k < g * p.group + p.GroupDepth(g); ++k) {
      sum += int64_t{c.A(row, k) - values.zero_point} * (c.view.At(k, n) - c.view.ZeroPoint(g, n));
    }
    const float scale = p.has_group_scales ? values.scale * c.view.Scale(g, n) : c.view.Scale(g, n);
    f = std::fma(static_cast<float>(sum), scale, f);
  }
  if (!p.has_group_scales) f = f * c.a_scales[static_cast<size_t>(row)];
  if (!p.bias_f32.empty()) f = f + p.bias_f32[static_cast<size_t>(n)];
  f = f > p.bounds.lo ? f : p.bounds.lo;
  f = f < p.bounds.hi ? f : p.bounds.hi;
  uint32_t bits = 0;
  std::memcpy(&bits, &f, sizeof(bits));
  if (p.c_type == INTACT_F32) return bits;
  if (p.c_type == INTACT_BF16) return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  if (std::fabs(f) >= 65520.0f) return (bits >> 16 & 0x8000) | 0x7c00;
  // Float16: rounds to a multiple of the value of the last bit.
  int exponent = 0;
  std::frexp(f, &exponent);
  const int last = std::max(exponent, -13) - 11;
  uint8_t half[2];
  core::Encode(INTACT_F16, std::ldexp(std::nearbyint(std::ldexp(double{f}, -last)), last), half);
  if (f == 0.0f || std::signbit(f)) half[1] = static_cast<uint8_t>(half[1] | (bits >> 24 & 0x80));
  return static_cast<uint32_t>(half[0] | half[1] << 8);
}

class GroupedEngineTest : public testing::TestWithParam<intact_isa> {
 protected:
  void SetUp() override {
    if (intact_isa_available(GetParam()) == 0) INTACT_SKIP_ISA(intact_isa_name(GetParam()));
    if (GetParam() == INTACT_ISA_PORTABLE) GTEST_SKIP() << "portable plans have another engine";
  }
};

std::shared_ptr<const GroupedWeights> Packed(const Case& c, core::Isa isa) {
  auto packed = GroupedWeights::Pack(c.problem, c.view, VectorIsa(isa));
  return packed ? std::move(*packed) : nullptr;
}

void ExpectDefinition(const Case& c, core::Isa isa, support::Random& random) {
  SCOPED_TRACE(c.Text());
  const GroupedProblem& p = c.problem;
  const auto engine = GroupedPanelEngine::Create(p, Packed(c, isa), isa);
  ASSERT_TRUE(engine) << engine.error().message;
  const int64_t bytes = core::BytesOf(p.c_type), stride = p.n * bytes;
  auto output = verify::GuardedBuffer::Allocate(static_cast<size_t>(c.m * stride));
  ASSERT_TRUE(output);
  AlignedBuffer<uint8_t> scratch;
  // Rows and columns are split at random places.
  const int64_t row = random.OneIn(2) ? random.Integer(0, c.m - 1) : 0;
  const int64_t column = random.Integer(0, (p.n - 1) / (*engine)->column_step()) * (*engine)->column_step();
  for (const auto& [begin, end] : {std::array{int64_t{0}, row}, std::array{row, c.m}}) {
    if (begin == end) continue;
    GroupedRows rows = c.Rows();
    rows.a += begin * rows.stride_bytes;
    rows.values += begin * p.groups();
    rows.scales += begin;
    rows.count = end - begin;
    ASSERT_TRUE(scratch.Resize(static_cast<size_t>((*engine)->ScratchBytes(rows.count))));
    for (const auto& [first, last] : {std::array{int64_t{0}, column}, std::array{column, p.n}}) {
      if (first == last) continue;
      (*engine)->Run(rows, 0, first, last, output->data().data() + begin * stride, stride, scratch.data());
    }
  }
  EXPECT_TRUE(output->FrontIntact() && output->BackIntact());
  for (int64_t i = 0; i < c.m; ++i) {
    for (int64_t n = 0; n < p.n; ++n) {
      uint32_t bits = 0;
      std::memcpy(&bits, output->data().data() + i * stride + n * bytes, static_cast<size_t>(bytes));
      ASSERT_EQ(bits, Expected(c, i, n)) << std::hex << "row " << i << ", column " << n;
    }
  }
}

TEST_P(GroupedEngineTest, ComputesTheDefinition) {
  const auto isa = static_cast<core::Isa>(GetParam());
  const int cases = (tests::IsLong() ? 1000 : 100) / (tests::EmulatedIsas::Has(GetParam()) ? 10 : 1);
  for (int i = 0; i < cases; ++i) {
    support::Random random(7, static_cast<uint64_t>(i), 0);
    const Case c = MakeCase(random, i % 3 == 0);
    ASSERT_NO_FATAL_FAILURE(ExpectDefinition(c, isa, random)) << "case " << i;
  }
}

// A group that exceeds the budget of expanded weights is read packed, so scratch does not grow with the depth.
TEST_P(GroupedEngineTest, LargeGroupsAreReadPacked) {
  const auto isa = static_cast<core::Isa>(GetParam());
  const CacheSizes caches = Caches();
  SetCachesForTesting({32 << 10, 64 << 10});
  for (const int bits : {4, 8}) {
    support::Random random(8, static_cast<uint64_t>(bits), 0);
    Case c = MakeCase(random, false);
    while (c.problem.codes().bits != bits || c.m < 13 || c.problem.groups() != 1) c = MakeCase(random, false);
    constexpr int64_t kDepth = 3000, kRows = 100, kLargestPanel = 32;
    c.problem.k = c.problem.group = kDepth;
    c.problem.n = 1;
    c.b.assign(kDepth, 0x73);
    c.view.data = c.b.data();
    const auto engine = GroupedPanelEngine::Create(c.problem, Packed(c, isa), isa);
    ASSERT_TRUE(engine) << engine.error().message;
    const int64_t floats = 2 * kLargestPanel + (c.problem.has_b_minimums ? 1 : 0);
    const auto row_bytes = static_cast<int64_t>(sizeof(GroupedRowValues) + floats * int64_t{sizeof(float)});
    EXPECT_LE((*engine)->ScratchBytes(kRows), kRows * row_bytes + 64);
  }
  // Blocks are small, and some groups are expanded.
  for (int i = 0; i < (tests::EmulatedIsas::Has(GetParam()) ? 4 : 40); ++i) {
    support::Random random(9, static_cast<uint64_t>(i), 0);
    ASSERT_NO_FATAL_FAILURE(ExpectDefinition(MakeCase(random, i % 3 == 0), isa, random)) << "case " << i;
  }
  SetCachesForTesting(caches);
}

// Rows are cut into blocks of nearly equal size. The name is that of the kernel for the largest block.
TEST_P(GroupedEngineTest, NamesTheKernelOfTheLargestBlock) {
  support::Random random(10, 0, 0);
  const Case c = MakeCase(random, false);
  const auto isa = static_cast<core::Isa>(GetParam());
  const auto engine = GroupedPanelEngine::Create(c.problem, Packed(c, isa), isa);
  ASSERT_TRUE(engine) << engine.error().message;
  const auto has_rows = [&](int64_t m, int64_t rows) {
    return (*engine)->KernelName(m).find("_" + std::to_string(rows) + "x2_") != std::string::npos;
  };
  int64_t most = 1;
  while (has_rows(most + 1, most + 1)) ++most;
  EXPECT_GE(most, 3);
  for (const int64_t m : {most + 1, 2 * most + 1, int64_t{256}}) {
    const int64_t blocks = (m + most - 1) / most;
    EXPECT_TRUE(has_rows(m, (m + blocks - 1) / blocks)) << m << ": " << (*engine)->KernelName(m);
  }
  EXPECT_EQ((*engine)->KernelName(512), (*engine)->KernelName(256));
}

TEST(GroupedTileTest, NamesTilesFromTheirFirstRows) {
  if (intact_isa_available(INTACT_ISA_AMX_INT8) == 0) INTACT_SKIP_ISA("amx_int8");
  support::Random random(11, 0, 0);
  Case c = MakeCase(random, false);
  while (c.problem.codes().bits != 4 || (c.problem.group != 32 && c.problem.group != 64)) {
    c = MakeCase(random, false);
  }
  const auto engine =
      GroupedPanelEngine::Create(c.problem, Packed(c, core::Isa::kAmxInt8), core::Isa::kAmxInt8);
  ASSERT_TRUE(engine) << engine.error().message;
  const int64_t first = c.problem.group == 32 ? 32 : 16;
  EXPECT_EQ((*engine)->KernelName(first - 1).find("tiles"), std::string::npos);
  EXPECT_NE((*engine)->KernelName(first).find("tiles"), std::string::npos);
}

// Profiles distinguish kernels by their names.
TEST(GroupedKernelTest, NamesDiffer) {
  std::vector<std::string> names;
  const auto add = [&](const auto& spec) { names.push_back(spec.Name()); };
  for (const core::Isa isa : {core::Isa::kAvx2, core::Isa::kAvx512Vnni}) {
    for (const intact_type type : kFloats) {
      for (const int flags : {0, 1, 2, 3}) add(GroupedOutputSpec{isa, type, flags % 2 != 0, flags / 2 != 0});
    }
    const GroupedLayout layouts[] = {
        {GroupedStep::kBytes, INTACT_F32, 0, false, 0},      {GroupedStep::kNibbles, INTACT_F32, 0, false, 0},
        {GroupedStep::kSplitBytes, INTACT_F32, 0, false, 0}, {GroupedStep::kHalves, INTACT_F32, 0, false, 0},
        {GroupedStep::kSignBytes, INTACT_F32, 0, false, 0},  {GroupedStep::kBytes, INTACT_F16, 0, false, 0},
        {GroupedStep::kBytes, INTACT_F32, 1, false, 0},      {GroupedStep::kBytes, INTACT_F32, 1, true, 0},
        {GroupedStep::kBytes, INTACT_F32, 4, false, 0},      {GroupedStep::kBytes, INTACT_F32, 0, false, 2},
        {GroupedStep::kBytes, INTACT_F32, 0, false, 4}};
    for (const GroupedLayout& layout : layouts) {
      add(GroupedExpansionSpec{isa, layout, false});
      add(GroupedKernelSpec{isa, 1, layout, false, false, false, 1});
      add(GroupedKernelSpec{isa, 2, layout, false, false, false, 1});
      add(GroupedKernelSpec{isa, 1, layout, true, false, false, 1});
      add(GroupedKernelSpec{isa, 1, layout, false, true, false, 1});
      add(GroupedKernelSpec{isa, 1, layout, false, false, true, 1});
      add(GroupedKernelSpec{isa, 1, layout, false, false, false, 4});
    }
  }
  for (const int group : {32, 64}) {
    for (const int flags : {0, 1, 2, 3, 4, 5, 6, 7}) {
      GroupedTileKernelSpec spec = {{}, group, flags % 2 != 0, flags / 2 % 2 != 0, flags / 4 != 0};
      add(spec);
      spec.multiplies = false;
      add(spec);
      spec.row_tiles = 1;
      add(spec);
      spec.groups = 2;
      add(spec);
      spec.multiplies = true;
      spec.adds = false;
      add(spec);
    }
  }
  add(GroupedExpansionSpec{core::Isa::kAvx512Vnni, {GroupedStep::kNibbles, INTACT_F32, 0, false, 0}, true});
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  EXPECT_TRUE(twice == names.end()) << *twice;
}

std::string NameOf(const testing::TestParamInfo<intact_isa>& test) { return intact_isa_name(test.param); }

INSTANTIATE_TEST_SUITE_P(All, GroupedEngineTest, testing::ValuesIn(core::kIsaLadder), NameOf);
INSTANTIATE_TEST_SUITE_P(Long, GroupedEngineTest, testing::ValuesIn(core::kIsaLadder), NameOf);

}  // namespace
}  // namespace intact::kernels
