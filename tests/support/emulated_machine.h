// A machine that instructions on registers and memory change: executed by the CPU, or by the emulator's
// interpreter. The interpreter's tests compare both.
#ifndef INTACT_TESTS_SUPPORT_EMULATED_MACHINE_H_
#define INTACT_TESTS_SUPPORT_EMULATED_MACHINE_H_

#include <asmjit/x86.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "emulator/interpreter.h"
#include "emulator/state.h"
#include "tests/support/test_runtime.h"

namespace intact::tests {

namespace x86 = asmjit::x86;
using Emit = std::function<void(x86::Assembler&)>;

/// A generated function. It lives as long as this object.
class Code {
 public:
  explicit Code(const Emit& emit) {
    asmjit::CodeHolder holder;
    holder.init(Runtime().environment());
    x86::Assembler as(&holder);
    as.addDiagnosticOptions(asmjit::DiagnosticOptions::kValidateAssembler);
    emit(as);
    EXPECT_EQ(as.ret(), asmjit::kErrorOk);
    EXPECT_EQ(Runtime().add(&function_, &holder), asmjit::kErrorOk);
  }
  ~Code() { Runtime().release(function_); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  void Run() const { function_(); }
  uint64_t address() const { return reinterpret_cast<uint64_t>(function_); }

 private:
  static asmjit::JitRuntime& Runtime() { return TestRuntime(); }
  void (*function_)() = nullptr;
};

/// The state that instructions read and write.
struct Machine {
  static constexpr int kPointer = 3;  // rbx, into memory
  static constexpr int kIndex = 6;    // rsi
  std::array<uint64_t, 16> general = {};
  uint64_t flags = 0;
  std::array<emulator::Vector, 32> vectors = {};
  std::array<uint64_t, 8> masks = {};
  std::array<uint8_t, 1024> memory = {};
};

inline constexpr uint64_t kIndexValue = 5;

inline std::mt19937_64& Generator() {
  static std::mt19937_64 generator(1);
  return generator;
}

/// Random bytes, and float32 values for which instructions differ.
inline Machine RandomMachine() {
  constexpr std::array<float, 12> kFloats = {0.0F,
                                             -0.0F,
                                             0.5F,
                                             1.5F,
                                             -2.5F,
                                             1e9F,
                                             3e9F,
                                             -3e9F,
                                             1e-40F,
                                             std::numeric_limits<float>::infinity(),
                                             std::numeric_limits<float>::quiet_NaN(),
                                             -std::numeric_limits<float>::quiet_NaN()};
  const auto fill = [&](std::span<uint8_t> bytes) {
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(Generator()());
    for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
      const uint64_t draw = Generator()();
      if (draw % 2 == 0) std::memcpy(&bytes[i], &kFloats[draw / 2 % kFloats.size()], 4);
    }
  };
  Machine machine;
  for (uint64_t& value : machine.general) value = Generator()() >> Generator()() % 64;
  for (emulator::Vector& vector : machine.vectors) fill(vector.bytes);
  for (uint64_t& mask : machine.masks) mask = Generator()();
  fill(machine.memory);
  machine.flags = (Generator()() & 0x8D5) | 0x202;
  return machine;
}

/// Points registers to the machine's memory.
inline void Point(Machine* machine) {
  machine->general[Machine::kPointer] = reinterpret_cast<uint64_t>(machine->memory.data()) + 512;
  machine->general[Machine::kIndex] = kIndexValue;
}

/// `machine` after the CPU executed `body`. Of registers 0 to 15 the low 256 bits.
inline Machine Natively(Machine machine, const Emit& body) {
  Point(&machine);
  const auto at = [](const x86::Gp& from, const void* member, const Machine& in) {
    const auto offset = static_cast<const char*>(member) - reinterpret_cast<const char*>(&in);
    return x86::ptr(from, static_cast<int32_t>(offset));
  };
  const auto qword_at = [&](const x86::Gp& from, const void* member) {
    x86::Mem memory = at(from, member, machine);
    memory.setSize(8);
    return memory;
  };
  const Code code([&](x86::Assembler& as) {
    const std::array saved = {x86::rbx, x86::rbp, x86::r12, x86::r13, x86::r14, x86::r15};
    const x86::Gp base = x86::rax;
    for (const x86::Gp& general : saved) as.push(general);
    as.mov(base, reinterpret_cast<uint64_t>(&machine));
    for (uint32_t i = 0; i < 16; ++i) as.vmovdqu(x86::ymm(i), at(base, &machine.vectors[i], machine));
    as.push(qword_at(base, &machine.flags));
    as.popfq();
    for (uint32_t i = 1; i < 16; ++i) {
      if (i != emulator::State::kStackPointer) as.mov(x86::gpq(i), at(base, &machine.general[i], machine));
    }
    as.mov(base, at(base, machine.general.data(), machine));
    body(as);
    as.push(base);
    as.mov(base, reinterpret_cast<uint64_t>(&machine));
    as.pop(qword_at(base, machine.general.data()));
    for (uint32_t i = 1; i < 16; ++i) {
      if (i != emulator::State::kStackPointer) as.mov(at(base, &machine.general[i], machine), x86::gpq(i));
    }
    as.pushfq();
    as.pop(qword_at(base, &machine.flags));
    for (uint32_t i = 0; i < 16; ++i) as.vmovdqu(at(base, &machine.vectors[i], machine), x86::ymm(i));
    as.vzeroupper();
    for (size_t i = saved.size(); i-- > 0;) as.pop(saved[i]);
  });
  code.Run();
  return machine;
}

/// `machine` after the interpreter executed `body`.
inline Machine Interpreted(Machine machine, const Emit& body) {
  Point(&machine);
  const Code code(body);
  constexpr size_t kTop = 32;
  constexpr uint64_t kCaller = 0x1234;
  std::array<uint64_t, 64> stack = {};
  stack[kTop] = kCaller;
  emulator::State state;
  std::ranges::copy(machine.general, state.general.begin());
  state.general[emulator::State::kStackPointer] = reinterpret_cast<uint64_t>(&stack[kTop]);
  state.stack_limit = reinterpret_cast<uint64_t>(stack.data());
  state.rip = code.address();
  state.flags = machine.flags;
  state.vectors = machine.vectors;
  state.masks = machine.masks;
  state.mxcsr = _mm_getcsr();
  emulator::Interpret(&state);
  EXPECT_TRUE(state.has_returned) << "stopped at " << emulator::BytesAt(state.rip);
  EXPECT_EQ(state.fault, "");
  EXPECT_EQ(state.has_returned ? state.rip : kCaller, kCaller);
  EXPECT_EQ(state.general[emulator::State::kStackPointer], reinterpret_cast<uint64_t>(&stack[kTop + 1]));
  std::copy_n(state.general.begin(), machine.general.size(), machine.general.begin());
  machine.flags = state.flags;
  machine.vectors = state.vectors;
  machine.masks = state.masks;
  return machine;
}

/// "" or the difference. Pointers are not compared.
inline std::string Difference(const Machine& a, const Machine& b, size_t vector_bytes, size_t vectors,
                              uint64_t flags) {
  for (size_t i = 0; i < a.general.size(); ++i) {
    const bool is_own = i == emulator::State::kStackPointer || i == Machine::kPointer;
    if (!is_own && a.general[i] != b.general[i]) {
      return fmt::format("general register {}: {:x} {:x}", i, a.general[i], b.general[i]);
    }
  }
  if (((a.flags ^ b.flags) & flags) != 0) return fmt::format("flags {:x} {:x}", a.flags, b.flags);
  for (size_t i = 0; i < vectors; ++i) {
    for (size_t byte = 0; byte < vector_bytes; ++byte) {
      if (a.vectors[i].bytes[byte] != b.vectors[i].bytes[byte]) {
        return fmt::format("vector {}, byte {}: {:02x} {:02x}", i, byte, a.vectors[i].bytes[byte],
                           b.vectors[i].bytes[byte]);
      }
    }
  }
  for (size_t i = 0; i < a.masks.size(); ++i) {
    if (a.masks[i] != b.masks[i]) return fmt::format("mask {}: {:x} {:x}", i, a.masks[i], b.masks[i]);
  }
  for (size_t i = 0; i < a.memory.size(); ++i) {
    if (a.memory[i] != b.memory[i]) {
      return fmt::format("memory at {}: {:02x} {:02x}", static_cast<int>(i) - 512, a.memory[i], b.memory[i]);
    }
  }
  return "";
}

inline constexpr uint64_t kAllFlags = 0x8D5;

inline void ExpectAsNatively(const Emit& body, const std::string& what, uint64_t flags = kAllFlags) {
  for (int repetition = 0; repetition < 20; ++repetition) {
    const Machine before = RandomMachine();
    ASSERT_EQ(Difference(Interpreted(before, body), Natively(before, body), 32, 16, flags), "") << what;
  }
}

/// All forms of memory operands that a generator emits.
inline std::vector<x86::Mem> MemoryForms() {
  return {x86::ptr(x86::rbx),
          x86::ptr(x86::rbx, 32),
          x86::ptr(x86::rbx, -129),
          x86::ptr(x86::rbx, x86::rsi),
          x86::ptr(x86::rbx, x86::rsi, 2, -64),
          x86::ptr(x86::rbx, x86::rsi, 3, 256)};
}

inline x86::Vec Register(size_t bytes, uint32_t number) {
  if (bytes == 64) return x86::zmm(number);
  return bytes == 32 ? x86::Vec(x86::ymm(number)) : x86::Vec(x86::xmm(number));
}

}  // namespace intact::tests
#endif  // INTACT_TESTS_SUPPORT_EMULATED_MACHINE_H_
