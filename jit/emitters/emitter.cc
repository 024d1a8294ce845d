#include "jit/emitters/emitter.h"

namespace intact::jit {
namespace {

namespace x86 = asmjit::x86;

bool IsWide(Isa isa) { return isa != Isa::kAvx2 && isa != Isa::kAvxVnni; }

class YmmEmitter final : public Emitter {
 public:
  using Emitter::Emitter;
  void Load(const Vec& to, const Mem& from) override { code().vmovdqu(to, from); }
  void Store(const Mem& to, const Vec& from) override { code().vmovdqu(to, from); }
  void Copy(const Vec& to, const Vec& from) override { code().vmovdqa(to, from); }
  void Zero(const Vec& to) override { code().vpxor(to, to, to); }
  void StoreBytes(const Mem& to, const Vec& from, bool is_signed) override {
    const Vec high = registers().NewVector("high half");
    code().vextracti128(high.xmm(), from, 1);
    code().vpackssdw(from.xmm(), from.xmm(), high.xmm());
    if (is_signed) {
      code().vpacksswb(from.xmm(), from.xmm(), from.xmm());
    } else {
      code().vpackuswb(from.xmm(), from.xmm(), from.xmm());
    }
    code().vmovq(to, from.xmm());
    registers().Free(high);
  }
};

class ZmmEmitter final : public Emitter {
 public:
  using Emitter::Emitter;
  void Load(const Vec& to, const Mem& from) override { code().vmovdqu32(to, from); }
  void Store(const Mem& to, const Vec& from) override { code().vmovdqu32(to, from); }
  void Copy(const Vec& to, const Vec& from) override { code().vmovdqa32(to, from); }
  void Zero(const Vec& to) override { code().vpxord(to, to, to); }
  void StoreBytes(const Mem& to, const Vec& from, bool /*is_signed*/) override { code().vpmovdb(to, from); }
};

}  // namespace

RegisterFile MakeRegisterFile(Isa isa) { return IsWide(isa) ? RegisterFile(64, 32) : RegisterFile(32, 16); }

std::unique_ptr<Emitter> MakeEmitter(Isa isa, asmjit::x86::Assembler& code, RegisterFile& registers) {
  if (IsWide(isa)) return std::make_unique<ZmmEmitter>(code, registers);
  return std::make_unique<YmmEmitter>(code, registers);
}

}  // namespace intact::jit
