// The table of ISAs, one row each. Everything that depends only on an ISA is in its row. jit/isa.h detects
// which ISAs this machine has.
//
// The ISAs form a ladder with branches. A cap names a machine, and keeps the ISAs that this machine has:
//
//   portable ──► avx2 ──► avx_vnni ──► avx_vnni_int8 ──► (client CPUs)
//                  └────► avx512 ──► avx512_vnni ──► avx10_2
//                                          └───────► amx_int8
//
//   cap            keeps, in addition to portable
//   portable       –
//   avx2           avx2
//   avx_vnni       avx2, avx_vnni
//   avx_vnni_int8  avx2, avx_vnni, avx_vnni_int8
//   avx512         avx2, avx512
//   avx512_vnni    avx2, avx_vnni, avx512, avx512_vnni
//   avx10_2        all except amx_int8
//   amx_int8       all: the newest machines with AMX have AVX-VNNI-INT8 and AVX10.2
#ifndef INTACT_CORE_ISAS_H_
#define INTACT_CORE_ISAS_H_

#include <intact/intact.h>

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace intact::core {

enum class Isa : uint8_t {
  kAvx2 = INTACT_ISA_AVX2,
  kAvxVnni = INTACT_ISA_AVX_VNNI,
  kAvx512 = INTACT_ISA_AVX512,  // F, BW, DQ, VL
  kAvx512Vnni = INTACT_ISA_AVX512_VNNI,
  kAmxInt8 = INTACT_ISA_AMX_INT8,
  kAvxVnniInt8 = INTACT_ISA_AVX_VNNI_INT8,
  kPortable = INTACT_ISA_PORTABLE,
  kAvx10_2 = INTACT_ISA_AVX10_2,
};

class IsaSet {
 public:
  constexpr IsaSet() = default;
  constexpr IsaSet(std::initializer_list<Isa> isas) {
    for (const Isa isa : isas) Add(isa);
  }
  constexpr bool Has(Isa isa) const { return (bits_ & Bit(isa)) != 0; }
  constexpr void Add(Isa isa) { bits_ |= Bit(isa); }
  constexpr bool Empty() const { return bits_ == 0; }
  constexpr IsaSet operator&(IsaSet other) const { return FromBits(bits_ & other.bits_); }
  constexpr IsaSet operator|(IsaSet other) const { return FromBits(bits_ | other.bits_); }
  constexpr bool operator==(const IsaSet&) const = default;
  std::string ToString() const;  // "avx2, avx512"

 private:
  static constexpr unsigned Bit(Isa isa) { return 1u << static_cast<unsigned>(isa); }
  static constexpr IsaSet FromBits(unsigned bits) {
    IsaSet set;
    set.bits_ = bits;
    return set;
  }
  unsigned bits_ = 0;
};

/// The encoding of vector instructions: ISAs without AVX-512 have only VEX.
enum class Encoding : uint8_t { kVex, kEvex };

/// The registers of vector kernels.
struct VectorFile {
  int bytes;  // of one register
  int count;
  Encoding encoding;
};
inline constexpr VectorFile kYmm = {32, 16, Encoding::kVex};
inline constexpr VectorFile kZmm = {64, 32, Encoding::kEvex};
inline constexpr VectorFile kNoRegisters = {64, 0, Encoding::kVex};  // 64: 16 columns, as in a panel

/// VNNI multiplies bytes, and adds four products at a time to an int32. A value of this type says which signs the bytes
/// have. kNone: the ISA has no VNNI.
enum class DotProducts : uint8_t { kNone, kU8S8, kAllSigns };

/// A row of the table of ISAs.
struct IsaTraits {
  Isa isa;
  std::string_view name;
  VectorFile vectors;
  DotProducts dot_products;
  bool has_tiles;
  int rank;          // the permitted ISA of the highest rank is chosen
  IsaSet cap_keeps;  // the ISAs of a machine named by this ISA (see above)
};

/// The table of ISAs. `rank` orders them. AVX-VNNI outranks AVX-512 without VNNI: its vectors have half the
/// width, but it needs a third of the instructions.
inline constexpr std::array kIsaTraits = [] {
  using enum Isa;
  using enum DotProducts;
  // clang-format off
  return std::to_array<IsaTraits>({
      // isa         name             vectors       products   tiles  rank a cap keeps
      {kPortable,    "portable",      kNoRegisters, kU8S8,     false, 0, {kPortable}},
      {kAvx2,        "avx2",          kYmm,         kNone,     false, 1, {kPortable, kAvx2}},
      {kAvxVnni,     "avx_vnni",      kYmm,         kU8S8,     false, 3, {kPortable, kAvx2, kAvxVnni}},
      {kAvxVnniInt8, "avx_vnni_int8", kYmm,         kAllSigns, false, 4, {kPortable, kAvx2, kAvxVnni,
                                                                          kAvxVnniInt8}},
      {kAvx512,      "avx512",        kZmm,         kNone,     false, 2, {kPortable, kAvx2, kAvx512}},
      {kAvx512Vnni,  "avx512_vnni",   kZmm,         kU8S8,     false, 5, {kPortable, kAvx2, kAvxVnni, kAvx512,
                                                                          kAvx512Vnni}},
      {kAvx10_2,     "avx10_2",       kZmm,         kAllSigns, false, 6, {kPortable, kAvx2, kAvxVnni,
                                                                          kAvxVnniInt8, kAvx512, kAvx512Vnni,
                                                                          kAvx10_2}},
      {kAmxInt8,     "amx_int8",      kZmm,         kU8S8,     true,  7, {kPortable, kAvx2, kAvxVnni,
                                                                          kAvxVnniInt8, kAvx512, kAvx512Vnni,
                                                                          kAvx10_2, kAmxInt8}},
  });
  // clang-format on
}();

/// The ladder's ISAs, and their values in the C interface.
inline constexpr std::array kAllIsas = [] {
  std::array<Isa, kIsaTraits.size()> isas = {};
  for (size_t i = 0; i < isas.size(); ++i) isas[i] = kIsaTraits[i].isa;
  return isas;
}();
inline constexpr std::array kIsaLadder = [] {
  std::array<intact_isa, kIsaTraits.size()> isas = {};
  for (size_t i = 0; i < isas.size(); ++i) isas[i] = static_cast<intact_isa>(kIsaTraits[i].isa);
  return isas;
}();

/// The row of `isa`. Values from outside must pass IsaOf() first. A value without a row is a bug. For such a
/// value, the function returns the row of the weakest ISA.
constexpr const IsaTraits& TraitsOf(Isa isa) {
  for (const IsaTraits& traits : kIsaTraits) {
    if (traits.isa == isa) return traits;
  }
  assert(false);
  return kIsaTraits.front();
}

/// Whether kernels of `isa` are compiled code, for any CPU, and no code is generated.
constexpr bool IsCompiled(Isa isa) { return TraitsOf(isa).vectors.count == 0; }

/// Whether int8 kernels of other libraries, and our kernels in saturating mode, use VPMADDUBSW on this ISA.
/// Our kernels in exact mode are then scheduled. Models for other libraries need reduce_range=True on these
/// ISAs. On all other ISAs, reduce_range loses a bit without need.
constexpr bool SaturatesInt16(Isa isa) { return TraitsOf(isa).dot_products == DotProducts::kNone; }

/// The ISA of an intact_isa; nothing if no ISA has this value (INTACT_ISA_ANY has none).
constexpr std::optional<Isa> IsaOf(int64_t value) {
  for (const Isa isa : kAllIsas) {
    if (static_cast<int64_t>(isa) == value) return isa;
  }
  return std::nullopt;
}

/// SaturatesInt16() of a value that may be INTACT_ISA_ANY. INTACT_ISA_ANY does not saturate.
constexpr bool SaturatesInt16(intact_isa value) {
  const std::optional<Isa> isa = IsaOf(value);
  return isa && SaturatesInt16(*isa);
}

constexpr std::string_view ToString(Isa isa) { return TraitsOf(isa).name; }

/// The spelling in kernel names: "avx512vnni".
std::string CompactName(Isa isa);

/// Parses "avx2", …; the error lists the known names.
Result<Isa> ParseIsa(std::string_view name);

/// The ISAs of a machine named by `cap` (see above).
constexpr IsaSet CappedAt(Isa cap) { return TraitsOf(cap).cap_keeps; }

}  // namespace intact::core
#endif  // INTACT_CORE_ISAS_H_
