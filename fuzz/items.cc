#include "fuzz/items.h"

#include <algorithm>
#include <utility>

#include "core/result.h"

namespace intact::fuzz {

std::vector<uint8_t> Dense(std::span<const uint8_t> memory, const Layout& layout, int64_t element) {
  std::vector<uint8_t> dense;
  dense.reserve(static_cast<size_t>(layout.items * layout.rows * layout.columns * element));
  for (int64_t item = 0; item < layout.items; ++item) {
    for (int64_t row = 0; row < layout.rows; ++row) {
      for (int64_t column = 0; column < layout.columns; ++column) {
        const int64_t at = item * layout.step + row * layout.row_step + column * layout.column_step;
        const auto from = memory.subspan(static_cast<size_t>(at * element), static_cast<size_t>(element));
        dense.insert(dense.end(), from.begin(), from.end());
      }
    }
  }
  return dense;
}

int64_t ReadStep(Input* input, int64_t dense, bool has_pointers) {
  const int64_t least = has_pointers ? 0 : 1;  // a stride of 0 means dense
  switch (input->Byte() % 3) {
    case 1:
      return dense + input->Integer(0, 70);
    case 2:
      return input->Integer(least, std::min<int64_t>(dense, 1 << 16));
    default:
      return dense;
  }
}

Result<Items> Items::Make(std::span<const uint8_t> memory, const Layout& layout, int64_t element,
                          bool has_pointers) {
  ASSIGN_OR_RETURN(auto buffer, verify::GuardedBuffer::Allocate(memory.size()));
  std::ranges::copy(memory, buffer.data().begin());
  buffer.MakeReadOnly();
  Items made(std::move(buffer), layout.step);
  for (int64_t item = 0; has_pointers && item < layout.items; ++item) {
    made.pointers_.push_back(made.memory_.data().data() + item * layout.step * element);
  }
  return made;
}

void Items::Give(const void** base, const void* const** items, int64_t* stride) const {
  *base = pointers_.empty() ? memory_.data().data() : nullptr;
  *items = pointers_.empty() ? nullptr : pointers_.data();
  if (pointers_.empty()) *stride = step_;
}

}  // namespace intact::fuzz
