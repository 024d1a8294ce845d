// Which kernels can run a problem: the list of all register blocks, and the choice of ISAs and variants.
// Several blocks may compute what the mode promises; PanelEngine::Cost() then decides by M and N.
//
// kKernels is the one list that dispatch and tests expand: no kernel can exist untested. AMX is not in it:
// its plans have an engine of tiles (amx_engine.h), and the blocks of AVX-512-VNNI. Portable plans are not in
// it either: their engine is compiled code (portable_engine.h).
#ifndef INTACT_KERNELS_CODEGEN_DISPATCH_H_
#define INTACT_KERNELS_CODEGEN_DISPATCH_H_

#include <array>
#include <cstdint>

#include "core/isas.h"
#include "core/result.h"
#include "jit/emitters/dot.h"

namespace intact::kernels {

/// A register block: mr rows by `vectors` vectors of columns.
struct KernelBlock {
  core::Isa isa;
  jit::DotKind dot;
  int mr;
  int vectors;
  bool operator==(const KernelBlock&) const = default;
};

inline constexpr std::array kKernels = {
    KernelBlock{core::Isa::kAvx2, jit::DotKind::kMaddubs, 4, 2},
    KernelBlock{core::Isa::kAvx2, jit::DotKind::kCut, 4, 2},
    KernelBlock{core::Isa::kAvx2, jit::DotKind::kWide, 6, 2},
    KernelBlock{core::Isa::kAvx2, jit::DotKind::kWideInPlace, 4, 2},
    KernelBlock{core::Isa::kAvx2, jit::DotKind::kSplit, 2, 2},
    KernelBlock{core::Isa::kAvx2, jit::DotKind::kSplit, 1, 4},
    KernelBlock{core::Isa::kAvx2, jit::DotKind::kScheduled, 6, 1},
    KernelBlock{core::Isa::kAvxVnni, jit::DotKind::kVnni, 6, 2},
    KernelBlock{core::Isa::kAvxVnniInt8, jit::DotKind::kVnni, 6, 2},
    KernelBlock{core::Isa::kAvx512, jit::DotKind::kMaddubs, 8, 3},
    KernelBlock{core::Isa::kAvx512, jit::DotKind::kCut, 8, 1},
    KernelBlock{core::Isa::kAvx512, jit::DotKind::kWide, 8, 2},
    KernelBlock{core::Isa::kAvx512, jit::DotKind::kWideInPlace, 8, 2},
    KernelBlock{core::Isa::kAvx512, jit::DotKind::kSplit, 2, 2},
    KernelBlock{core::Isa::kAvx512, jit::DotKind::kSplit, 1, 4},
    KernelBlock{core::Isa::kAvx512, jit::DotKind::kScheduled, 8, 1},
    KernelBlock{core::Isa::kAvx512Vnni, jit::DotKind::kVnni, 8, 3},
    KernelBlock{core::Isa::kAvx512Vnni, jit::DotKind::kVnni, 6, 4},
    KernelBlock{core::Isa::kAvx10_2, jit::DotKind::kVnni, 8, 3},
    KernelBlock{core::Isa::kAvx10_2, jit::DotKind::kVnni, 6, 4},
};

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

/// Whether `block` multiplies s8 activations unshifted; other blocks see them shifted to u8 (pack.h).
bool TakesSigned(const KernelBlock& block);

/// Whether int16 pair sums saturate in `mode` on `isa`.
bool PairsSaturate(core::Isa isa, intact_mode mode);

/// Whether `mode` on `isa` is computed from scheduled weights if M is large enough: exact without VNNI.
bool UsesSchedule(core::Isa isa, intact_mode mode);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CODEGEN_DISPATCH_H_
