// 8-bit outputs on every ISA, by generated and by compiled code: operations of all kinds compared with the
// reference, and fixed point at the edges of int32 compared with an oracle of 128 bits.
#include <gtest/gtest.h>
#include <intact/intact.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <intact/intact.hpp>
#include <limits>
#include <string>
#include <vector>

#include "core/types.h"
#include "support/random.h"
#include "tests/support/emulated_isas.h"
#include "tests/support/expect_model.h"
#include "tests/support/require_isas.h"
#include "tests/support/tiles_target.h"
#include "verify/targets/intact_target.h"

namespace intact::tests {
namespace {

__extension__ using Int128 = __int128;

const auto* const kEmulatedIsas = ::testing::AddGlobalTestEnvironment(new EmulatedIsas);

constexpr int64_t kLeast = std::numeric_limits<int32_t>::min();
constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

// ----- the oracle ------------------------------------------------------------------------------------------

Int128 FloorDivide(Int128 x, Int128 divisor) { return x / divisor - (x % divisor < 0 ? 1 : 0); }

constexpr int64_t kNoMultiplier = int64_t{1} << 31;  // a multiplier without effect

// The formula of include/intact/intact.h.
int64_t Oracle(int64_t y, int64_t multiplier, int32_t shift, intact_fixed_point rule) {
  const Int128 one = 1;
  Int128 v = std::clamp<Int128>(Int128{y} * (one << std::max(shift, 0)), kLeast, kMost);
  v = FloorDivide(v * multiplier + (one << 30), one << 31);
  const Int128 divisor = one << std::max(-shift, 0);
  if (rule == INTACT_FIXED_POINT_HALF_UP || v >= 0) {
    return static_cast<int64_t>(FloorDivide(2 * v + divisor, 2 * divisor));
  }
  return -static_cast<int64_t>(FloorDivide(-2 * v + divisor, 2 * divisor));
}

TEST(Oracle, RoundsAsGemmlowpDoes) {
  constexpr auto kAway = INTACT_FIXED_POINT_HALF_AWAY, kUp = INTACT_FIXED_POINT_HALF_UP;
  EXPECT_EQ(Oracle(10, kNoMultiplier, -2, kAway), 3);
  EXPECT_EQ(Oracle(-10, kNoMultiplier, -2, kAway), -3);
  EXPECT_EQ(Oracle(-10, kNoMultiplier, -2, kUp), -2);
  EXPECT_EQ(Oracle(-11, kNoMultiplier, -2, kUp), -3);
  EXPECT_EQ(Oracle(3, 1 << 30, 0, kAway), 2);    // 1.5
  EXPECT_EQ(Oracle(-3, 1 << 30, 0, kAway), -1);  // ties of the product go up
  EXPECT_EQ(Oracle(-3, 1 << 30, 1, kAway), -3);
  EXPECT_EQ(Oracle(kMost, 1 << 30, 30, kAway), 1 << 30);
}

// ----- the edges of int32 ----------------------------------------------------------------------------------

/// A column: its sum and its scale.
struct Column {
  int32_t y, multiplier, shift;
};

std::vector<int32_t> Edges() {
  std::vector<int32_t> edges = {static_cast<int32_t>(kLeast), 0};
  support::Random random(1, 0, 0);
  for (int k = 0; k <= 31; ++k) {
    for (const int64_t near : {-1, 0, 1}) {
      for (const int64_t sign : {-1, 1}) {
        const int64_t y = sign * (int64_t{1} << k) + near;
        if (y >= kLeast && y <= kMost) edges.push_back(static_cast<int32_t>(y));
      }
    }
    edges.push_back(static_cast<int32_t>(random.Integer(kLeast, kMost)));
    edges.push_back(static_cast<int32_t>(random.Integer(-(int64_t{1} << k), int64_t{1} << k)));
  }
  std::ranges::sort(edges);
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  return edges;
}

std::vector<int32_t> Multipliers() {
  constexpr int32_t kSmallest = 1 << 30, kLargest = std::numeric_limits<int32_t>::max();
  std::vector<int32_t> multipliers = {0,       kSmallest,    kSmallest + 1, kSmallest + 3,
                                      3 << 29, kLargest - 1, kLargest};
  support::Random random(2, 0, 0);
  for (int i = 0; i < 5; ++i)
    multipliers.push_back(static_cast<int32_t>(random.Integer(kSmallest, kLargest)));
  return multipliers;
}

// Sums with outputs near a tie within int8, which the edges seldom have.
void AddTies(std::vector<Column>* columns) {
  support::Random random(3, 0, 0);
  for (int i = 0; i < 20000; ++i) {
    const auto multiplier = static_cast<int32_t>(random.Integer(1 << 30, kMost));
    const auto shift = static_cast<int32_t>(random.Integer(-23, 0));
    const double scale = std::ldexp(static_cast<double>(multiplier), shift - 31);
    const double y = (static_cast<double>(random.Integer(-140, 140)) + 0.5) / scale;
    const int64_t near = std::llround(y) + random.Integer(-1, 1);
    columns->push_back({static_cast<int32_t>(std::clamp(near, kLeast, kMost)), multiplier, shift});
  }
}

std::vector<Column> Columns(bool has_multipliers) {
  std::vector<Column> columns;
  for (const int32_t y : Edges()) {
    for (int32_t shift = -31; shift <= 30; ++shift) {
      for (const int32_t multiplier : has_multipliers ? Multipliers() : std::vector<int32_t>{1}) {
        columns.push_back({y, multiplier, shift});
      }
    }
  }
  if (has_multipliers) AddTies(&columns);
  return columns;
}

/// A layer with weights of 0 and a bias of `columns`' sums, `rows` times.
class EdgeLayer {
 public:
  EdgeLayer(const std::vector<Column>& columns, bool has_multipliers) {
    for (const Column& column : columns) {
      bias_.push_back(column.y);
      multipliers_.push_back(column.multiplier);
      shifts_.push_back(column.shift);
    }
    linear_.bias_s32 = bias_.data();
    if (has_multipliers) linear_.multipliers = multipliers_.data();
    linear_.shifts = shifts_.data();
    linear_.scale_count = n();
  }

