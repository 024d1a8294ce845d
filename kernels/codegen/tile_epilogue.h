// The epilogue for accumulators that lie in memory, column by column: turns tiles of them and requantizes
// these with the one emitted requantization (epilogue.h).
//
//   4-byte outputs, or with a residual    lanes rows × lanes columns: turned, then requantized row by row
//   8-bit outputs                         lanes rows × 16 columns: requantized column by column, and turned
//                                         as bytes, a quarter of the work
#ifndef INTACT_KERNELS_CODEGEN_TILE_EPILOGUE_H_
#define INTACT_KERNELS_CODEGEN_TILE_EPILOGUE_H_

#include <cstdint>
#include <intact/intact.hpp>

#include "jit/function.h"
#include "jit/isa.h"
#include "kernels/codegen/epilogue.h"

namespace intact::kernels {

struct TileEpilogueArgs {
  const int32_t* accumulators = nullptr;  // columns of `rows` rows, rounded up to whole vectors
  int64_t rows = 0;                       // ≥ 1
  uint8_t* const* c = nullptr;            // where each of them goes; rounded up likewise
  int64_t c_offset = 0;                   // bytes, added to each
  EpilogueArgs epilogue;
};

using TileEpilogueFunction = jit::Function<void(const TileEpilogueArgs*)>;

/// Columns of a tile.
int TileColumns(jit::Isa isa, const EpilogueSpec& epilogue);

/// Stores rows of a tile's columns, one below the other; `tile_rows` from a column of accumulators to the
/// next. Rows that round up TileEpilogueArgs::rows may be stored or not.
Result<TileEpilogueFunction> GetTileEpilogue(jit::Isa isa, EpilogueSpec epilogue, int tile_rows);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CODEGEN_TILE_EPILOGUE_H_
