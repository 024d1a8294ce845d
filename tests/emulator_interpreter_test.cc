// What the emulator's interpreter makes of single instructions. Those that CPUs with AVX2 have are compared
// with what the CPU makes of them, on the same registers and memory; EVEX-encoded ones with their VEX-encoded
// twins, executed by the CPU on each 128-bit or 256-bit part, and with plain definitions where they have
// none.
#include "emulator/interpreter.h"

#include <asmjit/x86.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <immintrin.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "emulator/emulator.h"
#include "emulator/state.h"
#include "tests/checked_emulator.h"
#include "tests/test_runtime.h"

namespace intact::emulator {
namespace {

namespace x86 = asmjit::x86;
using Emit = std::function<void(x86::Assembler&)>;

/// An emitted function, which lives as long as this.
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
  static asmjit::JitRuntime& Runtime() { return tests::TestRuntime(); }
  void (*function_)() = nullptr;
};

/// What instructions read and write.
struct Machine {
  static constexpr int kPointer = 3;  // rbx, into memory
  static constexpr int kIndex = 6;    // rsi
  std::array<uint64_t, 16> general = {};
  uint64_t flags = 0;
  std::array<Vector, 32> vectors = {};
  std::array<uint64_t, 8> masks = {};
  std::array<uint8_t, 1024> memory = {};
};

constexpr uint64_t kIndexValue = 5;

std::mt19937_64& Generator() {
  static std::mt19937_64 generator(1);
  return generator;
}

/// Bytes of any value, some of them float32 at which instructions differ.
Machine RandomMachine() {
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
  for (Vector& vector : machine.vectors) fill(vector.bytes);
  for (uint64_t& mask : machine.masks) mask = Generator()();
  fill(machine.memory);
  machine.flags = (Generator()() & 0x8D5) | 0x202;
  return machine;
}

/// Points registers to the machine's own memory.
void Point(Machine* machine) {
  machine->general[Machine::kPointer] = reinterpret_cast<uint64_t>(machine->memory.data()) + 512;
  machine->general[Machine::kIndex] = kIndexValue;
}

/// `machine` after the CPU executed `body`, of its registers 0 to 15 the low 256 bits.
Machine Natively(Machine machine, const Emit& body) {
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
      if (i != State::kStackPointer) as.mov(x86::gpq(i), at(base, &machine.general[i], machine));
    }
    as.mov(base, at(base, machine.general.data(), machine));
    body(as);
    as.push(base);
    as.mov(base, reinterpret_cast<uint64_t>(&machine));
    as.pop(qword_at(base, machine.general.data()));
    for (uint32_t i = 1; i < 16; ++i) {
      if (i != State::kStackPointer) as.mov(at(base, &machine.general[i], machine), x86::gpq(i));
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

/// `machine` after the interpreter did.
Machine Interpreted(Machine machine, const Emit& body) {
  Point(&machine);
  const Code code(body);
  constexpr size_t kTop = 32;
  constexpr uint64_t kCaller = 0x1234;
  std::array<uint64_t, 64> stack = {};
  stack[kTop] = kCaller;
  State state;
  std::ranges::copy(machine.general, state.general.begin());
  state.general[State::kStackPointer] = reinterpret_cast<uint64_t>(&stack[kTop]);
  state.stack_limit = reinterpret_cast<uint64_t>(stack.data());
  state.rip = code.address();
  state.flags = machine.flags;
  state.vectors = machine.vectors;
  state.masks = machine.masks;
  state.mxcsr = _mm_getcsr();
  Interpret(&state);
  EXPECT_TRUE(state.has_returned) << "stopped at " << BytesAt(state.rip);
  EXPECT_EQ(state.fault, "");
  EXPECT_EQ(state.has_returned ? state.rip : kCaller, kCaller);
  EXPECT_EQ(state.general[State::kStackPointer], reinterpret_cast<uint64_t>(&stack[kTop + 1]));
  std::copy_n(state.general.begin(), machine.general.size(), machine.general.begin());
  machine.flags = state.flags;
  machine.vectors = state.vectors;
  machine.masks = state.masks;
  return machine;
}

/// "" or where they differ. Pointers differ in any case.
std::string Difference(const Machine& a, const Machine& b, size_t vector_bytes, size_t vectors,
                       uint64_t flags) {
  for (size_t i = 0; i < a.general.size(); ++i) {
    const bool is_own = i == State::kStackPointer || i == Machine::kPointer;
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

constexpr uint64_t kAllFlags = 0x8D5;

void ExpectAsNatively(const Emit& body, const std::string& what, uint64_t flags = kAllFlags) {
  for (int repetition = 0; repetition < 20; ++repetition) {
    const Machine before = RandomMachine();
    ASSERT_EQ(Difference(Interpreted(before, body), Natively(before, body), 32, 16, flags), "") << what;
  }
}

/// Operands in memory of all forms that a generator emits.
std::vector<x86::Mem> MemoryForms() {
  return {x86::ptr(x86::rbx),
          x86::ptr(x86::rbx, 32),
          x86::ptr(x86::rbx, -129),
          x86::ptr(x86::rbx, x86::rsi),
          x86::ptr(x86::rbx, x86::rsi, 2, -64),
          x86::ptr(x86::rbx, x86::rsi, 3, 256)};
}

x86::Vec Register(size_t bytes, uint32_t number) {
  if (bytes == 64) return x86::zmm(number);
  return bytes == 32 ? x86::Vec(x86::ymm(number)) : x86::Vec(x86::xmm(number));
}

// ----- general registers
// ---------------------------------------------------------------------------------------

TEST(GeneralOperations, AreThoseOfTheCpu) {
  using Id = x86::Inst::Id;
  for (const Id id : {x86::Inst::kIdAdd, x86::Inst::kIdSub, x86::Inst::kIdCmp, x86::Inst::kIdAnd,
                      x86::Inst::kIdOr, x86::Inst::kIdXor, x86::Inst::kIdTest, x86::Inst::kIdMov}) {
    for (const bool is_64 : {false, true}) {
      const auto general = [&](uint32_t number) {
        return is_64 ? x86::Gp(x86::gpq(number)) : x86::Gp(x86::gpd(number));
      };
      const std::string what = fmt::format("instruction {}, 64 bits: {}", id, is_64);
      ExpectAsNatively([&](x86::Assembler& as) { as.emit(id, general(10), general(1)); }, what);
      ExpectAsNatively([&](x86::Assembler& as) { as.emit(id, general(1), general(1)); }, what);
      for (const int64_t immediate : {1, -1, 100, 1000, -100000, 0x7fffffff}) {
        ExpectAsNatively([&](x86::Assembler& as) { as.emit(id, general(9), immediate); }, what);
        ExpectAsNatively([&](x86::Assembler& as) { as.emit(id, general(0), immediate); }, what);
      }
      for (x86::Mem memory : MemoryForms()) {
        memory.setSize(is_64 ? 8 : 4);
        ExpectAsNatively([&](x86::Assembler& as) { as.emit(id, memory, general(10)); }, what);
        ExpectAsNatively([&](x86::Assembler& as) { as.emit(id, memory, 77); }, what);
        if (id == x86::Inst::kIdTest) continue;
        ExpectAsNatively([&](x86::Assembler& as) { as.emit(id, general(10), memory); }, what);
      }
    }
  }
}

TEST(GeneralOperations, StepAndShift) {
  constexpr uint64_t kAuxiliary = 0x10, kOverflow = 0x800;
  for (const x86::Gp& to : {x86::Gp(x86::r12), x86::Gp(x86::r12d), x86::Gp(x86::rax), x86::Gp(x86::eax)}) {
    ExpectAsNatively([&](x86::Assembler& as) { as.inc(to); }, "inc");
    ExpectAsNatively([&](x86::Assembler& as) { as.dec(to); }, "dec");
    for (const int count : {2, 7, 10, 31}) {
      const std::string what = fmt::format("shift by {}", count);
      const uint64_t defined = kAllFlags & ~kAuxiliary & ~kOverflow;
      ExpectAsNatively([&](x86::Assembler& as) { as.shl(to, count); }, what, defined);
      ExpectAsNatively([&](x86::Assembler& as) { as.shr(to, count); }, what, defined);
      ExpectAsNatively([&](x86::Assembler& as) { as.sar(to, count); }, what, defined);
    }
  }
  // Steps over the ends of the ranges.
  ExpectAsNatively(
      [](x86::Assembler& as) {
        as.mov(x86::ecx, 0x7fffffff);
        as.inc(x86::ecx);
      },
      "overflow");
}

TEST(GeneralOperations, Move) {
  for (const x86::Mem& memory : MemoryForms()) {
    ExpectAsNatively(
        [&](x86::Assembler& as) {
          as.lea(x86::r9, memory);
          as.sub(x86::r9, x86::rbx);
        },
        "lea");
    x86::Mem part = memory;
    part.setSize(2);
    ExpectAsNatively([&](x86::Assembler& as) { as.movzx(x86::r9d, part); }, "movzx of 16 bits");
    part.setSize(1);
    ExpectAsNatively([&](x86::Assembler& as) { as.movzx(x86::r9d, part); }, "movzx of 8 bits");
    part.setSize(4);
    ExpectAsNatively([&](x86::Assembler& as) { as.movsxd(x86::r9, part); }, "movsxd");
    ExpectAsNatively(
        [&](x86::Assembler& as) {
          as.prefetcht0(memory);
          as.prefetcht1(memory);
        },
        "prefetch");
  }
  ExpectAsNatively([](x86::Assembler& as) { as.mov(x86::r13, 0x123456789abcdef0); }, "mov of 64 bits");
  ExpectAsNatively([](x86::Assembler& as) { as.mov(x86::r13, -2); }, "mov, sign-extended");
  ExpectAsNatively(
      [](x86::Assembler& as) {
        as.push(x86::r13);
        as.push(x86::rcx);
        as.pop(x86::r13);
        as.pop(x86::rcx);
      },
      "push and pop");
  ExpectAsNatively(
      [](x86::Assembler& as) {
        as.align(asmjit::AlignMode::kCode, 64);
        as.nop();
        as.align(asmjit::AlignMode::kCode, 64);
      },
      "nops");
}

TEST(GeneralOperations, JumpByEveryCondition) {
  using Condition = x86::CondCode;
  for (int code = 0; code <= static_cast<int>(Condition::kMaxValue); ++code) {
    const auto jump = x86::Inst::jccFromCond(static_cast<Condition>(code));
    for (const bool is_far : {false, true}) {
      ExpectAsNatively(
          [&](x86::Assembler& as) {
            const asmjit::Label taken = as.newLabel();
            if (is_far) as.long_();
            as.emit(jump, taken);
            as.mov(x86::ecx, 1);
            as.bind(taken);
          },
          fmt::format("condition {}", code));
    }
  }
}

TEST(GeneralOperations, Loop) {
  ExpectAsNatively(
      [](x86::Assembler& as) {
        const asmjit::Label loop = as.newLabel(), end = as.newLabel();
        as.mov(x86::ecx, 1000);
        as.bind(loop);
        as.lea(x86::rdx, x86::ptr(x86::rdx, x86::rcx, 1, 3));
        as.dec(x86::ecx);
        as.jz(end);
        as.jmp(loop);
        as.bind(end);
      },
      "a loop");
}

TEST(Interpret, LeavesWhatIsBeyondTheRedZoneToTheCpu) {
  const Code code([](x86::Assembler& as) {
    as.push(x86::rax);
    as.push(x86::rcx);
  });
  std::array<uint64_t, 4> stack = {};
  State state;
  state.general[State::kStackPointer] = reinterpret_cast<uint64_t>(&stack[2]);
  state.stack_limit = reinterpret_cast<uint64_t>(&stack[1]);
  state.rip = code.address();
  Interpret(&state);
  EXPECT_FALSE(state.has_returned);
  EXPECT_EQ(state.rip, code.address() + 1);
  EXPECT_EQ(state.general[State::kStackPointer], reinterpret_cast<uint64_t>(&stack[1]));
}

TEST(Interpret, SeesThatCodeWasReplaced) {
  std::array<uint8_t, 16> bytes = {0x48, 0xff, 0xc0, 0xc3};  // inc rax; ret
  for (const uint64_t expected : {1, 0}) {
    uint64_t top = 0;
    State state;
    state.general[State::kStackPointer] = reinterpret_cast<uint64_t>(&top);
    state.rip = reinterpret_cast<uint64_t>(bytes.data());
    Interpret(&state);
    EXPECT_EQ(state.general[0], expected);
    bytes = {0x90, 0xc3};
  }
}

// ----- vectors
// -------------------------------------------------------------------------------------------------

/// Which operands an instruction has beside its destination.
enum class Sources : uint8_t { kTwo, kOne, kTwoAndImmediate, kOneAndImmediate };

/// An instruction of both encodings, which EVEX extends to 512 bits by 128 or 256 bits more of the same.
struct Twin {
  const char* name;
  asmjit::InstId vex, evex;
  size_t element;    // that a bit of a mask stands for; 0: there is no masking
  size_t broadcast;  // 0: there is none
  Sources sources = Sources::kTwo;
};

void EmitTwin(x86::Assembler& as, const Twin& twin, bool is_vex, const x86::Vec& to, const x86::Vec& first,
              const asmjit::Operand_& second, int immediate) {
  const asmjit::InstId id = is_vex ? twin.vex : twin.evex;
  if (is_vex) as.vex();
  switch (twin.sources) {
    case Sources::kTwo:
      as.emit(id, to, first, second);
      break;
    case Sources::kOne:
      as.emit(id, to, second);
      break;
    case Sources::kTwoAndImmediate:
      as.emit(id, to, first, second, immediate);
      break;
    case Sources::kOneAndImmediate:
      as.emit(id, to, second, immediate);
      break;
  }
}

#define INTACT_SAME(name) #name, x86::Inst::kIdV##name, x86::Inst::kIdV##name
#define INTACT_D(name) #name, x86::Inst::kIdV##name, x86::Inst::kIdV##name##d

const Twin kTwins[] = {
    {INTACT_SAME(paddb), 1, 0},
    {INTACT_SAME(paddw), 2, 0},
    {INTACT_SAME(paddd), 4, 4},
    {INTACT_SAME(paddq), 8, 8},
    {INTACT_SAME(paddsb), 1, 0},
    {INTACT_SAME(paddsw), 2, 0},
    {INTACT_SAME(paddusb), 1, 0},
    {INTACT_SAME(paddusw), 2, 0},
    {INTACT_SAME(psubb), 1, 0},
    {INTACT_SAME(psubw), 2, 0},
    {INTACT_SAME(psubd), 4, 4},
    {INTACT_SAME(psubq), 8, 8},
    {INTACT_SAME(psubsb), 1, 0},
    {INTACT_SAME(psubsw), 2, 0},
    {INTACT_SAME(psubusb), 1, 0},
    {INTACT_SAME(psubusw), 2, 0},
    {INTACT_SAME(pmullw), 2, 0},
    {INTACT_SAME(pmulhw), 2, 0},
    {INTACT_SAME(pmulhuw), 2, 0},
    {INTACT_SAME(pmulld), 4, 4},
    {INTACT_SAME(pmuludq), 8, 8},
    {INTACT_SAME(pmuldq), 8, 8},
    {INTACT_SAME(pmaddwd), 4, 0},
    {INTACT_SAME(pmaddubsw), 2, 0},
    {INTACT_SAME(psadbw), 0, 0},
    {INTACT_SAME(pavgb), 1, 0},
    {INTACT_SAME(pavgw), 2, 0},
    {INTACT_SAME(pminub), 1, 0},
    {INTACT_SAME(pmaxub), 1, 0},
    {INTACT_SAME(pminsw), 2, 0},
    {INTACT_SAME(pmaxsw), 2, 0},
    {INTACT_SAME(pminsb), 1, 0},
    {INTACT_SAME(pmaxsb), 1, 0},
    {INTACT_SAME(pminsd), 4, 4},
    {INTACT_SAME(pmaxsd), 4, 4},
    {INTACT_SAME(pminuw), 2, 0},
    {INTACT_SAME(pmaxuw), 2, 0},
    {INTACT_SAME(pminud), 4, 4},
    {INTACT_SAME(pmaxud), 4, 4},
    {INTACT_D(pand), 4, 4},
    {INTACT_D(pandn), 4, 4},
    {INTACT_D(por), 4, 4},
    {INTACT_D(pxor), 4, 4},
    {INTACT_SAME(psrlvd), 4, 4},
    {INTACT_SAME(psravd), 4, 4},
    {INTACT_SAME(psllvd), 4, 4},
    {INTACT_SAME(packsswb), 1, 0},
    {INTACT_SAME(packuswb), 1, 0},
    {INTACT_SAME(packssdw), 2, 4},
    {INTACT_SAME(packusdw), 2, 4},
    {INTACT_SAME(punpcklbw), 1, 0},
    {INTACT_SAME(punpckhbw), 1, 0},
    {INTACT_SAME(punpcklwd), 2, 0},
    {INTACT_SAME(punpckhwd), 2, 0},
    {INTACT_SAME(punpckldq), 4, 4},
    {INTACT_SAME(punpckhdq), 4, 4},
    {INTACT_SAME(punpcklqdq), 8, 8},
    {INTACT_SAME(punpckhqdq), 8, 8},
    {INTACT_SAME(pshufb), 1, 0},
    {INTACT_SAME(addps), 4, 4},
    {INTACT_SAME(mulps), 4, 4},
    {INTACT_SAME(subps), 4, 4},
    {INTACT_SAME(minps), 4, 4},
    {INTACT_SAME(divps), 4, 4},
    {INTACT_SAME(maxps), 4, 4},
    {INTACT_SAME(pabsb), 1, 0, Sources::kOne},
    {INTACT_SAME(pabsw), 2, 0, Sources::kOne},
    {INTACT_SAME(pabsd), 4, 4, Sources::kOne},
    {INTACT_SAME(cvtdq2ps), 4, 4, Sources::kOne},
    {INTACT_SAME(cvtps2dq), 4, 4, Sources::kOne},
    {INTACT_SAME(cvttps2dq), 4, 4, Sources::kOne},
    {INTACT_SAME(pshufd), 4, 4, Sources::kOneAndImmediate},
    {INTACT_SAME(palignr), 1, 0, Sources::kTwoAndImmediate},
};

/// Shifts by an immediate take no operand from memory in VEX encoding.
const Twin kShifts[] = {
    {INTACT_SAME(psrlw), 2, 0, Sources::kOneAndImmediate},
    {INTACT_SAME(psraw), 2, 0, Sources::kOneAndImmediate},
    {INTACT_SAME(psllw), 2, 0, Sources::kOneAndImmediate},
    {INTACT_SAME(psrld), 4, 4, Sources::kOneAndImmediate},
    {INTACT_SAME(psrad), 4, 4, Sources::kOneAndImmediate},
    {INTACT_SAME(pslld), 4, 4, Sources::kOneAndImmediate},
    {INTACT_SAME(psrlq), 8, 8, Sources::kOneAndImmediate},
    {INTACT_SAME(psllq), 8, 8, Sources::kOneAndImmediate},
};

constexpr int kImmediates[] = {0, 1, 4, 8, 15, 16, 27, 31, 40, 0xb1, 255};

void ExpectVexAsNatively(const Twin& twin, bool takes_memory) {
  const bool has_immediate = twin.sources >= Sources::kTwoAndImmediate;
  for (const size_t bytes : {16, 32}) {
    const std::string what = fmt::format("{} of {} bytes", twin.name, bytes);
    for (const int immediate : kImmediates) {
      ExpectAsNatively(
          [&](x86::Assembler& as) {
            EmitTwin(as, twin, true, Register(bytes, 12), Register(bytes, 3), Register(bytes, 9), immediate);
          },
          what);
      if (!has_immediate) break;
    }
    if (!takes_memory) continue;
    for (const x86::Mem& memory : MemoryForms()) {
      ExpectAsNatively(
          [&](x86::Assembler& as) {
            EmitTwin(as, twin, true, Register(bytes, 1), Register(bytes, 14), memory, 0x39);
          },
          what);
    }
  }
}

TEST(VexOperations, AreThoseOfTheCpu) {
  for (const Twin& twin : kTwins) ExpectVexAsNatively(twin, true);
  for (const Twin& twin : kShifts) ExpectVexAsNatively(twin, false);
}

// What EVEX has in another form, or not at all.
TEST(VexOperations, ThatHaveNoTwin) {
  const std::vector<std::pair<const char*, Emit>> cases = {
      {"vmovdqu", [](x86::Assembler& as) { as.vmovdqu(x86::ymm1, x86::ptr(x86::rbx, 3)); }},
      {"vmovdqu", [](x86::Assembler& as) { as.vmovdqu(x86::xmm1, x86::ptr(x86::rbx, 3)); }},
      {"vmovdqu", [](x86::Assembler& as) { as.vmovdqu(x86::ptr(x86::rbx, 3), x86::ymm11); }},
      {"vmovdqu", [](x86::Assembler& as) { as.vmovdqu(x86::ptr(x86::rbx, 3), x86::xmm11); }},
      {"vmovdqa", [](x86::Assembler& as) { as.vmovdqa(x86::ymm4, x86::ymm11); }},
      {"vmovdqa", [](x86::Assembler& as) { as.vmovdqa(x86::xmm4, x86::xmm11); }},
      {"vmovups", [](x86::Assembler& as) { as.vmovups(x86::ptr(x86::rbx, -3), x86::ymm11); }},
      {"vmovq", [](x86::Assembler& as) { as.vmovq(x86::ptr(x86::rbx, -3), x86::xmm11); }},
      {"vmovq", [](x86::Assembler& as) { as.vmovq(x86::xmm11, x86::ptr(x86::rbx, -3)); }},
      {"vmovq", [](x86::Assembler& as) { as.vmovq(x86::xmm11, x86::xmm2); }},
      {"vphaddw", [](x86::Assembler& as) { as.vphaddw(x86::ymm1, x86::ymm2, x86::ymm3); }},
      {"vphaddd", [](x86::Assembler& as) { as.vphaddd(x86::ymm1, x86::ymm2, x86::ymm3); }},
      {"vpblendd", [](x86::Assembler& as) { as.vpblendd(x86::ymm1, x86::ymm2, x86::ymm3, 0x5a); }},
      {"vpermd", [](x86::Assembler& as) { as.vpermd(x86::ymm1, x86::ymm2, x86::ymm3); }},
      {"vpermd", [](x86::Assembler& as) { as.vpermd(x86::ymm1, x86::ymm2, x86::ptr(x86::rbx)); }},
      {"vpermq", [](x86::Assembler& as) { as.vpermq(x86::ymm1, x86::ymm2, 0x4e); }},
      {"vpermq", [](x86::Assembler& as) { as.vpermq(x86::ymm1, x86::ymm2, 0x39); }},
      {"vinserti128", [](x86::Assembler& as) { as.vinserti128(x86::ymm1, x86::ymm2, x86::xmm3, 1); }},
      {"vinserti128",
       [](x86::Assembler& as) { as.vinserti128(x86::ymm1, x86::ymm2, x86::ptr(x86::rbx), 0); }},
      {"vextracti128", [](x86::Assembler& as) { as.vextracti128(x86::xmm1, x86::ymm2, 1); }},
      {"vextracti128", [](x86::Assembler& as) { as.vextracti128(x86::ptr(x86::rbx, 1), x86::ymm2, 1); }},
      {"vbroadcasti128", [](x86::Assembler& as) { as.vbroadcasti128(x86::ymm1, x86::ptr(x86::rbx, 1)); }},
      {"vbroadcastss", [](x86::Assembler& as) { as.vbroadcastss(x86::ymm1, x86::ptr(x86::rbx, 1)); }},
      {"vbroadcastss", [](x86::Assembler& as) { as.vbroadcastss(x86::xmm1, x86::xmm3); }},
      {"vpbroadcastb", [](x86::Assembler& as) { as.vpbroadcastb(x86::ymm1, x86::ptr(x86::rbx, 1)); }},
      {"vpbroadcastw", [](x86::Assembler& as) { as.vpbroadcastw(x86::ymm1, x86::ptr(x86::rbx, 1)); }},
      {"vpbroadcastd", [](x86::Assembler& as) { as.vpbroadcastd(x86::ymm1, x86::ptr(x86::rbx, 1)); }},
      {"vpbroadcastq", [](x86::Assembler& as) { as.vpbroadcastq(x86::ymm1, x86::ptr(x86::rbx, 1)); }},
      {"vpbroadcastd", [](x86::Assembler& as) { as.vpbroadcastd(x86::ymm1, x86::xmm7); }},
      {"vpmovsxbd", [](x86::Assembler& as) { as.vpmovsxbd(x86::ymm1, x86::ptr(x86::rbx, 1)); }},
      {"vpmovzxbd", [](x86::Assembler& as) { as.vpmovzxbd(x86::ymm1, x86::ptr(x86::rbx, 1)); }},
      {"vpmovzxbd", [](x86::Assembler& as) { as.vpmovzxbd(x86::xmm1, x86::xmm5); }},
      {"vpmovsxbw", [](x86::Assembler& as) { as.vpmovsxbw(x86::ymm1, x86::xmm9); }},
      {"vpmovsxwd", [](x86::Assembler& as) { as.vpmovsxwd(x86::ymm1, x86::xmm9); }},
      {"vpmovzxwd", [](x86::Assembler& as) { as.vpmovzxwd(x86::ymm1, x86::xmm9); }},
      {"vpmovzxbw", [](x86::Assembler& as) { as.vpmovzxbw(x86::ymm1, x86::xmm9); }},
      {"vpmovsxbq", [](x86::Assembler& as) { as.vpmovsxbq(x86::ymm1, x86::xmm9); }},
      {"vpmovzxbq", [](x86::Assembler& as) { as.vpmovzxbq(x86::ymm1, x86::xmm9); }},
      {"vpmovsxwq", [](x86::Assembler& as) { as.vpmovsxwq(x86::ymm1, x86::xmm9); }},
      {"vpmovzxwq", [](x86::Assembler& as) { as.vpmovzxwq(x86::ymm1, x86::xmm9); }},
      {"vpmovsxdq", [](x86::Assembler& as) { as.vpmovsxdq(x86::ymm1, x86::xmm9); }},
      {"vpmovzxdq", [](x86::Assembler& as) { as.vpmovzxdq(x86::ymm1, x86::xmm9); }},
      {"vpcmpeqb", [](x86::Assembler& as) { as.vpcmpeqb(x86::ymm1, x86::ymm9, x86::ptr(x86::rbx)); }},
      {"vpcmpeqw", [](x86::Assembler& as) { as.vpcmpeqw(x86::ymm1, x86::ymm9, x86::ymm1); }},
      {"vpcmpeqd", [](x86::Assembler& as) { as.vpcmpeqd(x86::ymm1, x86::ymm9, x86::ymm2); }},
      {"vpcmpgtb", [](x86::Assembler& as) { as.vpcmpgtb(x86::ymm1, x86::ymm9, x86::ymm2); }},
      {"vpcmpgtw", [](x86::Assembler& as) { as.vpcmpgtw(x86::ymm1, x86::ymm9, x86::ymm2); }},
      {"vpcmpgtd", [](x86::Assembler& as) { as.vpcmpgtd(x86::ymm1, x86::ymm9, x86::ymm2); }},
      {"vpsllw by a vector",
       [](x86::Assembler& as) {
         as.vpsrlq(x86::xmm9, x86::xmm9, 60);
         as.vpsllw(x86::ymm1, x86::ymm2, x86::xmm9);
         as.vpsrld(x86::ymm3, x86::ymm4, x86::xmm9);
         as.vpsrad(x86::xmm5, x86::xmm6, x86::xmm9);
       }},
      {"vzeroupper", [](x86::Assembler& as) { as.vzeroupper(); }},
      {"vzeroall", [](x86::Assembler& as) { as.vzeroall(); }},
  };
  for (const auto& [name, body] : cases) ExpectAsNatively(body, name);
  for (int immediate = 0; immediate < 256; ++immediate) {
    ExpectAsNatively([&](x86::Assembler& as) { as.vperm2i128(x86::ymm1, x86::ymm2, x86::ymm3, immediate); },
                     fmt::format("vperm2i128 by {}", immediate));
  }
}

TEST(VexOperations, RoundAsTheInterruptedFunctionDoes) {
  const uint32_t saved = _mm_getcsr();
  for (const uint32_t rounding : {_MM_ROUND_NEAREST, _MM_ROUND_UP, _MM_ROUND_DOWN, _MM_ROUND_TOWARD_ZERO}) {
    _mm_setcsr((saved & ~uint32_t{_MM_ROUND_MASK}) | rounding | _MM_DENORMALS_ZERO_ON);
    ExpectAsNatively([](x86::Assembler& as) { as.vcvtps2dq(x86::ymm1, x86::ymm2); }, "vcvtps2dq");
    ExpectAsNatively([](x86::Assembler& as) { as.vmulps(x86::ymm1, x86::ymm2, x86::ymm3); }, "vmulps");
  }
  _mm_setcsr(saved);
}

// ----- EVEX
// ----------------------------------------------------------------------------------------------------

enum class Masking : uint8_t { kNone, kMerges, kZeroes };
constexpr Masking kMaskings[] = {Masking::kNone, Masking::kMerges, Masking::kZeroes};
constexpr size_t kMask = 3;

x86::Assembler& Masked(x86::Assembler& as, Masking masking) {
  if (masking != Masking::kNone) as.k(x86::k(kMask));
  if (masking == Masking::kZeroes) as.z();
  return as;
}

/// `result` as it comes out of the mask: the low `bytes`, elements of `element` bytes.
Vector ByMask(const Machine& machine, const Vector& before, const Vector& result, size_t bytes,
              size_t element, Masking masking) {
  Vector out;
  for (size_t i = 0; i < bytes; ++i) {
    const bool is_kept = masking != Masking::kNone && (machine.masks[kMask] >> (i / element) & 1) == 0;
    if (!is_kept) {
      out.bytes[i] = result.bytes[i];
    } else if (masking == Masking::kMerges) {
      out.bytes[i] = before.bytes[i];
    }
  }
  return out;
}

/// What the VEX-encoded twin makes of the halves of two vectors.
Vector TwinNatively(const Twin& twin, const Vector& first, const Vector& second, int immediate) {
  Vector out;
  for (size_t half = 0; half < 2; ++half) {
    Machine machine;
    std::copy_n(first.bytes.begin() + 32 * static_cast<int>(half), 32, machine.vectors[1].bytes.begin());
    std::copy_n(second.bytes.begin() + 32 * static_cast<int>(half), 32, machine.vectors[2].bytes.begin());
    machine.flags = 0x202;
    const Machine after = Natively(machine, [&](x86::Assembler& as) {
      EmitTwin(as, twin, true, x86::ymm0, x86::ymm1, x86::ymm2, immediate);
    });
    std::copy_n(after.vectors[0].bytes.begin(), 32, out.bytes.begin() + 32 * static_cast<int>(half));
  }
  return out;
}

constexpr size_t kTo = 21, kFirst = 9, kSecond = 30;

/// Interprets `body`; nothing but what `expect` changes of `before` may have changed.
void ExpectChanges(const Machine& before, const Emit& body, const std::function<void(Machine*)>& expect,
                   const std::string& what) {
  Machine expected = before;
  Point(&expected);
  expect(&expected);
  EXPECT_EQ(Difference(Interpreted(before, body), expected, 64, 32, kAllFlags), "") << what;
}

void ExpectEvexAsTwin(const Twin& twin, size_t bytes, Masking masking, int immediate) {
  const Machine before = RandomMachine();
  const std::string what = fmt::format("{} of {} bytes, masking {}, immediate {}", twin.name, bytes,
                                       static_cast<int>(masking), immediate);
  const auto expect = [&](const Vector& second) {
    return [&, second](Machine* machine) {
      const Vector result = TwinNatively(twin, before.vectors[kFirst], second, immediate);
      machine->vectors[kTo] =
          ByMask(before, before.vectors[kTo], result, bytes, std::max<size_t>(twin.element, 1), masking);
    };
  };
  const auto emit = [&](const asmjit::Operand& second) {
    return [&, second](x86::Assembler& as) {
      EmitTwin(Masked(as, masking), twin, false, Register(bytes, kTo), Register(bytes, kFirst), second,
               immediate);
    };
  };
  ExpectChanges(before, emit(Register(bytes, kSecond)), expect(before.vectors[kSecond]), what);
  // A compressed displacement, and one that is none.
  for (const int displacement : {2 * static_cast<int>(bytes), 3}) {
    Vector second;
    std::copy_n(before.memory.begin() + 512 + displacement, bytes, second.bytes.begin());
    ExpectChanges(before, emit(x86::ptr(x86::rbx, displacement)), expect(second), what + ", from memory");
  }
  if (twin.broadcast == 0) return;
  Vector repeated;
  for (size_t i = 0; i < 64; ++i)
    repeated.bytes[i] = before.memory[512 - 4 * twin.broadcast + i % twin.broadcast];
  x86::Mem memory = x86::ptr(x86::rbx, -4 * static_cast<int>(twin.broadcast));
  constexpr x86::Mem::Broadcast kTo2 = x86::Mem::Broadcast::k1To2;
  const auto steps = static_cast<uint32_t>(std::countr_zero(bytes / twin.broadcast)) - 1;
  memory.setBroadcast(static_cast<x86::Mem::Broadcast>(static_cast<uint32_t>(kTo2) + steps));
  ExpectChanges(before, emit(memory), expect(repeated), what + ", broadcast");
}

TEST(EvexOperations, AreTheirTwins) {
  for (const std::span<const Twin> twins : {std::span<const Twin>(kTwins), std::span<const Twin>(kShifts)}) {
    for (const Twin& twin : twins) {
      for (const size_t bytes : {16, 32, 64}) {
        for (const Masking masking : kMaskings) {
          if (masking != Masking::kNone && twin.element == 0) continue;
          for (const int immediate : kImmediates) {
            ExpectEvexAsTwin(twin, bytes, masking, immediate);
            if (twin.sources < Sources::kTwoAndImmediate) break;
          }
        }
      }
    }
  }
}

template <class Element>
using Lanes = std::array<Element, 64 / sizeof(Element)>;

template <class Element>
Lanes<Element> Of(const Vector& vector) {
  return std::bit_cast<Lanes<Element>>(vector.bytes);
}

/// Expects that `emit` puts into register kTo the low `bytes` of lanes that `lane(machine, number)` computes,
/// with each way of masking elements of `element` bytes.
template <class Element, class Lane>
void ExpectLanes(const std::string& what, size_t bytes, size_t element, const Emit& emit, const Lane& lane) {
  for (const Masking masking : kMaskings) {
    if (element == 0 && masking != Masking::kNone) continue;
    for (int repetition = 0; repetition < 5; ++repetition) {
      const Machine before = RandomMachine();
      Lanes<Element> lanes = {};
      for (size_t i = 0; i < bytes / sizeof(Element); ++i) lanes[i] = lane(before, i);
      const Vector result = {std::bit_cast<decltype(Vector::bytes)>(lanes)};
      ExpectChanges(
          before, [&](x86::Assembler& as) { emit(Masked(as, masking)); },
          [&](Machine* machine) {
            machine->vectors[kTo] =
                ByMask(before, before.vectors[kTo], result, bytes, std::max<size_t>(element, 1), masking);
          },
          what);
    }
  }
}

TEST(EvexOperations, MultiplyBytes) {
  for (const size_t bytes : {16, 32, 64}) {
    ExpectLanes<uint32_t>(
        "vpdpbusd", bytes, 4,
        [&](x86::Assembler& as) {
          as.emit(x86::Inst::kIdVpdpbusd, Register(bytes, kTo), Register(bytes, kFirst),
                  Register(bytes, kSecond));
        },
        [](const Machine& machine, size_t lane) {
          uint32_t sum = Of<uint32_t>(machine.vectors[kTo])[lane];
          for (size_t i = 4 * lane; i < 4 * lane + 4; ++i) {
            sum += static_cast<uint32_t>(machine.vectors[kFirst].bytes[i] *
                                         static_cast<int8_t>(machine.vectors[kSecond].bytes[i]));
          }
          return sum;
        });
  }
}

TEST(EvexOperations, Permute) {
  for (const size_t bytes : {32, 64}) {
    const size_t count = bytes / 4;
    const x86::Vec to = Register(bytes, kTo), first = Register(bytes, kFirst),
                   second = Register(bytes, kSecond);
    const auto of = [](const Machine& machine, size_t number) {
      return Of<uint32_t>(machine.vectors[number]);
    };
    ExpectLanes<uint32_t>(
        "vpermd", bytes, 4, [&](x86::Assembler& as) { as.emit(x86::Inst::kIdVpermd, to, first, second); },
        [&](const Machine& machine, size_t i) {
          return of(machine, kSecond)[of(machine, kFirst)[i] & (count - 1)];
        });
    ExpectLanes<uint32_t>(
        "vpermt2d", bytes, 4, [&](x86::Assembler& as) { as.emit(x86::Inst::kIdVpermt2d, to, first, second); },
        [&](const Machine& machine, size_t i) {
          const uint32_t index = of(machine, kFirst)[i];
          return of(machine, (index & count) != 0 ? kSecond : kTo)[index & (count - 1)];
        });
    ExpectLanes<uint32_t>(
        "vpermi2d", bytes, 4, [&](x86::Assembler& as) { as.emit(x86::Inst::kIdVpermi2d, to, first, second); },
        [&](const Machine& machine, size_t i) {
          const uint32_t index = of(machine, kTo)[i];
          return of(machine, (index & count) != 0 ? kSecond : kFirst)[index & (count - 1)];
        });
    ExpectLanes<uint64_t>(
        "vpermq", bytes, 8, [&](x86::Assembler& as) { as.emit(x86::Inst::kIdVpermq, to, second, 0x4e); },
        [&](const Machine& machine, size_t i) { return Of<uint64_t>(machine.vectors[kSecond])[i ^ 2]; });
    // The lower half of the quarters from the first source, the upper from the second.
    for (const unsigned immediate : {0x88U, 0xddU, 0x4eU, 0x01U, 0xe4U}) {
      const auto quarter = [&](size_t number) -> std::pair<size_t, size_t> {
        if (bytes == 64) return {number < 2 ? kFirst : kSecond, immediate >> (2 * number) & 3};
        return {number == 0 ? kFirst : kSecond, immediate >> number & 1};
      };
      ExpectLanes<uint32_t>(
          "vshufi32x4", bytes, 4,
          [&](x86::Assembler& as) { as.emit(x86::Inst::kIdVshufi32x4, to, first, second, immediate); },
          [&](const Machine& machine, size_t i) {
            const auto [from, index] = quarter(i / 4);
            return of(machine, from)[4 * index + i % 4];
          });
      ExpectLanes<uint64_t>(
          "vshufi64x2", bytes, 8,
          [&](x86::Assembler& as) { as.emit(x86::Inst::kIdVshufi64x2, to, first, second, immediate); },
          [&](const Machine& machine, size_t i) {
            const auto [from, index] = quarter(i / 2);
            return Of<uint64_t>(machine.vectors[from])[2 * index + i % 2];
          });
    }
  }
}

TEST(EvexOperations, CombineBits) {
  for (int immediate = 0; immediate < 256; immediate += 5) {
    ExpectLanes<uint8_t>(
        "vpternlogd", 64, 4,
        [&](x86::Assembler& as) {
          as.vpternlogd(x86::zmm(kTo), x86::zmm(kFirst), x86::zmm(kSecond), immediate);
        },
        [&](const Machine& machine, size_t i) {
          int byte = 0;
          for (int bit = 0; bit < 8; ++bit) {
            const auto at = [&](size_t number) { return machine.vectors[number].bytes[i] >> bit & 1; };
            byte |= (immediate >> (4 * at(kTo) + 2 * at(kFirst) + at(kSecond)) & 1) << bit;
          }
          return static_cast<uint8_t>(byte);
        });
  }
}

TEST(EvexOperations, RepeatAndWidenWhatIsInMemory) {
  const auto memory = x86::ptr(x86::rbx, 64);
  const auto byte = [](const Machine& machine, size_t i) { return machine.memory[512 + 64 + i]; };
  using Id = x86::Inst::Id;
  for (const auto& [id, part, element] : {std::tuple<Id, size_t, size_t>{x86::Inst::kIdVpbroadcastd, 4, 4},
                                          {x86::Inst::kIdVpbroadcastq, 8, 8},
                                          {x86::Inst::kIdVbroadcastss, 4, 4},
                                          {x86::Inst::kIdVpbroadcastb, 1, 1},
                                          {x86::Inst::kIdVbroadcasti32x4, 16, 4},
                                          {x86::Inst::kIdVbroadcasti64x4, 32, 8}}) {
    ExpectLanes<uint8_t>(
        fmt::format("broadcast of {}", part), 64, element,
        [&, id = id](x86::Assembler& as) { as.emit(id, x86::zmm(kTo), memory); },
        [&, part = part](const Machine& machine, size_t i) { return byte(machine, i % part); });
  }
  ExpectLanes<int32_t>(
      "vpmovsxbd", 64, 4, [&](x86::Assembler& as) { as.vpmovsxbd(x86::zmm(kTo), memory); },
      [&](const Machine& machine, size_t i) { return static_cast<int8_t>(byte(machine, i)); });
  ExpectLanes<int32_t>(
      "vpmovzxbd", 64, 4, [&](x86::Assembler& as) { as.vpmovzxbd(x86::zmm(kTo), memory); },
      [&](const Machine& machine, size_t i) { return int32_t{byte(machine, i)}; });
  ExpectLanes<uint8_t>(
      "vmovdqu8", 64, 1, [&](x86::Assembler& as) { as.vmovdqu8(x86::zmm(kTo), memory); },
      [&](const Machine& machine, size_t i) { return byte(machine, i); });
  ExpectLanes<uint8_t>(
      "vmovdqu32", 64, 4, [&](x86::Assembler& as) { as.vmovdqu32(x86::zmm(kTo), memory); },
      [&](const Machine& machine, size_t i) { return byte(machine, i); });
}

TEST(EvexOperations, NarrowExtractAndInsert) {
  const auto dwords = [](const Machine& machine, size_t i) {
    return Of<int32_t>(machine.vectors[kSecond])[i];
  };
  const x86::Vec to = x86::xmm(kTo), from = x86::zmm(kSecond);
  ExpectLanes<uint8_t>(
      "vpmovdb", 16, 1, [&](x86::Assembler& as) { as.vpmovdb(to, from); },
      [&](const Machine& machine, size_t i) { return static_cast<uint8_t>(dwords(machine, i)); });
  ExpectLanes<int8_t>(
      "vpmovsdb", 16, 1, [&](x86::Assembler& as) { as.vpmovsdb(to, from); },
      [&](const Machine& machine, size_t i) {
        return static_cast<int8_t>(std::clamp(dwords(machine, i), -128, 127));
      });
  ExpectLanes<uint8_t>(
      "vpmovusdb", 16, 1, [&](x86::Assembler& as) { as.vpmovusdb(to, from); },
      [&](const Machine& machine, size_t i) {
        return static_cast<uint8_t>(std::min(static_cast<uint32_t>(dwords(machine, i)), 255U));
      });
  for (const size_t part : {0, 1, 2, 3}) {
    ExpectLanes<uint8_t>(
        "vextracti32x4", 16, 4, [&](x86::Assembler& as) { as.vextracti32x4(to, from, part); },
        [&](const Machine& machine, size_t i) { return machine.vectors[kSecond].bytes[16 * part + i]; });
    ExpectLanes<uint8_t>(
        "vinserti32x4", 64, 4,
        [&](x86::Assembler& as) {
          as.vinserti32x4(x86::zmm(kTo), x86::zmm(kFirst), x86::xmm(kSecond), part);
        },
        [&](const Machine& machine, size_t i) {
          return i / 16 == part ? machine.vectors[kSecond].bytes[i % 16] : machine.vectors[kFirst].bytes[i];
        });
  }
  ExpectLanes<uint8_t>(
      "vextracti64x4", 32, 8, [&](x86::Assembler& as) { as.vextracti64x4(x86::ymm(kTo), from, 1); },
      [&](const Machine& machine, size_t i) { return machine.vectors[kSecond].bytes[32 + i]; });
}

TEST(EvexOperations, Store) {
  struct Case {
    const char* name;
    Emit emit;
    size_t bytes, offset, element;
  };
  const x86::Mem memory = x86::ptr(x86::rbx, 64);
  const x86::Vec from = x86::zmm(kSecond);
  const std::vector<Case> cases = {
      {"vmovdqu32", [&](x86::Assembler& as) { as.vmovdqu32(memory, from); }, 64, 0, 4},
      {"vmovdqu8", [&](x86::Assembler& as) { as.vmovdqu8(memory, from); }, 64, 0, 1},
      {"vmovdqu32", [&](x86::Assembler& as) { as.vmovdqu32(memory, x86::ymm(kSecond)); }, 32, 0, 4},
      {"vmovups", [&](x86::Assembler& as) { as.vmovups(memory, from); }, 64, 0, 4},
      {"vextracti32x4", [&](x86::Assembler& as) { as.vextracti32x4(memory, from, 3); }, 16, 48, 4},
      {"vextracti64x4", [&](x86::Assembler& as) { as.vextracti64x4(memory, from, 1); }, 32, 32, 8},
  };
  for (const Case& one : cases) {
    for (const Masking masking : {Masking::kNone, Masking::kMerges}) {
      const Machine before = RandomMachine();
      ExpectChanges(
          before, [&](x86::Assembler& as) { one.emit(Masked(as, masking)); },
          [&](Machine* machine) {
            for (size_t i = 0; i < one.bytes; ++i) {
              const bool is_kept =
                  masking != Masking::kNone && (before.masks[kMask] >> (i / one.element) & 1) == 0;
              if (!is_kept) machine->memory[512 + 64 + i] = before.vectors[kSecond].bytes[one.offset + i];
            }
          },
          one.name);
    }
  }
}

TEST(EvexOperations, StoreAlignedOrAreRefused) {
  alignas(64) std::array<uint8_t, 128> memory = {};
  const Code code([](x86::Assembler& as) { as.vmovntdq(x86::ptr(x86::rdi), x86::zmm20); });
  for (const size_t offset : {0, 32}) {
    uint64_t caller = 0;
    State state;
    state.general[State::kStackPointer] = reinterpret_cast<uint64_t>(&caller);
    state.general[7] = reinterpret_cast<uint64_t>(memory.data()) + offset;
    state.vectors[20].bytes.fill(7);
    state.rip = code.address();
    Interpret(&state);
    EXPECT_EQ(state.fault, offset == 0 ? "" : "vmovntdq: #GP: the operand in memory is not aligned");
    EXPECT_EQ(memory[63], 7);
  }
}

TEST(MaskOperations, MoveCompareAndCombine) {
  const auto expect = [](const std::string& what, const Emit& emit,
                         const std::function<void(Machine*)>& change) {
    for (int repetition = 0; repetition < 5; ++repetition) ExpectChanges(RandomMachine(), emit, change, what);
  };
  expect(
      "kmovw from r32", [](x86::Assembler& as) { as.kmovw(x86::k2, x86::r9d); },
      [](Machine* m) { m->masks[2] = static_cast<uint16_t>(m->general[9]); });
  expect(
      "kmovd from r32", [](x86::Assembler& as) { as.kmovd(x86::k2, x86::r9d); },
      [](Machine* m) { m->masks[2] = static_cast<uint32_t>(m->general[9]); });
  expect(
      "kmovq from r64", [](x86::Assembler& as) { as.kmovq(x86::k2, x86::r9); },
      [](Machine* m) { m->masks[2] = m->general[9]; });
  expect(
      "kmovb to r32", [](x86::Assembler& as) { as.kmovb(x86::r12d, x86::k2); },
      [](Machine* m) { m->general[12] = static_cast<uint8_t>(m->masks[2]); });
  expect(
      "kmovq to r64", [](x86::Assembler& as) { as.kmovq(x86::r12, x86::k2); },
      [](Machine* m) { m->general[12] = m->masks[2]; });
  expect(
      "kmovd from memory", [](x86::Assembler& as) { as.kmovd(x86::k2, x86::ptr(x86::rbx, 3)); },
      [](Machine* m) {
        m->masks[2] = 0;
        std::memcpy(&m->masks[2], &m->memory[515], 4);
      });
  expect(
      "kmovw to memory", [](x86::Assembler& as) { as.kmovw(x86::ptr(x86::rbx, 3), x86::k2); },
      [](Machine* m) { std::memcpy(&m->memory[515], &m->masks[2], 2); });
  expect(
      "kandw", [](x86::Assembler& as) { as.kandw(x86::k1, x86::k2, x86::k3); },
      [](Machine* m) { m->masks[1] = static_cast<uint16_t>(m->masks[2] & m->masks[3]); });
  expect(
      "kandnq", [](x86::Assembler& as) { as.kandnq(x86::k1, x86::k2, x86::k3); },
      [](Machine* m) { m->masks[1] = ~m->masks[2] & m->masks[3]; });
  expect(
      "korb", [](x86::Assembler& as) { as.korb(x86::k1, x86::k2, x86::k3); },
      [](Machine* m) { m->masks[1] = static_cast<uint8_t>(m->masks[2] | m->masks[3]); });
  expect(
      "kxnord", [](x86::Assembler& as) { as.kxnord(x86::k1, x86::k2, x86::k3); },
      [](Machine* m) { m->masks[1] = static_cast<uint32_t>(~(m->masks[2] ^ m->masks[3])); });
  expect(
      "kxorq", [](x86::Assembler& as) { as.kxorq(x86::k1, x86::k2, x86::k3); },
      [](Machine* m) { m->masks[1] = m->masks[2] ^ m->masks[3]; });
  expect(
      "knotw", [](x86::Assembler& as) { as.knotw(x86::k1, x86::k3); },
      [](Machine* m) { m->masks[1] = static_cast<uint16_t>(~m->masks[3]); });
  expect(
      "vpcmpeqd", [](x86::Assembler& as) { as.vpcmpeqd(x86::k1, x86::zmm(kFirst), x86::zmm(kSecond)); },
      [](Machine* m) {
        m->masks[1] = 0;
        for (size_t i = 0; i < 16; ++i) {
          const bool holds = Of<int32_t>(m->vectors[kFirst])[i] == Of<int32_t>(m->vectors[kSecond])[i];
          m->masks[1] |= uint64_t{holds} << i;
        }
      });
  for (int predicate = 0; predicate < 8; ++predicate) {
    expect(
        "vpcmpub",
        [&](x86::Assembler& as) {
          as.k(x86::k(kMask)).vpcmpub(x86::k1, x86::ymm(kFirst), x86::ymm(kSecond), predicate);
        },
        [&](Machine* m) {
          m->masks[1] = 0;
          for (size_t i = 0; i < 32; ++i) {
            const uint8_t a = m->vectors[kFirst].bytes[i], b = m->vectors[kSecond].bytes[i];
            const bool holds[] = {a == b, a<b, a <= b, false, a != b, a >= b, a> b, true};
            m->masks[1] |= (uint64_t{holds[predicate]} << i) & m->masks[kMask];
          }
        });
  }
}

// ----- in a signal handler
// -----------------------------------------------------------------------------------

/// Does nothing on CPUs with AVX-512, whose registers hold all.
TEST(ScopedEmulator, TellsWhatItDoesNotKnow) {
  if (asmjit::CpuInfo::host().hasFeature(asmjit::CpuFeatures::X86::kAVX512_F)) GTEST_SKIP() << "has AVX-512";
  const auto run = [](const Emit& last) {
    const tests::CheckedEmulator emulator;
    const Code code([&](x86::Assembler& as) {
      as.vpternlogd(x86::zmm20, x86::zmm20, x86::zmm20, 255);
      last(as);
      as.vzeroupper();
    });
    code.Run();
    return ScopedEmulator::TakeFault();
  };
  EXPECT_EQ(run([](x86::Assembler& as) { as.mul(x86::rcx); }),
            "48 f7 e1: not known to the emulator, and the CPU lacks what registers hold");
  EXPECT_EQ(run([](x86::Assembler& as) {
              as.vpxord(x86::zmm20, x86::zmm20, x86::zmm20);
              as.mul(x86::rcx);
            }),
            "");
}

TEST(ScopedEmulatorDeathTest, NamesTheBytesOfAnUnknownInstruction) {
  if (asmjit::CpuInfo::host().hasFeature(asmjit::CpuFeatures::X86::kAVX512_F)) GTEST_SKIP() << "has AVX-512";
  EXPECT_EXIT(
      {
        const tests::CheckedEmulator emulator;
        const Code code([](x86::Assembler& as) { as.vgetexpps(x86::zmm1, x86::zmm2); });
        code.Run();
      },
      testing::KilledBySignal(SIGILL), "62 f2 7d 48 42 ca");
}

TEST(ScopedEmulator, TakesOneSignalForAFunction) {
  if (asmjit::CpuInfo::host().hasFeature(asmjit::CpuFeatures::X86::kAVX512_F)) GTEST_SKIP() << "has AVX-512";
  const tests::CheckedEmulator emulator;
  alignas(64) std::array<uint32_t, 16> sums = {};
  const uint64_t before = ScopedEmulator::Count();
  const Code code([&](x86::Assembler& as) {
    const asmjit::Label loop = as.newLabel();
    as.vpternlogd(x86::zmm20, x86::zmm20, x86::zmm20, 255);  // −1 in each lane
    as.mov(x86::rax, reinterpret_cast<uint64_t>(sums.data()));
    as.vmovdqu32(x86::zmm21, x86::ptr(x86::rax));
    as.mov(x86::ecx, 1000);
    as.bind(loop);
    as.vpsubd(x86::zmm21, x86::zmm21, x86::zmm20);
    as.dec(x86::ecx);
    as.jnz(loop);
    as.vmovdqu32(x86::ptr(x86::rax), x86::zmm21);
    as.vzeroupper();
  });
  code.Run();
  EXPECT_EQ(sums, (decltype(sums){1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000,
                                  1000, 1000, 1000, 1000}));
  EXPECT_EQ(ScopedEmulator::Count() - before, 1003U);
}

}  // namespace
}  // namespace intact::emulator
