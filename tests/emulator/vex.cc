#include "tests/emulator/vex.h"

#include <array>
#include <cstring>

namespace intact::emulator {
namespace {

constexpr uint8_t kThreeByteVex = 0xC4;
constexpr unsigned kMap0F38 = 2;
constexpr int kSibFollows = 4;  // as ModRM.rm
constexpr int kNoIndex = 4;     // as SIB.index, extended
constexpr int kNoBase = 5;      // as ModRM.rm (then RIP-relative) or SIB.base where mod is 0

/// `width` bits of `value` from bit `shift` on.
constexpr int Bits(unsigned value, int shift, int width) {
  return static_cast<int>((value >> shift) & ((1U << width) - 1));
}

/// A register's number: the bit that VEX holds complemented, and the three bits of ModRM or SIB.
constexpr int Extend(unsigned vex, int vex_bit, int low_bits) {
  return (1 - Bits(vex, vex_bit, 1)) * 8 + low_bits;
}

/// The general registers in the order of their encoding.
uint64_t Register(const gregset_t& registers, int number) {
  constexpr std::array<int, 16> kOrder = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                          REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                          REG_R12, REG_R13, REG_R14, REG_R15};
  return static_cast<uint64_t>(registers[kOrder[static_cast<size_t>(number)]]);
}

/// Reads SIB and displacement, which begin at `next`; returns what follows them.
const uint8_t* DecodeMemory(unsigned vex, int mod, int rm, const uint8_t* next, VexInstruction* out) {
  out->is_memory = true;
  out->has_sib = rm == kSibFollows;
  int base = rm;
  if (out->has_sib) {
    const unsigned sib = *next++;
    base = Bits(sib, 0, 3);
    const int index = Extend(vex, 6, Bits(sib, 3, 3));
    if (index != kNoIndex) out->index = index;
    out->scale = 1 << Bits(sib, 6, 2);
  }
  const bool has_base = mod != 0 || base != kNoBase;
  if (has_base) out->base = Extend(vex, 5, base);
  out->is_rip_relative = !has_base && !out->has_sib;
  if (mod == 1) {
    out->displacement = static_cast<int8_t>(*next);
    return next + 1;
  }
  if (mod == 0 && has_base) return next;
  std::memcpy(&out->displacement, next, sizeof(out->displacement));
  return next + sizeof(out->displacement);
}

}  // namespace

std::optional<VexInstruction> DecodeVex0F38(const uint8_t* code) {
  if (code[0] != kThreeByteVex || Bits(code[1], 0, 5) != kMap0F38) return std::nullopt;
  const unsigned vex1 = code[1];
  const unsigned vex2 = code[2];
  const unsigned modrm = code[4];
  VexInstruction out;
  out.prefix = static_cast<Prefix>(Bits(vex2, 0, 2));
  out.is_256 = Bits(vex2, 2, 1) != 0;
  out.vvvv = 15 - Bits(vex2, 3, 4);
  out.w = Bits(vex2, 7, 1) != 0;
  out.opcode = code[3];
  out.reg = Extend(vex1, 7, Bits(modrm, 3, 3));
  const int mod = Bits(modrm, 6, 2);
  const int rm = Bits(modrm, 0, 3);
  const uint8_t* next = code + 5;
  if (mod == 3) {
    out.rm = Extend(vex1, 5, rm);
  } else {
    next = DecodeMemory(vex1, mod, rm, next, &out);
  }
  out.length = static_cast<int>(next - code);
  return out;
}

uint64_t VexInstruction::BaseAddress(const gregset_t& registers) const {
  uint64_t address = static_cast<uint64_t>(int64_t{displacement});
  if (is_rip_relative) address += static_cast<uint64_t>(registers[REG_RIP]) + static_cast<uint64_t>(length);
  if (base != kNoRegister) address += Register(registers, base);
  return address;
}

uint64_t VexInstruction::ScaledIndex(const gregset_t& registers) const {
  return index == kNoRegister ? 0 : Register(registers, index) * static_cast<uint64_t>(scale);
}

}  // namespace intact::emulator
