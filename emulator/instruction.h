// A decoded instruction: its fields, whichever encoding they came from, and the function that executes it.
#ifndef INTACT_EMULATOR_INSTRUCTION_H_
#define INTACT_EMULATOR_INSTRUCTION_H_

#include <cstddef>
#include <cstdint>

#include "emulator/state.h"

namespace intact::emulator {

enum class Encoding : uint8_t { kLegacy, kVex, kEvex };
/// The table that an opcode byte is looked up in, numbered as in VEX.mmmmm.
enum class Map : uint8_t { kOneByte = 0, k0F = 1, k0F38 = 2, k0F3A = 3 };
/// The mandatory prefix, numbered as in VEX.pp.
enum class Prefix : uint8_t { kNone = 0, k66 = 1, kF3 = 2, kF2 = 3 };

struct VectorOperation;

struct Instruction {
  Encoding encoding = Encoding::kLegacy;
  Map map = Map::kOneByte;
  Prefix prefix = Prefix::kNone;
  uint8_t opcode = 0;
  bool w = false;            // REX.W, VEX.W, EVEX.W
  uint8_t vector_bytes = 0;  // 16, 32 or 64

  uint8_t reg = 0;    // ModRM.reg, or the register in the opcode
  uint8_t group = 0;  // ModRM.reg without extension, if it is part of the opcode
  uint8_t vvvv = 0;   // the register's number, not its complement
  uint8_t rm = 0;     // ModRM.rm, if not memory
  uint8_t mask = 0;   // EVEX.aaa
  bool zeroes = false;
  bool has_evex_b = false;  // broadcast or rounding
  bool has_rex = false;

  bool is_memory = false;
  bool has_sib = false;
  bool has_byte_displacement = false;
  uint8_t base = State::kNoRegister;
  uint8_t index = State::kNoRegister;
  uint8_t shift = 0;         // log2 of the scale of the index
  int64_t displacement = 0;  // includes RIP if it is relative to RIP
  int64_t immediate = 0;     // sign-extended

  uint8_t length = 0;        // bytes
  uint64_t next = 0;         // address of the following instruction
  bool is_branch = false;    // executing it decides which instruction follows
  bool is_emulated = false;  // belongs to an extension that CPUs with AVX2 may lack
  const VectorOperation* operation = nullptr;
  void (*execute)(State&, const Instruction&) = nullptr;

  /// Base and displacement, without the index.
  uint64_t BaseAddress(const State& state) const {
    return state.general[base] + static_cast<uint64_t>(displacement);
  }
  /// Index times scale; 0 without an index register.
  uint64_t ScaledIndex(const State& state) const { return state.general[index] << shift; }
  uint64_t Address(const State& state) const { return BaseAddress(state) + ScaledIndex(state); }
  uint8_t* Memory(const State& state) const { return reinterpret_cast<uint8_t*>(Address(state)); }
};

}  // namespace intact::emulator
#endif  // INTACT_EMULATOR_INSTRUCTION_H_
