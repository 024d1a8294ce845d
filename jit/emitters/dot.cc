#include "jit/emitters/dot.h"

#include <cassert>

#include "core/isas.h"
#include "core/names.h"

namespace intact::jit {
namespace {

namespace x86 = asmjit::x86;

class VnniVariant final : public DotVariant {
 public:
  VnniVariant(Emitter& emitter, core::Encoding encoding, DotSigns signs)
      : DotVariant(emitter), encoding_(encoding), signs_(signs) {}
  void Dot(const Vec& sum, const Vec& a, const asmjit::Operand_& b) override {
    EmitDot(code(), encoding_, signs_, sum, a, b);
  }

 private:
  core::Encoding encoding_;
  DotSigns signs_;
};

// Variants that widen int16 pairs by vpmaddwd with ones.
class WideningVariant : public DotVariant {
 public:
  using DotVariant::DotVariant;
  void TakeRegisters() override {
    product_ = registers().NewVector("product");
    ones_ = registers().NewVector("ones");
  }
  void Release() override {
    registers().Free(product_);
    registers().Free(ones_);
  }
  void Prepare() override { SetOnes(emitter(), ones_); }

 protected:
  const Vec& product() const { return product_; }
  const Vec& ones() const { return ones_; }

 private:
  Vec product_, ones_;
};

// Exact only if pair sums fit int16: VPMADDUBSW clamps them, and 2·255·127 does not fit.
class MaddubsVariant final : public WideningVariant {
 public:
  using WideningVariant::WideningVariant;
  void Dot(const Vec& sum, const Vec& a, const asmjit::Operand_& b) override {
    code().emit(x86::Inst::kIdVpmaddubsw, product(), a, b);  // 2 products → int16
    code().vpmaddwd(product(), product(), ones());           // 2 pair sums → int32
    code().vpaddd(sum, sum, product());
  }
};

class WideVariant : public DotVariant {
 public:
  using DotVariant::DotVariant;
  void TakeRegisters() override { product_ = registers().NewVector("product"); }
  void Release() override { registers().Free(product_); }
  void Dot(const Vec& sum, const Vec& a, const asmjit::Operand_& b) override {
    code().emit(x86::Inst::kIdVpmaddwd, product_, a, b);
    code().vpaddd(sum, sum, product_);
  }

 private:
  Vec product_;
};

class WideInPlaceVariant final : public WideVariant {
 public:
  using WideVariant::WideVariant;
  int steps() const override { return 2; }
  bool takes_quads_apart() const override { return true; }
  int b_registers() const override { return 2; }
  void LoadB(const Operand& b, const Mem& from, int bytes) override {
    emitter().LoadFirst(b[1], from, bytes);
    code().vpsllw(b[0], b[1], 8);
    code().vpsraw(b[0], b[0], 8);
    code().vpsraw(b[1], b[1], 8);
  }
  void TakeRegisters() override {
    WideVariant::TakeRegisters();
    even_ = registers().NewVector("even depths");
    mask_ = registers().NewVector("mask");
  }
  void Release() override {
    WideVariant::Release();
    registers().Free(even_);
    registers().Free(mask_);
  }
  void Prepare() override { SetLowBits(emitter(), mask_, 8); }
  const Vec& Part(const Vec& a, int step) override {
    if (step == 0) {
      code().emit(emitter().vector_bytes() == 64 ? x86::Inst::kIdVpandd : x86::Inst::kIdVpand, even_, a,
                  mask_);
      return even_;
    }
    code().vpsrlw(a, a, 8);
    return a;
  }

 private:
  Vec even_, mask_;
};

class SplitVariant final : public DotVariant {
 public:
  using DotVariant::DotVariant;
  int steps() const override { return 2; }
  int group_quads() const override { return 8; }
  void TakeRegisters() override { product_ = registers().NewVector("product"); }
  void Release() override { registers().Free(product_); }
  void Dot(const Vec& sum, const Vec& a, const asmjit::Operand_& b) override {
    code().emit(x86::Inst::kIdVpmaddubsw, product_, a, b);
    code().vpaddw(sum, sum, product_);
  }
  void FirstDot(const Vec& sum, const Vec& a, const asmjit::Operand_& b) override {
    code().emit(x86::Inst::kIdVpmaddubsw, sum, a, b);
  }
  void Widen(const std::vector<Sums>& sums) override {
    const Vec& factor = product_;
    SetOnes(emitter(), factor);
    AddProducts(sums, 0, factor);  // l
    code().vpsllw(factor, factor, 4);
    AddProducts(sums, 1, factor);  // 16·h
  }

 private:
  void AddProducts(const std::vector<Sums>& sums, size_t step, const Vec& factor) {
    for (const Sums& one : sums) code().vpmaddwd(one.of_step.at(step), one.of_step.at(step), factor);
    for (const Sums& one : sums) code().vpaddd(one.accumulator, one.accumulator, one.of_step.at(step));
  }

