// The emulator's interpreter in a signal handler.
#include <asmjit/x86.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <cstdint>

#include "emulator/emulator.h"
#include "tests/support/checked_emulator.h"
#include "tests/support/emulated_machine.h"

namespace intact::tests {
namespace {

using emulator::ScopedEmulator;

/// Does nothing on CPUs with AVX-512, whose registers hold everything.
TEST(ScopedEmulator, ReportsWhatItDoesNotKnow) {
  if (asmjit::CpuInfo::host().hasFeature(asmjit::CpuFeatures::X86::kAVX512_F)) GTEST_SKIP() << "has AVX-512";
  const auto run = [](const Emit& last) {
    const CheckedEmulator emulator;
    const Code code([&](x86::Assembler& as) {
      as.vpternlogd(x86::zmm20, x86::zmm20, x86::zmm20, 255);
      last(as);
      as.vzeroupper();
    });
    code.Run();
    return ScopedEmulator::TakeFault();
  };
  EXPECT_EQ(run([](x86::Assembler& as) { as.mul(x86::rcx); }),
            "48 f7 e1: not known to the emulator; the CPU lacks registers that hold values");
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
        const CheckedEmulator emulator;
        const Code code([](x86::Assembler& as) { as.vgetexpps(x86::zmm1, x86::zmm2); });
        code.Run();
      },
      testing::KilledBySignal(SIGILL), "62 f2 7d 48 42 ca");
}

TEST(ScopedEmulator, TakesOneSignalForAFunction) {
  if (asmjit::CpuInfo::host().hasFeature(asmjit::CpuFeatures::X86::kAVX512_F)) GTEST_SKIP() << "has AVX-512";
  const CheckedEmulator emulator;
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
}  // namespace intact::tests
