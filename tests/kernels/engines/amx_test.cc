// AMX below the plan: kernels for all signs and shapes, tile configurations, blocking, and the tile engine
// for every M. Emulated if the CPU lacks AMX.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/codegen/amx_kernel.h"
#include "kernels/engines/amx_blocking.h"
#include "kernels/runtime/caches.h"
#include "kernels/weights/pack.h"
#include "reference/models/operands.h"
#include "tests/support/emulated_isas.h"
#include "tests/support/expect_model.h"
#include "tests/support/require_isas.h"
#include "tests/support/tiles_target.h"
#include "verify/sweep/sweep.h"
#include "verify/targets/guarded_matrix.h"

namespace intact::kernels {
namespace {

using verify::GuardedMatrix;
using verify::Problem;

const auto* const kEmulatedIsas = ::testing::AddGlobalTestEnvironment(new tests::EmulatedIsas);

class Amx : public ::testing::Test {
 protected:
  void SetUp() override {
    if (intact_isa_available(INTACT_ISA_AMX_INT8) == 0) INTACT_SKIP_ISA("amx_int8");
  }
  void TearDown() override {
    EXPECT_EQ(emulator::ScopedEmulator::ConfiguredThreads(), 0) << "tiles are still configured";
  }
};

// ----- kernels ---------------------------------------------------------------------------------------------

std::vector<uint8_t> RandomBytes(int64_t size, std::mt19937* generator) {
  std::vector<uint8_t> bytes(static_cast<size_t>(size));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>((*generator)());
  return bytes;
}

int Value(uint8_t byte, bool is_signed) { return is_signed ? static_cast<int8_t>(byte) : int{byte}; }

// Operands of a kernel: A is dense and row-major, B is in panels.
struct Operands {
  Operands(int64_t m, int64_t panel_count, int64_t steps, std::mt19937* generator)
      : rows(m),
        panels(panel_count),
        depth(steps * kTileDepth),
        a(RandomBytes(rows * depth, generator)),
        b(RandomBytes(panels * kPanelColumns * depth, generator)) {}

  int64_t columns() const { return panels * kPanelColumns; }
  uint8_t B(int64_t k, int64_t n) const {
    return b[static_cast<size_t>(n / kPanelColumns * kPanelColumns * depth +
                                 OffsetInPanel(k, n % kPanelColumns, kPanelQuadBytes))];
  }
  int32_t Dot(int64_t m, int64_t n, bool a_signed, bool b_signed) const {
    int32_t sum = 0;
    for (int64_t k = 0; k < depth; ++k) {
      sum += Value(a[static_cast<size_t>(m * depth + k)], a_signed) * Value(B(k, n), b_signed);
    }
    return sum;
  }

  int64_t rows, panels, depth;
  std::vector<uint8_t> a, b;
};

// A's depth in two segments: the first `steps` tiles are read in place, from rows that end at a guard page,
// the others from another buffer.
struct Segments {
  Segments(const Operands& operands, int64_t row_tiles, int64_t steps)
      : rows(operands.rows),
        tile_rows(rows / row_tiles),
        first(Cut(operands, 0, steps)),
        rest(Cut(operands, steps, operands.depth / kTileDepth)) {
    const int64_t tail_steps = operands.depth / kTileDepth - steps;
    list[0] = At(*first, steps);
    if (tail_steps > 0) list[1] = At(*rest, tail_steps);
    end = list.data() + (tail_steps > 0 ? 2 : 1);
  }

  static Result<GuardedMatrix> Cut(const Operands& operands, int64_t begin, int64_t end) {
    const int64_t width = std::max<int64_t>(end - begin, 1) * kTileDepth;
    Result<GuardedMatrix> matrix = GuardedMatrix::Allocate(operands.rows, width, width + kPad);
    std::vector<uint8_t> dense;
    for (int64_t m = 0; m < operands.rows && end > begin; ++m) {
      const uint8_t* row = operands.a.data() + m * operands.depth + begin * kTileDepth;
      dense.insert(dense.end(), row, row + width);
    }
    dense.resize(static_cast<size_t>(operands.rows * width));
    matrix->Load(dense.data());
    return matrix;
  }

  AmxSegment At(const GuardedMatrix& matrix, int64_t steps) const {
    AmxSegment segment;
    segment.a_stride_bytes = steps * kTileDepth + kPad;
    segment.steps = steps;
    for (int64_t i = 0; i < kMaxBlockTiles && i * tile_rows < rows; ++i) {
      segment.a[static_cast<size_t>(i)] = matrix.data() + i * tile_rows * segment.a_stride_bytes;
    }
    return segment;
  }

