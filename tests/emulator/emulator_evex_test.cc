// The emulator's interpreter on EVEX-encoded instructions and mask registers. EVEX-encoded instructions are
// compared with their VEX-encoded twins, which the CPU executes on each half. Instructions without a twin are
// compared with plain definitions.
#include <asmjit/x86.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/isas.h"
#include "jit/emitters/dot.h"
#include "tests/support/emulated_machine.h"
#include "tests/support/instruction_twins.h"

namespace intact::tests {
namespace {

using emulator::Vector;

enum class Masking : uint8_t { kNone, kMerges, kZeroes };
constexpr Masking kMaskings[] = {Masking::kNone, Masking::kMerges, Masking::kZeroes};
constexpr size_t kMask = 3;

x86::Assembler& Masked(x86::Assembler& as, Masking masking) {
  if (masking != Masking::kNone) as.k(x86::k(kMask));
  if (masking == Masking::kZeroes) as.z();
  return as;
}

/// `result` after masking: the low `bytes`, elements of `element` bytes.
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

/// The result of the VEX-encoded twin on the halves of two vectors. `to`: the destination before.
Vector TwinNatively(const Twin& twin, const Vector& to, const Vector& first, const Vector& second,
                    int immediate) {
  Vector out;
  for (size_t half = 0; half < 2; ++half) {
    Machine machine;
    std::copy_n(to.bytes.begin() + 32 * static_cast<int>(half), 32, machine.vectors[0].bytes.begin());
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

/// Interprets `body`. Expects the changes that `expect` makes to `before`, and no others.
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
      const Vector result =
          TwinNatively(twin, before.vectors[kTo], before.vectors[kFirst], second, immediate);
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
  // A displacement that is compressed, and one that is not.
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

constexpr jit::DotSigns kAllSigns[] = {{false, false}, {false, true}, {true, false}, {true, true}};

TEST(EvexOperations, MultiplyBytes) {
  const auto value = [](uint8_t byte, bool is_signed) {
    return is_signed ? static_cast<int8_t>(byte) : int{byte};
  };
  for (const jit::DotSigns signs : kAllSigns) {
    for (const size_t bytes : {16, 32, 64}) {
      ExpectLanes<uint32_t>(
          jit::VnniInstruction(signs), bytes, 4,
          [&](x86::Assembler& as) {
            jit::EmitDot(as, core::Encoding::kEvex, signs, Register(bytes, kTo), Register(bytes, kFirst),
                         Register(bytes, kSecond));
          },
          [&](const Machine& machine, size_t lane) {
            uint32_t sum = Of<uint32_t>(machine.vectors[kTo])[lane];
            for (size_t i = 4 * lane; i < 4 * lane + 4; ++i) {
              sum += static_cast<uint32_t>(value(machine.vectors[kFirst].bytes[i], signs.a_signed) *
                                           value(machine.vectors[kSecond].bytes[i], signs.b_signed));
            }
            return sum;
          });
    }
  }
}

// Encodings by GNU as 2.44.
TEST(EvexDot, HasItsEncodings) {
  const auto bytes = [](jit::DotSigns signs, const x86::Vec& to, const x86::Vec& first,
                        const asmjit::Operand_& second) {
    asmjit::CodeHolder code;
    code.init(asmjit::Environment::host());
    x86::Assembler as(&code);
    jit::EmitDot(as, core::Encoding::kEvex, signs, to, first, second);
    const std::span<const uint8_t> emitted(code.textSection()->data(), code.textSection()->bufferSize());
    return std::vector<uint8_t>(emitted.begin(), emitted.end());
  };
  using Bytes = std::vector<uint8_t>;
  const auto& [uu, us, su, ss] = kAllSigns;
  EXPECT_EQ(bytes(ss, x86::zmm1, x86::zmm2, x86::zmm3), (Bytes{0x62, 0xf2, 0x6f, 0x48, 0x50, 0xcb}));
  EXPECT_EQ(bytes(su, x86::zmm1, x86::zmm2, x86::zmm3), (Bytes{0x62, 0xf2, 0x6e, 0x48, 0x50, 0xcb}));
  EXPECT_EQ(bytes(uu, x86::zmm1, x86::zmm2, x86::zmm3), (Bytes{0x62, 0xf2, 0x6c, 0x48, 0x50, 0xcb}));
  EXPECT_EQ(bytes(us, x86::zmm1, x86::zmm2, x86::zmm3), (Bytes{0x62, 0xf2, 0x6d, 0x48, 0x50, 0xcb}));
  EXPECT_EQ(bytes(ss, x86::zmm29, x86::zmm30, x86::zmm31), (Bytes{0x62, 0x02, 0x0f, 0x40, 0x50, 0xef}));
  EXPECT_EQ(bytes(su, x86::zmm9, x86::zmm10, x86::ptr(x86::rax, x86::r9, 3, 0x40)),
            (Bytes{0x62, 0x32, 0x2e, 0x48, 0x50, 0x4c, 0xc8, 0x01}));
  EXPECT_EQ(bytes(su, x86::zmm9, x86::zmm10, x86::ptr(x86::rax, x86::r9, 3, 0x44)),
            (Bytes{0x62, 0x32, 0x2e, 0x48, 0x50, 0x8c, 0xc8, 0x44, 0x00, 0x00, 0x00}));
  EXPECT_EQ(bytes(uu, x86::zmm15, x86::zmm2, x86::ptr(x86::r12)),
            (Bytes{0x62, 0x52, 0x6c, 0x48, 0x50, 0x3c, 0x24}));
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
    // The lower two quarters come from the first source, the upper two from the second.
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
        [&, instruction = id](x86::Assembler& as) { as.emit(instruction, x86::zmm(kTo), memory); },
        [&, period = part](const Machine& machine, size_t i) { return byte(machine, i % period); });
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

__attribute__((target("f16c"))) uint32_t ToFloat(uint32_t half) {
  return std::bit_cast<uint32_t>(_cvtsh_ss(static_cast<uint16_t>(half)));
}

__attribute__((target("f16c"))) uint16_t ToHalf(uint32_t bits) {
  return _cvtss_sh(std::bit_cast<float>(bits), _MM_FROUND_TO_NEAREST_INT);
}

// Compared with F16C's VEX-encoded instructions, which every CPU with AVX2 has.
TEST(EvexOperations, ConvertHalfFloats) {
  const auto memory = x86::ptr(x86::rbx, 32);
  for (const size_t bytes : {16, 32, 64}) {
    ExpectLanes<uint32_t>(
        "vcvtph2ps", bytes, 4,
        [&](x86::Assembler& as) { as.vcvtph2ps(Register(bytes, kTo), Register(bytes / 2, kSecond)); },
        [](const Machine& machine, size_t i) { return ToFloat(Of<uint16_t>(machine.vectors[kSecond])[i]); });
    ExpectLanes<uint16_t>(
        "vcvtps2ph", bytes / 2, 2,
        [&](x86::Assembler& as) { as.vcvtps2ph(Register(bytes / 2, kTo), Register(bytes, kSecond), 0); },
        [](const Machine& machine, size_t i) { return ToHalf(Of<uint32_t>(machine.vectors[kSecond])[i]); });
  }
  ExpectLanes<uint32_t>(
      "vcvtph2ps", 64, 4, [&](x86::Assembler& as) { as.vcvtph2ps(x86::zmm(kTo), memory); },
      [](const Machine& machine, size_t i) {
        const uint8_t* const half = &machine.memory[512 + 32 + 2 * i];
        return ToFloat(half[0] | uint32_t{half[1]} << 8);
      });
  const Machine before = RandomMachine();
  ExpectChanges(
      before, [&](x86::Assembler& as) { as.vcvtps2ph(memory, x86::zmm(kSecond), 0); },
      [&](Machine* machine) {
        for (size_t i = 0; i < 16; ++i) {
          const uint16_t half = ToHalf(Of<uint32_t>(before.vectors[kSecond])[i]);
          std::memcpy(&machine->memory[512 + 32 + 2 * i], &half, sizeof half);
        }
      },
      "vcvtps2ph to memory");
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
    emulator::State state;
    state.general[emulator::State::kStackPointer] = reinterpret_cast<uint64_t>(&caller);
    state.general[7] = reinterpret_cast<uint64_t>(memory.data()) + offset;
    state.vectors[20].bytes.fill(7);
    state.rip = code.address();
    emulator::Interpret(&state);
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

}  // namespace
}  // namespace intact::tests
