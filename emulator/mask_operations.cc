#include "emulator/mask_operations.h"

#include <array>
#include <cstring>

namespace intact::emulator {
namespace {

using Execute = void (*)(State&, const Instruction&);

template <class Bits>
void FromMaskOrMemory(State& state, const Instruction& in) {
  if (!in.is_memory) {
    state.masks[in.reg] = static_cast<Bits>(state.masks[in.rm]);
    return;
  }
  Bits bits;
  std::memcpy(&bits, in.Memory(state), sizeof(bits));
  state.masks[in.reg] = bits;
}

template <class Bits>
void ToMemory(State& state, const Instruction& in) {
  const auto bits = static_cast<Bits>(state.masks[in.reg]);
  std::memcpy(in.Memory(state), &bits, sizeof(bits));
}

template <class Bits>
void FromGeneral(State& state, const Instruction& in) {
  state.masks[in.reg] = static_cast<Bits>(state.general[in.rm]);
}

template <class Bits>
void ToGeneral(State& state, const Instruction& in) {
  state.general[in.reg] = static_cast<Bits>(state.masks[in.rm]);
}

template <class Bits, auto kOperation>
void Logic(State& state, const Instruction& in) {
  state.masks[in.reg] = static_cast<Bits>(kOperation(state.masks[in.vvvv], state.masks[in.rm]));
}

template <class Bits>
void Not(State& state, const Instruction& in) {
  state.masks[in.reg] = static_cast<Bits>(~state.masks[in.rm]);
}

constexpr auto kAnd = [](uint64_t a, uint64_t b) { return a & b; };
constexpr auto kAndNot = [](uint64_t a, uint64_t b) { return ~a & b; };
constexpr auto kOr = [](uint64_t a, uint64_t b) { return a | b; };
constexpr auto kXnor = [](uint64_t a, uint64_t b) { return ~(a ^ b); };
constexpr auto kXor = [](uint64_t a, uint64_t b) { return a ^ b; };

enum class Operand : uint8_t { kMask, kMemory, kGeneral, kMaskOrMemory };

/// For masks of 8, 16, 32 and 64 bits.
using Widths = std::array<Execute, 4>;

#define INTACT_WIDTHS(name) \
  { name<uint8_t>, name<uint16_t>, name<uint32_t>, name<uint64_t> }
#define INTACT_LOGIC(operation)                                                        \
  {                                                                                    \
    Logic<uint8_t, operation>, Logic<uint16_t, operation>, Logic<uint32_t, operation>, \
        Logic<uint64_t, operation>                                                     \
  }

struct MaskOperation {
  uint8_t opcode;
  Operand rm;
  bool has_vvvv;
  Widths widths;
};

constexpr MaskOperation kOperations[] = {
    {0x90, Operand::kMaskOrMemory, false, INTACT_WIDTHS(FromMaskOrMemory)},
    {0x91, Operand::kMemory, false, INTACT_WIDTHS(ToMemory)},
    {0x92, Operand::kGeneral, false, INTACT_WIDTHS(FromGeneral)},
    {0x93, Operand::kMask, false, INTACT_WIDTHS(ToGeneral)},
    {0x41, Operand::kMask, true, INTACT_LOGIC(kAnd)},
    {0x42, Operand::kMask, true, INTACT_LOGIC(kAndNot)},
    {0x44, Operand::kMask, false, INTACT_WIDTHS(Not)},
    {0x45, Operand::kMask, true, INTACT_LOGIC(kOr)},
    {0x46, Operand::kMask, true, INTACT_LOGIC(kXnor)},
    {0x47, Operand::kMask, true, INTACT_LOGIC(kXor)},
};

/// An index of Widths; -1 if the encoding has none. Moves from and to general registers encode 32 and 64 bits
/// by F2, instead of W and 66.
int Width(const Instruction& in) {
  if (in.opcode == 0x92 || in.opcode == 0x93) {
    if (in.prefix == Prefix::kF2) return in.w ? 3 : 2;
    if (in.w) return -1;
  }
  if (in.prefix == Prefix::k66) return in.w ? 2 : 0;
  if (in.prefix == Prefix::kNone) return in.w ? 3 : 1;
  return -1;
}

bool HasRightOperands(const MaskOperation& operation, const Instruction& in) {
  const bool is_256 = in.vector_bytes == 32;
  if (is_256 != operation.has_vvvv || (!operation.has_vvvv && in.vvvv != 0) || in.vvvv >= 8) return false;
  if (in.reg >= 8 && in.opcode != 0x93) return false;
  if (!in.is_memory && in.rm >= 8 && operation.rm != Operand::kGeneral) return false;
  return operation.rm == Operand::kMaskOrMemory || in.is_memory == (operation.rm == Operand::kMemory);
}

}  // namespace

bool FindMaskOperation(Instruction* instruction) {
  Instruction& in = *instruction;
  if (in.encoding != Encoding::kVex || in.map != Map::k0F) return false;
  for (const MaskOperation& operation : kOperations) {
    if (operation.opcode != in.opcode) continue;
    const int width = Width(in);
    if (width < 0 || !HasRightOperands(operation, in)) return false;
    in.execute = operation.widths[static_cast<size_t>(width)];
    in.is_emulated = true;
    return true;
  }
  return false;
}

}  // namespace intact::emulator