  static constexpr int64_t kPad = 3;
  int64_t rows, tile_rows;
  Result<GuardedMatrix> first, rest;
  std::array<AmxSegment, 2> list;
  const AmxSegment* end = nullptr;
};

// Runs the kernel of `spec` on `operands`. The first `steps` tiles of depth are a separate segment. With
// `adds`, the kernel adds to `sums`. `seed`: as in AmxKernelArgs.
std::vector<int32_t> RunKernel(const AmxKernelSpec& spec, const Operands& operands, int64_t steps, bool adds,
                               std::vector<int32_t> sums, AmxStoreArgs store, const int32_t* seed = nullptr) {
  const Result<AmxKernelFunction> kernel = GetAmxKernel(spec);
  EXPECT_TRUE(kernel) << kernel.error().message;
  Segments segments(operands, spec.row_tiles, steps);
  const std::vector<int32_t> no_compensation(static_cast<size_t>(operands.columns()));
  if (store.compensation == nullptr) store.compensation = no_compensation.data();
  AmxKernelArgs args;
  args.segment = segments.list.data();
  args.segments_end = segments.end;
  args.b = reinterpret_cast<const int8_t*>(operands.b.data());
  args.b_panel_stride_bytes = operands.depth * kPanelColumns;
  args.adds = adds;
  args.blocks = operands.panels / spec.panels;
  args.seed = seed;
  args.seed_block_bytes = seed == nullptr ? 0 : spec.panels * kPanelColumns * 4;
  for (size_t i = 0; i < static_cast<size_t>(spec.row_tiles); ++i) {
    const int64_t row = static_cast<int64_t>(i) * segments.tile_rows;
    args.sums[i] = sums.data() + row * operands.columns();
    args.sums_stride_bytes = operands.columns() * 4;
  }
  args.store = store;
  args.prefetch = segments.list[0].a[0];
  const Result<TileFunctions> tile_functions = GetTileFunctions();
  EXPECT_TRUE(tile_functions);
  ScopedTiles tiles(*tile_functions);
  tiles.Configure(segments.tile_rows);
  (*kernel)(&args);
  return sums;
}

class AmxKernels : public Amx {};

TEST_F(AmxKernels, MultiplyInAllSignsAndShapes) {
  std::mt19937 generator(1);
  for (const bool a_signed : {false, true}) {
    for (const bool b_signed : {false, true}) {
      for (const auto& [row_tiles, panels] :
           {std::pair{1, 1}, {1, 2}, {1, 3}, {1, 4}, {2, 1}, {2, 2}, {4, 1}}) {
        for (const int64_t steps : {1, 2, 3}) {
          AmxKernelSpec spec{a_signed, b_signed, row_tiles, panels, {}};
          spec.b_stays = panels == kMaxBlockTiles && steps > 1;
          const int64_t tile_rows = 1 + static_cast<int64_t>(generator() % kTileRows);
          const Operands operands(row_tiles * tile_rows, panels, steps, &generator);
          SCOPED_TRACE(spec.Name() + ", " + std::to_string(operands.rows) + " rows");
          std::vector<int32_t> before(static_cast<size_t>(operands.columns() * operands.rows));
          for (int32_t& value : before) value = static_cast<int32_t>(generator() % 20001) - 10000;
          const int64_t first = 1 + static_cast<int64_t>(generator()) % steps;
          const bool adds = steps == 2;
          const std::vector<int32_t> sums = RunKernel(spec, operands, first, adds, before, {});
          for (int64_t m = 0; m < operands.rows; ++m) {
            for (int64_t n = 0; n < operands.columns(); ++n) {
              const int64_t i = m * operands.columns() + n;
              const int32_t start = adds ? before[static_cast<size_t>(i)] : 0;
              ASSERT_EQ(sums[static_cast<size_t>(i)], start + operands.Dot(m, n, a_signed, b_signed))
                  << m << ", " << n;
            }
          }
        }
      }
    }
  }
}

TEST_F(AmxKernels, RunAdjacentBlocks) {
  std::mt19937 generator(3);
  for (const auto& [row_tiles, panels] : {std::pair{1, 4}, {2, 1}, {2, 2}, {4, 1}}) {
    for (const int64_t steps : {1, 3}) {
      const AmxKernelSpec spec{false, true, row_tiles, panels, {}};
      const Operands operands(row_tiles * kTileRows, 3 * panels, steps, &generator);
      SCOPED_TRACE(spec.Name());
      std::vector<int32_t> seed(static_cast<size_t>(operands.columns()));
      std::iota(seed.begin(), seed.end(), -7);
      const std::vector<int32_t> before(static_cast<size_t>(operands.rows * operands.columns()), 77);
      const std::vector<int32_t> sums = RunKernel(spec, operands, steps, false, before, {}, seed.data());
      for (int64_t i = 0; i < std::ssize(sums); ++i) {
        const int64_t m = i / operands.columns(), n = i % operands.columns();
        ASSERT_EQ(sums[static_cast<size_t>(i)],
                  seed[static_cast<size_t>(n)] + operands.Dot(m, n, false, true))
            << m << ", " << n;
      }
    }
  }
}

// Stores a finished block with more or fewer rows than there are dot products to hide the stores.
TEST_F(AmxKernels, StoreTheBlockBeforeThem) {
  std::mt19937 generator(2);
  const AmxKernelSpec spec;
  const Operands operands(2 * kTileRows, spec.panels, 2, &generator);
  const std::vector<int32_t> sums_before(static_cast<size_t>(operands.rows * operands.columns()));
  std::vector<int32_t> compensation(static_cast<size_t>(operands.columns()));
  for (int32_t& value : compensation) value = static_cast<int32_t>(generator() % 20001) - 10000;
  for (const int64_t rows : {0, 1, 7, 8, 9, 32}) {
    const int64_t width = operands.columns();
    std::vector<int32_t> finished(static_cast<size_t>(rows * width));
    for (int32_t& value : finished) value = static_cast<int32_t>(generator()) / 2;
    std::vector<int32_t> c(static_cast<size_t>((rows + 1) * (width + 1)), 77);
    AmxStoreArgs store;
    store.sums = finished.data();
    store.sums_end = finished.data() + finished.size();
    store.compensation = compensation.data();
    store.c = c.data();
    store.c_stride_bytes = (width + 1) * 4;
    const std::vector<int32_t> sums = RunKernel(spec, operands, 2, false, sums_before, store);
    EXPECT_EQ(sums[0], operands.Dot(0, 0, false, true));
    for (int64_t i = 0; i < std::ssize(c); ++i) {
      const int64_t m = i / (width + 1), n = i % (width + 1);
      ASSERT_EQ(c[static_cast<size_t>(i)],
                m < rows && n < width
                    ? finished[static_cast<size_t>(m * width + n)] + compensation[static_cast<size_t>(n)]
                    : 77)
          << m << ", " << n;
    }
  }
}

TEST_F(AmxKernels, TellTheirNames) {
  EXPECT_EQ(AmxKernelSpec().Name(), "u8s8s32_gemm_32x32c4_tdpbusd_amxint8");
  AmxKernelSpec spec{true, false, 1, 4, {}};
  spec.epilogue.c_type = INTACT_U8;
  spec.epilogue.scaling.has_addends = true;
  EXPECT_EQ(spec.Name(), "s8u8u8_bias_gemm_16x64c4_tdpbsud_amxint8");
  spec.b_stays = true;
  EXPECT_EQ(spec.Name(), "s8u8u8_bias_gemm_16x64c4_b_stays_tdpbsud_amxint8");
}

TEST_F(AmxKernels, ConfigureTilesForTheirRows) {
  const auto rows_of = [](int64_t rows) {
    const TileConfig config = TileConfigFor(rows);
    return std::vector<int>(config.rows.begin(), config.rows.begin() + 8);
  };
  EXPECT_EQ(rows_of(16), std::vector<int>(8, 16));
  EXPECT_EQ(rows_of(5), (std::vector<int>{5, 5, 5, 5, 5, 5, 16, 16}));
}

TEST_F(AmxKernels, ReleaseTheirTiles) {
  if (!tests::EmulatedIsas::Has(INTACT_ISA_AMX_INT8)) GTEST_SKIP() << "the emulator alone can tell";
  const Result<TileFunctions> tile_functions = GetTileFunctions();
  ASSERT_TRUE(tile_functions);
  using emulator::ScopedEmulator;
  const uint64_t before = ScopedEmulator::Count();
  {
    ScopedTiles tiles(*tile_functions);
    EXPECT_EQ(ScopedEmulator::ConfiguredThreads(), 0);
    for (const int64_t rows : {16, 5}) tiles.Configure(rows);
    EXPECT_EQ(ScopedEmulator::ConfiguredThreads(), 1);
  }
  EXPECT_EQ(ScopedEmulator::ConfiguredThreads(), 0);
  // Configured twice, released once.
  EXPECT_EQ(ScopedEmulator::Count() - before, 3u);
}

// ----- blocking --------------------------------------------------------------------------------------------

Taps SomeTaps(int64_t count, int64_t depth) {
  Taps taps;
  taps.offsets.resize(static_cast<size_t>(count));
  taps.depth = depth;
  return taps;
}

TEST(AmxBlocks, StayInTheirCaches) {
  const CacheSizes caches{48 << 10, 2 << 20};
  for (const int64_t rows : {1, 16, 17, 32, 63, 64, 1000, 100000}) {
    for (const int64_t panels : {1, 2, 4, 5, 48, 64, 1000}) {
      for (const int64_t k :
           {1, 64, 65, 576, 577, 768, 1024, 1152, 1153, 2048, 3072, 4096, 5461, 11008, 70000}) {
        for (const int64_t stride : {k, k + 1, 2 * k, int64_t{1} << 20}) {
          for (const int64_t line : {int64_t{7}, int64_t{28}, rows}) {
            SCOPED_TRACE(testing::Message() << rows << " rows, lines of " << line << ", " << panels
                                            << " panels, k " << k << ", " << stride);
            const AmxBlocking blocking =
                ChooseAmxBlocking({rows, std::max(k, stride), line}, panels, SomeTaps(1, k), caches);
            EXPECT_GE(blocking.tile_rows, 1);
            EXPECT_LE(blocking.tile_rows, std::min<int64_t>(rows, kTileRows));
            EXPECT_TRUE(blocking.stages_a || blocking.tile_rows <= line);
            EXPECT_THAT(blocking.row_tiles, testing::AnyOf(1, 2, 4));
            EXPECT_EQ(blocking.depth % kTileDepth, 0);
            EXPECT_LT(blocking.depth - kTileDepth, k);
            EXPECT_EQ(blocking.chunk_panels % kMaxBlockTiles, 0);
            EXPECT_GE(blocking.chunk_panels, kMaxBlockTiles);
            // A panel of the chunk, and the sums that wait for its next depths.
            const int64_t depths = blocking.shares_depths ? blocking.depth : (k + 63) / 64 * 64;
            const int64_t sums = blocking.shares_depths ? blocking.chunk_rows * 4 : 0;
            const int64_t panel_bytes = (depths + sums) * kPanelColumns;
            const bool is_least = blocking.chunk_panels == kMaxBlockTiles;
            EXPECT_TRUE(is_least || blocking.chunk_panels * panel_bytes <= caches.l2_bytes / 2);
            const bool is_cut = blocking.depth < k;
            EXPECT_TRUE(!(blocking.stages_a || is_cut) ||
                        blocking.row_tiles * blocking.tile_rows * blocking.depth <= caches.l1d_bytes * 3 / 4);
            EXPECT_EQ(blocking.shares_depths, k > 5440 && is_cut && blocking.stages_a);
            const int64_t tiles = CeilDivide(rows, blocking.tile_rows);
            EXPECT_EQ(blocking.row_tiles == 4, panels == 1 && tiles >= 4);
            EXPECT_EQ(blocking.b_stays, panels == 4 && k <= 576 && tiles >= 8);
            // Two steps or less: rows of four panels.
            if (blocking.b_stays || (k <= 128 && panels % 4 == 0)) {
              EXPECT_EQ(blocking.row_tiles, 1);
            } else {
              EXPECT_EQ(blocking.row_tiles == 1, tiles == 1);
            }
          }
        }
      }
    }
  }
}

// Rows that L2 holds, and L1 does not hold, are cut in place.
TEST(AmxBlocks, CutRowsInPlace) {
  const CacheSizes caches{48 << 10, 2 << 20};
  const auto depth = [&](int64_t rows, int64_t panels, int64_t k, int64_t stride) {
    const AmxBlocking blocking = ChooseAmxBlocking({rows, stride, rows}, panels, SomeTaps(1, k), caches);
    EXPECT_FALSE(blocking.stages_a);
    return blocking.depth;
  };
  EXPECT_EQ(depth(196, 16, 2304, 2304), 1152);
  EXPECT_EQ(depth(196, 16, 1600, 1600), 832);
  EXPECT_EQ(depth(128, 48, 3072, 3072), 1024);
  EXPECT_EQ(depth(196, 16, 1536, 1536), 1536);  // L1 holds 32 rows
  EXPECT_EQ(depth(196, 4, 2304, 2304), 2304);   // two blocks of columns
  EXPECT_EQ(depth(49, 32, 4608, 4608), 4608);   // two in a chunk
  EXPECT_EQ(depth(16, 8, 4608, 4608), 4608);    // two of one row tile
  EXPECT_EQ(depth(64, 48, 3072, 3072), 3072);   // few rows, and B comes from beyond L2
  EXPECT_EQ(depth(128, 16, 2304, 4096), 2304);  // all rows in the same sets
  // A comes from beyond L2.
  EXPECT_EQ(depth(1024, 48, 3072, 3072), 1024);
  EXPECT_EQ(depth(2048, 128, 2048, 2048), 2048);  // few sets
  // One set, and few panels in a chunk: A is staged.
  for (const int64_t k : {4096, 11072}) {
    EXPECT_TRUE(ChooseAmxBlocking({512, k, 512}, 64, SomeTaps(1, k), caches).stages_a) << k;
  }
}

// The last depths are no whole tile. Loads of them read the next rows, except in the last rows.
TEST(AmxBlocks, LoadTheLastDepthsInPlace) {
  const CacheSizes caches{48 << 10, 2 << 20};
  const auto rows_in_place = [&](int64_t rows, int64_t panels, int64_t k, int64_t stride) {
    return ChooseAmxBlocking({rows, stride, rows}, panels, SomeTaps(1, k), caches).in_place_rows;
  };
  EXPECT_EQ(rows_in_place(100, 4, 128, 200), 100);  // whole tiles
  EXPECT_EQ(rows_in_place(100, 4, 32, 32), 99);
  EXPECT_EQ(rows_in_place(100, 4, 17, 17), 97);
  EXPECT_EQ(rows_in_place(100, 8, 100, 100), 99);
  EXPECT_EQ(rows_in_place(10, 4, 3, 3), 0);
  EXPECT_EQ(rows_in_place(100, 4, 100, 101), 0);   // gaps are not read
  EXPECT_EQ(rows_in_place(100, 32, 100, 100), 0);  // many loads that cross cache lines
  EXPECT_EQ(rows_in_place(8, 32, 100, 100), 7);    // loads of few rows are not slower than products
}

// A deep convolution with lines of seven rows is staged; its 49 rows share depth blocks of all panels.
TEST(AmxBlocks, StageShortLinesOnce) {
  const CacheSizes caches{48 << 10, 2 << 20};
  Taps taps = SomeTaps(3, 1536);
  taps.stages_tiles = StagesLines(7, 512, 32, taps);
  const AmxBlocking blocking = ChooseAmxBlocking({49, 512, 7}, 32, taps, caches);
  EXPECT_TRUE(blocking.stages_a && blocking.shares_depths);
  EXPECT_EQ(blocking.row_tiles, 4);
  EXPECT_EQ(blocking.chunk_rows, 49);
  EXPECT_EQ(blocking.chunk_panels, 32);
}

TEST(AmxBlocks, ReadLongLinesOfWholeTapsInPlace) {
  const CacheSizes caches{48 << 10, 2 << 20};
  const auto choose = [&](int64_t line, int64_t panels, Taps taps, int64_t row_stride = 64) {
    taps.stages_tiles = StagesLines(line, row_stride, panels, taps);
    return ChooseAmxBlocking({1000, row_stride, line}, panels, taps, caches);
  };
  EXPECT_FALSE(choose(56, 4, SomeTaps(3, 192)).stages_a);
  EXPECT_EQ(choose(56, 4, SomeTaps(3, 192)).tile_rows, 14);
  EXPECT_TRUE(choose(56, 4, SomeTaps(3, 188)).stages_a);  // no whole tiles
  EXPECT_TRUE(choose(2, 32, SomeTaps(3, 192)).stages_a);  // short lines
  EXPECT_TRUE(ReadsLinesInPlace(112, 64, 4, 7, 24));      // would need padding to whole tiles
  EXPECT_FALSE(ReadsLinesInPlace(112, 6, 4, 7, 24));      // rows cross cache lines
  EXPECT_FALSE(ReadsLinesInPlace(112, 64, 64, 7, 24));    // padding costs more than it saves with many panels
}

// ----- the engine ------------------------------------------------------------------------------------------

class AmxEngines : public Amx {};

void ExpectTilesAreExact(const std::string& line) {
  Problem problem = tests::Parsed(line);
  problem.isa = INTACT_ISA_AMX_INT8;
  tests::ExpectItsModel(problem, tests::TilesTarget());
}

TEST_F(AmxEngines, AreExactAtEveryEdge) {
  for (int64_t m = 1; m <= 33; ++m) {
    const int64_t n = 1 + m * 7 % 50, k = 1 + m * 37 % 200;
    ExpectTilesAreExact("gemm u8s8s32 m=" + std::to_string(m) + " n=" + std::to_string(n) +
                        " k=" + std::to_string(k) + " za=3 fill=extremes");
  }
  for (int64_t n = 1; n <= 50; ++n) {
    const int64_t m = 1 + n * 11 % 65, k = 1 + n * 53 % 200;
    ExpectTilesAreExact("gemm s8s8s8 m=" + std::to_string(m) + " n=" + std::to_string(n) +
                        " k=" + std::to_string(k) + " za=-7 zc=5 scale=channel bias=f32 apad=1 cpad=2");
  }
  for (int64_t k = 1; k <= 200; ++k) {
    const int64_t m = 1 + k * 5 % 65, n = 1 + k * 3 % 50;
    ExpectTilesAreExact("gemm u8u8u8 m=" + std::to_string(m) + " n=" + std::to_string(n) +
                        " k=" + std::to_string(k) + " za=9 zb=131 zc=128 apad=" + std::to_string(k % 3));
  }
}

TEST_F(AmxEngines, AddResidualsAtEveryEdge) {
  for (int64_t n = 1; n <= 50; ++n) {
    const int64_t m = 1 + n * 11 % 65, k = 1 + n * 53 % 200;
    const std::string shape =
        " m=" + std::to_string(m) + " n=" + std::to_string(n) + " k=" + std::to_string(k);
    ExpectTilesAreExact("gemm u8u8u8" + shape + " zb=131 bias=f32 act=relu res=s8 zres=-3");
    ExpectTilesAreExact("gemm s8s8f32" + shape + " res=f32 inplace=yes");
  }
}

// Rows this far apart do not stay in L2, and they map to one set of L1. So they are staged.
constexpr int64_t kFar = 65536;

TEST_F(AmxEngines, AreExactAroundTheirDepthBlocks) {
  // 32 rows of `depth` fill L1's share for A.
  const int64_t depth = Caches().l1d_bytes * 3 / 4 / 32;
  for (const char* shape : {" m=33 n=81", " m=32 n=100", " m=64 n=16", " m=50 n=64", " m=17 n=130"}) {
    for (const int64_t k : {depth - 1, depth, depth + 1, 2 * depth, 2 * depth + 65}) {
      for (const char* types : {"gemm u8s8s32", "gemm s8s8f32"}) {
        ExpectTilesAreExact(std::string(types) + shape + " k=" + std::to_string(k) +
                            " za=1 wmax=128 apad=" + std::to_string(kFar - k));
      }
    }
  }
}

// Rows are cut in place at whole tiles. The last depth block has fewer tiles, and may end within a tile.
TEST_F(AmxEngines, AreExactWhereRowsInPlaceAreCut) {
  const int64_t held = Caches().l1d_bytes / 32;  // L1 holds 32 rows
  for (const char* gemm : {"gemm u8s8s32 m=64 n=130 za=1 wmax=128", "gemm s8s8f32 m=32 n=189",
                           "gemm u8u8u8 m=45 n=160 zb=131 bias=f32", "gemm s8s8s8 m=100 n=192"}) {
    for (const int64_t k : {held + 1, held + 64, 2 * held + 65, 3 * held}) {
      // A stays in L2 or not.
      for (const int64_t stride : {RoundUp(k, 128) + 65, RoundUp(k, 128) + 65 + kFar / 2}) {
        const std::string line = fmt::format("{} k={} apad={}", gemm, k, stride - k);
        const Problem problem = tests::Parsed(line);
        const AmxBlocking blocking = ChooseAmxBlocking(
            {problem.m, stride, problem.m}, CeilDivide(problem.n, kPanelColumns), SomeTaps(1, k), Caches());
        EXPECT_TRUE(blocking.depth < k && !blocking.stages_a) << line;
        ExpectTilesAreExact(line);
      }
    }
  }
  // A convolution of one tap: its lines are apart.
  ExpectTilesAreExact(fmt::format("conv u8s8u8 in=9x33 c={} o=150 kernel=1x1 stride=2x1 za=3", 2 * held));
}

// Loads of the last depths read the next rows; blocks at the end of a range are staged. Blocks of 1×4, 2×2 and 4×1 tiles,
// sums that kernels store to C, depths that are cut in place, ranges of threads.
TEST_F(AmxEngines, LoadTheLastDepthsInPlace) {
  const int64_t cut = Caches().l1d_bytes / 16 + 65;
  for (const char* gemm : {"gemm u8s8s32 m=150 n=64 za=3", "gemm s8s8s32 m=100 n=33 threads=3",
                           "gemm u8s8u8 m=131 n=128 bias=f32", "gemm u8u8f32 m=77 n=16 zb=131 threads=2"}) {
    for (const int64_t k :
         {int64_t{3}, int64_t{16}, int64_t{32}, int64_t{63}, int64_t{65}, int64_t{127}, cut}) {
      const std::string line = fmt::format("{} k={}", gemm, k);
      const Problem problem = tests::Parsed(line);
      EXPECT_GT(ChooseAmxBlocking({problem.m, k, problem.m}, CeilDivide(problem.n, kPanelColumns),
                                  SomeTaps(1, k), Caches())
                    .in_place_rows,
                0)
          << line;
      ExpectTilesAreExact(line);
    }
  }
  for (const char* conv : {"in=9x13 c=32 o=64 kernel=1x1 batch=2", "in=1x150 c=24 o=40 kernel=1x3 pad=0x1"}) {
    ExpectTilesAreExact(fmt::format("conv u8s8s32 {} za=3", conv));
  }
}

// So deep that row tiles share depth blocks: one to three chunks of rows, one or two chunks of panels.
TEST_F(AmxEngines, AreExactWhereRowTilesShareDepthBlocks) {
  const int64_t k = Caches().l2_bytes / 2 / kPanelColumns / (3 * kMaxBlockTiles) + 65;
  struct Gemm {
    const char* line;
    int64_t row_chunks;
  };
  for (const Gemm& gemm :
       {Gemm{"gemm u8s8s32 m=33 n=81 za=1", 1}, Gemm{"gemm s8s8f32 m=20 n=530", 1},
        Gemm{"gemm u8s8s32 m=289 n=100 wmax=128", 2}, Gemm{"gemm u8u8u8 m=270 n=81 zb=131 bias=f32", 2},
        Gemm{"gemm u8s8s32 m=17 n=600 threads=2", 1}, Gemm{"gemm s8s8s8 m=130 n=100 threads=3", 1},
        Gemm{"gemm u8s8s32 m=520 n=530", 3}}) {
    const std::string line = fmt::format("{} k={} apad={}", gemm.line, k, kFar);
    const Problem problem = tests::Parsed(line);
    const AmxBlocking blocking =
        ChooseAmxBlocking({problem.m, problem.k + kFar, problem.m}, CeilDivide(problem.n, kPanelColumns),
                          SomeTaps(1, problem.k), Caches());
    EXPECT_TRUE(blocking.shares_depths) << line;
    EXPECT_EQ(CeilDivide(problem.m, blocking.chunk_rows), gemm.row_chunks) << line;
    ExpectTilesAreExact(line);
  }
  const int64_t channels = k / 9 + 1;
  ExpectTilesAreExact("conv u8s8u8 in=6x7 c=" + std::to_string(channels) + " o=40 kernel=3x3 pad=1x1 za=3");
  ExpectTilesAreExact("conv u8s8u8 in=7x7 c=512 o=512 kernel=3x3 pad=1x1 za=3");  // four row tiles
}

// Taps that are copied without calls: 8 to 128 bytes, in copies of 8, 16, 32 and 64 bytes.
TEST_F(AmxEngines, StageShortTaps) {
  for (const int width : {3, 5, 7, 9, 11, 21, 22, 42}) {
    ExpectTilesAreExact(
        fmt::format("conv u8s8u8 in=9x90 c=3 o=64 kernel=3x{} pad=1x1 stride=2x2 za=3", width));
  }
  // Of one tap: the last 7 to 63 depths.
  for (const int64_t k : {71, 72, 79, 80, 96, 97, 127, 143}) {
    ExpectTilesAreExact(fmt::format("gemm u8s8s32 m=20 n=40 k={} apad=1", k));
  }
}

// Eight row tiles or more of four panels that L1 keeps: depths that are whole tiles or not, an edge within the last
// panel, more rows than steps to hide their epilogue, several taps, two and more threads.
TEST_F(AmxEngines, KeepFourPanelsInL1) {
  const int64_t most = Caches().l1d_bytes * 3 / 4 / 64;
  for (const int64_t k : {int64_t{65}, int64_t{192}, most - 1, most}) {
    for (const char* gemm :
         {"gemm u8s8s32 m=128 n=64 za=1", "gemm s8s8s8 m=150 n=61 bias=f32", "gemm u8u8f32 m=333 n=64 zb=131",
          "gemm s8s8s32 m=1000 n=64 threads=3", "gemm u8s8u8 m=130 n=64 res=s8 threads=2 apad=3"}) {
      ExpectTilesAreExact(fmt::format("{} k={}", gemm, k));
    }
  }
  for (const char* conv : {"in=9x28 c=64 o=64 kernel=3x3", "in=12x41 c=3 o=64 kernel=7x7 stride=2x2"}) {
    for (const char* type : {"s32", "u8"}) {
      ExpectTilesAreExact(fmt::format("conv u8s8{} {} pad=1x1 za=3", type, conv));
    }
  }
}

TEST_F(AmxEngines, StageStridesThatL1CannotHold) {
  for (const char* line :
       {"gemm u8s8s32 m=40 n=97 k=100 apad=3996", "gemm s8s8u8 m=40 n=97 k=128 apad=3968 zc=9",
        "gemm u8s8s32 m=70 n=9 k=70 apad=4026", "gemm u8s8f32 m=40 n=97 k=3 apad=65533"}) {
    ExpectTilesAreExact(line);
  }
}

// C is larger than L2, or A and B fill L2. Lines of C are stored past the caches, the edge through them.
TEST_F(AmxEngines, StreamLargeOutputs) {
  const int64_t rows = Caches().l2_bytes / 4 / 64 / 4 + 40;  // C has a quarter of L2
  const int64_t depth = Caches().l2_bytes * 3 / 4 / rows + 65;
  ExpectTilesAreExact(fmt::format("gemm u8s8s32 m={} n=64 k={}", rows, depth));
  const int64_t m = Caches().l2_bytes / 4 / 512 + 40;
  for (const char* shape : {" n=512 k=5", " n=504 k=64 cpad=8"}) {
    for (const char* types : {"gemm u8s8s32 m=", "gemm s8s8f32 m="}) {
      ExpectTilesAreExact(types + std::to_string(m) + shape + " threads=2");
    }
  }
}

TEST_F(AmxEngines, AreExactInEveryPartAndThread) {
  for (const char* line :
       {"gemm u8s8s32 m=100 n=150 k=70 threads=2", "gemm s8s8u8 m=65 n=200 k=64 threads=7 zc=1",
        "gemm s8u8s32 m=130 n=33 k=65 zb=7 zbper=channel threads=3"}) {
    ExpectTilesAreExact(line);
  }
}

// Reads tiles from lines in place: lines that are whole tiles or not, odd numbers of tiles in a line, taps
// that are whole tiles or padded to them, and ranges that begin and end within lines.
TEST_F(AmxEngines, ReadLinesInPlace) {
  for (const int width : {12, 13, 16, 17, 23, 28, 31, 33, 45, 50}) {
    const std::string input = " in=5x" + std::to_string(width);
    for (const char* threads : {"", " threads=7"}) {
      ExpectTilesAreExact("conv u8s8u8" + input + " c=64 o=40 kernel=3x3 pad=1x1 za=3 scale=channel" +
                          threads);
      ExpectTilesAreExact("conv s8s8s32" + input + " c=20 o=16 kernel=3x3 pad=1x1 za=-7 batch=2" + threads);
      ExpectTilesAreExact("conv u8u8f32" + input + " c=3 o=33 kernel=5x3 pad=2x1 zb=131 res=u8" + threads);
      ExpectTilesAreExact("conv s8s8s8" + input + " c=70 o=33 kernel=1x1 res=s8 inplace=yes" + threads);
    }
    const std::string twice = " in=9x" + std::to_string(2 * width);
    ExpectTilesAreExact("conv u8s8s32" + twice + " c=64 o=17 kernel=1x1 stride=2x2 apad=5 batch=2");
    ExpectTilesAreExact("conv u8s8u8" + twice + " c=100 o=80 kernel=1x1 stride=2x2 za=9");
    ExpectTilesAreExact("conv s8s8u8" + twice + " c=12 o=48 kernel=3x3 stride=2x2 pad=1x0 za=1 zc=4");
    ExpectTilesAreExact("conv u8s8s32" + twice + " c=64 o=16 kernel=2x2 dilation=2x3");
    for (const char* threads : {"", " threads=3"}) {
      ExpectTilesAreExact("conv u8s8s32" + twice + " c=64 o=32 kernel=1x1 stride=2x2" + threads);
    }
  }
}

// A tile holds the rows of up to three lines, and those between them.
TEST_F(AmxEngines, RunOnIntoTheNextLine) {
  for (const int width : {6, 7, 9, 17}) {
    for (const char* input : {" c=64 kernel=3x3 pad=1x1", " c=128 kernel=1x3 pad=0x1", " c=64 kernel=3x3"}) {
      for (const char* outputs : {" o=16", " o=33", " o=64 batch=2", " o=128 threads=5"}) {
        const std::string problem = " in=11x" + std::to_string(width) + input + outputs;
        ExpectTilesAreExact("conv u8s8u8" + problem + " za=3 scale=channel");
        ExpectTilesAreExact("conv s8s8f32" + problem + " res=u8");
      }
    }
  }
}

// Sums that are stored to C at once: the last tile of a range may have rows of the line beyond the range.
TEST_F(AmxEngines, StoreNoRowsBeyondARange) {
  for (const char* shape : {"in=5x101 c=64 o=496", "in=5x33 c=128 o=1008", "in=6x101 c=64 o=320 threads=2",
                            "in=6x50 c=64 o=320 threads=3"}) {
    ExpectTilesAreExact("conv u8s8s32 kernel=2x2 stride=2x2 pad=1x1 transposed=yes " + std::string(shape));
  }
}

// Taps can be read in place only if they are whole tiles. 24 depths become 64 if lines are long. Nothing is
// padded if lines are short and many columns would pay for the padding.
TEST_F(AmxEngines, PadTheTapsThatTheyReadInPlace) {
  const auto packed_bytes = [](int64_t width, int64_t outputs, intact_isa isa) {
    ConvDesc desc = MakeConvDesc();
    desc.input_channels = 8;
    desc.output_channels = outputs;
    desc.input[0] = 5;
    desc.input[1] = width;
    desc.kernel[0] = desc.kernel[1] = 3;
    desc.linear.max_isa = isa;
    const std::vector<int8_t> weights(static_cast<size_t>(outputs) * 9 * 8, 1);
    const Result<Conv> conv = Conv::Create(desc, weights.data());
    EXPECT_TRUE(conv) << conv.error().message;
    return conv ? conv->Info().packed_bytes : 0;
  };
  EXPECT_GT(packed_bytes(30, 16, INTACT_ISA_AMX_INT8), packed_bytes(30, 16, INTACT_ISA_AVX512_VNNI));
  EXPECT_EQ(packed_bytes(4, 1024, INTACT_ISA_AMX_INT8), packed_bytes(4, 1024, INTACT_ISA_AVX512_VNNI));
}

TEST_F(AmxEngines, PassTheSweep) {
  constexpr intact_isa kIsas[] = {INTACT_ISA_AMX_INT8};
  constexpr intact_mode kModes[] = {INTACT_EXACT};
  const verify::SweepResult result =
      verify::RunSweep(verify::SweepProblems(kIsas, kModes, verify::Effort::kQuick), tests::TilesTarget(),
                       [](int64_t, int64_t) {});
  EXPECT_TRUE(result.Passed());
  for (const verify::SweepFailure& failure : result.failures) {
    ADD_FAILURE() << failure.problem << ": " << failure.reason << "; smallest: " << failure.minimised;
  }
}

TEST_F(AmxEngines, LeaveTheSmallestMToVnni) {
  const std::vector<int8_t> b(size_t{128} * 128);
  GemmDesc desc = MakeGemmDesc();
  desc.n = desc.k = 128;
  desc.linear.max_isa = INTACT_ISA_AMX_INT8;
  const Result<std::unique_ptr<GemmPlan>> plan = MakePlan(desc, desc.linear, b.data());
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ((*plan)->kernel_name(), "u8s8s32_gemm_32x32c4_tdpbusd_amxint8");
  EXPECT_THAT((*plan)->KernelNameFor(1), testing::HasSubstr("_vnni_avx512vnni"));
  EXPECT_EQ((*plan)->KernelNameFor(128), (*plan)->kernel_name());
  bool was_on_tiles = false;  // plans that run on tiles once must always run on tiles
  for (int64_t m = 1; m <= 200; ++m) {
    const bool is_on_tiles = (*plan)->KernelNameFor(m) == (*plan)->kernel_name();
    EXPECT_GE(is_on_tiles, was_on_tiles) << m;
    was_on_tiles = is_on_tiles;
  }
}

}  // namespace
}  // namespace intact::kernels
