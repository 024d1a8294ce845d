// The AMX kernel: a block of up to four tiles of int32 sums, computed on the tile registers.
//
//   a block of 2×2 tiles, 32×32     B panel 0   B panel 1        one step = 64 depths = one tile of A and B
//                                   ┌────────┐  ┌────────┐
//                                   │ 16×64  │  │ 16×64  │       A tile   16 rows × 64 depths, row-major
//                       ┌────────┐  ├────────┤  ├────────┤       B tile   16 quads × 16 columns, 1 KiB of a
//      row tile 0       │ 16×64  │  │ sums 0 │  │ sums 1 │                canonical panel (pack.h)
//                       ├────────┤  ├────────┤  ├────────┤       sums     16×16 int32
//      row tile 1       │ 16×64  │  │ sums 2 │  │ sums 3 │
//                       └────────┘  └────────┘  └────────┘
//
// Rows of a tile are one stride apart. The tiles of a block may lie anywhere, and so may their sums. Tiles
// may have fewer than 16 rows. All tiles of a block have equally many rows.
//
// Blocks of small M or of narrow layers have 1×4 or 4×1 tiles. A dot product has a latency of 52 cycles and
// occupies the unit for 16 cycles. So four independent sums hide the latency. The eight tile registers in
// order: four sums, two of A, two of B. Each operand tile is loaded again as soon as its last dot product is
// issued, so that loads overlap with products. The first-level cache keeps one operand. TILELOADDT1 loads the
// other operand without displacing the first. Usually A stays in the cache and B streams past it.
//
// Sums begin with zeros or with the sums of earlier depths. At the end, sums are stored to memory that stays
// in the first-level cache. Meanwhile the kernel adds the compensation to the previous block and requantizes
// the block, one row after each dot product, because the vector units would otherwise be idle. With
// `b_stays`, rows have four panels, so a row is stored only after the first two products of a step. Tiles
// that load the compensation instead of zeros cost as much as a step, because the kernel is bound by tile
// loads. The sums of shallow blocks may be stored to C itself. Such sums begin with the compensation, as
// their `seed`.
//
// Contract: ScopedTiles has configured the tiles for their number of rows. Per step, the kernel reads rows ×
// 64 depths of A and nothing beyond. Registers follow the System V ABI.
#ifndef INTACT_KERNELS_CODEGEN_AMX_KERNEL_H_
#define INTACT_KERNELS_CODEGEN_AMX_KERNEL_H_

#include <array>
#include <compare>
#include <cstdint>
#include <string>

#include "core/result.h"
#include "jit/function.h"
#include "kernels/codegen/epilogue.h"
#include "kernels/problem/operands.h"

