// The registers that an interrupted thread works on: copied from the signal frame, changed, and copied back.
//
//   signal frame ──Load()──► State ──instructions──► State ──Store()──► signal frame
//
// The State has all registers of AVX-512. Registers that the CPU lacks begin as zero and are dropped at the
// end. That is right if no later instruction reads a value in them (HoldsMoreThan()).
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
  static constexpr size_t kNoRegister = 16;  // reads as zero, in place of a base or an index

  std::array<uint64_t, 17> general = {};  // in the order of their encoding
  uint64_t rip = 0;
  uint64_t flags = 0;
  uint32_t mxcsr = 0x1f80;  // as programs start with it: exceptions are masked
  std::array<Vector, 32> vectors = {};
  std::array<uint64_t, 8> masks = {};

  uint64_t stack_limit = 0;   // below it is the signal frame
  bool must_stop = false;     // the CPU goes on
  bool has_returned = false;  // from the function that was interrupted
  uint64_t emulated = 0;      // instructions of the emulated extensions
  std::string fault;          // the first one

  /// Records that the CPU would have refused an instruction.
  void Fault(std::string_view instruction, std::string_view why);

  /// Nothing if the frame holds no vector registers.
  static std::optional<State> Load(ucontext_t* context);
  void Store(ucontext_t* context) const;
  /// Whether registers that the frame has no place for hold values.
  bool HoldsMoreThan(ucontext_t* context) const;
};

}  // namespace intact::emulator
#endif  // INTACT_EMULATOR_STATE_H_
