// Which kernel runs a problem: the list of all register blocks, and the choice among them.
//
// kKernels is the one list that dispatch, tests and benchmarks expand: no kernel can exist untested.
#ifndef INTACT_KERNELS_DISPATCH_H_
#define INTACT_KERNELS_DISPATCH_H_

#include <array>
#include <cstdint>
#include <intact/intact.hpp>

#include "jit/emitters/dot.h"
#include "jit/isa.h"

namespace intact::kernels {

/// A register block: mr rows by `vectors` vectors of columns.
struct KernelBlock {
  jit::Isa isa;
  jit::DotKind dot;
  int mr;
  int vectors;
};

inline constexpr std::array kKernels = {
    KernelBlock{jit::Isa::kAvx2, jit::DotKind::kTriple, 4, 2},
    KernelBlock{jit::Isa::kAvx2, jit::DotKind::kWide, 4, 2},
    KernelBlock{jit::Isa::kAvxVnni, jit::DotKind::kVnni, 6, 2},
    KernelBlock{jit::Isa::kAvx512, jit::DotKind::kTriple, 8, 3},
    KernelBlock{jit::Isa::kAvx512, jit::DotKind::kWide, 8, 2},
    KernelBlock{jit::Isa::kAvx512Vnni, jit::DotKind::kVnni, 8, 3},
};

/// Whether plans can run on `isa` where the machine permits it.
bool HasKernels(jit::Isa isa);

/// The best of `permitted` that has kernels. UNSUPPORTED if there is none.
Result<jit::Isa> ChooseIsa(jit::IsaSet permitted);

/// The block for `mode` on `isa`.
const KernelBlock& ChooseKernel(jit::Isa isa, intact_mode mode);

/// Whether int16 pair sums saturate in `mode` on `isa`.
bool PairsSaturate(jit::Isa isa, intact_mode mode);

/// Whether `mode` on `isa` is computed from scheduled weights where M is large enough: exact without VNNI.
bool UsesSchedule(jit::Isa isa, intact_mode mode);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_DISPATCH_H_
