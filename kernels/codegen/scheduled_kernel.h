// The scheduled kernel: accumulates scheduled weights (schedule.h) exactly, over one window of A or over a
// planar band (planar_band.h). The kernel uses VPDPBUSD if the ISA has this instruction, else VPMADDUBSW.
//
// Rows of A fill the vectors' lanes, weights are broadcast:
//
//   for each strip of columns
//     for each register block of rows     accumulators (int32): rows × strip_columns
//       for each group                    sums (int16): rows × strip_columns
//         for each item                   sums += vpmaddubsw(A[quad], weights)    (the first item: sums =)
//         accumulators += vpmaddwd(sums, 1)
//
// VPDPBUSD adds each item to the accumulators itself; then groups only unroll the loop.
//
// The first window's accumulators start from `compensation`, the constants of the columns. Later windows
// continue from the accumulators in memory. Accumulators are stored column by column: [columns][rows],
// block_vectors·lanes rows, the transposed result of a tile. The tile epilogue (tile_epilogue.h) transposes
// and requantizes this result.
#ifndef INTACT_KERNELS_CODEGEN_SCHEDULED_KERNEL_H_
#define INTACT_KERNELS_CODEGEN_SCHEDULED_KERNEL_H_

#include <compare>
#include <cstdint>
#include <string>

#include "core/isas.h"
#include "core/result.h"
#include "jit/function.h"
#include "kernels/codegen/dispatch.h"
#include "kernels/weights/schedule.h"

namespace intact::kernels {

struct ScheduledKernelArgs {
  int64_t blocks = 1;               // register blocks side by side, in A and in the accumulators
  const uint8_t* a = nullptr;       // the window of the packed rows of A
  const uint8_t* strips = nullptr;  // ScheduledWeights::Strips()
  int64_t strip_count = 0;
  const int32_t* compensation = nullptr;  // one per column; null: continue from `accumulators`
  int32_t* accumulators = nullptr;        // [strip_count·strip_columns][rows]
};

using ScheduledKernelFunction = jit::Function<void(const ScheduledKernelArgs*)>;

struct ScheduledKernelSpec {
  enum class Rows : uint8_t {
    kPacked,
    kPlanar,  // items have offsets in a planar band
    // Half a vector of rows, each of them twice. The two columns of a strip, broadcast together, are computed
    // at once: `vectors` is 1. The ISA is one without VNNI.
    kPaired,
  };
  core::Isa isa = core::Isa::kAvx2;
  int vectors = 1;        // rows to compute, in vectors
  int block_vectors = 1;  // rows of the accumulators' columns, in vectors
  int strip_columns = 2;
  int largest_group = kMaxGroup;  // items in the schedule's largest group
  Rows rows = Rows::kPacked;
  bool IsVnni() const { return DotOf(isa, INTACT_EXACT) == jit::DotKind::kVnni; }
  auto operator<=>(const ScheduledKernelSpec&) const = default;
  std::string Name() const;  // "u8s8_scheduled_16of24x2c4_by5_avx2"; "…c4_planar_by5…", "…c4_paired_by5…"
};

Result<ScheduledKernelFunction> GetScheduledKernel(const ScheduledKernelSpec& spec);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CODEGEN_SCHEDULED_KERNEL_H_
