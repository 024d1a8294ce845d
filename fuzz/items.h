// The inputs of a batch as a fuzzed call lays them out: items that need not be dense, nor memory of their
// own.
#ifndef INTACT_FUZZ_ITEMS_H_
#define INTACT_FUZZ_ITEMS_H_

#include <cstdint>
#include <intact/intact.hpp>
#include <span>
#include <vector>

#include "fuzz/input.h"
#include "verify/targets/guarded_buffer.h"

namespace intact::fuzz {

/// Where the items of an input lie, in elements from the first one's. Items that are `step` apart, and reach
/// over more, are in part the same memory.
struct Layout {
  int64_t rows, row_step, columns, column_step;
  int64_t items = 1, step = 0;

  int64_t Extent() const {
    return (items - 1) * step + (rows - 1) * row_step + (columns - 1) * column_step + 1;
  }
};

/// The elements of `memory`, which has Extent() of them of `element` bytes, one item after the other by rows.
std::vector<uint8_t> Dense(std::span<const uint8_t> memory, const Layout& layout, int64_t element);

/// How far apart items are, or their pointers: `dense` elements, more, or less.
int64_t ReadStep(Input* input, int64_t dense, bool has_pointers);

/// Items in guarded memory, which a run is given by a stride or by pointers.
class Items {
 public:
  static Result<Items> Make(std::span<const uint8_t> memory, const Layout& layout, int64_t element,
                            bool has_pointers);
  /// To the fields of intact_gemm_args; a stride that the library is not to read is left as it is.
  void Give(const void** base, const void* const** items, int64_t* stride) const;

 private:
  Items(verify::GuardedBuffer memory, int64_t step) : memory_(std::move(memory)), step_(step) {}

  verify::GuardedBuffer memory_;
  std::vector<const void*> pointers_;  // or none
  int64_t step_;
};

}  // namespace intact::fuzz
#endif  // INTACT_FUZZ_ITEMS_H_
