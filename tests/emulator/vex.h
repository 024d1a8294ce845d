// Decodes VEX-encoded instructions of the 0F38 map, where AVX-VNNI, AVX-VNNI-INT8 and AMX live.
//
//   C4 | ~R ~X ~B 00010 | W ~vvvv L pp | opcode | mod reg rm | [scale index base] | [disp8 or disp32]
//
// None of these instructions has an immediate. Other encodings are not recognised: the caller has others to
// ask.
#ifndef INTACT_TESTS_EMULATOR_VEX_H_
#define INTACT_TESTS_EMULATOR_VEX_H_

#include <sys/ucontext.h>

#include <cstdint>
#include <optional>

namespace intact::emulator {

/// VEX.pp, the mandatory prefix.
enum class Prefix : uint8_t { kNone = 0, k66 = 1, kF3 = 2, kF2 = 3 };

struct VexInstruction {
  Prefix prefix = Prefix::kNone;
  bool w = false;
  bool is_256 = false;
  uint8_t opcode = 0;
  int reg = 0;   // ModRM.reg
  int vvvv = 0;  // the register it stands for, not its complement
  int rm = 0;    // ModRM.rm, if not memory

  bool is_memory = false;
  bool has_sib = false;
  bool is_rip_relative = false;
  int base = kNoRegister;
  int index = kNoRegister;
  int scale = 1;
  int32_t displacement = 0;

  int length = 0;  // bytes

  static constexpr int kNoRegister = -1;

  /// Base and displacement, without the index. `registers` are those at the instruction.
  uint64_t BaseAddress(const gregset_t& registers) const;
  /// Index times scale; 0 without an index register.
  uint64_t ScaledIndex(const gregset_t& registers) const;
};

/// The instruction at `code`; nothing if it is not a three-byte VEX encoding of map 0F38. Reads no byte
/// beyond it.
std::optional<VexInstruction> DecodeVex0F38(const uint8_t* code);

}  // namespace intact::emulator
#endif  // INTACT_TESTS_EMULATOR_VEX_H_