  int64_t n() const { return std::ssize(bias_); }

  void Expect(intact_isa isa, intact_fixed_point rule, intact_type type, int32_t zero_point, int64_t rows) {
    linear_.max_isa = isa;
    linear_.c_type = type;
    linear_.fixed_point = rule;
    linear_.c_zero_point = zero_point;
    std::vector<uint8_t> expected;
    for (size_t i = 0; i < bias_.size(); ++i) {
      const int64_t multiplier = linear_.multipliers == nullptr ? kNoMultiplier : multipliers_[i];
      const int64_t value = Oracle(bias_[i], multiplier, shifts_[i], rule) + zero_point;
      expected.push_back(
          static_cast<uint8_t>(std::clamp<int64_t>(value, core::LowestOf(type), core::HighestOf(type))));
    }
    ExpectGemm(expected, rows);
    ExpectDepthwise(expected, rows);
  }

 private:
  void ExpectRows(const std::vector<uint8_t>& expected, const std::vector<uint8_t>& c, const char* what) {
    for (size_t i = 0; i < c.size(); ++i) {
      const size_t column = i % expected.size();
      ASSERT_EQ(c[i], expected[column])
          << what << ", row " << i / expected.size() << ": y=" << bias_[column]
          << " multiplier=" << multipliers_[column] << " shift=" << shifts_[column];
    }
  }

  void ExpectGemm(const std::vector<uint8_t>& expected, int64_t rows) {
    constexpr int64_t kDepth = 3;
    GemmDesc desc = MakeGemmDesc();
    desc.n = n();
    desc.k = kDepth;
    desc.linear = linear_;
    const std::vector<int8_t> b(static_cast<size_t>(n() * kDepth));
    const std::vector<uint8_t> a(static_cast<size_t>(rows * kDepth), 255);
    std::vector<uint8_t> c(static_cast<size_t>(rows * n()));
    const Result<Gemm> plan = Gemm::Create(desc, b.data());
    ASSERT_TRUE(plan) << plan.error().message;
    intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
    args.m = rows;
    args.a = a.data();
    args.c = c.data();
    ASSERT_EQ(intact_gemm_run(plan->handle(), &args), INTACT_OK) << intact_last_error();
    ExpectRows(expected, c, plan->Info().kernel);
  }

  void ExpectDepthwise(const std::vector<uint8_t>& expected, int64_t pixels) {
    ConvDesc desc = MakeConvDesc();
    desc.spatial_dims = 1;
    desc.input_channels = desc.output_channels = desc.groups = n();
    desc.input[0] = pixels;
    desc.kernel[0] = 2;
    desc.pad_end[0] = 1;
    desc.linear = linear_;
    const std::vector<int8_t> weights(static_cast<size_t>(2 * n()));
    const std::vector<uint8_t> a(static_cast<size_t>(pixels * n()), 255);
    std::vector<uint8_t> c(static_cast<size_t>(pixels * n()));
    const Result<Conv> plan = Conv::Create(desc, weights.data());
    ASSERT_TRUE(plan) << plan.error().message;
    intact_conv_args args = INTACT_CONV_ARGS_INIT;
    args.batch = 1;
    args.a = a.data();
    args.c = c.data();
    ASSERT_EQ(intact_conv_run(plan->handle(), &args), INTACT_OK) << intact_last_error();
    ExpectRows(expected, c, plan->Info().kernel);
  }

  std::vector<int32_t> bias_, multipliers_, shifts_;
  intact_linear_desc linear_ = INTACT_LINEAR_DESC_INIT;
};

class EightBitOutputs : public testing::TestWithParam<intact_isa> {
 protected:
  void SetUp() override {
    if (intact_isa_available(GetParam()) == 0) INTACT_SKIP_ISA(intact_isa_name(GetParam()));
  }
  // Emulation takes microseconds per instruction.
  static bool IsEmulated() { return EmulatedIsas::Has(GetParam()); }

