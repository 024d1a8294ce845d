#include "kernels/codegen/tile_epilogue.h"

#include <array>
#include <compare>
#include <cstddef>
#include <string>
#include <vector>

#include "core/isas.h"
#include "core/types.h"
#include "jit/assembler.h"
#include "jit/code_cache.h"

namespace intact::kernels {
namespace {

namespace x86 = asmjit::x86;
using jit::Gp;
using jit::Vec;

// Four columns of four rows of bytes → four rows of four columns, in each 128-bit quarter.
alignas(64) constexpr std::array<uint8_t, 64> kTurnSquares = [] {
  std::array<uint8_t, 64> shuffle{};
  for (size_t i = 0; i < shuffle.size(); ++i) shuffle[i] = static_cast<uint8_t>(i % 4 * 4 + i / 4 % 4);
  return shuffle;
}();

constexpr int kTileColumns = 16;  // a line of 4-byte outputs, a quarter of a vector of bytes

struct TileEpilogueSpec {
  core::Isa isa = core::Isa::kAvx2;
  EpilogueSpec epilogue;
  int tile_rows = 0;
  int columns = 0;
  auto operator<=>(const TileEpilogueSpec&) const = default;
  std::string Name() const {
    return epilogue.Name() + "_tile_epilogue_" + std::to_string(tile_rows) + "x" + std::to_string(columns) +
           "_" + core::CompactName(isa);
  }
};

class TileEpilogue {
 public:
  explicit TileEpilogue(const TileEpilogueSpec& spec)
      : spec_(spec),
        session_([this] { return spec_.Name(); }),
        registers_(jit::MakeRegisterFile(spec.isa)),
        emitter_(jit::MakeEmitter(spec.isa, session_.code(), registers_)),
        epilogue_(spec.epilogue, *emitter_) {}

  Result<jit::Code> Generate() {
    TakeRegisters();
    session_.Begin(registers_);
    if (spec_.epilogue.variant.is_quartered) {
      ForTiles(lanes(), [&] { StoreBytes(); });
    } else {
      ForTiles(lanes() / 2, [&] { StoreRows(); });
    }
    session_.End();
    return session_.Finish(registers_);
  }

 private:
  x86::Assembler& code() { return session_.code(); }
  int lanes() const { return emitter_->lanes(); }
  jit::Mem Argument(size_t member) const { return x86::ptr(registers_.Argument(), static_cast<int>(member)); }

  // Callee-saved registers can be taken only before Begin(). Leaves scratch registers to the epilogue.
  void TakeRegisters() {
    std::vector<Gp> left;
    left.reserve(Epilogue::kGeneralRegisters);
    for (int i = 0; i < Epilogue::kGeneralRegisters; ++i) left.push_back(registers_.NewGeneral("left"));
    accumulators_ = registers_.NewGeneral("accumulators");
    c_offset_ = registers_.NewGeneral("offset in c");
    pointers_ = registers_.NewGeneral("row pointers");
    rows_ = registers_.NewGeneral("rows");
    row_ = registers_.NewGeneral("row");
    turn_ = registers_.NewGeneral("turn");
    for (const Gp& general : left) registers_.Free(general);
  }

  // Calls tile() for each tile of `rows` rows: its columns begin at accumulators_, the pointers to its rows at
  // pointers_.
  template <class Tile>
  void ForTiles(int rows, Tile tile) {
    code().mov(accumulators_, Argument(offsetof(TileEpilogueArgs, accumulators)));
    code().mov(c_offset_, Argument(offsetof(TileEpilogueArgs, c_offset)));
    code().mov(pointers_, Argument(offsetof(TileEpilogueArgs, c)));
    code().mov(rows_, Argument(offsetof(TileEpilogueArgs, rows)));
    epilogue_.Prepare(registers_.Argument(), offsetof(TileEpilogueArgs, epilogue));
    const asmjit::Label loop = code().newLabel();
    code().mov(turn_, reinterpret_cast<uint64_t>(kTurnSquares.data()));
    code().bind(loop);
    tile();
    code().add(accumulators_, rows * 4);
    code().add(pointers_, rows * 8);
    code().sub(rows_, rows);
    code().jg(loop);
  }

  jit::Mem Column(int column) const { return x86::ptr(accumulators_, column * spec_.tile_rows * 4); }

