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

class TileEpilogue {
 public:
  TileEpilogue(const std::string& name, jit::Isa isa, const EpilogueSpec& spec)
      : spec_(spec),
        session_(name),
        registers_(jit::MakeRegisterFile(isa)),
        emitter_(jit::MakeEmitter(isa, session_.code(), registers_)),
        epilogue_(spec, *emitter_) {}

  Result<const void*> Generate() {
    session_.Begin(registers_);
    spec_.is_dealt ? StoreBytes() : StoreRows();
    session_.End();
    return session_.Finish(registers_);
  }

 private:
  x86::Assembler& code() { return session_.code(); }
  int lanes() const { return emitter_->lanes(); }
  jit::Mem Argument(size_t member) const { return x86::ptr(registers_.Argument(), static_cast<int>(member)); }

  // Calls load(column) for each column, with from_ at its accumulators.
  template <class Load>
  void ForColumns(Load load) {
    const Gp from = registers_.NewGeneral("from");
    const Gp stride = registers_.NewGeneral("column stride");
    code().mov(from, Argument(offsetof(TileEpilogueArgs, accumulators)));
    code().mov(stride, Argument(offsetof(TileEpilogueArgs, column_stride_bytes)));
    for (int i = 0; i < lanes(); ++i) {
      load(i, x86::ptr(from));
      code().add(from, stride);
    }
    registers_.Free(from);
    registers_.Free(stride);
  }

  // Calls store(row, c) for each row to store.
  template <class Store>
  void ForRows(Store store) {
    const Gp rows = registers_.NewGeneral("rows");
    const Gp pointers = registers_.NewGeneral("row pointers");
    const Gp c = registers_.NewGeneral("c");
    code().mov(rows, Argument(offsetof(TileEpilogueArgs, rows)));
    code().mov(pointers, Argument(offsetof(TileEpilogueArgs, c)));
    const asmjit::Label done = code().newLabel();
    for (int row = 0; row < lanes(); ++row) {
      code().mov(c, x86::ptr(pointers, row * 8));
      store(row, c);
      code().dec(rows);
      code().jz(done);
    }
    code().bind(done);
  }

  // Turned first, then requantized row by row.
  void StoreRows() {
    std::vector<Vec> tile;
    ForColumns([&](int, const jit::Mem& from) {
      tile.push_back(registers_.NewVector("accumulators"));
      emitter_->Load(tile.back(), from);
    });
    emitter_->Transpose(&tile);
    epilogue_.Prepare(registers_.Argument(), offsetof(TileEpilogueArgs, epilogue));
    ForRows([&](int row, const Gp& c) { epilogue_.StoreRow({tile[static_cast<size_t>(row)]}, c); });
  }

  // Requantized column by column, and turned as bytes: a quarter of the work.
  void StoreBytes() {
    epilogue_.Prepare(registers_.Argument(), offsetof(TileEpilogueArgs, epilogue));
    const Gp turn = registers_.NewGeneral("turn");
    code().mov(turn, reinterpret_cast<uint64_t>(kTurnSquares.data()));
    std::vector<Vec> fours;  // of columns; quarter q holds rows 4q to 4q + 3, four bytes each
    std::vector<Vec> columns;
    ForColumns([&](int column, const jit::Mem& from) {
      columns.push_back(registers_.NewVector("accumulators"));
      emitter_->Load(columns.back(), from);
      if (columns.size() < 4) return;
      epilogue_.PackColumns(columns, column - 3);
      code().vpshufb(columns[0], columns[0], x86::ptr(turn));
      fours.push_back(columns[0]);
      for (size_t i = 1; i < columns.size(); ++i) registers_.Free(columns[i]);
      columns.clear();
    });
    Interleave(&fours);
    // A vector holds rows of lanes() bytes: in each quarter those of a row number (modulo 4), or of two.
    const int per_quarter = 16 / lanes();
    ForRows([&](int row, const Gp& c) {
      const int vector = row % 4 / per_quarter;
      const int part = row / 4 * per_quarter + row % per_quarter;
      emitter_->StorePart(x86::ptr(c), fours[static_cast<size_t>(vector)], part);
    });
  }

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
    for (size_t i = 0; i < v.size(); i += 2) step(i, i + 1, true);
    if (v.size() == 4) {
      step(0, 2, false);  // rows 0 and 1 of each quarter
      step(1, 3, false);  // rows 2 and 3
      std::swap(v[1], v[2]);
    }
    registers_.Free(spare);
  }

  EpilogueSpec spec_;
  jit::Assembler session_;
  jit::RegisterFile registers_;
  std::unique_ptr<jit::Emitter> emitter_;
  Epilogue epilogue_;
};

}  // namespace

Result<TileEpilogueFunction> GetTileEpilogue(jit::Isa isa, EpilogueSpec epilogue) {
  epilogue.is_dealt =
      ElementBytes(epilogue.c_type) == 1 && !epilogue.has_b_zero_points && !epilogue.has_residual();
  const std::string name = epilogue.Name() + "_tile_epilogue_" + jit::CompactName(isa);
  return jit::GetFunction<TileEpilogueFunction>(name,
                                                [&] { return TileEpilogue(name, isa, epilogue).Generate(); });
}

}  // namespace intact::kernels