namespace intact::kernels {

inline constexpr int kTileRows = 16;
inline constexpr int kTileDepth = 64;
/// The most tiles of sums in a block (row tiles × panels).
inline constexpr int kMaxBlockTiles = 4;
inline constexpr int64_t kTileBytes = 1024;
/// Of the eight tile registers the first four hold sums, the next two A, the last two B.
inline constexpr int kSumTiles = kMaxBlockTiles;
inline constexpr int kOperandTiles = 2;

/// Depths of A that are adjacent in every row. A step reads 64 bytes of each row.
struct AmxSegment {
  std::array<const uint8_t*, kMaxBlockTiles> a = {};  // row 0 of each row tile
  int64_t a_stride_bytes = 0;                         // from row to row of a tile
  int64_t steps = 0;                                  // at least 1
};

/// Sums of whole panels to be stored to C. If `sums` equals `sums_end`, nothing is stored. A call changes `gap`.
struct AmxStoreArgs {
  const int32_t* sums = nullptr;  // [rows][panels·16]
  const int32_t* sums_end = nullptr;
  // A gap behind each line has sums of no row of C. `gap`: the next one, null if there are none. `gap_bytes`: its
  // size. `line_bytes`: of a line's sums. If the last row ends a line, sums_end lies behind its gap.
  const int32_t* gap = nullptr;
  int64_t gap_bytes = 0, line_bytes = 0;
  const int32_t* compensation = nullptr;  // readable for whole panels, also if nothing is stored
  void* c = nullptr;
  int64_t c_stride_bytes = 0;
  EpilogueArgs epilogue;
};

/// A call changes `segment`, `blocks`, `row_blocks` and `last_b`, and `store.gap` if it stores past a gap.
/// With several blocks or rows of blocks, a call also changes `b`, `seed`, `sums` and `is_loaded`. With
/// several rows of blocks, it also changes the segment's `a`.
struct AmxKernelArgs {
  AmxSegment* segment = nullptr;  // the first segment; there is at least one, in the order of depth
  const AmxSegment* segments_end = nullptr;
  // Adjacent blocks, at least 1. If there are several, there is one segment, and nothing waits in `store`.
  int64_t blocks = 1;
  // Rows of blocks, at least 1. After each row of blocks, next_rows_* are added to the segment's `a`, to
  // `sums`, `b` and `seed`. next_rows_b and next_rows_seed are at most 0.
  int64_t row_blocks = 1;
  int64_t blocks_again = 1;  // `blocks` of each row of blocks after the first
  int64_t next_rows_a = 0, next_rows_sums = 0, next_rows_b = 0, next_rows_seed = 0;  // in bytes
  const int8_t* b = nullptr;  // first panel, at the first depth
  int64_t b_panel_stride_bytes = 0;
  int32_t adds = 0;  // whether `sums` hold the sums of earlier depths, to which the kernel adds
  // Without `adds`: a row of panels·16 values that the sums of each row begin with. Null: sums begin with
  // zeros. `seed_block_bytes`: from block to block; 0 if `seed` is null.
  const int32_t* seed = nullptr;
  int64_t seed_block_bytes = 0;
  // The destination of each row tile's sums: rows of panels·16, sums_stride_bytes apart. Row tiles are stored
  // in order, so the destination of a tile may overlap the last rows of the previous tile.
  std::array<int32_t*, kMaxBlockTiles> sums = {};
  int64_t sums_stride_bytes = 0;
  AmxStoreArgs store;  // the previous block, with the same number of panels; stored before `sums` are written
  // If AmxKernelPrefetches(), a line is fetched into L2 after each dot product. Any address is allowed.
  const uint8_t* prefetch = nullptr;  // the first line
  int64_t prefetch_stride_bytes = 0;  // from a line to the next
  int64_t prefetch_step_bytes = 0;    // additional distance at the end of each step
  // The first operands of the next call, which has the same numbers of row tiles and panels. This call loads them
  // during its last products. next_b is the first panel at the first depth; null: nothing is loaded.
  // `is_loaded`: the previous call loaded the first operands of this call.
  std::array<const uint8_t*, kMaxBlockTiles> next_a = {};
  int64_t next_a_stride_bytes = 0;
  const int8_t* next_b = nullptr;
  int32_t is_loaded = 0;
  // The kernel keeps the address of B's last tile here, because it has too few registers.
  const int8_t* last_b = nullptr;
};

using AmxKernelFunction = jit::Function<void(AmxKernelArgs*)>;
using AmxStoreFunction = jit::Function<void(AmxStoreArgs*)>;

struct AmxKernelSpec {
  bool a_signed = false, b_signed = true;
  int row_tiles = 2;  // 1, 2 or 4; row_tiles·panels ≤ kMaxBlockTiles
  int panels = 2;
  EpilogueSpec epilogue;
  int width = kPanelColumns;  // columns of a packed panel
  bool b_stays = false;       // L1 keeps B, and A streams past it; else L1 keeps A
  std::string Name() const;   // "u8s8s32_gemm_32x32c4_tdpbusd_amxint8"
  auto operator<=>(const AmxKernelSpec&) const = default;
};

/// Whether a kernel prefetches. If a block uses each line of A or B only once, the hardware prefetches,
/// because the kernel would have to prefetch as fast as it reads.
constexpr bool AmxKernelPrefetches(int row_tiles, int panels) { return row_tiles == 2 && panels == 2; }

Result<AmxKernelFunction> GetAmxKernel(const AmxKernelSpec& spec);

/// A kernel that only stores a finished block, without computing another one.
struct AmxStoreSpec {
  int panels = 2;
  EpilogueSpec epilogue;
  std::string Name() const;  // "s32_store_32_amxint8"
  auto operator<=>(const AmxStoreSpec&) const = default;
};

Result<AmxStoreFunction> GetAmxStore(const AmxStoreSpec& spec);

/// The operand of LDTILECFG (palette 1).
struct TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  std::array<uint8_t, 14> reserved = {};
  std::array<uint16_t, 16> row_bytes = {};  // for each tile register
  std::array<uint8_t, 16> rows = {};        // for each tile register
};
static_assert(sizeof(TileConfig) == 64);

/// The configuration for row tiles of `rows` rows, 1 to 16, and `depth` depths, a multiple of 4 up to 64. It serves blocks of any
/// shape. Sums have 16 columns.
TileConfig TileConfigFor(int64_t rows, int64_t depth = kTileDepth);

/// Generated functions that execute LDTILECFG and TILERELEASE. Copies of this object share the code.
struct TileFunctions {
  jit::Function<void(const TileConfig*)> configure;
  jit::Function<void()> release;
};

/// CODEGEN_FAILED if the functions cannot be made.
Result<TileFunctions> GetTileFunctions();

/// Keeps the calling thread's tile registers configured, from the first Configure() until the destructor
/// releases them.
class ScopedTiles {
 public:
  /// `functions` must outlive this object.
  explicit ScopedTiles(const TileFunctions& functions) : functions_(functions) {}
  ~ScopedTiles();
  ScopedTiles(const ScopedTiles&) = delete;
  ScopedTiles& operator=(const ScopedTiles&) = delete;

  /// Loads TileConfigFor(rows, depth). This clears the tiles.
  void Configure(int64_t rows, int64_t depth = kTileDepth) noexcept;

 private:
  const TileFunctions& functions_;
  bool is_configured_ = false;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CODEGEN_AMX_KERNEL_H_
