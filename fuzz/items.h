// The memory of a batch's inputs in a fuzzed call. Items need not be dense, and may overlap.
#ifndef INTACT_FUZZ_ITEMS_H_
#define INTACT_FUZZ_ITEMS_H_

#include <cstdint>
#include <intact/intact.hpp>
#include <span>
#include <vector>

#include "fuzz/input.h"
#include "verify/targets/guarded_buffer.h"

namespace intact::fuzz {

/// Offsets of an input's items, in elements. Items overlap if each reaches over more than `step` elements.
struct Layout {
  int64_t rows, row_step, columns, column_step;
  int64_t items = 1, step = 0;

  int64_t Extent() const {
    return (items - 1) * step + (rows - 1) * row_step + (columns - 1) * column_step + 1;
  }
};

/// Copies the elements, item after item and row after row. `memory` has Extent() elements of `element` bytes.
std::vector<uint8_t> Dense(std::span<const uint8_t> memory, const Layout& layout, int64_t element);

/// Reads the distance between items: `dense` elements (no gap), more, or less.
int64_t ReadStep(Input* input, int64_t dense, bool has_pointers);

/// Items in guarded memory. A run gets them by a stride or by pointers.
class Items {
 public:
  static Result<Items> Make(std::span<const uint8_t> memory, const Layout& layout, int64_t element,
                            bool has_pointers);
  /// Sets fields of intact_gemm_args. With pointers, `*stride` keeps its value, which the library must not
  /// read.
  void Give(const void** base, const void* const** items, int64_t* stride) const;

 private:
  Items(verify::GuardedBuffer memory, int64_t step) : memory_(std::move(memory)), step_(step) {}

  verify::GuardedBuffer memory_;
  std::vector<const void*> pointers_;  // empty: the run gets a stride
  int64_t step_;
};

}  // namespace intact::fuzz
#endif  // INTACT_FUZZ_ITEMS_H_
