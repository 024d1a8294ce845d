// The emulator's interpreter on VEX-encoded instructions, compared with the CPU.
#include <asmjit/x86.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <immintrin.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/emulated_machine.h"
#include "tests/support/instruction_twins.h"

namespace intact::tests {
namespace {

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

// Instructions that EVEX has in another form, or not at all.
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

}  // namespace
}  // namespace intact::tests
