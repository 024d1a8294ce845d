// The product of rows of A with at most eight columns of B. The microkernel would broadcast each quad of a row
// to a whole vector, of which few lanes have a column. Here quads and columns fill the lanes together: a narrow
// panel (pack.h) of w columns holds 16 / w quads in a vector, a *step*.
//
//   lanes of a step, w = 4    column   0  1  2  3 | 0  1  2  3 | 0  1  2  3 | 0  1  2  3
//                             quad         0      |     1      |     2      |     3
//
// Each row loads its 16 / w quads, and a permutation repeats each quad w times. The sums of a column then lie
// 16 / w lanes apart, and the sums of 16 / w rows are added up while they are transposed: a vector of outputs
// holds w columns of 16 / w rows, in the order of C.
#ifndef INTACT_KERNELS_CODEGEN_NARROW_KERNEL_H_
#define INTACT_KERNELS_CODEGEN_NARROW_KERNEL_H_

#include <cstdint>

#include "core/result.h"
#include "jit/function.h"
#include "kernels/codegen/epilogue.h"

namespace intact::kernels {

/// Rows of a tile, and lanes of a vector.
inline constexpr int kNarrowRows = 16;

struct NarrowKernelArgs {
  int64_t tiles = 0;           // ≥ 1
  const uint8_t* a = nullptr;  // row 0
  int64_t stride = 0;          // from a row to the next
  int64_t steps = 0;           // whole steps
  uint64_t tail_bytes = 0;     // a bit for each byte that a row has of a last step, if there is one
  const int8_t* b = nullptr;   // the panel; whole steps are read
  // For each lane of a vector of outputs: the constant of its column, and its factors and addends in `epilogue`.
  const int32_t* compensation = nullptr;
  uint8_t* c = nullptr;        // rows of w outputs without gaps
  int64_t c_vector_bytes = 0;  // bytes of 16 outputs
  EpilogueArgs epilogue;
};

struct NarrowKernelSpec {
  int width = 1;          // of the panel: 1, 2, 4 or 8
  bool has_tail = false;  // whether the depth is no whole number of steps
  bool shifts = false;    // from s8 to u8
  EpilogueSpec epilogue;  // without values of rows and residual
  auto operator<=>(const NarrowKernelSpec&) const = default;
  /// Quads of a step.
  int quads() const { return kNarrowRows / width; }
  std::string Name() const;
};

using NarrowFunction = jit::Function<void(NarrowKernelArgs*)>;

/// A kernel for AVX-512-VNNI. Errors: CODEGEN_FAILED, OUT_OF_MEMORY.
Result<NarrowFunction> GetNarrowKernel(const NarrowKernelSpec& spec);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CODEGEN_NARROW_KERNEL_H_