  // `columns` with or without shifts to the left, which have their own code in kernels. For an emulated ISA
  // only a share.
  static std::vector<Column> Share(const std::vector<Column>& columns, bool has_left) {
    std::vector<Column> share;
    const size_t step = IsEmulated() ? 97 : 1;
    for (size_t i = 0; i < columns.size(); i += step) {
      if (has_left || columns[i].shift <= 0) share.push_back(columns[i]);
    }
    return share;
  }

  static void ExpectEdges(bool has_multipliers) {
    const std::vector<Column> columns = Columns(has_multipliers);
    for (const bool has_left : {false, true}) {
      EdgeLayer layer(Share(columns, has_left), has_multipliers);
      for (const auto rule : {INTACT_FIXED_POINT_HALF_AWAY, INTACT_FIXED_POINT_HALF_UP}) {
        layer.Expect(GetParam(), rule, INTACT_S8, 0, 1);
        layer.Expect(GetParam(), rule, INTACT_U8, 131, 40);
        if (HasFatalFailure()) return;
      }
    }
  }
};

TEST_P(EightBitOutputs, MultiplyTheEdgesOfInt32) { ExpectEdges(/*has_multipliers=*/true); }
TEST_P(EightBitOutputs, ShiftTheEdgesOfInt32) { ExpectEdges(/*has_multipliers=*/false); }

// ----- operations ------------------------------------------------------------------------------------------

TEST_P(EightBitOutputs, EqualTheReference) {
  const std::vector<std::string> lines = {
      "gemm u8s8u8 m=1 n=40 k=67 za=3 bias=s32 scale=channel",
      "gemm u8s8s8 m=7 n=65 k=130 za=3 zb=5 zc=-7 act=relu scale=channel",
      "gemm s8u8s8 m=33 n=19 k=96 zc=5 act=clamp scale=channel",
      "gemm u8u8u8 m=70 n=48 k=300 za=9 zb=128 zc=130 scale=tensor",
      "gemm s8s8u8 m=200 n=130 k=64 zc=100 bias=s32 scale=channel",
      "gemm u8s8u8 m=40 n=7 k=512 scale=channel",
      "gemm u8s8s8 m=32 n=6 k=31 batch=2 runtimeb=yes zc=-128 bias=s32 act=clamp seed=51256062 scale=tensor",
      "conv u8s8u8 in=9x9 c=16 o=24 kernel=3x3 pad=1x1 za=3 zc=100 scale=channel",
      "conv s8s8s8 in=12x12 c=8 o=20 kernel=3x3 stride=2x2 za=-3 zc=4 act=relu scale=channel",
      "conv u8s8u8 in=11x11 c=40 o=40 groups=40 kernel=3x3 pad=1x1 zc=7 scale=channel",
      "conv u8s8s8 in=6x6 c=12 o=24 groups=4 kernel=3x3 pad=1x1 zb=3 scale=channel",
      "conv u8s8u8 in=5x5 c=9 o=17 kernel=3x3 stride=2x2 transposed=yes zc=12 scale=channel",
  };
  for (const std::string& line : lines) {
    for (const char* const words : {"", " fixed=away", " fixed=up", " fixed=away_shift", " fixed=up_shift",
                                    " table=yes", " fixed=up table=yes"}) {
      for (const verify::Fill fill : {verify::Fill::kUniform, verify::Fill::kTies}) {
        verify::Problem problem = Parsed(line + words);
        problem.isa = GetParam();
        problem.fill = fill;
        ExpectItsModel(problem);
        if (GetParam() == INTACT_ISA_AMX_INT8) ExpectItsModel(problem, TilesTarget());
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Tables replace the bytes that the residual was read from, on several threads. Saved plans keep multipliers
// and tables.
TEST_P(EightBitOutputs, EqualTheReferenceInPlaceAndSaved) {
  for (const char* line : {
           "gemm u8s8s8 m=70 n=33 k=64 zc=-7 res=s8 zres=4 inplace=yes threads=3 scale=channel table=yes",
           "gemm s8s8u8 m=1 n=130 k=67 res=u8 inplace=yes threads=2 act=relu scale=tensor table=yes "
           "saved=yes",
           "conv u8s8u8 in=9x9 c=16 o=24 kernel=3x3 pad=1x1 za=3 zc=9 res=u8 inplace=yes threads=2 table=yes",
           "conv u8s8s8 in=11x11 c=40 o=40 groups=40 kernel=3x3 res=s8 inplace=yes threads=2 table=yes "
           "saved=yes",
           "gemm u8s8s8 m=33 n=19 k=96 za=3 bias=s32 scale=channel fixed=away table=yes saved=yes threads=2",
           "gemm s8u8u8 m=3 n=48 k=33 zc=7 scale=tensor fixed=up_shift saved=yes",
           "conv u8s8s8 in=6x6 c=12 o=24 groups=4 kernel=3x3 pad=1x1 scale=channel fixed=up table=yes "
           "saved=yes",
       }) {
    verify::Problem problem = Parsed(line);
    problem.isa = GetParam();
    ExpectItsModel(problem);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, EightBitOutputs, testing::ValuesIn(core::kIsaLadder),
                         [](const auto& isa) { return std::string(intact_isa_name(isa.param)); });

}  // namespace
}  // namespace intact::tests
