// The registers that an interrupted thread works on: copied from the signal frame, changed, and copied back.
//
//   signal frame ──Load()──► State ──instructions──► State ──Store()──► signal frame
//
// The State has all registers of AVX-512. Registers that the CPU lacks begin as zero and are dropped at the
// end. This loses nothing if they are zero again (HoldsMoreThan()), or after the function's return.
#ifndef INTACT_EMULATOR_STATE_H_
#define INTACT_EMULATOR_STATE_H_

#include <sys/ucontext.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "emulator/xstate.h"

namespace intact::emulator {

struct State {
  static constexpr size_t kStackPointer = 4;
  static constexpr size_t kNoRegister = 16;  // the base or index of an address that has none; reads as zero

  std::array<uint64_t, 17> general = {};  // in the order of their encoding
  uint64_t rip = 0;
  uint64_t flags = 0;
  uint32_t mxcsr = 0x1f80;  // the value at program start: exceptions are masked
  std::array<Vector, 32> vectors = {};
  std::array<uint64_t, 8> masks = {};

  uint64_t stack_limit = 0;   // the signal frame lies below this address
  bool must_stop = false;     // the CPU continues from `rip`
  bool has_returned = false;  // the interrupted function has returned
  uint64_t emulated = 0;      // instructions of the emulated extensions
  std::string fault;          // of the first Fault(); "" if none

  /// Records that the CPU would have refused an instruction.
  void Fault(std::string_view instruction, std::string_view why);

  /// Nothing if the frame holds no vector registers.
  static std::optional<State> Load(ucontext_t* context);
  void Store(ucontext_t* context) const;
  /// Whether any register that the frame cannot store is not zero.
  bool HoldsMoreThan(ucontext_t* context) const;
};

}  // namespace intact::emulator
#endif  // INTACT_EMULATOR_STATE_H_
