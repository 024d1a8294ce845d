// The table of element types, one row each. Whatever depends on a type alone is in its row.
#ifndef INTACT_CORE_TYPES_H_
#define INTACT_CORE_TYPES_H_

#include <intact/intact.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace intact::core {

/// A row of the table of types.
struct ElementType {
  intact_type type;
  std::string_view name;    // "u8": in problem lines, kernels' names and reports
  std::string_view c_name;  // "uint8_t": an element in C
  std::string_view npy;     // "u1": in files of NumPy
  int bytes;                // of an element
  bool is_float;
  int32_t lowest, highest;  // elements of quantized types; 0 for other types
};

inline constexpr std::array kElementTypes = [] {
  // clang-format off
  return std::to_array<ElementType>({
      // type            name    in C        NumPy  bytes float  lowest highest
      {INTACT_TYPE_NONE, "none", "void",     "",    1,    false, 0,     0},
      {INTACT_U8,        "u8",   "uint8_t",  "u1",  1,    false, 0,     255},
      {INTACT_S8,        "s8",   "int8_t",   "i1",  1,    false, -128,  127},
      {INTACT_S32,       "s32",  "int32_t",  "i4",  4,    false, 0,     0},
      {INTACT_F32,       "f32",  "float",    "f4",  4,    true,  0,     0},
      {INTACT_BF16,      "bf16", "uint16_t", "",    2,    true,  0,     0},
  });
  // clang-format on
}();

/// The row of `type`; that of INTACT_TYPE_NONE for a value that is no type.
constexpr const ElementType& TraitsOf(intact_type type) noexcept {
  const auto place = static_cast<size_t>(type);
  return kElementTypes[place < kElementTypes.size() ? place : 0];
}
static_assert(
    [] {
      for (const ElementType& row : kElementTypes) {
        if (TraitsOf(row.type).type != row.type) return false;
      }
      return true;
    }(),
    "the table's rows are in the order of their values");

/// Bytes of an element.
constexpr int BytesOf(intact_type type) noexcept { return TraitsOf(type).bytes; }
/// "u8", "bf16"; "none" for INTACT_TYPE_NONE.
constexpr std::string_view NameOf(intact_type type) noexcept { return TraitsOf(type).name; }
constexpr bool IsFloat(intact_type type) noexcept { return TraitsOf(type).is_float; }
/// Whether it is a quantized type: u8 or s8.
constexpr bool IsInt8(intact_type type) noexcept { return type == INTACT_U8 || type == INTACT_S8; }
/// The least and the greatest element of a quantized type, which also bound its zero points; 0 for other
/// types.
constexpr int32_t LowestOf(intact_type type) noexcept { return TraitsOf(type).lowest; }
constexpr int32_t HighestOf(intact_type type) noexcept { return TraitsOf(type).highest; }
static_assert(!IsInt8(static_cast<intact_type>(7)) && HighestOf(static_cast<intact_type>(7)) == 0,
              "no type: callers of the C interface may pass any value");
/// u8 for s8, s8 for u8.
constexpr intact_type OtherSign(intact_type type) noexcept {
  return type == INTACT_U8 ? INTACT_S8 : INTACT_U8;
}

/// What a byte of a quantized type stands for.
constexpr int32_t DecodeInt8(intact_type type, uint8_t byte) noexcept {
  return type == INTACT_S8 ? int32_t{static_cast<int8_t>(byte)} : int32_t{byte};
}

/// The number that an element stands for, exactly; 0 for INTACT_TYPE_NONE and for a value that is no type.
inline double Decode(intact_type type, const uint8_t* element) noexcept {
  if (IsInt8(type)) return DecodeInt8(type, *element);
  if (TraitsOf(type).type == INTACT_TYPE_NONE) return 0;
  uint32_t bits = 0;
  std::memcpy(&bits, element, static_cast<size_t>(BytesOf(type)));
  if (type == INTACT_S32) return static_cast<int32_t>(bits);
  return std::bit_cast<float>(type == INTACT_BF16 ? bits << 16 : bits);
}

/// Stores a number that the type can hold. Nothing for INTACT_TYPE_NONE and for a value that is no type.
inline void Encode(intact_type type, double number, uint8_t* element) noexcept {
  if (TraitsOf(type).type == INTACT_TYPE_NONE) return;
  uint32_t bits = 0;
  if (IsFloat(type)) {
    bits = std::bit_cast<uint32_t>(static_cast<float>(number));
    if (type == INTACT_BF16) bits >>= 16;
  } else {
    bits = static_cast<uint32_t>(static_cast<int64_t>(number));
  }
  std::memcpy(element, &bits, static_cast<size_t>(BytesOf(type)));
}

}  // namespace intact::core
#endif  // INTACT_CORE_TYPES_H_
