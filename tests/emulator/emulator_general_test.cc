// The emulator's interpreter on instructions of general registers, compared with the CPU; and instructions at
// which it stops.
#include <asmjit/x86.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

#include "tests/support/emulated_machine.h"

namespace intact::tests {
namespace {

TEST(GeneralOperations, AreThoseOfTheCpu) {
  using Id = x86::Inst::Id;
  for (const Id id : {x86::Inst::kIdAdd, x86::Inst::kIdSub, x86::Inst::kIdCmp, x86::Inst::kIdAnd,
                      x86::Inst::kIdOr, x86::Inst::kIdXor, x86::Inst::kIdTest, x86::Inst::kIdMov}) {
    for (const bool is_64 : {false, true}) {
      const auto general = [&](uint32_t number) {
        return is_64 ? x86::Gp(x86::gpq(number)) : x86::Gp(x86::gpd(number));
      };
      const std::string what = fmt::format("instruction {}, 64 bits: {}", static_cast<uint32_t>(id), is_64);
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
  // Steps beyond the ends of the ranges.
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
  emulator::State state;
  state.general[emulator::State::kStackPointer] = reinterpret_cast<uint64_t>(&stack[2]);
  state.stack_limit = reinterpret_cast<uint64_t>(&stack[1]);
  state.rip = code.address();
  emulator::Interpret(&state);
  EXPECT_FALSE(state.has_returned);
  EXPECT_EQ(state.rip, code.address() + 1);
  EXPECT_EQ(state.general[emulator::State::kStackPointer], reinterpret_cast<uint64_t>(&stack[1]));
}

TEST(Interpret, SeesThatCodeWasReplaced) {
  std::array<uint8_t, 16> bytes = {0x48, 0xff, 0xc0, 0xc3};  // inc rax; ret
  for (const uint64_t expected : {1, 0}) {
    uint64_t top = 0;
    emulator::State state;
    state.general[emulator::State::kStackPointer] = reinterpret_cast<uint64_t>(&top);
    state.rip = reinterpret_cast<uint64_t>(bytes.data());
    emulator::Interpret(&state);
    EXPECT_EQ(state.general[0], expected);
    bytes = {0x90, 0xc3};
  }
}

}  // namespace
}  // namespace intact::tests
