// The list of all kernels, and the choice of ISAs and variants for a problem. If several blocks compute what
// the mode promises, PanelEngine::Cost() chooses one by M and N.
//
// kKernels is the one list that dispatch and tests expand: no kernel can exist untested. AMX is not in the
// list: plans for AMX have an engine of tiles (amx_engine.h), and the blocks of AVX-512-VNNI. Portable plans
// are not in the list: their engine is compiled code (portable_engine.h).
#ifndef INTACT_KERNELS_CODEGEN_DISPATCH_H_
#define INTACT_KERNELS_CODEGEN_DISPATCH_H_

#include <array>
#include <cstdint>
#include <variant>

#include "core/isas.h"
#include "core/result.h"
#include "jit/emitters/dot.h"
#include "kernels/codegen/kernel_costs.h"

namespace intact::kernels {

/// The activations that kernels multiply.
enum class Activations : uint8_t {
  kU8,        // s8 is shifted to u8 (pack.h)
  kAnySigns,  // s8 unshifted, unless constants for skipped padding assume the shift
};

/// The weights that kernels read. Strips have a StripLoop, panels one of the other loops (microkernel.h).
enum class Packing : uint8_t {
  kPanels,      // canonical panels (pack.h)
  kCutPanels,   // panels of cut quads, and extra quads (cut_panels.h)
  kWidePanels,  // panels of int16 (pack.h)
  kStrips,      // strips of scheduled vectors (scheduled_vectors.h)
};

/// The constants of a kernel's cost model (block_cost.h).
using KernelCosts =
    std::variant<VnniCosts VectorCosts::*, PanelCosts VectorCosts::*, ScheduledPanelCosts VectorCosts::*>;

/// A kernel for a register block: mr rows by `vectors` vectors of columns.
struct KernelBlock {
  core::Isa isa;
  jit::DotKind dot;
  Activations a;
  int mr;
  int vectors;
  Packing packing;
  KernelCosts costs;
  bool operator==(const KernelBlock&) const = default;
};

inline constexpr std::array kKernels = [] {
  using enum core::Isa;
  using enum jit::DotKind;
  using enum Activations;
  using enum Packing;
  using Costs = VectorCosts;
  // clang-format off
  return std::to_array<KernelBlock>({
      // isa         dot product   activations block weights     costs
      {kAvx2,        kMaddubs,     kU8,        4, 2, kPanels,     &Costs::vnni},
      {kAvx2,        kCut,         kU8,        4, 2, kCutPanels,  &Costs::cut},
      {kAvx2,        kWide,        kU8,        6, 2, kWidePanels, &Costs::wide},
      {kAvx2,        kWideInPlace, kU8,        4, 2, kPanels,     &Costs::in_place},
      {kAvx2,        kSplit,       kU8,        2, 2, kPanels,     &Costs::split},
      {kAvx2,        kSplit,       kU8,        1, 4, kPanels,     &Costs::split},
      {kAvx2,        kScheduled,   kU8,        6, 1, kStrips,     &Costs::scheduled_panels},
      {kAvxVnni,     kVnni,        kU8,        6, 2, kPanels,     &Costs::vnni},
      {kAvxVnniInt8, kVnni,        kAnySigns,  6, 2, kPanels,     &Costs::vnni},
      {kAvx512,      kMaddubs,     kU8,        8, 3, kPanels,     &Costs::vnni},
      {kAvx512,      kCut,         kU8,        8, 1, kCutPanels,  &Costs::cut},
      {kAvx512,      kWide,        kU8,        8, 2, kWidePanels, &Costs::wide},
      {kAvx512,      kWideInPlace, kU8,        8, 2, kPanels,     &Costs::in_place},
      {kAvx512,      kSplit,       kU8,        2, 2, kPanels,     &Costs::split},
      {kAvx512,      kSplit,       kU8,        1, 4, kPanels,     &Costs::split},
      {kAvx512,      kScheduled,   kU8,        8, 1, kStrips,     &Costs::scheduled_panels},
      {kAvx512Vnni,  kVnni,        kU8,        8, 3, kPanels,     &Costs::vnni},
      {kAvx512Vnni,  kVnni,        kU8,        6, 4, kPanels,     &Costs::vnni},
      {kAvx10_2,     kVnni,        kAnySigns,  8, 3, kPanels,     &Costs::vnni},
      {kAvx10_2,     kVnni,        kAnySigns,  6, 4, kPanels,     &Costs::vnni},
  });
  // clang-format on
}();

/// Whether the library has kernels for `isa`.
bool HasKernels(core::Isa isa);

/// All ISAs, in the order in which they are preferred.
std::array<core::Isa, core::kAllIsas.size()> IsasByRank();

/// The best ISA of `permitted` that has kernels. UNSUPPORTED if no ISA of `permitted` has kernels.
Result<core::Isa> ChooseIsa(core::IsaSet permitted);

/// Whether plans on `isa` run on tiles if M is large enough.
bool UsesTiles(core::Isa isa);

/// The ISA of the vector kernels that plans on `isa` run: `isa` itself, or AVX-512-VNNI for AMX.
core::Isa VectorIsa(core::Isa isa);

/// The dot product that `mode` on `isa` uses on the canonical panels when M is large.
jit::DotKind DotOf(core::Isa isa, intact_mode mode);

/// Whether `block` computes what `mode` on `isa` promises.
bool Computes(const KernelBlock& block, core::Isa isa, intact_mode mode);

/// Whether int16 pair sums saturate in `mode` on `isa`.
bool PairsSaturate(core::Isa isa, intact_mode mode);

/// Whether `mode` on `isa` is computed from scheduled weights if M is large enough: exact without VNNI.
bool UsesSchedule(core::Isa isa, intact_mode mode);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CODEGEN_DISPATCH_H_
