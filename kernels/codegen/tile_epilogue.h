// The epilogue for accumulators that lie in memory, column by column: transposes tiles of accumulators, and
// requantizes them with the code of epilogue.h.
//
//   rows with values or a residual  lanes / 2 rows × lanes columns: transposed, then requantized row by row
//   else, outputs wider than 8 bit  lanes / 2 rows × 16 columns: as above; each row is stored whole
//   else, 8-bit outputs             lanes rows × 16 columns: requantized column by column, and transposed as
//                                   bytes, a quarter of the work
#ifndef INTACT_KERNELS_CODEGEN_TILE_EPILOGUE_H_
#define INTACT_KERNELS_CODEGEN_TILE_EPILOGUE_H_

#include <cstdint>

#include "core/isas.h"
#include "core/result.h"
#include "jit/function.h"
#include "kernels/codegen/epilogue.h"

namespace intact::kernels {

struct TileEpilogueArgs {
  const int32_t* accumulators = nullptr;  // columns of `rows` rows, rounded up to whole vectors
  int64_t rows = 0;                       // ≥ 1
  uint8_t* const* c = nullptr;            // the destination of each row; rounded up to whole vectors too
  int64_t c_offset = 0;                   // bytes that are added to each of `c`
  EpilogueArgs epilogue;
};

using TileEpilogueFunction = jit::Function<void(const TileEpilogueArgs*)>;

/// The most columns of a tile.
int TileColumns(core::Isa isa, const EpilogueSpec& epilogue);

/// Stores the rows of a tile's columns. Columns of accumulators are `tile_rows` apart. `columns`:
/// TileColumns(); or the columns of a vector, if outputs are not 8-bit. Rows beyond TileEpilogueArgs::rows,
/// up to a whole vector, may be stored or not.
Result<TileEpilogueFunction> GetTileEpilogue(core::Isa isa, EpilogueSpec epilogue, int tile_rows,
                                             int columns);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CODEGEN_TILE_EPILOGUE_H_
