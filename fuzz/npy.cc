#include "support/npy.h"

#include <fmt/format.h>

#include <cstring>
#include <string_view>

#include "fuzz/check.h"
#include "fuzz/scratch.h"

namespace intact::fuzz {
namespace {

using support::NpyArray;

struct Element {
  std::string_view descr;
  size_t size;
};
Element ElementOf(const support::NpyArray& array) {
  switch (array.type) {
    case INTACT_U8:
      return {"|u1", 1};
    case INTACT_S8:
      return {"|i1", 1};
    case INTACT_S32:
      return {"<i4", 4};
    default:
      return {"<f4", 4};
  }
}

// The place of element `number` of a row-major array in Fortran order, whose first index runs fastest.
size_t FortranPlace(const std::vector<int64_t>& shape, size_t number) {
  size_t stride = 1;
  for (const int64_t extent : shape) stride *= static_cast<size_t>(extent);
  size_t place = 0;
  for (size_t i = shape.size(); i-- > 0;) {
    const auto extent = static_cast<size_t>(shape[i]);
    stride /= extent;
    place += number % extent * stride;
    number /= extent;
  }
  return place;
}

// The file of `array`, version 2.0.
std::vector<uint8_t> ImageOf(const support::NpyArray& array, bool fortran_order) {
  const Element element = ElementOf(array);
  const std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}\n", element.descr,
                  fortran_order ? "True" : "False", support::ShapeString(array.shape));
  std::string text = std::string("\x93NUMPY\x02\0", 8);
  const auto length = static_cast<uint32_t>(header.size());
  text.append(reinterpret_cast<const char*>(&length), sizeof(length)).append(header);
  std::vector<uint8_t> image(text.begin(), text.end());
  image.resize(text.size() + array.bytes.size());
  for (size_t i = 0; i < array.bytes.size() / element.size; ++i) {
    const size_t place = fortran_order ? FortranPlace(array.shape, i) : i;
    std::memcpy(&image[text.size() + place * element.size], &array.bytes[i * element.size], element.size);
  }
  return image;
}

}  // namespace

std::string CheckNpy(std::span<const uint8_t> bytes) {
  const std::string path = WriteScratch("tensor.npy", bytes);
  const Result<support::NpyArray> array = support::ReadNpy(path);
  if (!array) return WrongFileRefusal(path, array.error());
  size_t expected = ElementOf(*array).size;
  for (const int64_t extent : array->shape) {
    if (extent < 1) return fmt::format("an extent is {}", extent);
    expected *= static_cast<size_t>(extent);
  }
  if (array->bytes.size() != expected) {
    return fmt::format("{} bytes of shape {}", array->bytes.size(), support::ShapeString(array->shape));
  }
  for (const bool fortran_order : {false, true}) {
    const Result<support::NpyArray> again =
        support::ReadNpy(WriteScratch("again.npy", ImageOf(*array, fortran_order)));
    if (!again) return again.error().message;
    if (again->type != array->type || again->shape != array->shape || again->bytes != array->bytes) {
      return fmt::format("the array is read back changed, fortran_order {}", fortran_order);
    }
  }
  return "";
}

}  // namespace intact::fuzz
