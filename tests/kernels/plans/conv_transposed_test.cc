// Transposed convolutions: the division of an output into phases, and every small geometry compared with the
// reference.
#include "kernels/plans/conv_transposed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "kernels/problem/conv_geometry.h"
#include "support/random.h"
#include "tests/support/expect_model.h"
#include "verify/problem/problem.h"

namespace intact::kernels {
namespace {

ConvGeometry GeometryOf(const char* line) {
  const reference::Conv conv = verify::MaterializeConv(tests::Parsed(line));
  const Result<ConvGeometry> geometry = CheckGeometry(verify::DescOf(conv, {}));
  EXPECT_TRUE(geometry) << geometry.error().message;
  return geometry ? *geometry : ConvGeometry();
}

TEST(Phases, ShareTheTaps) {
  const auto phases =
      PhasesOf(GeometryOf("conv u8s8s32 in=5 c=1 o=1 kernel=4 stride=2 pad=1 transposed=yes"));
  ASSERT_EQ(phases.size(), 2u);
  const ConvPhase& odd = phases[0];  // of tap 0: outputs 1, 3, …
  EXPECT_EQ(odd.taps, (std::vector<int64_t>{2, 0}));
  EXPECT_EQ(odd.grid.first[kWidth], 1);
  EXPECT_EQ(odd.grid.count[kWidth], 5);
  EXPECT_EQ(odd.geometry.pad_begin[kWidth], 0);
  EXPECT_EQ(odd.geometry.pad_end[kWidth], 1);
  EXPECT_EQ(phases[1].taps, (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(phases[1].geometry.pad_begin[kWidth], 1);
  EXPECT_EQ(phases[1].geometry.pad_end[kWidth], 0);
}

TEST(Phases, AreNoMoreThanTaps) {
  EXPECT_EQ(PhasesOf(GeometryOf("conv u8s8s32 in=5x5 c=1 o=1 kernel=2x1 stride=9x7 transposed=yes")).size(),
            2u);
  EXPECT_EQ(
      PhasesOf(GeometryOf("conv u8s8s32 in=5 c=1 o=1 kernel=7 stride=4 dilation=6 transposed=yes")).size(),
      2u);
  EXPECT_EQ(
      PhasesOf(GeometryOf("conv u8s8s32 in=1 c=1 o=1 kernel=1 stride=4 pad=1:0 outpad=3 transposed=yes"))
          .size(),
      0u);
}

TEST(Grid, IsEvenWhereLinesFollowEachOther) {
  OutputGrid grid{{0, 0, 1}, {1, 1, 3}, {1, 1, 4}, {1, 1, 12}};
  EXPECT_TRUE(grid.IsEven(5));
  grid.extents[kWidth] = 11;
  EXPECT_TRUE(grid.IsEven(1));
  EXPECT_FALSE(grid.IsEven(2));
  grid = {{0, 1, 1}, {1, 2, 3}, {1, 2, 4}, {1, 4, 12}};
  EXPECT_FALSE(grid.IsEven(1));
  grid = {{0, 1, 1}, {1, 2, 9}, {1, 2, 1}, {1, 4, 7}};  // the width's step has no effect
  EXPECT_TRUE(grid.IsEven(2));
  grid.extents[kHeight] = 5;
  EXPECT_TRUE(grid.IsEven(1));
  EXPECT_FALSE(grid.IsEven(2));
  EXPECT_TRUE(OutputGrid::All({3, 4, 5}).IsEven(2));
}

TEST(Grid, RowsAreWithinTheOutput) {
  const int64_t far = int64_t{1} << 31;
  EXPECT_EQ((OutputGrid{{}, {far, far, 3}, {1, 1, 2}, {1, 1, 5}}).RowStep(), 3);
  EXPECT_EQ((OutputGrid{{}, {far, 3, far}, {1, 2, 1}, {1, 5, 7}}).RowStep(), 3 * 7);
  EXPECT_EQ((OutputGrid{{}, {3, far, far}, {2, 1, 1}, {5, 6, 7}}).RowStep(), 3 * 6 * 7);
  EXPECT_EQ((OutputGrid{{}, {far, far, far}, {1, 1, 1}, {5, 6, 7}}).RowStep(), 5 * 6 * 7);
}

// Runs on every ISA of this machine that has its own kernel for the problem.
void ExpectItsModelEverywhere(verify::Problem problem) {
  for (const intact_isa isa : {INTACT_ISA_AVX2, INTACT_ISA_AVX512_VNNI}) {
    if (intact_isa_available(isa) == 0) continue;  // the differential test reports it
    problem.isa = isa;
    tests::ExpectItsModel(problem);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Transposed, EverySmallGeometry) {
  verify::Problem problem = tests::Parsed("conv u8s8s32 in=1 c=3 o=2 kernel=1 za=255 bias=s32");
  reference::Axis& axis = problem.conv->axes[2];
  axis.transposed = true;
  int count = 0;
  for (axis.input = 1; axis.input <= 3; ++axis.input) {
    for (axis.kernel = 1; axis.kernel <= 4; ++axis.kernel) {
      for (axis.stride = 1; axis.stride <= 4; ++axis.stride) {
        for (axis.dilation = 1; axis.dilation <= 3; ++axis.dilation) {
          for (axis.pad_begin = 0; axis.pad_begin <= 4; ++axis.pad_begin) {
            for (const int64_t output_pad : {0, 1, 3}) {
              axis.output_pad = output_pad;
              axis.pad_end = count % 3;
              problem.mode = count % 2 == 0 ? INTACT_EXACT : INTACT_SATURATING;
              problem.fill = verify::AllFills()[static_cast<size_t>(count) % verify::AllFills().size()];
              if (problem.Check()) continue;
              ++count;
              ExpectItsModelEverywhere(problem);
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(count, 800);
}

TEST(Transposed, RandomGeometries) {
  support::Random random(1, 1, 1);
  const auto pick = [&](int64_t low, int64_t high) { return random.Integer(low, high); };
  int count = 0;
  while (count < 300) {
    verify::Problem problem = tests::Parsed("conv u8s8s32 in=1x1x1 c=1 o=1 kernel=1x1x1 bias=s32");
    reference::ConvGeometry& g = *problem.conv;
    g.dims = static_cast<int>(pick(1, 3));
    for (auto axis = g.axes.end() - g.dims; axis != g.axes.end(); ++axis) {
      *axis = {pick(1, 6), pick(1, 5), pick(1, 4), pick(1, 3), pick(0, 5), pick(0, 5), true, pick(0, 2)};
    }
    g.groups = pick(0, 2) > 0 ? 1 : pick(2, 17);
    g.input_channels = g.groups * pick(1, g.groups > 1 ? 4 : 20);
    g.output_channels = g.groups * pick(1, g.groups > 1 ? 3 : 40);
    g.batch = pick(1, 2);
    problem.za = static_cast<int32_t>(pick(0, 255));
    problem.zb = static_cast<int32_t>(pick(0, 1) * pick(-128, 127));
    problem.threads = static_cast<int32_t>(pick(1, 3));
    problem.mode = pick(0, 1) == 0 ? INTACT_EXACT : INTACT_SATURATING;
    problem.seed = static_cast<uint64_t>(count) + 1;
    if (problem.Check()) continue;
    ++count;
    ExpectItsModelEverywhere(problem);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace intact::kernels