  // The number of rows is half of the number of lanes. Rows beyond the tile's are not stored: they have no
  // residual and no values.
  void StoreRows() {
    const auto rows = static_cast<size_t>(lanes()) / 2;
    std::vector<std::vector<Vec>> tile(rows);  // by row
    for (int column = 0; column < spec_.columns; column += lanes()) {
      std::vector<jit::Mem> columns;
      columns.reserve(static_cast<size_t>(lanes()));
      for (int i = 0; i < lanes(); ++i) columns.push_back(Column(column + i));
      std::vector<Vec> vectors(rows);
      for (Vec& vector : vectors) vector = registers_.NewVector("accumulators");
      emitter_->LoadTransposed(columns, &vectors);
      for (size_t row = 0; row < rows; ++row) tile[row].push_back(vectors[row]);
    }
    const asmjit::Label stored = code().newLabel();
    for (size_t row = 0; row < rows; ++row) {
      const int number = static_cast<int>(row);
      code().mov(row_, x86::ptr(pointers_, number * 8));
      epilogue_.StoreRow(tile[row], x86::ptr(row_, c_offset_));
      if (row + 1 == rows) break;
      code().cmp(rows_, number + 1);
      code().je(stored);
    }
    code().bind(stored);
    for (const std::vector<Vec>& row : tile) {
      for (const Vec& vector : row) registers_.Free(vector);
    }
  }

  void StoreBytes() {
    std::vector<Vec> fours;  // four columns each; quarter q holds rows 4q to 4q + 3, four bytes each
    for (int first = 0; first < kTileColumns; first += 4) {
      std::vector<jit::Mem> columns;
      std::vector<Vec> packed;
      for (int column = first; column < first + 4; ++column) {
        columns.push_back(Column(column));
        packed.push_back(registers_.NewVector("accumulators"));
      }
      epilogue_.PackColumns(columns, first, packed);
      code().vpshufb(packed[0], packed[0], x86::ptr(turn_));
      fours.push_back(packed[0]);
      for (size_t i = 1; i < packed.size(); ++i) registers_.Free(packed[i]);
    }
    Interleave(&fours);
    for (int row = 0; row < lanes(); ++row) {
      code().mov(row_, x86::ptr(pointers_, row * 8));
      emitter_->StorePart(x86::ptr(row_, c_offset_), fours[static_cast<size_t>(row % 4)], 16, row / 4);
    }
  }

  // Transposes 4×4 dwords in each quarter: then vector i holds row i of each quarter, sixteen bytes.
  void Interleave(std::vector<Vec>* fours) {
    std::vector<Vec>& v = *fours;
    const Vec spare = registers_.NewVector("spare");
    const auto step = [&](size_t x, size_t y, bool of_dwords) {
      emitter_->Copy(spare, v[x]);
      if (of_dwords) {
        code().vpunpckldq(v[x], spare, v[y]);
        code().vpunpckhdq(v[y], spare, v[y]);
      } else {
        code().vpunpcklqdq(v[x], spare, v[y]);
        code().vpunpckhqdq(v[y], spare, v[y]);
      }
    };
    step(0, 1, true);
    step(2, 3, true);
    step(0, 2, false);  // rows 0 and 1
    step(1, 3, false);  // rows 2 and 3
    std::swap(v[1], v[2]);
    registers_.Free(spare);
  }

  TileEpilogueSpec spec_;
  jit::Assembler session_;
  jit::RegisterFile registers_;
  std::unique_ptr<jit::Emitter> emitter_;
  Epilogue epilogue_;
  Gp accumulators_, c_offset_, pointers_, rows_, row_, turn_;
};

// Whether rows have values or a residual. The epilogue reads these once, when it stores the row.
bool HasRowOperands(const EpilogueSpec& epilogue) {
  return epilogue.has_row_values() || epilogue.has_residual();
}

}  // namespace

int TileColumns(core::Isa isa, const EpilogueSpec& epilogue) {
  return HasRowOperands(epilogue) ? jit::VectorBytes(isa) / 4 : kTileColumns;
}

Result<TileEpilogueFunction> GetTileEpilogue(core::Isa isa, EpilogueSpec epilogue, int tile_rows,
                                             int columns) {
  epilogue.variant.is_quartered = core::BytesOf(epilogue.c_type) == 1 && !HasRowOperands(epilogue);
  return jit::GetFunction<TileEpilogueFunction>(
      TileEpilogueSpec{isa, epilogue, tile_rows, columns},
      [](const TileEpilogueSpec& spec) { return TileEpilogue(spec).Generate(); });
}

}  // namespace intact::kernels
