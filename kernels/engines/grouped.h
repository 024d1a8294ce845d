// An engine of grouped weights reads packed weights, and computes rectangles of C.
#ifndef INTACT_KERNELS_ENGINES_GROUPED_H_
#define INTACT_KERNELS_ENGINES_GROUPED_H_

#include <cstdint>
#include <memory>
#include <string>

#include "core/result.h"
#include "kernels/problem/grouped_problem.h"
#include "kernels/weights/grouped_weights.h"

namespace intact::kernels {

class GroupedEngine {
 public:
  virtual ~GroupedEngine() = default;
  GroupedEngine() = default;
  GroupedEngine(const GroupedEngine&) = delete;
  GroupedEngine& operator=(const GroupedEngine&) = delete;

  /// Name of the kernel for the largest block of `m` rows.
  virtual std::string KernelName(int64_t m) const = 0;
  /// Memory that the engine's own copy of the weights occupies.
  virtual int64_t packed_bytes() const { return 0; }
  /// C is split among threads at multiples of these steps.
  virtual int64_t column_step() const = 0;
  virtual int64_t row_step() const = 0;
  /// Bytes of scratch that Run() needs for `rows` rows, a multiple of 64.
  virtual int64_t ScratchBytes(int64_t rows) const = 0;
  /// Computes columns [column_begin, column_end) of C for `rows` of `expert`. `column_begin` is a multiple of
  /// column_step(). `c` is the element of the first row and of column 0. `scratch` is aligned to 64 bytes.
  virtual void Run(const GroupedRows& rows, int64_t expert, int64_t column_begin, int64_t column_end,
                   uint8_t* c, int64_t c_stride_bytes, uint8_t* scratch) const noexcept = 0;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_ENGINES_GROUPED_H_