  Vec product_;
};

// Exact if the sums of each group fit int16, which the schedule guarantees.
class ScheduledVariant final : public WideningVariant {
 public:
  using WideningVariant::WideningVariant;
  int group_quads() const override { return 8; }
  void Dot(const Vec& sum, const Vec& a, const asmjit::Operand_& b) override {
    code().emit(x86::Inst::kIdVpmaddubsw, product(), a, b);
    code().vpaddw(sum, sum, product());
  }
  void FirstDot(const Vec& sum, const Vec& a, const asmjit::Operand_& b) override {
    code().emit(x86::Inst::kIdVpmaddubsw, sum, a, b);
  }
  void Widen(const std::vector<Sums>& sums) override {
    for (const Sums& one : sums) code().vpmaddwd(one.of_step[0], one.of_step[0], ones());
    for (const Sums& one : sums) code().vpaddd(one.accumulator, one.accumulator, one.of_step[0]);
  }
};

}  // namespace

std::string_view ToString(DotKind kind) {
  static constexpr Name<DotKind> kKinds[] = {
      {"vnni", DotKind::kVnni},          {"maddubs", DotKind::kMaddubs},     {"cut", DotKind::kCut},
      {"wide", DotKind::kWide},          {"inplace", DotKind::kWideInPlace}, {"split", DotKind::kSplit},
      {"scheduled", DotKind::kScheduled}};
  return intact::NameOf(kKinds, kind);
}

const char* VnniInstruction(DotSigns signs) {
  if (signs.a_signed) return signs.b_signed ? "vpdpbssd" : "vpdpbsud";
  return signs.b_signed ? "vpdpbusd" : "vpdpbuud";
}

// asmjit of 2022 knows only vpdpbusd. The other instructions differ from it in the mandatory prefix, which is
// the low two bits of the third byte:
//
//   C4 | ~R ~X ~B 00010   | W ~vvvv L pp | 50 | …                    pp   0 uud   1 usd   2 sud   3 ssd
//   62 | ~R ~X ~B ~R 0010 | W ~vvvv 1 pp | z L L b ~V aaa | 50 | …
void EmitDot(asmjit::x86::Assembler& code, core::Encoding encoding, DotSigns signs, const Vec& accumulator,
             const Vec& a, const asmjit::Operand_& b) {
  const bool is_vex = encoding == core::Encoding::kVex;
  const size_t begin = code.offset(), opcode = is_vex ? 3 : 4;
  code.setInlineComment(VnniInstruction(signs));  // the listing calls it vpdpbusd
  (is_vex ? code.vex() : code.evex()).emit(x86::Inst::kIdVpdpbusd, accumulator, a, b);
  uint8_t* const bytes = code.bufferData() + begin;
  const bool is_known = code.offset() >= begin + opcode + 2 && bytes[opcode] == 0x50 &&
                        (is_vex ? bytes[0] == 0xc4 && (bytes[1] & 0x1f) == 2 && (bytes[2] & 0x83) == 1
                                : bytes[0] == 0x62 && (bytes[1] & 0x0f) == 2 && (bytes[2] & 0x87) == 5);
  if (!is_known) {
    code.reportError(asmjit::kErrorInvalidInstruction, "vpdpbusd has another encoding");
    return;
  }
  const int prefix = (signs.a_signed ? 2 : 0) + (signs.b_signed ? 1 : 0);
  bytes[2] = static_cast<uint8_t>((bytes[2] & ~3) | prefix);
}

std::unique_ptr<DotVariant> MakeDotVariant(DotKind kind, core::Isa isa, Emitter& emitter, DotSigns signs) {
  switch (kind) {
    case DotKind::kVnni:
      return std::make_unique<VnniVariant>(emitter, core::TraitsOf(isa).vectors.encoding, signs);
    case DotKind::kMaddubs:
    case DotKind::kCut:
      return std::make_unique<MaddubsVariant>(emitter);
    case DotKind::kWide:
      return std::make_unique<WideVariant>(emitter);
    case DotKind::kWideInPlace:
      return std::make_unique<WideInPlaceVariant>(emitter);
    case DotKind::kSplit:
      return std::make_unique<SplitVariant>(emitter);
    case DotKind::kScheduled:
      return std::make_unique<ScheduledVariant>(emitter);
  }
  return nullptr;
}

void SetLowBits(Emitter& emitter, const Vec& words, int bits) {
  if (emitter.vector_bytes() == 64) {
    emitter.code().vpternlogd(words, words, words, 0xff);
  } else {
    emitter.code().vpcmpeqw(words, words, words);
  }
  emitter.code().vpsrlw(words, words, 16 - bits);
}

void SetOnes(Emitter& emitter, const Vec& ones) { SetLowBits(emitter, ones, 1); }

Vec NewOnes(Emitter& emitter) {
  const Vec ones = emitter.registers().NewVector("ones");
  SetOnes(emitter, ones);
  return ones;
}

Vec NewShift(Emitter& emitter) {
  const Vec shift = NewOnes(emitter);
  emitter.code().vpsllw(shift, shift, 15);
  emitter.code().vpacksswb(shift, shift, shift);
  return shift;
}

}  // namespace intact::jit
