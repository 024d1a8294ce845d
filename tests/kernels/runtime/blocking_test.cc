// The division of C, and of runs of several items: shares cover it exactly once, have whole tiles, and are as
// even as whole tiles allow.
#include "kernels/runtime/blocking.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <vector>

#include "kernels/codegen/dispatch.h"
#include "kernels/engines/block_cost.h"
#include "kernels/plans/item_cut.h"

namespace intact::kernels {
namespace {

// The same cases on every run, unless RC_PARAMS asks for others.
[[maybe_unused]] const int kSeeded = setenv("RC_PARAMS", "seed=20240229 max_success=1000", /*overwrite=*/0);

// Tiles are computed whole. Another kernel may compute rows that do not fill a tile, each in the time of two.
class TileCost final : public RowCost {
 public:
  explicit TileCost(const SharedOutput& output) : output_(output) {}
  double Of(int64_t rows) const override {
    const int64_t rest = rows % output_.row_step;
    const int64_t whole = rest == 0 ? 0 : output_.row_step;
    const int64_t most = output_.least_row_step == 0 ? whole : std::min(whole, 2 * rest);
    return static_cast<double>(rows - rest + most);
  }

 private:
  const SharedOutput& output_;
};

// The heights of the tiles of `rows` rows, if at most `most` are taken at once.
std::vector<int64_t> Heights(const KernelBlock& block, int64_t rows, int64_t most) {
  std::vector<int64_t> heights;
  while (rows > 0) {
    const EqualTiles first = FirstTiles(block, rows);
    const int64_t count = std::min(first.count, most);
    heights.insert(heights.end(), static_cast<size_t>(count), first.rows);
    rows -= count * first.rows;
  }
  EXPECT_EQ(rows, 0);
  return heights;
}

TEST(FirstTiles, AreTheSameHoweverManyAreTakenAtOnce) {
  for (const KernelBlock& block : kKernels) {
    for (int64_t rows = 1; rows <= 200; ++rows) {
      const std::vector<int64_t> heights = Heights(block, rows, rows);
      ASSERT_LE(std::ranges::max(heights), block.mr) << rows;
      ASSERT_GE(std::ranges::min(heights), 1) << rows;
      ASSERT_EQ(heights, Heights(block, rows, 1)) << rows;
      ASSERT_EQ(heights, Heights(block, rows, 3)) << rows;
    }
  }
}

SharedOutput AnyOutput(int64_t most) {
  SharedOutput output;
  output.m = *rc::gen::inRange<int64_t>(1, most);
  output.n = *rc::gen::inRange<int64_t>(1, most);
  output.row_step = *rc::gen::element(1, 4, 6, 8, 24, 32, 64);
  output.column_step = *rc::gen::element(8, 16, 32, 48);
  output.line_columns = *rc::gen::element(1, 16, 64);
  output.least_row_step = *rc::gen::element(0, 0, 1);
  output.any_column_step = output.column_step * *rc::gen::element(1, 2);
  output.row_bytes = *rc::gen::element(1, 7, 1000);
  output.column_bytes = *rc::gen::element(1, 9, 1000);
  return output;
}

Partition Choose(const SharedOutput& output, int64_t parts) {
  return Partition::Choose(output, parts, TileCost(output));
}

std::vector<Range> SharesOf(const Partition& partition) {
  std::vector<Range> shares;
  for (int part = 0; part < partition.parts(); ++part) shares.push_back(partition.Share(part));
  return shares;
}

RC_GTEST_PROP(Partition, CoversEachElementOnce, ()) {
  const SharedOutput output = AnyOutput(200);
  const int parts = *rc::gen::inRange(1, 140);
  const Partition partition = Choose(output, parts);
  RC_ASSERT(partition.parts() >= 1 && partition.parts() <= parts);
  std::vector<int> covered(static_cast<size_t>(output.m * output.n));
  for (const Range& share : SharesOf(partition)) {
    RC_ASSERT(!share.Empty());
    RC_ASSERT(share.row_begin >= 0 && share.row_end <= output.m);
    RC_ASSERT(share.column_begin >= 0 && share.column_end <= output.n);
    for (int64_t row = share.row_begin; row < share.row_end; ++row) {
      for (int64_t column = share.column_begin; column < share.column_end; ++column) {
        ++covered[static_cast<size_t>(row * output.n + column)];
      }
    }
  }
  RC_ASSERT(std::ranges::all_of(covered, [](int times) { return times == 1; }));
  for (const int beyond : {partition.parts(), parts, 1000}) {
    RC_ASSERT(beyond < partition.parts() || partition.Share(beyond).Empty());
  }
}

RC_GTEST_PROP(Partition, CutsBetweenStepsOnly, ()) {
  const SharedOutput output = AnyOutput(200);
  const std::vector<Range> shares = SharesOf(Choose(output, *rc::gen::inRange(1, 140)));
  const auto are_cut = [&](int64_t row_step, int64_t column_step) {
    const auto is_cut = [](int64_t at, int64_t step, int64_t end) { return at % step == 0 || at == end; };
    return std::ranges::all_of(shares, [&](const Range& share) {
      return is_cut(share.row_begin, row_step, output.m) && is_cut(share.row_end, row_step, output.m) &&
             is_cut(share.column_begin, column_step, output.n) &&
             is_cut(share.column_end, column_step, output.n);
    });
  };
  RC_ASSERT(are_cut(output.row_step, output.column_step) ||
            (output.least_row_step != 0 && are_cut(output.least_row_step, output.any_column_step)));
}

// With this many tiles for each thread or more, no thread waits long for another.
RC_GTEST_PROP(Partition, IsBalancedWhereTilesAreMany, ()) {
  constexpr int64_t kEnough = 64;
  constexpr double kFloor = 0.85;
  SharedOutput output = AnyOutput(6000);
  output.least_row_step = 0;
  output.m = RoundUp(output.m, output.row_step);
  output.n = RoundUp(output.n, output.column_step);
  const int64_t tiles = output.m / output.row_step * (output.n / output.column_step);
  const auto most = static_cast<int>(std::min<int64_t>(tiles / kEnough, 256));
  RC_PRE(most >= 2);
  const int parts = *rc::gen::inRange(2, most + 1);
  int64_t largest = 0;
  for (const Range& share : SharesOf(Choose(output, parts))) {
    largest = std::max(largest, (share.row_end - share.row_begin) * (share.column_end - share.column_begin));
  }
  const double balance = static_cast<double>(output.m * output.n) / static_cast<double>(largest * parts);
  RC_LOG() << output.m << "x" << output.n << " in tiles of " << output.row_step << "x" << output.column_step
           << ", " << parts << " parts: " << balance << "\n";
  RC_ASSERT(balance >= kFloor);
}

TEST(Partition, OneTileGoesToOnePart) {
  const SharedOutput output{.m = 3, .n = 5, .row_step = 8, .column_step = 16};
  EXPECT_EQ(Choose(output, 16).parts(), 1);
}

TEST(Partition, TakesAnyNumberOfParts) {
  // Returns at once for any number of parts, with two tiles and with many.
  constexpr int kMany = std::numeric_limits<int>::max();
  EXPECT_EQ(Choose({.m = 16, .n = 16, .row_step = 8, .column_step = 16}, kMany).parts(), 2);
  const SharedOutput large{.m = kMany, .n = 16, .row_step = 1, .column_step = 16};
  EXPECT_GT(Choose(large, kMany).parts(), kMany / 2);
}

TEST(Partition, WritesWholeLinesWhereItCan) {
  SharedOutput output{.m = 8, .n = 1024, .row_step = 8, .column_step = 16, .line_columns = 64};
  for (const Range& share : SharesOf(Choose(output, 16))) EXPECT_EQ(share.column_begin % 64, 0);
  EXPECT_EQ(Choose(output, 64).parts(), 64);  // but not if threads would be idle
}

TEST(Partition, BandsMayDiffer) {
  // With 7×7 tiles, a grid of five cells gives one thread 14 tiles. A band of three cells and a band of two
  // give 12.
  const SharedOutput output{.m = 7, .n = 7 * 16, .row_step = 1, .column_step = 16};
  for (const Range& share : SharesOf(Choose(output, 5))) {
    EXPECT_LE((share.row_end - share.row_begin) * (share.column_end - share.column_begin), 12 * 16);
  }
}

TEST(Partition, CutsFewerRowsWhereThatIsFaster) {
  // 25 rows on three threads: one thread gets two tiles of eight rows, or 8 + 1 rows.
  const SharedOutput output{
      .m = 25, .n = 16, .row_step = 8, .column_step = 16, .least_row_step = 1, .any_column_step = 16};
  for (const Range& share : SharesOf(Choose(output, 3))) EXPECT_LE(share.row_end - share.row_begin, 9);
}

TEST(Partition, NoMoreThreadsThanItTakes) {
  // The slowest thread has two tiles in any case.
  EXPECT_EQ(Choose({.m = 8, .n = 768, .row_step = 8, .column_step = 16}, 32).parts(), 24);
}

// The rectangles of `parts` parts cover each element of each item once. Each part has at most an equal share
// of the work, and the work of `units` units more.
void ExpectCover(const std::vector<int64_t>& rows, int64_t n, int64_t step, int64_t parts, double units) {
  const RunItems items = {static_cast<int64_t>(rows.size()), 0, rows.data()};
  const ItemCut cut(items, n, step, parts);
  std::vector<std::vector<int>> computed;
  for (const int64_t count : rows) computed.emplace_back(static_cast<size_t>(count * n), 0);
  double total = 0;
  double largest = 0;
  double unit = 0;
  for (int64_t part = 0; part < parts; ++part) {
    double work = 0;
    int64_t last = -1;
    cut.ForEach(part, [&](int64_t item, const Range& range) {
      EXPECT_GE(item, last) << "items ascend";
      last = item;
      EXPECT_EQ(range.column_begin % step, 0);
      EXPECT_TRUE(range.column_end % step == 0 || range.column_end == n);
      const auto cost = static_cast<double>(range.row_end - range.row_begin + ItemCut::kWeightRows);
      work += cost * static_cast<double>((range.column_end - range.column_begin + step - 1) / step);
      unit = std::max(unit, cost);
      for (int64_t row = range.row_begin; row < range.row_end; ++row) {
        for (int64_t i = range.column_begin; i < range.column_end; ++i) {
          ++computed[static_cast<size_t>(item)][static_cast<size_t>(row * n + i)];
        }
      }
    });
    total += work;
    largest = std::max(largest, work);
  }
  for (const std::vector<int>& item : computed) {
    EXPECT_TRUE(std::all_of(item.begin(), item.end(), [](int times) { return times == 1; }));
  }
  EXPECT_LE(largest, total / static_cast<double>(parts) + units * unit);
}

RC_GTEST_PROP(ItemCut, CoversAllItemsEvenly, ()) {
  const auto rows = *rc::gen::nonEmpty(
      rc::gen::container<std::vector<int64_t>>(rc::gen::element<int64_t>(0, 0, 1, 1, 2, 3, 9, 40)));
  ExpectCover(rows, *rc::gen::inRange<int64_t>(1, 300), *rc::gen::element<int64_t>(16, 32),
              *rc::gen::inRange<int64_t>(1, 40), 1.0);
}

TEST(ItemCut, OneRowOfAnExpertIsSharedByAllParts) {
  const std::vector<int64_t> rows = {0, 1, 0, 0};
  const RunItems items = {4, 0, rows.data()};
  const ItemCut cut(items, 2048, 32, 8);
  for (int64_t part = 0; part < 8; ++part) {
    int64_t columns = 0;
    cut.ForEach(part, [&](int64_t item, const Range& range) {
      EXPECT_EQ(item, 1);
      columns += range.column_end - range.column_begin;
    });
    EXPECT_EQ(columns, 256);
  }
}

// Few columns: rows are cut too.
TEST(ItemCut, CutsRowsOfNarrowItems) {
  ExpectCover({0, 1000, 3}, 64, 32, 16, 1.0);
  const std::vector<int64_t> rows = {1000, 3};
  const RunItems items = {2, 0, rows.data()};
  int64_t busy = 0;
  for (int64_t part = 0; part < 16; ++part) {
    int64_t work = 0;
    ItemCut(items, 64, 32, 16).ForEach(part, [&](int64_t, const Range& range) {
      work += (range.row_end - range.row_begin) * (range.column_end - range.column_begin);
    });
    if (work > 0) ++busy;
  }
  EXPECT_EQ(busy, 16);
}

TEST(Blocking, RowsPerBlockAreWholeTiles) {
  for (const int64_t k : {1, 100, 5000, 10'000'000}) {
    for (const int mr : {1, 6, 24, 64}) {
      EXPECT_GT(RowsPerBlock(k, mr), 0);
      EXPECT_EQ(RowsPerBlock(k, mr) % mr, 0);
      EXPECT_GT(ColumnsPerChunk(k, mr), 0);
      EXPECT_EQ(ColumnsPerChunk(k, mr) % mr, 0);
    }
  }
}

}  // namespace
}  // namespace intact::kernels
