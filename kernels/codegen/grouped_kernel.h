// The kernels of grouped weights: f[mr × panel] = fma(float(acc_g), s_g, f) for each group of depths, in
// order (include/intact/grouped.h).
//
//   A in place, s8 or u8     weights of a panel (grouped_weights.h)     f, in scratch
//     row 0  k0 k1 k2 …        group 0  header | step | step | …          row 0   two vectors
//     row 1  k0 k1 k2 …        group 1  header | …                        row 1   …
//
// The sums of a group are in registers, and f is in L1. So a run may be cut at any group: all rows pass a
// block of groups that stays in L1, then the next block. The order of the groups does not change.
//
//   instructions per vector and quad, without loads and decoding
//     VNNI   vpdpbusd
//     else   vpmaddubsw, vpaddw, and vpmaddwd, vpaddd after every fourth quad. A nibble is at most 15, so
//            four pair sums are at most 4·2·15·255 = 30600. Weights of 8 bits are 16·high + low: two such
//            products. With kSignBytes vpsignb, vpmaddubsw, vpmaddwd, vpaddd: a pair sum is at most 2·128·127 = 32512
#ifndef INTACT_KERNELS_CODEGEN_GROUPED_KERNEL_H_
#define INTACT_KERNELS_CODEGEN_GROUPED_KERNEL_H_

#include <array>
#include <compare>
#include <cstdint>
#include <string>

#include "core/isas.h"
#include "core/result.h"
#include "jit/function.h"
#include "kernels/codegen/epilogue.h"
#include "kernels/problem/grouped_problem.h"
#include "kernels/weights/grouped_weights.h"

namespace intact::kernels {

/// Constants of grouped kernels.
struct alignas(64) GroupedConstants {
  std::array<int8_t, 64> nibble;           // 15
  std::array<int16_t, 32> ones, sixteens;  // widen low and high halves
  std::array<int32_t, 16> in_each_byte;    // times a byte: the byte four times
};
GroupedConstants MakeGroupedConstants();

// ----- Products

/// GroupedValues as kernels read them.
struct GroupedRowValues {
  // −centered_sum, times the weights' zero point if all zero points are equal.
  int32_t start;
  int32_t zero_point;
  float scale;
};

struct GroupedKernelArgs {
  const uint8_t* a = nullptr;  // the first row, at the first group; whole steps are read
  int64_t a_stride_bytes = 0;
  const GroupedRowValues* values = nullptr;  // [group][row], of the first row at the first group
  int64_t values_stride_bytes = 0;
  const uint8_t* weights = nullptr;  // the first group of a panel
  float* f = nullptr;                // [mr][panel's columns]
  int64_t groups = 0;                // ≥ 1
  int64_t steps = 0;                 // of each group, ≥ 1
  const GroupedConstants* constants = nullptr;
};
using GroupedKernelFunction = jit::Function<void(const GroupedKernelArgs*)>;

struct GroupedKernelSpec {
  core::Isa isa = core::Isa::kAvx2;
  int mr = 1;
  GroupedLayout layout;
  bool a_signed = false;
  bool has_group_scales = false;  // of A
  bool prefetches = false;        // fetches weights ahead, which may come from beyond L2
  int unrolled_steps = 1;
  auto operator<=>(const GroupedKernelSpec&) const = default;
  /// "grouped_s8w4f16_12x2_by4_ahead_vnni_avx512vnni". Kernels that differ have different names.
  std::string Name() const;
};
/// The most rows that kernels of `isa` can have.
int LargestGroupedRows(core::Isa isa, GroupedStep step);
Result<GroupedKernelFunction> GetGroupedKernel(const GroupedKernelSpec& spec);

// ----- Expansion

struct GroupedExpansionArgs {
  const uint8_t* from = nullptr;
  uint8_t* to = nullptr;
  int64_t groups = 0;      // ≥ 1
  int64_t steps = 0;       // of each group, ≥ 1
  int32_t zero_point = 0;  // of all weights, if the layout has none and weights are centered
  const GroupedConstants* constants = nullptr;
};
using GroupedExpansionFunction = jit::Function<void(const GroupedExpansionArgs*)>;

struct GroupedExpansionSpec {
  core::Isa isa = core::Isa::kAvx2;
  GroupedLayout layout;  // NeedsExpansion()
  // Weights become signed bytes without zero points, as tiles multiply them: b' − zb'. Sums are then of these bytes. Only for
  // kNibbles, with 512-bit vectors, and groups without padding.
  bool is_centered = false;
  GroupedLayout Expanded() const { return is_centered ? layout.Centered() : layout.Expanded(); }
  auto operator<=>(const GroupedExpansionSpec&) const = default;
  std::string Name() const;
};
Result<GroupedExpansionFunction> GetGroupedExpansion(const GroupedExpansionSpec& spec);

// ----- Outputs

struct GroupedOutputArgs {
  const float* f = nullptr;
  const float* scales = nullptr;  // of rows
  uint8_t* c = nullptr;           // whole vectors are written
  int64_t c_stride_bytes = 0;
  int64_t rows = 0;  // ≥ 1
  EpilogueArgs epilogue;
};
using GroupedOutputFunction = jit::Function<void(const GroupedOutputArgs*)>;

struct GroupedOutputSpec {
  core::Isa isa = core::Isa::kAvx2;
  intact_type c_type = INTACT_F32;
  bool has_bias = false;
  bool has_row_scales = false;
  auto operator<=>(const GroupedOutputSpec&) const = default;
  std::string Name() const;
};
Result<GroupedOutputFunction> GetGroupedOutput(const GroupedOutputSpec& spec);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CODEGEN_GROUPED_KERNEL_H_
