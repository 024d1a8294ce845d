// The generated function of row_sums.h.
#include <array>
#include <cstddef>
#include <string>

#include "core/isas.h"
#include "core/result.h"
#include "jit/assembler.h"
#include "jit/emitters/dot.h"
#include "jit/emitters/emitter.h"
#include "kernels/codegen/row_sums.h"
#include "kernels/weights/pack.h"

namespace intact::kernels {
namespace {

namespace x86 = asmjit::x86;
using jit::Gp;
using jit::Mem;
using jit::Vec;

}  // namespace

Result<jit::Code> RowSums::Generate(const Spec& spec) {
  const uint8_t shift = ActivationShift(spec.a_type);
  jit::Assembler session((shift != 0 ? "s8_row_sums_4_" : "u8_row_sums_4_") + core::CompactName(spec.isa));
  jit::RegisterFile registers = jit::MakeRegisterFile(spec.isa);
  const auto emitter = jit::MakeEmitter(spec.isa, session.code(), registers);
  x86::Assembler& code = session.code();
  const auto argument = [&](size_t member) {
    return x86::ptr(registers.Argument(), static_cast<int>(member));
  };
  const Gp rows = registers.NewGeneral("rows");
  const Gp a = registers.NewGeneral("a");
  const Gp stride = registers.NewGeneral("stride");
  const Gp stride3 = registers.NewGeneral("3 strides");
  const Gp vectors = registers.NewGeneral("vectors");
  const Gp fours = registers.NewGeneral("fours");
  const Gp to = registers.NewGeneral("sums");
  session.Begin(registers);

  code.mov(rows, argument(offsetof(Args, a)));
  code.mov(stride, argument(offsetof(Args, stride)));
  code.lea(stride3, x86::ptr(stride, stride, 1));
  code.mov(fours, argument(offsetof(Args, fours)));
  code.mov(to, argument(offsetof(Args, sums)));
  const Vec zero = registers.NewVector("zero");
  emitter->Zero(zero);
  Vec shifts;
  if (shift != 0) {
    shifts = jit::NewOnes(*emitter);
    code.vpsllw(shifts, shifts, 15);
    code.vpacksswb(shifts, shifts, shifts);  // −128: adding it shifts a byte to u8
  }
  std::array<Vec, kRows> sums;
  for (Vec& sum : sums) sum = registers.NewVector("sum");
  const Vec bytes = registers.NewVector("bytes");
  const asmjit::Label four = code.newLabel();
  const asmjit::Label loop = code.newLabel();
  code.bind(four);
  code.mov(a, rows);
  code.mov(vectors, argument(offsetof(Args, vectors)));
  for (const Vec& sum : sums) emitter->Zero(sum);
  code.bind(loop);
  const std::array<Mem, kRows> row = {x86::ptr(a), x86::ptr(a, stride), x86::ptr(a, stride, 1),
                                      x86::ptr(a, stride3)};
  for (size_t i = 0; i < kRows; ++i) {
    emitter->Load(bytes, row[i]);
    if (shift != 0) code.vpaddb(bytes, bytes, shifts);
    code.vpsadbw(bytes, bytes, zero);
    code.vpaddd(sums[i], sums[i], bytes);
  }
  code.add(a, registers.vector_bytes());
  code.dec(vectors);
  code.jnz(loop);
  emitter->AddLaneSums(x86::ptr(to), sums);
  code.lea(rows, x86::ptr(rows, stride, 2));
  code.add(to, kRows * static_cast<int>(sizeof(int32_t)));
  code.dec(fours);
  code.jnz(four);
  session.End();
  return session.Finish(registers);
}

}  // namespace intact::kernels
