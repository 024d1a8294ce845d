// How C is cut: the shares cover it exactly once, between tiles, as evenly as whole tiles allow.
#include "kernels/base/blocking.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <vector>

namespace intact::kernels {
namespace {

// The same cases on every run, unless RC_PARAMS asks for others.
[[maybe_unused]] const int kSeeded = setenv("RC_PARAMS", "seed=20240229 max_success=1000", /*overwrite=*/0);

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Cut {
  int64_t m, n;
  int mr, nr, parts;
};

Cut AnyCut() {
  Cut cut;
  cut.m = *rc::gen::inRange<int64_t>(1, 200);
  cut.n = *rc::gen::inRange<int64_t>(1, 200);
  cut.mr = *rc::gen::element(1, 4, 6, 8, 24, 32, 64);
  cut.nr = *rc::gen::element(8, 16, 32, 48);
  cut.parts = *rc::gen::inRange(1, 70);
  return cut;
}

std::vector<Range> Shares(const Cut& cut) {
  std::vector<Range> shares;
  shares.reserve(static_cast<size_t>(cut.parts));
  for (int part = 0; part < cut.parts; ++part) {
    shares.push_back(Partition(cut.m, cut.n, cut.mr, cut.nr, part, cut.parts));
  }
  return shares;
}

int64_t Tiles(const Cut& cut, const Range& share) {
  if (share.Empty()) return 0;
  return TileCount(share.row_end - share.row_begin, share.column_end - share.column_begin, cut.mr, cut.nr);
}

RC_GTEST_PROP(Partition, CoversEachElementOnce, ()) {
  const Cut cut = AnyCut();
  std::vector<int> covered(static_cast<size_t>(cut.m * cut.n));
  for (const Range& share : Shares(cut)) {
    if (share.Empty()) continue;
    RC_ASSERT(share.row_begin >= 0 && share.row_end <= cut.m);
    RC_ASSERT(share.column_begin >= 0 && share.column_end <= cut.n);
    for (int64_t row = share.row_begin; row < share.row_end; ++row) {
      for (int64_t column = share.column_begin; column < share.column_end; ++column) {
        ++covered[static_cast<size_t>(row * cut.n + column)];
      }
    }
  }
  RC_ASSERT(std::all_of(covered.begin(), covered.end(), [](int times) { return times == 1; }));
}

RC_GTEST_PROP(Partition, CutsBetweenTilesOnly, ()) {
  const Cut cut = AnyCut();
  for (const Range& share : Shares(cut)) {
    if (share.Empty()) continue;
    RC_ASSERT(share.row_begin % cut.mr == 0 && (share.row_end % cut.mr == 0 || share.row_end == cut.m));
    RC_ASSERT(share.column_begin % cut.nr == 0 &&
              (share.column_end % cut.nr == 0 || share.column_end == cut.n));
  }
}

RC_GTEST_PROP(Partition, GivesNoShareMoreThanTheBestGridNeeds, ()) {
  const Cut cut = AnyCut();
  const int64_t rows = CeilDivide(cut.m, cut.mr);
  const int64_t columns = CeilDivide(cut.n, cut.nr);
  int64_t best = rows * columns;
  for (int64_t grid_rows = 1; grid_rows <= cut.parts; ++grid_rows) {
    const int64_t grid_columns = cut.parts / grid_rows;
    best = std::min(best, CeilDivide(rows, grid_rows) * CeilDivide(columns, grid_columns));
  }
  int64_t largest = 0;
  for (const Range& share : Shares(cut)) largest = std::max(largest, Tiles(cut, share));
  RC_ASSERT(largest <= best);
  RC_ASSERT(largest >= CeilDivide(rows * columns, cut.parts));
}

TEST(Partition, OneTileGoesToOnePart) {
  int64_t busy = 0;
  for (int part = 0; part < 16; ++part) busy += Partition(3, 5, 8, 16, part, 16).Empty() ? 0 : 1;
  EXPECT_EQ(busy, 1);
}

TEST(Partition, TakesAnyNumberOfParts) {
  // Returns at once, however many parts a caller makes of two tiles.
  constexpr int kMany = std::numeric_limits<int>::max();
  EXPECT_FALSE(Partition(16, 16, 8, 16, 0, kMany).Empty());
  EXPECT_TRUE(Partition(16, 16, 8, 16, kMany - 1, kMany).Empty());
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
