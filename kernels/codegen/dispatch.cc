#include "kernels/codegen/dispatch.h"

#include <algorithm>

namespace intact::kernels {
namespace {

bool HasVnni(jit::Isa isa) { return isa != jit::Isa::kAvx2 && isa != jit::Isa::kAvx512; }

}  // namespace

bool UsesTiles(jit::Isa isa) { return isa == jit::Isa::kAmxInt8; }

bool HasKernels(jit::Isa isa) {
  return UsesTiles(isa) || std::any_of(kKernels.begin(), kKernels.end(),
                                       [&](const KernelBlock& block) { return block.isa == isa; });
}

Result<jit::Isa> ChooseIsa(jit::IsaSet permitted) {
  // Fastest first. AVX-VNNI comes before AVX-512 without VNNI: half the width, but a third of the
  // instructions.
  for (const jit::Isa isa :
       {jit::Isa::kAmxInt8, jit::Isa::kAvx512Vnni, jit::Isa::kAvxVnni, jit::Isa::kAvx512, jit::Isa::kAvx2}) {
    if (permitted.Has(isa) && HasKernels(isa)) return isa;
  }
  return Error{INTACT_UNSUPPORTED, "no permitted ISA has kernels: at least AVX2 is needed (permitted: " +
                                       permitted.ToString() + ")"};
}

jit::Isa VectorIsa(jit::Isa isa) { return UsesTiles(isa) ? jit::Isa::kAvx512Vnni : isa; }

jit::DotKind DotOf(jit::Isa isa, intact_mode mode) {
  if (HasVnni(isa)) return jit::DotKind::kVnni;
  return mode == INTACT_SATURATING ? jit::DotKind::kTriple : jit::DotKind::kWide;
}

bool PairsSaturate(jit::Isa isa, intact_mode mode) { return mode == INTACT_SATURATING && !HasVnni(isa); }

bool UsesSchedule(jit::Isa isa, intact_mode mode) { return mode == INTACT_EXACT && !HasVnni(isa); }

}  // namespace intact::kernels
