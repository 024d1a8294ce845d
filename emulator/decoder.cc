#include "emulator/decoder.h"

#include <cstring>

namespace intact::emulator {
namespace {

constexpr unsigned kSibFollows = 4;  // as ModRM.rm
constexpr unsigned kNoIndex = 4;     // as SIB.index, extended
constexpr unsigned kNoBase = 5;      // as ModRM.rm (then RIP-relative) or SIB.base if mod is 0

/// `width` bits of `value` from bit `shift` on.
constexpr unsigned Bits(unsigned value, int shift, int width) {
  return (value >> shift) & ((1U << width) - 1);
}

/// Bits that extend the fields of ModRM and SIB: 0 or 8; EVEX's can also be 16.
struct Extensions {
  unsigned reg = 0, index = 0, base = 0;
  unsigned rm_high = 0;  // 16, for a register as ModRM.rm
};

template <class Integer>
Integer Take(const uint8_t** next) {
  Integer value;
  std::memcpy(&value, *next, sizeof(value));
  *next += sizeof(value);
  return value;
}

const uint8_t* TakeLegacy(const uint8_t* next, Instruction* out, Extensions* extensions) {
  for (;; ++next) {
    constexpr uint8_t kCodeSegment = 0x2E;  // means nothing
    if (*next == 0x66) {
      out->prefix = Prefix::k66;
    } else if (*next == 0xF3) {
      out->prefix = Prefix::kF3;
    } else if (*next == 0xF2) {
      out->prefix = Prefix::kF2;
    } else if (*next != kCodeSegment) {
      break;
    }
  }
  if (Bits(*next, 4, 4) == 4) {
    const unsigned rex = *next++;
    out->has_rex = true;
    out->w = Bits(rex, 3, 1) != 0;
    *extensions = {8 * Bits(rex, 2, 1), 8 * Bits(rex, 1, 1), 8 * Bits(rex, 0, 1), 0};
  }
  if (*next != 0x0F) return next;
  ++next;
  out->map = Map::k0F;
  if (*next != 0x38 && *next != 0x3A) return next;
  out->map = *next == 0x38 ? Map::k0F38 : Map::k0F3A;
  return next + 1;
}

/// ~vvvv L pp, which all forms of VEX have.
void TakeVexCommon(unsigned byte, Instruction* out) {
  out->encoding = Encoding::kVex;
  out->vvvv = static_cast<uint8_t>(15 - Bits(byte, 3, 4));
  out->vector_bytes = Bits(byte, 2, 1) != 0 ? 32 : 16;
  out->prefix = static_cast<Prefix>(Bits(byte, 0, 2));
}

const uint8_t* TakeShortVex(const uint8_t* next, Instruction* out, Extensions* extensions) {
  extensions->reg = 8 * (1 - Bits(next[1], 7, 1));
  out->map = Map::k0F;
  TakeVexCommon(next[1], out);
  return next + 2;
}

const uint8_t* TakeVex(const uint8_t* next, Instruction* out, Extensions* extensions) {
  const unsigned inverted = ~unsigned{next[1]};
  *extensions = {8 * Bits(inverted, 7, 1), 8 * Bits(inverted, 6, 1), 8 * Bits(inverted, 5, 1), 0};
  const unsigned map = Bits(next[1], 0, 5);
  if (map < 1 || map > 3) return nullptr;
  out->map = static_cast<Map>(map);
  out->w = Bits(next[2], 7, 1) != 0;
  TakeVexCommon(next[2], out);
  return next + 3;
}

const uint8_t* TakeEvex(const uint8_t* next, Instruction* out, Extensions* extensions) {
  const unsigned inverted = ~unsigned{next[1]};
  *extensions = {8 * Bits(inverted, 7, 1) + 16 * Bits(inverted, 4, 1), 8 * Bits(inverted, 6, 1),
                 8 * Bits(inverted, 5, 1), 16 * Bits(inverted, 6, 1)};
  const unsigned map = Bits(next[1], 0, 3);
  const unsigned length = Bits(next[3], 5, 2);
  const bool is_valid = Bits(next[1], 3, 1) == 0 && Bits(next[2], 2, 1) == 1 && map >= 1 && map <= 3;
  if (!is_valid || length > 2) return nullptr;
  out->encoding = Encoding::kEvex;
  out->map = static_cast<Map>(map);
  out->w = Bits(next[2], 7, 1) != 0;
  out->vvvv = static_cast<uint8_t>(15 - Bits(next[2], 3, 4) + 16 * (1 - Bits(next[3], 3, 1)));
  out->prefix = static_cast<Prefix>(Bits(next[2], 0, 2));
  out->vector_bytes = static_cast<uint8_t>(16U << length);
  out->zeroes = Bits(next[3], 7, 1) != 0;
  out->has_evex_b = Bits(next[3], 4, 1) != 0;
  out->mask = static_cast<uint8_t>(Bits(next[3], 0, 3));
  return next + 4;
}

bool HasRegisterInOpcode(const Instruction& in) {
  const unsigned high = in.opcode & 0xF8U;
  return in.encoding == Encoding::kLegacy && in.map == Map::kOneByte &&
         (high == 0x50 || high == 0x58 || high == 0xB8);
}

bool HasModRm(const Instruction& in) {
  if (in.encoding != Encoding::kLegacy) return !(in.map == Map::k0F && in.opcode == 0x77);
  if (in.map == Map::k0F) return Bits(in.opcode, 4, 4) != 8;  // Jcc
  if (in.map != Map::kOneByte) return true;
  if (HasRegisterInOpcode(in)) return false;
  if (in.opcode < 0x40) return Bits(in.opcode, 0, 3) < 4;
  switch (in.opcode) {
    case 0x90:
    case 0xA8:
    case 0xA9:
    case 0xC3:
    case 0xE9:
    case 0xEB:
      return false;
    default:
      return Bits(in.opcode, 4, 4) != 7;  // Jcc
  }
}

/// Bytes of the immediate.
int ImmediateBytes(const Instruction& in) {
  if (in.encoding != Encoding::kLegacy) {
    if (in.map == Map::k0F3A) return 1;
    const bool has_one = (in.opcode >= 0x70 && in.opcode <= 0x73) || in.opcode == 0xC2 ||
                         (in.opcode >= 0xC4 && in.opcode <= 0xC6);
    return in.map == Map::k0F && has_one ? 1 : 0;
  }
  if (in.map == Map::k0F) return Bits(in.opcode, 4, 4) == 8 ? 4 : 0;
  if (in.map != Map::kOneByte) return 0;
  if ((in.opcode & 0xF8U) == 0xB8) return in.w ? 8 : 4;
  if (Bits(in.opcode, 4, 4) == 7) return 1;
  if (in.opcode < 0x40 && Bits(in.opcode, 0, 3) == 5) return 4;
  switch (in.opcode) {
    case 0x6B:
    case 0x83:
    case 0xC1:
    case 0xEB:
      return 1;
    case 0x69:
    case 0x81:
    case 0xA9:
    case 0xC7:
    case 0xE9:
      return 4;
    case 0xF7:
      return in.group < 2 ? 4 : 0;
    default:
      return 0;
  }
}

/// Reads SIB and displacement, which begin at `next`; returns what follows them.
const uint8_t* TakeMemory(const uint8_t* next, unsigned mod, unsigned rm, const Extensions& extensions,
                          Instruction* out, bool* is_rip_relative) {
  out->is_memory = true;
  out->has_sib = rm == kSibFollows;
  unsigned base = rm;
  if (out->has_sib) {
    const unsigned sib = *next++;
    base = Bits(sib, 0, 3);
    const unsigned index = Bits(sib, 3, 3) + extensions.index;
    if (index != kNoIndex) out->index = static_cast<uint8_t>(index);
    out->shift = static_cast<uint8_t>(Bits(sib, 6, 2));
  }
  const bool has_base = mod != 0 || base != kNoBase;
  if (has_base) out->base = static_cast<uint8_t>(base + extensions.base);
  *is_rip_relative = !has_base && !out->has_sib;
  out->has_byte_displacement = mod == 1;
  if (mod == 1) {
    out->displacement = Take<int8_t>(&next);
  } else if (mod == 2 || !has_base) {
    out->displacement = Take<int32_t>(&next);
  }
  return next;
}

int64_t TakeImmediate(int bytes, const uint8_t** next) {
  switch (bytes) {
    case 1:
      return Take<int8_t>(next);
    case 4:
      return Take<int32_t>(next);
    case 8:
      return Take<int64_t>(next);
    default:
      return 0;
  }
}

}  // namespace

std::optional<Instruction> Decode(const uint8_t* code) {
  Instruction out;
  Extensions extensions;
  const uint8_t* next = nullptr;
  switch (*code) {
    case 0x62:
      next = TakeEvex(code, &out, &extensions);
      break;
    case 0xC4:
      next = TakeVex(code, &out, &extensions);
      break;
    case 0xC5:
      next = TakeShortVex(code, &out, &extensions);
      break;
    default:
      next = TakeLegacy(code, &out, &extensions);
  }
  if (next == nullptr) return std::nullopt;
  out.opcode = *next++;
  bool is_rip_relative = false;
  if (HasModRm(out)) {
    const unsigned modrm = *next++;
    const unsigned mod = Bits(modrm, 6, 2);
    const unsigned rm = Bits(modrm, 0, 3);
    out.group = static_cast<uint8_t>(Bits(modrm, 3, 3));
    out.reg = static_cast<uint8_t>(out.group + extensions.reg);
    if (mod == 3) {
      out.rm = static_cast<uint8_t>(rm + extensions.base + extensions.rm_high);
    } else {
      next = TakeMemory(next, mod, rm, extensions, &out, &is_rip_relative);
    }
  } else if (HasRegisterInOpcode(out)) {
    out.reg = static_cast<uint8_t>(Bits(out.opcode, 0, 3) + extensions.base);
    out.opcode &= 0xF8U;
  }
  out.immediate = TakeImmediate(ImmediateBytes(out), &next);
  out.length = static_cast<uint8_t>(next - code);
  out.next = reinterpret_cast<uint64_t>(next);
  if (is_rip_relative) out.displacement += static_cast<int64_t>(out.next);
  return out;
}

}  // namespace intact::emulator
