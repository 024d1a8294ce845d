#include "jit/emitters/dot.h"

#include <cassert>

namespace intact::jit {
namespace {

// Forms whose operands are one register each, as memory holds them.
class SingleStepForm : public DotForm {
 public:
  using DotForm::DotForm;
  Operand NewB(const std::string& name) override { return {registers().NewVector(name)}; }
  void LoadB(const Operand& b, const Mem& from) override { emitter().Load(b[0], from); }
};

class VnniForm final : public SingleStepForm {
 public:
  VnniForm(Emitter& emitter, bool vex, DotSigns signs) : SingleStepForm(emitter), vex_(vex), signs_(signs) {
    assert(vex || (!signs.a_signed && signs.b_signed));
  }
  void Dot(int /*step*/, const Vec& accumulator, const Vec& a, const Operand& b) override {
    Emit(accumulator, a, b[0]);
  }
  bool reads_memory() const override { return true; }
  void DotMemory(const Vec& accumulator, const Vec& a, const Mem& b) override { Emit(accumulator, a, b); }

 private:
  // Without AVX-512 there is the VEX encoding only; asmjit prefers EVEX.
  void Emit(const Vec& accumulator, const Vec& a, const asmjit::Operand_& b) {
    if (vex_) return EmitVexDot(code(), signs_, accumulator, a, b);
    code().emit(asmjit::x86::Inst::kIdVpdpbusd, accumulator, a, b);
  }

  bool vex_;
  DotSigns signs_;
};

// Exact only for pairs whose sum fits int16: VPMADDUBSW clamps it, and 2·255·127 is beyond.
class TripleForm final : public SingleStepForm {
 public:
  using SingleStepForm::SingleStepForm;
  void Prepare() override {
    product_ = registers().NewVector("product");
    ones_ = NewOnes(emitter());
  }
  void Dot(int /*step*/, const Vec& accumulator, const Vec& a, const Operand& b) override {
    code().vpmaddubsw(product_, a, b[0]);        // 2 products → int16
    code().vpmaddwd(product_, product_, ones_);  // 2 pair sums → int32
    code().vpaddd(accumulator, accumulator, product_);
  }
  void Release() override {
    registers().Free(product_);
    registers().Free(ones_);
  }

 private:
  Vec product_, ones_;
};

class WideForm final : public DotForm {
 public:
  using DotForm::DotForm;
  int steps() const override { return 2; }
  Operand NewB(const std::string& name) override {
    return {registers().NewVector(name + " even"), registers().NewVector(name + " odd")};
  }
  void Prepare() override { product_ = registers().NewVector("product"); }
  void LoadB(const Operand& b, const Mem& from) override {
    emitter().Load(b[1], from);
    code().vpsllw(b[0], b[1], 8);
    code().vpsraw(b[0], b[0], 8);
    code().vpsraw(b[1], b[1], 8);
  }
  void Dot(int step, const Vec& accumulator, const Vec& a, const Operand& b) override {
    code().vpmaddwd(product_, a, b[static_cast<size_t>(step)]);
    code().vpaddd(accumulator, accumulator, product_);
  }
  void Release() override { registers().Free(product_); }

 private:
  Vec product_;
};

}  // namespace

std::string_view ToString(DotKind kind) {
  switch (kind) {
    case DotKind::kVnni:
      return "vnni";
    case DotKind::kTriple:
      return "triple";
    case DotKind::kWide:
      return "wide";
  }
  return "?";
}

const char* VnniInstruction(DotSigns signs) {
  if (signs.a_signed) return signs.b_signed ? "vpdpbssd" : "vpdpbsud";
  return signs.b_signed ? "vpdpbusd" : "vpdpbuud";
}

// asmjit of 2022 knows vpdpbusd alone. The others differ from it in the mandatory prefix, which is the low
// two bits of the third byte:
//
//   C4 | ~R ~X ~B 00010 | W ~vvvv L pp | 50 | …     pp   0 uud   1 usd   2 sud   3 ssd
void EmitVexDot(asmjit::x86::Assembler& code, DotSigns signs, const Vec& accumulator, const Vec& a,
                const asmjit::Operand_& b) {
  constexpr size_t kLeastBytes = 5;
  const size_t begin = code.offset();
  code.setInlineComment(VnniInstruction(signs));  // the listing calls it vpdpbusd
  code.vex().emit(asmjit::x86::Inst::kIdVpdpbusd, accumulator, a, b);
  uint8_t* const bytes = code.bufferData() + begin;
  if (code.offset() < begin + kLeastBytes || bytes[0] != 0xc4 || (bytes[1] & 0x1f) != 2 ||
      (bytes[2] & 0x83) != 1 || bytes[3] != 0x50) {
    code.reportError(asmjit::kErrorInvalidInstruction, "vpdpbusd has another encoding than that of VEX");
    return;
  }
  const int prefix = (signs.a_signed ? 2 : 0) + (signs.b_signed ? 1 : 0);
  bytes[2] = static_cast<uint8_t>((bytes[2] & ~3) | prefix);
}

std::unique_ptr<DotForm> MakeDotForm(DotKind kind, Isa isa, Emitter& emitter, DotSigns signs) {
  switch (kind) {
    case DotKind::kVnni:
      return std::make_unique<VnniForm>(emitter, TraitsOf(isa).vectors.encoding == Encoding::kVex, signs);
    case DotKind::kTriple:
      return std::make_unique<TripleForm>(emitter);
    case DotKind::kWide:
      return std::make_unique<WideForm>(emitter);
  }
  return nullptr;
}

Vec NewOnes(Emitter& emitter) {
  const Vec ones = emitter.registers().NewVector("ones");
  if (emitter.vector_bytes() == 64) {
    emitter.code().vpternlogd(ones, ones, ones, 0xff);
  } else {
    emitter.code().vpcmpeqw(ones, ones, ones);
  }
  emitter.code().vpsrlw(ones, ones, 15);
  return ones;
}

}  // namespace intact::jit
