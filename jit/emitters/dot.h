// The dot verbs: how four adjacent depths (a k-quad) of u8 activations and s8 weights are multiplied into
// int32 accumulators. One class per instruction sequence; the loops around them exist once, in the generator.
//
//   form     instructions per vector and quad            exact
//   vnni     vpdpbusd, or its like for other signs        always
//   triple   vpmaddubsw, vpmaddwd(1), vpaddd              only where no pair sum leaves int16
//   wide     2 × (vpmaddwd, vpaddd) on int16 operands     always
//
// A quad takes one step or more: each broadcasts one dword of A and multiplies it with the B vectors. The
// wide form has two, for the even and the odd depths, from an A that is packed as int16:
//
//   A quad   vnni, triple: a0 a1 a2 a3 (u8)          wide: a0 a2 | a1 a3 (u16)
//   B quad   b0 b1 b2 b3 (s8) for all forms; the wide one splits a loaded vector with shifts
#ifndef INTACT_JIT_EMITTERS_DOT_H_
#define INTACT_JIT_EMITTERS_DOT_H_

#include <compare>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "jit/emitters/emitter.h"

namespace intact::jit {

/// What a vnni form takes the bytes of A and of B for. All other forms multiply u8 by s8, and so does
/// AVX-512's VNNI.
struct DotSigns {
  bool a_signed = false, b_signed = true;
  auto operator<=>(const DotSigns&) const = default;
};

enum class DotKind : uint8_t { kVnni, kTriple, kWide };
std::string_view ToString(DotKind kind);
/// Bytes of a row's quad in packed A: 4 per step.
constexpr int ActivationQuadBytes(DotKind kind) { return kind == DotKind::kWide ? 8 : 4; }

/// Registers that together hold one B vector.
using Operand = std::vector<Vec>;

class DotForm {
 public:
  explicit DotForm(Emitter& emitter) : emitter_(emitter) {}
  virtual ~DotForm() = default;
  DotForm(const DotForm&) = delete;
  DotForm& operator=(const DotForm&) = delete;

  /// Steps of a quad.
  virtual int steps() const { return 1; }
  virtual Operand NewB(const std::string& name) = 0;
  /// Emits constants; after the registers of operands and accumulators are taken.
  virtual void Prepare() {}
  virtual void LoadB(const Operand& b, const Mem& from) = 0;
  virtual void Dot(int step, const Vec& accumulator, const Vec& a, const Operand& b) = 0;
  /// Whether DotMemory() can take the place of LoadB() and Dot(), where registers are short.
  virtual bool reads_memory() const { return false; }
  virtual void DotMemory(const Vec& /*accumulator*/, const Vec& /*a*/, const Mem& /*b*/) {}
  /// Frees the form's own registers, so that the epilogue may have them.
  virtual void Release() {}

 protected:
  asmjit::x86::Assembler& code() { return emitter_.code(); }
  RegisterFile& registers() { return emitter_.registers(); }
  Emitter& emitter() { return emitter_; }

 private:
  Emitter& emitter_;
};

/// Other `signs` than the usual ones need an ISA with DotProducts::kAllSigns.
std::unique_ptr<DotForm> MakeDotForm(DotKind kind, Isa isa, Emitter& emitter, DotSigns signs = {});

/// "vpdpbusd", "vpdpbssd", …
const char* VnniInstruction(DotSigns signs);

/// Emits that instruction in its VEX encoding; `b` is a register or memory.
void EmitVexDot(asmjit::x86::Assembler& code, DotSigns signs, const Vec& accumulator, const Vec& a,
                const asmjit::Operand_& b);

/// A register of int16 ones, which turns vpmaddwd into the widening of int16 pairs.
Vec NewOnes(Emitter& emitter);

}  // namespace intact::jit
#endif  // INTACT_JIT_EMITTERS_DOT_H_
