#include "kernels/codegen/dispatch.h"

#include <algorithm>
#include <functional>

namespace intact::kernels {
namespace {

bool HasVnni(jit::Isa isa) { return jit::TraitsOf(isa).dot_products != jit::DotProducts::kNone; }

}  // namespace

bool UsesTiles(jit::Isa isa) { return jit::TraitsOf(isa).has_tiles; }

bool HasKernels(jit::Isa isa) {
  return jit::IsCompiled(isa) || UsesTiles(isa) ||
         std::any_of(kKernels.begin(), kKernels.end(),
                     [&](const KernelBlock& block) { return block.isa == isa; });
}

std::array<jit::Isa, jit::kAllIsas.size()> IsasByRank() {
  std::array isas = jit::kAllIsas;
  std::ranges::sort(isas, std::greater(), [](jit::Isa isa) { return jit::TraitsOf(isa).rank; });
  return isas;
}

Result<jit::Isa> ChooseIsa(jit::IsaSet permitted) {
  for (const jit::Isa isa : IsasByRank()) {
    if (permitted.Has(isa) && HasKernels(isa)) return isa;
  }
  return Error{INTACT_UNSUPPORTED, "no permitted ISA has kernels (permitted: " + permitted.ToString() + ")"};
}

jit::Isa VectorIsa(jit::Isa isa) { return UsesTiles(isa) ? jit::Isa::kAvx512Vnni : isa; }

jit::DotKind DotOf(jit::Isa isa, intact_mode mode) {
  if (HasVnni(isa)) return jit::DotKind::kVnni;
  return mode == INTACT_SATURATING ? jit::DotKind::kTriple : jit::DotKind::kWide;
}

bool Computes(const KernelBlock& block, jit::Isa isa, intact_mode mode) {
  return block.isa == VectorIsa(isa) &&
         (block.dot == jit::DotKind::kTriple) == (DotOf(isa, mode) == jit::DotKind::kTriple);
}

bool TakesSigned(const KernelBlock& block) {
  return block.dot == jit::DotKind::kVnni &&
         jit::TraitsOf(block.isa).dot_products == jit::DotProducts::kAllSigns;
}

bool PairsSaturate(jit::Isa isa, intact_mode mode) { return mode == INTACT_SATURATING && !HasVnni(isa); }

bool UsesSchedule(jit::Isa isa, intact_mode mode) { return mode == INTACT_EXACT && !HasVnni(isa); }

}  // namespace intact::kernels
