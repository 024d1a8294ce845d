#include "emulator/general_operations.h"

#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "reference/models/operands.h"

namespace intact::emulator {
namespace {

using Execute = void (*)(State&, const Instruction&);

constexpr uint64_t kCarry = 1U << 0;
constexpr uint64_t kParity = 1U << 2;
constexpr uint64_t kAuxiliary = 1U << 4;
constexpr uint64_t kZero = 1U << 6;
constexpr uint64_t kSign = 1U << 7;
constexpr uint64_t kOverflow = 1U << 11;
constexpr uint64_t kArithmetic = kCarry | kParity | kAuxiliary | kZero | kSign | kOverflow;

template <class Word>
constexpr int kBits = 8 * sizeof(Word);

template <class Word>
bool TopBit(Word value) {
  return (value >> (kBits<Word> - 1) & 1) != 0;
}

template <class Word>
Word ReadRm(const State& state, const Instruction& in) {
  if (!in.is_memory) return static_cast<Word>(state.general[in.rm]);
  Word value;
  std::memcpy(&value, in.Memory(state), sizeof(value));
  return value;
}

/// Writing 32 bits of a register zeroes its upper half.
template <class Word>
void WriteRm(State& state, const Instruction& in, Word value) {
  if (in.is_memory) {
    std::memcpy(in.Memory(state), &value, sizeof(value));
  } else {
    state.general[in.rm] = value;
  }
}

/// Zero, sign and parity of a result.
template <class Word>
uint64_t ResultFlags(Word result) {
  const bool is_even = std::popcount(static_cast<uint8_t>(result)) % 2 == 0;
  return (result == 0 ? kZero : 0) | (TopBit(result) ? kSign : 0) | (is_even ? kParity : 0);
}

void SetFlags(State& state, uint64_t which, uint64_t flags) {
  state.flags = (state.flags & ~which) | (flags & which);
}

template <class Word>
uint64_t AdditionFlags(Word a, Word b, Word sum, bool carry) {
  return ResultFlags(sum) | (carry ? kCarry : 0) | ((a ^ b ^ sum) & kAuxiliary) |
         (TopBit(static_cast<Word>(~(a ^ b) & (a ^ sum))) ? kOverflow : 0);
}

template <class Word>
uint64_t SubtractionFlags(Word a, Word b, Word difference) {
  return ResultFlags(difference) | (a < b ? kCarry : 0) | ((a ^ b ^ difference) & kAuxiliary) |
         (TopBit(static_cast<Word>((a ^ b) & (a ^ difference))) ? kOverflow : 0);
}

// The operations with opcodes 8·n to 8·n + 5, and number n in the groups of immediates. Comparisons compute a
// result without storing it.

struct Add {
  template <class Word>
  static Word Of(State& state, Word a, Word b) {
    const auto sum = static_cast<Word>(a + b);
    SetFlags(state, kArithmetic, AdditionFlags(a, b, sum, sum < a));
    return sum;
  }
};

struct Subtract {
  template <class Word>
  static Word Of(State& state, Word a, Word b) {
    const auto difference = static_cast<Word>(a - b);
    SetFlags(state, kArithmetic, SubtractionFlags(a, b, difference));
    return difference;
  }
};

struct And {
  template <class Word>
  static Word Of(State& state, Word a, Word b) {
    SetFlags(state, kArithmetic, ResultFlags(static_cast<Word>(a & b)));
    return a & b;
  }
};

struct Or {
  template <class Word>
  static Word Of(State& state, Word a, Word b) {
    SetFlags(state, kArithmetic, ResultFlags(static_cast<Word>(a | b)));
    return a | b;
  }
};

struct Xor {
  template <class Word>
  static Word Of(State& state, Word a, Word b) {
    SetFlags(state, kArithmetic, ResultFlags(static_cast<Word>(a ^ b)));
    return a ^ b;
  }
};

/// The operands of an operation: destination and first source, then second source.
enum class Operands : uint8_t { kRmReg, kRegRm, kRaxImmediate, kRmImmediate };

template <class Operation, bool kStores, Operands kOperands, class Word>
void Arithmetic(State& state, const Instruction& in) {
  constexpr bool kIsRm = kOperands == Operands::kRmReg || kOperands == Operands::kRmImmediate;
  constexpr bool kIsImmediate = kOperands == Operands::kRaxImmediate || kOperands == Operands::kRmImmediate;
  const size_t destination = kOperands == Operands::kRaxImmediate ? 0 : in.reg;
  const Word first = kIsRm ? ReadRm<Word>(state, in) : static_cast<Word>(state.general[destination]);
  Word second = 0;
  if constexpr (kIsImmediate) {
    second = static_cast<Word>(in.immediate);
  } else if constexpr (kOperands == Operands::kRmReg) {
    second = static_cast<Word>(state.general[in.reg]);
  } else {
    second = ReadRm<Word>(state, in);
  }
  const Word result = Operation::Of(state, first, second);
  if constexpr (!kStores) return;
  if constexpr (kIsRm) {
    WriteRm(state, in, result);
  } else {
    state.general[destination] = result;
  }
}

/// For 32 and for 64 bits.
using Widths = std::array<Execute, 2>;

template <class Operation, bool kStores, Operands kOperands>
constexpr Widths kArithmeticWidths = {Arithmetic<Operation, kStores, kOperands, uint32_t>,
                                      Arithmetic<Operation, kStores, kOperands, uint64_t>};

/// In the order of Operands.
template <class Operation, bool kStores = true>
constexpr std::array<Widths, 4> kForms = {kArithmeticWidths<Operation, kStores, Operands::kRmReg>,
                                          kArithmeticWidths<Operation, kStores, Operands::kRegRm>,
                                          kArithmeticWidths<Operation, kStores, Operands::kRaxImmediate>,
                                          kArithmeticWidths<Operation, kStores, Operands::kRmImmediate>};

constexpr std::array<Widths, 4> kUnknownForms = {};

/// By number: ADD OR ADC SBB AND SUB XOR CMP.
constexpr std::array<std::array<Widths, 4>, 8> kArithmeticForms = {
    kForms<Add>, kForms<Or>,       kUnknownForms, kUnknownForms,
    kForms<And>, kForms<Subtract>, kForms<Xor>,   kForms<Subtract, false>};

/// INC and DEC leave the carry as it is.
template <bool kIncrements, class Word>
void Step(State& state, const Instruction& in) {
  const Word before = ReadRm<Word>(state, in);
  const auto after = static_cast<Word>(kIncrements ? before + 1 : before - 1);
  const uint64_t flags =
      kIncrements ? AdditionFlags<Word>(before, 1, after, false) : SubtractionFlags<Word>(before, 1, after);
  SetFlags(state, kArithmetic & ~kCarry, flags);
  WriteRm(state, in, after);
}

enum class ShiftKind : uint8_t { kLeft, kLogicalRight, kArithmeticRight };

/// Shifts by the immediate. Overflow is undefined for counts other than 1; it is set as for a count of 1.
template <ShiftKind kKind, class Word>
void Shift(State& state, const Instruction& in) {
  const Word value = ReadRm<Word>(state, in);
  const int count = static_cast<int>(in.immediate) & (kBits<Word> - 1);
  if (count == 0) {
    WriteRm(state, in, value);
    return;
  }
  Word result = 0;
  bool carry = false, overflow = false;
  if constexpr (kKind == ShiftKind::kLeft) {
    result = static_cast<Word>(value << count);
    carry = (value >> (kBits<Word> - count) & 1) != 0;
    overflow = TopBit(result) != carry;
  } else {
    using Signed = std::make_signed_t<Word>;
    carry = (value >> (count - 1) & 1) != 0;
    result = kKind == ShiftKind::kLogicalRight ? static_cast<Word>(value >> count)
                                               : static_cast<Word>(static_cast<Signed>(value) >> count);
    overflow = kKind == ShiftKind::kLogicalRight && TopBit(value);
  }
  SetFlags(state, kArithmetic & ~kAuxiliary,
           ResultFlags(result) | (carry ? kCarry : 0) | (overflow ? kOverflow : 0));
  WriteRm(state, in, result);
}

template <class Word>
void MoveToRm(State& state, const Instruction& in) {
  WriteRm(state, in, static_cast<Word>(state.general[in.reg]));
}

template <class Word, class Source>
void MoveToRegister(State& state, const Instruction& in) {
  state.general[in.reg] = static_cast<Word>(ReadRm<Source>(state, in));
}

template <class Word>
void MoveImmediateToRm(State& state, const Instruction& in) {
  WriteRm(state, in, static_cast<Word>(in.immediate));
}

template <class Word>
void MoveImmediate(State& state, const Instruction& in) {
  state.general[in.reg] = static_cast<Word>(in.immediate);
}

template <class Word>
void LoadAddress(State& state, const Instruction& in) {
  state.general[in.reg] = static_cast<Word>(in.Address(state));
}

uint64_t TakeFromStack(State& state) {
  uint64_t& top = state.general[State::kStackPointer];
  uint64_t value = 0;
  std::memcpy(&value, reinterpret_cast<const uint8_t*>(top), sizeof(value));
  top += sizeof(value);
  return value;
}

void Pop(State& state, const Instruction& in) { state.general[in.reg] = TakeFromStack(state); }

/// The CPU executes PUSH if the red zone has no room.
void Push(State& state, const Instruction& in) {
  uint64_t& top = state.general[State::kStackPointer];
  if (top - sizeof(uint64_t) < state.stack_limit) {
    state.rip = in.next - in.length;
    state.must_stop = true;
    return;
  }
  const uint64_t value = state.general[in.reg];
  top -= sizeof(value);
  std::memcpy(reinterpret_cast<uint8_t*>(top), &value, sizeof(value));
}

void Return(State& state, const Instruction& /*in*/) {
  state.rip = TakeFromStack(state);
  state.must_stop = true;
  state.has_returned = true;
}

void Jump(State& state, const Instruction& in) { state.rip = in.next + static_cast<uint64_t>(in.immediate); }

/// Conditions come in pairs: the second is the opposite of the first.
template <int kPair>
bool Holds(uint64_t flags) {
  const bool carry = (flags & kCarry) != 0, zero = (flags & kZero) != 0, sign = (flags & kSign) != 0,
             overflow = (flags & kOverflow) != 0, parity = (flags & kParity) != 0;
  if constexpr (kPair == 0) return overflow;
  if constexpr (kPair == 1) return carry;
  if constexpr (kPair == 2) return zero;
  if constexpr (kPair == 3) return carry || zero;
  if constexpr (kPair == 4) return sign;
  if constexpr (kPair == 5) return parity;
  if constexpr (kPair == 6) return sign != overflow;
  if constexpr (kPair == 7) return sign != overflow || zero;
}

template <int kCondition>
void JumpIf(State& state, const Instruction& in) {
  if (Holds<kCondition / 2>(state.flags) == (kCondition % 2 == 0)) Jump(state, in);
}

constexpr std::array<Execute, 16> kConditionalJumps = {
    JumpIf<0>, JumpIf<1>, JumpIf<2>,  JumpIf<3>,  JumpIf<4>,  JumpIf<5>,  JumpIf<6>,  JumpIf<7>,
    JumpIf<8>, JumpIf<9>, JumpIf<10>, JumpIf<11>, JumpIf<12>, JumpIf<13>, JumpIf<14>, JumpIf<15>};

void DoNothing(State& /*state*/, const Instruction& /*in*/) {}

/// The register operand that an operation writes; it might be RSP.
enum class Writes : uint8_t { kNothing, kReg, kRm };

struct Found {
  Widths widths = {};
  Writes writes = Writes::kNothing;
};

Found FindArithmetic(const Instruction& in) {
  constexpr size_t kCompare = 7;
  const bool is_group = in.opcode == 0x81 || in.opcode == 0x83;
  const size_t number = is_group ? in.group : in.opcode / 8U;
  size_t form = static_cast<size_t>(Operands::kRmImmediate);
  Writes writes = Writes::kRm;
  if (!is_group) {
    switch (in.opcode % 8) {
      case 1:
        form = static_cast<size_t>(Operands::kRmReg);
        break;
      case 3:
        form = static_cast<size_t>(Operands::kRegRm);
        writes = Writes::kReg;
        break;
      case 5:
        form = static_cast<size_t>(Operands::kRaxImmediate);
        writes = Writes::kNothing;  // RAX alone
        break;
      default:
        return {};
    }
  }
  return {kArithmeticForms[number][form], number == kCompare ? Writes::kNothing : writes};
}

Found FindShift(const Instruction& in) {
  switch (in.group) {
    case 4:
      return {{Shift<ShiftKind::kLeft, uint32_t>, Shift<ShiftKind::kLeft, uint64_t>}, Writes::kRm};
    case 5:
      return {{Shift<ShiftKind::kLogicalRight, uint32_t>, Shift<ShiftKind::kLogicalRight, uint64_t>},
              Writes::kRm};
    case 7:
      return {{Shift<ShiftKind::kArithmeticRight, uint32_t>, Shift<ShiftKind::kArithmeticRight, uint64_t>},
              Writes::kRm};
    default:
      return {};
  }
}

Found FindOneByte(const Instruction& in) {
  if (in.opcode < 0x40 || in.opcode == 0x81 || in.opcode == 0x83) return FindArithmetic(in);
  if (in.opcode >= 0x70 && in.opcode < 0x80) {
    const Execute jump = kConditionalJumps[in.opcode % 16];
    return {{jump, jump}};
  }
  switch (in.opcode) {
    case 0x50:
      return {{Push, Push}};
    case 0x58:
      return {{Pop, Pop}, Writes::kReg};
    case 0x63:
      return {{MoveToRegister<uint32_t, int32_t>, MoveToRegister<uint64_t, int32_t>}, Writes::kReg};
    case 0x85:
      return {kForms<And, false>[static_cast<size_t>(Operands::kRmReg)]};
    case 0x89:
      return {{MoveToRm<uint32_t>, MoveToRm<uint64_t>}, Writes::kRm};
    case 0x8B:
      return {{MoveToRegister<uint32_t, uint32_t>, MoveToRegister<uint64_t, uint64_t>}, Writes::kReg};
    case 0x8D:
      if (!in.is_memory) return {};
      return {{LoadAddress<uint32_t>, LoadAddress<uint64_t>}, Writes::kReg};
    case 0x90:
      if (in.has_rex) return {};  // XCHG R8
      return {{DoNothing, DoNothing}};
    case 0xA9:
      return {kForms<And, false>[static_cast<size_t>(Operands::kRaxImmediate)]};
    case 0xB8:
      return {{MoveImmediate<uint32_t>, MoveImmediate<uint64_t>}, Writes::kReg};
    case 0xC1:
      return FindShift(in);
    case 0xC3:
      return {{Return, Return}};
    case 0xC7:
      if (in.group != 0) return {};
      return {{MoveImmediateToRm<uint32_t>, MoveImmediateToRm<uint64_t>}, Writes::kRm};
    case 0xE9:
    case 0xEB:
      return {{Jump, Jump}};
    case 0xF7:
      if (in.group > 1) return {};
      return {kForms<And, false>[static_cast<size_t>(Operands::kRmImmediate)]};
    case 0xFF:
      if (in.group == 0) return {{Step<true, uint32_t>, Step<true, uint64_t>}, Writes::kRm};
      if (in.group == 1) return {{Step<false, uint32_t>, Step<false, uint64_t>}, Writes::kRm};
      return {};
    default:
      return {};
  }
}

Found FindTwoByte(const Instruction& in) {
  if (in.opcode >= 0x80 && in.opcode < 0x90) {
    const Execute jump = kConditionalJumps[in.opcode % 16];
    return {{jump, jump}};
  }
  switch (in.opcode) {
    case 0x18:  // prefetches
      if (!in.is_memory) return {};
      return {{DoNothing, DoNothing}};
    case 0xB6:
      if (!in.is_memory) return {};  // SIL or DH, depending on REX
      return {{MoveToRegister<uint32_t, uint8_t>, MoveToRegister<uint64_t, uint8_t>}, Writes::kReg};
    case 0xB7:
      return {{MoveToRegister<uint32_t, uint16_t>, MoveToRegister<uint64_t, uint16_t>}, Writes::kReg};
    default:
      return {};
  }
}

bool IsNop(const Instruction& in) {
  return (in.map == Map::kOneByte && in.opcode == 0x90 && !in.has_rex && in.prefix != Prefix::kF3) ||
         (in.map == Map::k0F && in.opcode == 0x1F && in.group == 0);
}

bool ChangesStackPointer(const Instruction& in, Writes writes) {
  return (writes == Writes::kReg && in.reg == State::kStackPointer) ||
         (writes == Writes::kRm && !in.is_memory && in.rm == State::kStackPointer);
}

}  // namespace

bool FindGeneralOperation(Instruction* instruction) {
  Instruction& in = *instruction;
  if (in.encoding != Encoding::kLegacy) return false;
  if (IsNop(in)) {
    in.execute = DoNothing;
    return true;
  }
  // 16-bit operations, and REP, LOCK and similar prefixes, are not supported.
  if (in.prefix != Prefix::kNone || (in.map != Map::kOneByte && in.map != Map::k0F)) return false;
  const Found found = in.map == Map::kOneByte ? FindOneByte(in) : FindTwoByte(in);
  in.execute = found.widths[in.w ? 1 : 0];
  in.is_branch = in.execute == Return || in.execute == Jump || in.execute == Push ||
                 (in.map == Map::kOneByte ? in.opcode >= 0x70 && in.opcode < 0x80
                                          : in.opcode >= 0x80 && in.opcode < 0x90);
  return in.execute != nullptr && !ChangesStackPointer(in, found.writes);
}

}  // namespace intact::emulator
