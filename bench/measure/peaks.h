// Instruction peaks: the speed of a dot variant with all operands in registers and independent accumulators.
// Operands are random bytes. Every fraction of peak in the benchmarks refers to such a peak, measured in the same run.
#ifndef INTACT_BENCH_MEASURE_PEAKS_H_
#define INTACT_BENCH_MEASURE_PEAKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/isas.h"
#include "jit/emitters/dot.h"

namespace intact::bench {

/// The ISA of the loops that kernels of `isa` are compared with. Portable kernels have no loop: AVX2.
constexpr core::Isa YardstickOf(core::Isa isa) { return core::IsCompiled(isa) ? core::Isa::kAvx2 : isa; }

/// A registers-only loop of one instruction sequence.
struct Peak {
  std::string name;  // "tdpbusd/tmm", "vpdpbusd/zmm", "vpdpbssd/ymm", "maddubs/ymm", …
  core::Isa isa;
  jit::DotKind dot;  // the vector instruction; unused for tiles
  jit::DotSigns signs = {};
};

/// The sequences that this machine can run.
std::vector<Peak> AvailablePeaks();

/// The sequence that `isa`'s kernels are compared with: tdpbusd for AMX, vpdpbusd for the VNNIs, the maddubs
/// sequence for others.
Peak PeakOf(core::Isa isa);

/// GOPS (2·multiply-adds per nanosecond): the fastest of several short runs, a few milliseconds in all.
double MeasureGops(const Peak& peak);

}  // namespace intact::bench
#endif  // INTACT_BENCH_MEASURE_PEAKS_H_
