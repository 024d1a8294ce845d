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
// may have fewer than 16 rows, the same number for all tiles of a block: a dot product takes a cycle per row.
//
// Small M and narrow layers take 1×4 or 4×1 tiles: four sums hide the latency of a dot product, 52 cycles, of
// which it occupies the unit for 16. The eight tile registers in order: four sums, two of A, two of B. Each
// operand tile is loaded again as soon as its last dot product is issued, so that loads overlap with
// products. B is loaded by TILELOADDT1, which does not displace A from the first-level cache.
//
// Sums start from `seed`: a row of compensation (stride 0 repeats it), which costs no more instructions than
// zeroing, or the sums of earlier depths. They end in memory, in a block that stays in the first-level cache.
// While a kernel multiplies, it requantizes the previous block, a row after each dot product: otherwise the
// vector units would be idle.
//
// Contract: tiles are configured by ScopedTiles for their rows; per step, the kernel reads rows × 64 depths
// of A and nothing beyond; registers follow the System V ABI.
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

/// Depths of A that are adjacent in every row. A step reads 64 bytes of each row.
struct AmxSegment {
  std::array<const uint8_t*, kMaxBlockTiles> a = {};  // row 0 of each row tile
  int64_t a_stride_bytes = 0;                         // from row to row of a tile
  int64_t steps = 0;                                  // at least 1
};

/// Sums of whole panels to be stored to C. If `sums` equals `sums_end`, nothing is stored.
struct AmxStoreArgs {
  const int32_t* sums = nullptr;  // [rows][panels·16]
  const int32_t* sums_end = nullptr;
  void* c = nullptr;
  int64_t c_stride_bytes = 0;
  EpilogueArgs epilogue;
};

struct AmxKernelArgs {
  const AmxSegment* segment = nullptr;  // the first of at least one segment, in the order of depth
  const AmxSegment* segments_end = nullptr;
  const int8_t* b = nullptr;  // first panel, at the first depth
  int64_t b_panel_stride_bytes = 0;
  int64_t seed_stride_bytes = 0;                         // 0: one row for all rows of a tile
  std::array<const int32_t*, kMaxBlockTiles> seed = {};  // of each row tile
  // Where each row tile's sums go, [rows][panels·16]; may be `seed`. They are written in the order of the row
  // tiles, so a tile may overwrite the last rows of the tile before it.
  std::array<int32_t*, kMaxBlockTiles> sums = {};
  AmxStoreArgs store;  // the previous block, with the same number of panels; stored before `sums` are written
  // If AmxKernelPrefetches(): a line is fetched into L2 after each dot product. The first line, the distance
  // to the next, and an additional distance at the end of a step. Any address is allowed.
  const uint8_t* prefetch = nullptr;
  int64_t prefetch_stride_bytes = 0;
  int64_t prefetch_step_bytes = 0;
  const int8_t* last_b = nullptr;  // for the kernel, which lacks registers for it and for `segment`
};

using AmxKernelFunction = jit::Function<void(AmxKernelArgs*)>;
using AmxStoreFunction = jit::Function<void(const AmxStoreArgs*)>;

struct AmxKernelSpec {
  bool a_signed = false, b_signed = true;
  int row_tiles = 2;  // 1, 2 or 4; row_tiles·panels ≤ kMaxBlockTiles
  int panels = 2;
  EpilogueSpec epilogue;
  int width = kPanelColumns;  // PackedWeights::width
  std::string Name() const;   // "u8s8s32_gemm_32x32c4_tdpbusd_amxint8"
  auto operator<=>(const AmxKernelSpec&) const = default;
};

/// Whether a kernel prefetches. Blocks that use each line of A or B only once leave prefetching to the
/// hardware: they would have to fetch as fast as they read.
constexpr bool AmxKernelPrefetches(int row_tiles, int panels) { return row_tiles == 2 && panels == 2; }

Result<AmxKernelFunction> GetAmxKernel(const AmxKernelSpec& spec);

/// Stores a block by itself.
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
  std::array<uint16_t, 16> row_bytes = {};  // of each tile
  std::array<uint8_t, 16> rows = {};
};
static_assert(sizeof(TileConfig) == 64);

/// For row tiles of `rows` rows, 1 to 16, in blocks of any shape.
TileConfig TileConfigFor(int64_t rows);

/// Emitted LDTILECFG and TILERELEASE. All copies share the code.
struct TileFunctions {
  jit::Function<void(const TileConfig*)> configure;
  jit::Function<void()> release;
};

/// CODEGEN_FAILED if the functions cannot be made.
Result<TileFunctions> GetTileFunctions();

/// The calling thread's tiles, from the first Configure() until this is destroyed.
class ScopedTiles {
 public:
  /// `functions` must outlive this object.
  explicit ScopedTiles(const TileFunctions& functions) : functions_(functions) {}
  ~ScopedTiles();
  ScopedTiles(const ScopedTiles&) = delete;
  ScopedTiles& operator=(const ScopedTiles&) = delete;

  /// Configures the tiles as TileConfigFor(rows) says, and clears them.
  void Configure(int64_t rows) noexcept;

 private:
  const TileFunctions& functions_;
  bool is_configured_ = false;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CODEGEN_AMX_KERNEL_H_
