// The epilogue for accumulators that lie in memory, column by column: turns a square of lanes × lanes of them
// and requantizes it with the one emitted requantization (epilogue.h).
#ifndef INTACT_KERNELS_TILE_EPILOGUE_H_
#define INTACT_KERNELS_TILE_EPILOGUE_H_

#include <cstdint>
#include <intact/intact.hpp>

#include "jit/isa.h"
#include "kernels/epilogue.h"

namespace intact::kernels {

struct TileEpilogueArgs {
  const int32_t* accumulators = nullptr;  // lanes columns of lanes rows
  int64_t column_stride_bytes = 0;
  int64_t rows = 0;             // to store, 1 to lanes
  uint8_t* const* c = nullptr;  // where each of them goes
  EpilogueArgs epilogue;
};

using TileEpilogueFunction = void (*)(const TileEpilogueArgs*);

/// Reads lanes × lanes accumulators and stores the first `rows` rows of lanes columns.
Result<TileEpilogueFunction> GetTileEpilogue(jit::Isa isa, EpilogueSpec epilogue);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_TILE_EPILOGUE_H_
