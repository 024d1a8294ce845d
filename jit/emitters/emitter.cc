#include "jit/emitters/emitter.h"

namespace intact::jit {
namespace {

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

 protected:
  void TransposeQuarters(std::vector<Vec>* vectors) override {
    Vec spare = registers().NewVector("spare");
    Butterfly(
        &(*vectors)[0], &(*vectors)[1], &spare,
        [&](const Vec& to, const Vec& x, const Vec& y) { code().vperm2i128(to, x, y, 0x20); },
        [&](const Vec& to, const Vec& x, const Vec& y) { code().vperm2i128(to, x, y, 0x31); });
    registers().Free(spare);
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

 protected:
  // Twice the same step: even quarters of a pair into the first, odd ones into the second.
  void TransposeQuarters(std::vector<Vec>* vectors) override {
    std::vector<Vec>& v = *vectors;
    Vec spare = registers().NewVector("spare");
    const auto step = [&](size_t x, size_t y) {
      Butterfly(
          &v[x], &v[y], &spare,
          [&](const Vec& to, const Vec& a, const Vec& b) { code().vshufi32x4(to, a, b, 0x88); },
          [&](const Vec& to, const Vec& a, const Vec& b) { code().vshufi32x4(to, a, b, 0xdd); });
    };
    step(0, 1);
    step(2, 3);
    step(0, 2);
    step(1, 3);
    registers().Free(spare);
  }
};

}  // namespace

// Within each 128-bit quarter, squares of four rows by dwords and then by pairs of dwords; then whole
// quarters.
void Emitter::Transpose(std::vector<Vec>* rows) {
  std::vector<Vec>& r = *rows;
  Vec spare = registers_.NewVector("spare");
  for (size_t four = 0; four < r.size(); four += 4) {
    for (const size_t i : {four, four + 2}) {
      Butterfly(
          &r[i], &r[i + 1], &spare,
          [&](const Vec& to, const Vec& x, const Vec& y) { code_.vpunpckldq(to, x, y); },
          [&](const Vec& to, const Vec& x, const Vec& y) { code_.vpunpckhdq(to, x, y); });
    }
    for (const size_t i : {four, four + 1}) {
      Butterfly(
          &r[i], &r[i + 2], &spare,
          [&](const Vec& to, const Vec& x, const Vec& y) { code_.vpunpcklqdq(to, x, y); },
          [&](const Vec& to, const Vec& x, const Vec& y) { code_.vpunpckhqdq(to, x, y); });
    }
    std::swap(r[four + 1], r[four + 2]);
  }
  registers_.Free(spare);
  for (size_t column = 0; column < 4; ++column) {
    std::vector<Vec> quarters;
    for (size_t i = column; i < r.size(); i += 4) quarters.push_back(r[i]);
    TransposeQuarters(&quarters);
    for (size_t i = 0; i < quarters.size(); ++i) r[column + 4 * i] = quarters[i];
  }
}

RegisterFile MakeRegisterFile(Isa isa) { return IsWide(isa) ? RegisterFile(64, 32) : RegisterFile(32, 16); }

std::unique_ptr<Emitter> MakeEmitter(Isa isa, asmjit::x86::Assembler& code, RegisterFile& registers) {
  if (IsWide(isa)) return std::make_unique<ZmmEmitter>(code, registers);
  return std::make_unique<YmmEmitter>(code, registers);
}

}  // namespace intact::jit
