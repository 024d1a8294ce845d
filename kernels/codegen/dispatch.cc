#include "kernels/codegen/dispatch.h"

#include <algorithm>
#include <functional>

#include "core/isas.h"

namespace intact::kernels {
namespace {

bool HasVnni(core::Isa isa) { return core::TraitsOf(isa).dot_products != core::DotProducts::kNone; }

}  // namespace

bool UsesTiles(core::Isa isa) { return core::TraitsOf(isa).has_tiles; }

bool HasKernels(core::Isa isa) {
  return core::IsCompiled(isa) || UsesTiles(isa) ||
         std::any_of(kKernels.begin(), kKernels.end(),
                     [&](const KernelBlock& block) { return block.isa == isa; });
}

std::array<core::Isa, core::kAllIsas.size()> IsasByRank() {
  std::array isas = core::kAllIsas;
  std::ranges::sort(isas, std::greater(), [](core::Isa isa) { return core::TraitsOf(isa).rank; });
  return isas;
}

Result<core::Isa> ChooseIsa(core::IsaSet permitted) {
  for (const core::Isa isa : IsasByRank()) {
    if (permitted.Has(isa) && HasKernels(isa)) return isa;
  }
  return Error{INTACT_UNSUPPORTED, "no permitted ISA has kernels (permitted: " + permitted.ToString() + ")"};
}

core::Isa VectorIsa(core::Isa isa) { return UsesTiles(isa) ? core::Isa::kAvx512Vnni : isa; }

jit::DotKind DotOf(core::Isa isa, intact_mode mode) {
  if (HasVnni(isa)) return jit::DotKind::kVnni;
  return mode == INTACT_SATURATING ? jit::DotKind::kMaddubs : jit::DotKind::kWide;
}

bool Computes(const KernelBlock& block, core::Isa isa, intact_mode mode) {
  return block.isa == VectorIsa(isa) &&
         (block.dot == jit::DotKind::kMaddubs) == (DotOf(isa, mode) == jit::DotKind::kMaddubs);
}

bool PairsSaturate(core::Isa isa, intact_mode mode) { return mode == INTACT_SATURATING && !HasVnni(isa); }

bool UsesSchedule(core::Isa isa, intact_mode mode) { return mode == INTACT_EXACT && !HasVnni(isa); }

}  // namespace intact::kernels
