#include "kernels/tile_epilogue.h"

#include <cstddef>
#include <string>
#include <vector>

#include "jit/assembler.h"
#include "jit/code_cache.h"

namespace intact::kernels {
namespace {

namespace x86 = asmjit::x86;

Result<const void*> Generate(const std::string& name, jit::Isa isa, const EpilogueSpec& spec) {
  jit::Assembler session(name);
  jit::RegisterFile registers = jit::MakeRegisterFile(isa);
  const auto emitter = jit::MakeEmitter(isa, session.code(), registers);
  Epilogue epilogue(spec, *emitter);
  x86::Assembler& code = session.code();
  const auto argument = [&](size_t member) {
    return x86::ptr(registers.Argument(), static_cast<int>(member));
  };
  session.Begin(registers);

  const jit::Gp from = registers.NewGeneral("from");
  const jit::Gp column_stride = registers.NewGeneral("column stride");
  code.mov(from, argument(offsetof(TileEpilogueArgs, accumulators)));
  code.mov(column_stride, argument(offsetof(TileEpilogueArgs, column_stride_bytes)));
  std::vector<jit::Vec> tile;
  for (int i = 0; i < emitter->lanes(); ++i) {
    tile.push_back(registers.NewVector("accumulators"));
    emitter->Load(tile.back(), x86::ptr(from));
    code.add(from, column_stride);
  }
  emitter->Transpose(&tile);
  registers.Free(from);
  registers.Free(column_stride);

  const jit::Gp rows = registers.NewGeneral("rows");
  const jit::Gp c = registers.NewGeneral("c");
  const jit::Gp c_stride = registers.NewGeneral("c stride");
  code.mov(rows, argument(offsetof(TileEpilogueArgs, rows)));
  code.mov(c, argument(offsetof(TileEpilogueArgs, c)));
  code.mov(c_stride, argument(offsetof(TileEpilogueArgs, c_stride_bytes)));
  epilogue.Prepare(registers.Argument(), offsetof(TileEpilogueArgs, epilogue));
  const asmjit::Label done = code.newLabel();
  for (const jit::Vec& row : tile) {
    epilogue.StoreRow({row}, c);
    code.add(c, c_stride);
    code.dec(rows);
    code.jz(done);
  }
  code.bind(done);
  session.End();
  return session.Finish(registers);
}

}  // namespace

Result<TileEpilogueFunction> GetTileEpilogue(jit::Isa isa, const EpilogueSpec& epilogue) {
  const std::string name = epilogue.Name() + "_tile_epilogue_" + jit::CompactName(isa);
  const Result<const void*> function =
      jit::GetOrGenerate(name, [&] { return Generate(name, isa, epilogue); });
  if (!function) return function.error();
  return reinterpret_cast<TileEpilogueFunction>(const_cast<void*>(*function));
}

}  // namespace intact::kernels
