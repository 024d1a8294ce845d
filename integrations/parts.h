// How runs of plans are cut into parts for an engine's threads: one rule for all integrations.
#ifndef INTACT_INTEGRATIONS_PARTS_H_
#define INTACT_INTEGRATIONS_PARTS_H_

#include <intact/intact.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace intact::integrations {

/// How much a plan computes in a run: rows × columns sums of `depth` products. A convolution's rows are output pixels.
struct PlanWork {
  int64_t rows = 0, columns = 0, depth = 0;
};

/// Whether `max_isa`, an intact_isa, and this CPU allow AVX-512 F, BW, DQ and VL.
inline bool MayUseAvx512(int32_t max_isa) {
  constexpr std::array kCaps = {INTACT_ISA_ANY, INTACT_ISA_AVX512, INTACT_ISA_AVX512_VNNI,
                                INTACT_ISA_AMX_INT8, INTACT_ISA_AVX10_2};
  return std::ranges::find(kCaps, max_isa) != kCaps.end() && intact_isa_available(INTACT_ISA_AVX512) != 0;
}

/// The fewest products of u8 and s8 for which a part of a run pays, with the kernels that `max_isa` and this CPU allow. A part
/// pays from about two microseconds on. Wider vectors and VNNI each double the products per instruction.
inline double PartProducts(int32_t max_isa) {
  constexpr std::array kWithoutVnni = {INTACT_ISA_AVX2, INTACT_ISA_AVX512, INTACT_ISA_PORTABLE};
  const bool has_vnni =
      std::ranges::find(kWithoutVnni, max_isa) == kWithoutVnni.end() &&
      (intact_isa_available(INTACT_ISA_AVX_VNNI) != 0 || intact_isa_available(INTACT_ISA_AVX512_VNNI) != 0);
  double products = 1 << 18;
  if (MayUseAvx512(max_isa)) products *= 2;
  return has_vnni ? 2 * products : products;
}

/// How many parts a run is cut into, at most `threads`. Each part takes longer than another thread needs to begin it. With few
/// rows, reading the weights takes longest. With few products for each output, as in depthwise convolutions, storing the outputs
/// does. `part_products`: of PartProducts().
inline int PartsOf(const PlanWork& work, double part_products, int threads) {
  constexpr double kWeightBytes = 1 << 18, kOutputs = 1 << 14;
  const auto columns = static_cast<double>(work.columns);
  const double outputs = static_cast<double>(work.rows) * columns;
  const double weights = columns * static_cast<double>(work.depth);
  const double parts = std::max({outputs * static_cast<double>(work.depth) / part_products,
                                 weights / kWeightBytes, outputs / kOutputs});
  return static_cast<int>(std::clamp(parts, 1.0, static_cast<double>(threads)));
}

}  // namespace intact::integrations

#endif  // INTACT_INTEGRATIONS_PARTS_H_
