#include "kernels/tile_epilogue.h"

#include <array>
#include <cstddef>
#include <string>
#include <vector>

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

constexpr int kByteColumns = 16;  // a quarter of a vector

class TileEpilogue {
 public:
  TileEpilogue(const std::string& name, jit::Isa isa, const EpilogueSpec& spec)
      : spec_(spec),
        session_(name),
        registers_(jit::MakeRegisterFile(isa)),
        emitter_(jit::MakeEmitter(isa, session_.code(), registers_)),
        epilogue_(spec, *emitter_) {}

  Result<const void*> Generate() {
    TakeRegisters();
    session_.Begin(registers_);
    ForTiles([&] { spec_.is_dealt ? StoreBytes() : StoreRows(); });
    session_.End();
    return session_.Finish(registers_);
  }

 private:
  x86::Assembler& code() { return session_.code(); }
  int lanes() const { return emitter_->lanes(); }
  jit::Mem Argument(size_t member) const { return x86::ptr(registers_.Argument(), static_cast<int>(member)); }

  // Callee-saved ones can be taken before Begin() only: others are left to the epilogue.
  void TakeRegisters() {
    std::vector<Gp> left;
    left.reserve(Epilogue::kGeneralRegisters);
    for (int i = 0; i < Epilogue::kGeneralRegisters; ++i) left.push_back(registers_.NewGeneral("left"));
    accumulators_ = registers_.NewGeneral("accumulators");
    stride_ = registers_.NewGeneral("column stride");
    pointers_ = registers_.NewGeneral("row pointers");
    rows_ = registers_.NewGeneral("rows");
    at_ = registers_.NewGeneral("column or row");
    turn_ = registers_.NewGeneral("turn");
    for (const Gp& general : left) registers_.Free(general);
  }

  // Calls tile() for each tile: its columns begin at accumulators_, pointers_ are those of its rows.
  template <class Tile>
  void ForTiles(Tile tile) {
    code().mov(accumulators_, Argument(offsetof(TileEpilogueArgs, accumulators)));
    code().mov(stride_, Argument(offsetof(TileEpilogueArgs, column_stride_bytes)));
    code().mov(pointers_, Argument(offsetof(TileEpilogueArgs, c)));
    code().mov(rows_, Argument(offsetof(TileEpilogueArgs, rows)));
    epilogue_.Prepare(registers_.Argument(), offsetof(TileEpilogueArgs, epilogue));
    const asmjit::Label loop = code().newLabel();
    done_ = code().newLabel();
    const int rows = lanes();
    code().mov(turn_, reinterpret_cast<uint64_t>(kTurnSquares.data()));
    code().bind(loop);
    tile();
    code().add(accumulators_, rows * 4);
    code().add(pointers_, rows * 8);
    code().sub(rows_, rows);
    code().jg(loop);
    code().bind(done_);
  }

  // Calls load(column, address) for each column.
  template <class Load>
  void ForColumns(int columns, Load load) {
    code().mov(at_, accumulators_);
    for (int i = 0; i < columns; ++i) {
      load(i, x86::ptr(at_));
      if (i + 1 < columns) code().add(at_, stride_);
    }
  }

  // Calls store(row, c) for each row.
  template <class Store>
  void ForRows(Store store) {
    for (int row = 0; row < lanes(); ++row) {
      code().mov(at_, x86::ptr(pointers_, row * 8));
      code().add(at_, Argument(offsetof(TileEpilogueArgs, c_offset)));
      store(row, at_);
    }
  }

  // Rows that round up are not stored: they have no residual and no sum.
  void StoreRows() {
    std::vector<Vec> tile;
    ForColumns(lanes(), [&](int, const jit::Mem& from) {
      tile.push_back(registers_.NewVector("accumulators"));
      emitter_->Load(tile.back(), from);
    });
    emitter_->Transpose(&tile);
    ForRows([&](int row, const Gp& c) {
      epilogue_.StoreRow({tile[static_cast<size_t>(row)]}, c);
      if (row + 1 == lanes()) return;
      code().cmp(rows_, row + 1);
      code().je(done_);
    });
  }

  void StoreBytes() {
    std::vector<Vec> fours;  // of columns; quarter q holds rows 4q to 4q + 3, four bytes each
    std::vector<Vec> columns;
    ForColumns(kByteColumns, [&](int column, const jit::Mem& from) {
      columns.push_back(registers_.NewVector("accumulators"));
      emitter_->Load(columns.back(), from);
      if (columns.size() < 4) return;
      epilogue_.PackColumns(columns, column - 3);
      code().vpshufb(columns[0], columns[0], x86::ptr(turn_));
      fours.push_back(columns[0]);
      for (size_t i = 1; i < columns.size(); ++i) registers_.Free(columns[i]);
      columns.clear();
    });
    Interleave(&fours);
    ForRows([&](int row, const Gp& c) {
      emitter_->StoreQuarter(x86::ptr(c), fours[static_cast<size_t>(row % 4)], row / 4);
    });
  }

  // Four by four dwords, in each quarter: then vector i holds row i of each, sixteen bytes.
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

  EpilogueSpec spec_;
  jit::Assembler session_;
  jit::RegisterFile registers_;
  std::unique_ptr<jit::Emitter> emitter_;
  Epilogue epilogue_;
  Gp accumulators_, stride_, pointers_, rows_, at_, turn_;
  asmjit::Label done_;
};

// Whether columns can be requantized on their own.
bool TakesColumns(const EpilogueSpec& epilogue) {
  return ElementBytes(epilogue.c_type) == 1 && !epilogue.has_b_zero_points && !epilogue.has_residual();
}

}  // namespace

int TileColumns(jit::Isa isa, const EpilogueSpec& epilogue) {
  return TakesColumns(epilogue) ? kByteColumns : jit::VectorBytes(isa) / 4;
}

Result<TileEpilogueFunction> GetTileEpilogue(jit::Isa isa, EpilogueSpec epilogue) {
  epilogue.is_dealt = TakesColumns(epilogue);
  const std::string name = epilogue.Name() + "_tile_epilogue_" + jit::CompactName(isa);
  return jit::GetFunction<TileEpilogueFunction>(name,
                                                [&] { return TileEpilogue(name, isa, epilogue).Generate(); });
}

}  // namespace intact::kernels
