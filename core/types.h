// The table of element types, one row each. Everything that depends only on a type is in its row.
#ifndef INTACT_CORE_TYPES_H_
#define INTACT_CORE_TYPES_H_

#include <intact/intact.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>

namespace intact::core {

/// A row of the table of types.
struct ElementType {
  intact_type type;
  std::string_view name;    // "u8": in problem lines, kernels' names and reports
  std::string_view c_name;  // "uint8_t": an element in C
  std::string_view npy;     // "u1": in files of NumPy
  int bits;                 // of an element; types with less than 8 bits are of weights that share bytes
  int32_t lowest, highest;  // elements of quantized types; 0 for other types
  // Floats of IEEE 754: the number of bits of the fraction (without the leading 1), and the exponent of the
  // least normal number; 0 for other types. All bits except sign and fraction belong to the exponent's field.
  int fraction, exponent;

  /// Bytes of an element that shares its bytes with no other.
  constexpr int bytes() const { return (bits + 7) / 8; }
  /// Quantized types.
  constexpr bool is_signed() const { return lowest < 0; }
  /// The middle of a quantized type: 0 if it is signed.
  constexpr int32_t middle() const { return (lowest + highest + 1) / 2; }
  /// The element of a quantized type that the low bits of `code` represent.
  constexpr int32_t DecodeCode(int32_t code) const {
    const int32_t element = code & ((1 << bits) - 1);
    return element > highest ? element - (1 << bits) : element;
  }
};

inline constexpr std::array kElementTypes = [] {
  // clang-format off
  return std::to_array<ElementType>({
      // type            name    in C        NumPy  bits lowest highest fraction exponent
      {INTACT_TYPE_NONE, "none", "void",     "",    8,   0,     0,      0,       0},
      {INTACT_U8,        "u8",   "uint8_t",  "u1",  8,   0,     255,    0,       0},
      {INTACT_S8,        "s8",   "int8_t",   "i1",  8,   -128,  127,    0,       0},
      {INTACT_S32,       "s32",  "int32_t",  "i4",  32,  0,     0,      0,       0},
      {INTACT_F32,       "f32",  "float",    "f4",  32,  0,     0,      23,      -126},
      {INTACT_BF16,      "bf16", "uint16_t", "",    16,  0,     0,      7,       -126},
      {INTACT_F16,       "f16",  "uint16_t", "f2",  16,  0,     0,      10,      -14},
      {INTACT_S4,        "s4",   "int8_t",   "",    4,   -8,    7,      0,       0},
      {INTACT_U4,        "u4",   "uint8_t",  "",    4,   0,     15,     0,       0},
  });
  // clang-format on
}();

/// The types that outputs may have.
inline constexpr std::array kOutputTypes = {INTACT_S32, INTACT_F32,  INTACT_U8,
                                            INTACT_S8,  INTACT_BF16, INTACT_F16};
/// The types of numbers that a run can quantize.
inline constexpr std::array kSourceTypes = {INTACT_F32, INTACT_BF16, INTACT_F16};
/// The types that weights in groups of depths may have.
inline constexpr std::array kGroupedWeightTypes = {INTACT_U8, INTACT_S8, INTACT_U4, INTACT_S4};

/// The row of `type`; the row of INTACT_TYPE_NONE for a value that is no type.
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
constexpr int BytesOf(intact_type type) noexcept { return TraitsOf(type).bytes(); }
/// "u8", "bf16"; "none" for INTACT_TYPE_NONE.
constexpr std::string_view NameOf(intact_type type) noexcept { return TraitsOf(type).name; }
constexpr bool IsFloat(intact_type type) noexcept { return TraitsOf(type).fraction != 0; }
/// Whether `type` is a float of two bytes.
constexpr bool IsHalfFloat(intact_type type) noexcept { return IsFloat(type) && BytesOf(type) == 2; }
/// Whether `type` is a quantized type: u8 or s8.
constexpr bool IsInt8(intact_type type) noexcept { return type == INTACT_U8 || type == INTACT_S8; }
/// The least and the greatest element of a quantized type; 0 for other types. These elements also bound the
/// type's zero points.
constexpr int32_t LowestOf(intact_type type) noexcept { return TraitsOf(type).lowest; }
constexpr int32_t HighestOf(intact_type type) noexcept { return TraitsOf(type).highest; }
static_assert(
    !IsInt8(static_cast<intact_type>(15)) && HighestOf(static_cast<intact_type>(15)) == 0,
    "callers of the C interface may pass any value; values that name no type have the traits of none");
/// u8 for s8, s8 for u8.
constexpr intact_type OtherSign(intact_type type) noexcept {
  return type == INTACT_U8 ? INTACT_S8 : INTACT_U8;
}

/// The value of a byte of a quantized type.
constexpr int32_t DecodeInt8(intact_type type, uint8_t byte) noexcept {
  return type == INTACT_S8 ? int32_t{static_cast<int8_t>(byte)} : int32_t{byte};
}

/// The bits of an infinity of a float type.
constexpr uint32_t InfinityOf(const ElementType& type) noexcept {
  return (uint32_t{1} << (type.bits - 1)) - (uint32_t{1} << type.fraction);
}
/// The largest finite number of a float type.
inline double LargestOf(intact_type type) noexcept {
  const ElementType& traits = TraitsOf(type);
  return (2 - std::ldexp(1.0, -traits.fraction)) * std::ldexp(1.0, 1 - traits.exponent);
}

/// The exact number that the bits of a float type represent.
inline double DecodeFloat(const ElementType& type, uint32_t bits) noexcept {
  const uint32_t infinity = InfinityOf(type);
  const uint32_t magnitude = bits & ((uint32_t{1} << (type.bits - 1)) - 1);
  const uint32_t fraction = magnitude & ((uint32_t{1} << type.fraction) - 1);
  const auto exponent = static_cast<int>(magnitude >> type.fraction);
  const double significand = exponent == 0 ? fraction : fraction + (uint32_t{1} << type.fraction);
  const double number =
      magnitude > infinity ? std::numeric_limits<double>::quiet_NaN()
      : magnitude == infinity
          ? std::numeric_limits<double>::infinity()
          : std::ldexp(significand, std::max(exponent, 1) - 1 + type.exponent - type.fraction);
  return bits == magnitude ? number : -number;
}

/// The bits of a number that a float type can hold. All NaNs become one quiet NaN.
inline uint32_t EncodeFloat(const ElementType& type, double number) noexcept {
  const uint32_t infinity = InfinityOf(type);
  if (std::isnan(number)) return infinity | uint32_t{1} << (type.fraction - 1);
  const uint32_t sign = std::signbit(number) ? uint32_t{1} << (type.bits - 1) : 0;
  if (std::isinf(number)) return sign | infinity;
  const int exponent = number == 0 ? type.exponent : std::max(std::ilogb(number), type.exponent);
  const auto significand = static_cast<uint32_t>(std::ldexp(std::fabs(number), type.fraction - exponent));
  // A normal number's leading 1 carries into the exponent's field and adds 1 to the field. A subnormal number
  // has no leading 1, so its field stays 0.
  return sign | (significand + (static_cast<uint32_t>(exponent - type.exponent) << type.fraction));
}

/// The exact number that an element represents; 0 for INTACT_TYPE_NONE and for a value that is no type.
inline double Decode(intact_type type, const uint8_t* element) noexcept {
  if (HighestOf(type) != 0) return TraitsOf(type).DecodeCode(*element);
  if (TraitsOf(type).type == INTACT_TYPE_NONE) return 0;
  uint32_t bits = 0;
  std::memcpy(&bits, element, static_cast<size_t>(BytesOf(type)));
  if (type == INTACT_F32) return std::bit_cast<float>(bits);
  return IsFloat(type) ? DecodeFloat(TraitsOf(type), bits) : static_cast<int32_t>(bits);
}

/// Stores a number that the type can hold. Does nothing for INTACT_TYPE_NONE or a value that is no type.
inline void Encode(intact_type type, double number, uint8_t* element) noexcept {
  if (TraitsOf(type).type == INTACT_TYPE_NONE) return;
  const uint32_t bits = type == INTACT_F32 ? std::bit_cast<uint32_t>(static_cast<float>(number))
                        : IsFloat(type)    ? EncodeFloat(TraitsOf(type), number)
                                           : static_cast<uint32_t>(static_cast<int64_t>(number));
  std::memcpy(element, &bits, static_cast<size_t>(BytesOf(type)));
}

}  // namespace intact::core
#endif  // INTACT_CORE_TYPES_H_
