// Stages rows of A for grouped weights: quantizes or copies them, pads them, and finds the values of their
// groups.
#ifndef INTACT_KERNELS_PLANS_GROUPED_STAGER_H_
#define INTACT_KERNELS_PLANS_GROUPED_STAGER_H_

#include <intact/grouped.h>

#include <cstdint>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/codegen/epilogue.h"
#include "kernels/codegen/quantizer.h"
#include "kernels/problem/grouped_problem.h"

namespace intact::kernels {

class GroupedStager {
 public:
  /// `problem` outlives the stager.
  Error MakeKernels(const GroupedProblem& problem, core::Isa isa);

  /// Rows that are staged at a time: they stay in L2 while weights pass them.
  int64_t ChunkRows() const { return chunk_rows_; }
  /// Scratch for `rows` rows, a multiple of 64.
  int64_t ScratchBytes(int64_t rows) const { return OffsetsOf(rows).end; }
  /// Stages rows [begin, begin + count) of A in `scratch`, aligned to 64 bytes. Needs the default
  /// floating-point environment.
  GroupedRows Stage(const intact_grouped_args& args, int64_t begin, int64_t count,
                    uint8_t* scratch) const noexcept;
  /// Whether row `i` of `rows`, and each of its groups, has a scale.
  bool HasScale(const GroupedRows& rows, int64_t i) const noexcept;

 private:
  /// The parts of the scratch, in bytes. It begins with the rows of A.
  struct Offsets {
    int64_t values;     // GroupedValues [row][group]
    int64_t scales;     // float [row]
    int64_t quantized;  // RowValues of a row's groups, or of the row
    int64_t end;
  };
  int64_t stride_bytes() const;
  Offsets OffsetsOf(int64_t rows) const;
  void Quantize(const uint8_t* x, uint8_t* a, GroupedValues* values, float* scale,
                RowValues* quantized) const noexcept;
  void CopyGiven(const intact_grouped_args& args, int64_t row, uint8_t* a, GroupedValues* values,
                 float* scale) const noexcept;
  /// Σ a of the `depth` depths at `a`, in a_type. Bytes up to a multiple of 16 are 0.
  int64_t Sum(const uint8_t* a, int64_t depth) const noexcept;

  const GroupedProblem* problem_ = nullptr;
  Quantizer quantizer_;  // if runs quantize A
  int64_t chunk_rows_ = 1;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_GROUPED_STAGER_H_
