#include "jit/emitters/dot.h"

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
  VnniForm(Emitter& emitter, bool vex) : SingleStepForm(emitter), vex_(vex) {}
  void Dot(int /*step*/, const Vec& accumulator, const Vec& a, const Operand& b) override {
    Encode().vpdpbusd(accumulator, a, b[0]);
  }
  bool reads_memory() const override { return true; }
  void DotMemory(const Vec& accumulator, const Vec& a, const Mem& b) override {
    Encode().vpdpbusd(accumulator, a, b);
  }

 private:
  // Without AVX-512 there is the VEX encoding only; asmjit prefers EVEX.
  asmjit::x86::Assembler& Encode() {
    if (vex_) code().vex();
    return code();
  }

  bool vex_;
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

std::unique_ptr<DotForm> MakeDotForm(DotKind kind, Isa isa, Emitter& emitter) {
  switch (kind) {
    case DotKind::kVnni:
      return std::make_unique<VnniForm>(emitter, TraitsOf(isa).vectors.encoding == Encoding::kVex);
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
