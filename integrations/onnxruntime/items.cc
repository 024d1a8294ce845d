#include "items.h"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>

namespace intact::onnxruntime {

void CheckRows(const Shape& a, int64_t k) {
  if (a.empty() || a.back() != k)
    throw std::invalid_argument("A: has rows of " + std::to_string(a.empty() ? 0 : a.back()) +
                                " elements; expected " + std::to_string(k));
}

void CheckDepth(int64_t rows, int64_t k) {
  if (rows != k)
    throw std::invalid_argument("B: has " + std::to_string(rows) + " rows; expected " + std::to_string(k));
}

Shape BroadcastItems(const Shape& a, const Shape& b) {
  Shape items(std::max(a.size(), b.size()) - 2);
  for (size_t i = 0; i < items.size(); ++i) {  // from the last one
    const int64_t of_a = i + 2 < a.size() ? a.end()[-3 - static_cast<std::ptrdiff_t>(i)] : 1;
    const int64_t of_b = i + 2 < b.size() ? b.end()[-3 - static_cast<std::ptrdiff_t>(i)] : 1;
    if (of_a != of_b && of_a != 1 && of_b != 1)
      throw std::invalid_argument("B: has " + std::to_string(of_b) + " items where A has " +
                                  std::to_string(of_a) + "; expected equal numbers, or 1");
    items.end()[-1 - static_cast<std::ptrdiff_t>(i)] = of_a == 1 ? of_b : of_a;
  }
  return items;
}

std::vector<const void*> PlacesOfItems(const void* data, int64_t bytes, const Shape& shape,
                                       std::span<const int64_t> items) {
  std::vector<const void*> places(static_cast<size_t>(CountOf(items)));
  for (size_t item = 0; item < places.size(); ++item) {
    int64_t left = static_cast<int64_t>(item), place = 0, stride = bytes;
    for (size_t i = 0; i < items.size() && i + 2 < shape.size(); ++i) {  // from the last extent
      const int64_t extent = items[items.size() - 1 - i];
      const int64_t own = shape.end()[-3 - static_cast<std::ptrdiff_t>(i)];
      if (own != 1) place += left % extent * stride;
      left /= extent;
      stride *= own;
    }
    places[item] = static_cast<const std::byte*>(data) + place;
  }
  return places;
}

}  // namespace intact::onnxruntime
