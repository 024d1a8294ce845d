// The only ISA detection of the project: CPUID, XCR0, the operating system's permission for AMX tile data,
// and INTACT_MAX_ISA, which only removes. Everything else asks this header.
//
// The ISAs form a ladder with one side step. A cap names a machine, and keeps what that machine has:
//
//   avx2 ──► avx_vnni ─────────────► (client CPUs)
//     └────► avx512 ──► avx512_vnni ──► amx_int8
//
//   cap          keeps
//   avx2         avx2
//   avx_vnni     avx2, avx_vnni
//   avx512       avx2, avx512
//   avx512_vnni  avx2, avx_vnni, avx512, avx512_vnni
//   amx_int8     all
#ifndef INTACT_JIT_ISA_H_
#define INTACT_JIT_ISA_H_

#include <intact/intact.h>

#include <array>
#include <cstdint>
#include <intact/intact.hpp>
#include <string>
#include <string_view>

namespace intact::jit {

enum class Isa : uint8_t {
  kAvx2 = INTACT_ISA_AVX2,
  kAvxVnni = INTACT_ISA_AVX_VNNI,
  kAvx512 = INTACT_ISA_AVX512,  // F, BW, DQ, VL
  kAvx512Vnni = INTACT_ISA_AVX512_VNNI,
  kAmxInt8 = INTACT_ISA_AMX_INT8,
};

inline constexpr std::array kAllIsas = {Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512, Isa::kAvx512Vnni,
                                        Isa::kAmxInt8};

class IsaSet {
 public:
  constexpr IsaSet() = default;
  constexpr IsaSet(std::initializer_list<Isa> isas) {
    for (const Isa isa : isas) Add(isa);
  }
  constexpr bool Has(Isa isa) const { return (bits_ & Bit(isa)) != 0; }
  constexpr void Add(Isa isa) { bits_ = static_cast<uint8_t>(bits_ | Bit(isa)); }
  constexpr bool Empty() const { return bits_ == 0; }
  constexpr IsaSet operator&(IsaSet other) const { return FromBits(bits_ & other.bits_); }
  constexpr IsaSet operator|(IsaSet other) const { return FromBits(bits_ | other.bits_); }
  constexpr bool operator==(const IsaSet&) const = default;
  std::string ToString() const;  // "avx2, avx512"

 private:
  static constexpr unsigned Bit(Isa isa) { return 1u << static_cast<unsigned>(isa); }
  static constexpr IsaSet FromBits(int bits) {
    IsaSet set;
    set.bits_ = static_cast<uint8_t>(bits);
    return set;
  }
  uint8_t bits_ = 0;
};

std::string_view ToString(Isa isa);

/// As kernel names spell it: "avx512vnni".
std::string CompactName(Isa isa);

/// "avx2", …; the error lists what is known.
Result<Isa> ParseIsa(std::string_view name);

/// What a machine named by `cap` has (the table above).
IsaSet CappedAt(Isa cap);

/// What CPU and operating system offer, before any cap. Constant over the process.
IsaSet HardwareIsas();

/// HardwareIsas() under INTACT_MAX_ISA, which is read once. Error if the variable names no ISA. For AMX,
/// which needs it, the kernel's permission is asked here, once and for the whole process, unless the cap
/// excludes it.
Result<IsaSet> PermittedIsas();

/// Why `isa` is not permitted, in words; "" if it is.
std::string WhyNotPermitted(Isa isa);

/// Tests that emulate an ISA in a signal handler add it here, so that plans may choose it.
void AddEmulatedIsaForTesting(Isa isa);

}  // namespace intact::jit
#endif  // INTACT_JIT_ISA_H_
