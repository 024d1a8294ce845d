// Computes the sum of each row of A. The sums are later multiplied by weight zero points (pack.h).
//
// Sums are computed from the caller's rows, not while packing. So they do not depend on how an engine reads
// A. Generated code adds up the whole vectors of four rows at a time. VPSADBW adds eight bytes. SSE2
// intrinsics add up the remaining depths and rows, and in portable plans everything.
#ifndef INTACT_KERNELS_CODEGEN_ROW_SUMS_H_
#define INTACT_KERNELS_CODEGEN_ROW_SUMS_H_

#include <intact/intact.h>

#include <compare>
#include <cstdint>

#include "core/isas.h"
#include "core/result.h"
#include "jit/function.h"
#include "kernels/problem/access.h"

namespace intact::kernels {

class RowSums {
 public:
  RowSums() = default;
  /// A CODEGEN_FAILED error names the kernel.
  static Result<RowSums> Create(core::Isa isa, intact_type a_type);

  /// sums[i] = Σ over the taps of row row_begin + i of A as kernels see it (pack.h), modulo 2³².
  void Sum(const RowMap& a, int64_t row_begin, int64_t row_end, const Taps& taps,
           int32_t* sums) const noexcept;

 private:
  struct Args {
    const uint8_t* a = nullptr;
    int64_t stride = 0;
    int64_t vectors = 0;      // vectors per row, ≥ 1
    int64_t fours = 0;        // groups of four rows, ≥ 1
    int32_t* sums = nullptr;  // one for each row; the kernel adds to them
  };
  struct Spec {
    core::Isa isa;
    intact_type a_type;
    auto operator<=>(const Spec&) const = default;
  };
  using Function = jit::Function<void(const Args*)>;
  /// sums[i] += the sum of `k` bytes of row i. There are `rows` rows, `stride` bytes apart.
  void AddRows(const uint8_t* a, int64_t stride, int64_t rows, int64_t k, int32_t* sums) const noexcept;
  static Result<jit::Code> Generate(const Spec& spec);

  Function function_;  // empty in portable plans
  int64_t vector_bytes_ = 0;
  intact_type a_type_ = INTACT_U8;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CODEGEN_ROW_SUMS_H_
