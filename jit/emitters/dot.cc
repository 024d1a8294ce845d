#include "jit/emitters/dot.h"

namespace intact::jit {
namespace {

// Forms whose operands are one register each, as memory holds them.
class SingleRegisterForm : public DotForm {
 public:
  using DotForm::DotForm;
  Operand NewA() override { return {registers().NewVector("a")}; }
  Operand NewB(const std::string& name) override { return {registers().NewVector(name)}; }
  void BroadcastA(const Operand& a, const Mem& from) override { code().vpbroadcastd(a[0], from); }
  void LoadB(const Operand& b, const Mem& from) override { emitter().Load(b[0], from); }
};

class VnniForm final : public SingleRegisterForm {
 public:
  VnniForm(Emitter& emitter, bool vex) : SingleRegisterForm(emitter), vex_(vex) {}
  void Dot(const Vec& accumulator, const Operand& a, const Operand& b) override {
    if (vex_) code().vex();  // AVX-VNNI has the VEX encoding only; asmjit prefers EVEX
    code().vpdpbusd(accumulator, a[0], b[0]);
  }

 private:
  bool vex_;
};

// Exact only for pairs whose sum fits int16: VPMADDUBSW clamps it, and 2·255·127 is beyond.
class TripleForm final : public SingleRegisterForm {
 public:
  using SingleRegisterForm::SingleRegisterForm;
  void Prepare() override {
    product_ = registers().NewVector("product");
    ones_ = NewOnes(emitter());
  }
  void Dot(const Vec& accumulator, const Operand& a, const Operand& b) override {
    code().vpmaddubsw(product_, a[0], b[0]);     // 2 products → int16
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

// Both operands as int16, the even depths of a quad in one register and the odd ones in another, so that the
// canonical layout needs no shuffle: shifts split it.
class WideForm final : public DotForm {
 public:
  using DotForm::DotForm;
  Operand NewA() override { return {registers().NewVector("a even"), registers().NewVector("a odd")}; }
  Operand NewB(const std::string& name) override {
    return {registers().NewVector(name + " even"), registers().NewVector(name + " odd")};
  }
  void Prepare() override { product_ = registers().NewVector("product"); }
  void BroadcastA(const Operand& a, const Mem& from) override {
    code().vpbroadcastd(a[1], from);
    code().vpsllw(a[0], a[1], 8);
    code().vpsrlw(a[0], a[0], 8);
    code().vpsrlw(a[1], a[1], 8);
  }
  void LoadB(const Operand& b, const Mem& from) override {
    emitter().Load(b[1], from);
    code().vpsllw(b[0], b[1], 8);
    code().vpsraw(b[0], b[0], 8);
    code().vpsraw(b[1], b[1], 8);
  }
  void Dot(const Vec& accumulator, const Operand& a, const Operand& b) override {
    for (size_t half = 0; half < 2; ++half) {
      code().vpmaddwd(product_, a[half], b[half]);
      code().vpaddd(accumulator, accumulator, product_);
    }
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
      return std::make_unique<VnniForm>(emitter, isa == Isa::kAvxVnni);
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
