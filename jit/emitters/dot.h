// The dot verbs: how four adjacent depths (a k-quad) of u8 activations and s8 weights are multiplied into
// int32 accumulators. One class per instruction sequence; the loops around them exist once, in the generator.
//
//   form     instructions per vector and quad            exact
//   vnni     vpdpbusd                                     always
//   triple   vpmaddubsw, vpmaddwd(1), vpaddd              only where no pair sum leaves int16
//   wide     2 × (vpmaddwd, vpaddd) on int16 operands     always
//
// A broadcast A quad and a loaded B vector may need more than one register each (wide: even and odd depths).
#ifndef INTACT_JIT_EMITTERS_DOT_H_
#define INTACT_JIT_EMITTERS_DOT_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "jit/emitters/emitter.h"

namespace intact::jit {

enum class DotKind : uint8_t { kVnni, kTriple, kWide };
std::string_view ToString(DotKind kind);

/// Registers that together hold one operand.
using Operand = std::vector<Vec>;

class DotForm {
 public:
  explicit DotForm(Emitter& emitter) : emitter_(emitter) {}
  virtual ~DotForm() = default;
  DotForm(const DotForm&) = delete;
  DotForm& operator=(const DotForm&) = delete;

  virtual Operand NewA() = 0;
  virtual Operand NewB(const std::string& name) = 0;
  /// Emits constants; after the registers of operands and accumulators are taken.
  virtual void Prepare() {}
  virtual void BroadcastA(const Operand& a, const Mem& from) = 0;
  virtual void LoadB(const Operand& b, const Mem& from) = 0;
  virtual void Dot(const Vec& accumulator, const Operand& a, const Operand& b) = 0;
  /// Frees the form's own registers, so that the epilogue may have them.
  virtual void Release() {}

 protected:
  asmjit::x86::Assembler& code() { return emitter_.code(); }
  RegisterFile& registers() { return emitter_.registers(); }
  Emitter& emitter() { return emitter_; }

 private:
  Emitter& emitter_;
};

std::unique_ptr<DotForm> MakeDotForm(DotKind kind, Isa isa, Emitter& emitter);

/// A register of int16 ones, which turns vpmaddwd into the widening of int16 pairs.
Vec NewOnes(Emitter& emitter);

}  // namespace intact::jit
#endif  // INTACT_JIT_EMITTERS_DOT_H_
