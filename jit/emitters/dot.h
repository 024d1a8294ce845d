// The dot verbs: how four adjacent depths (a k-quad) of u8 activations and s8 weights are multiplied into
// int32 accumulators. One class per instruction sequence; the loops around them exist once, in the generator.
//
//   variant       instructions per vector and quad               exact
//   vnni       vpdpbusd, or its like for other signs           always
//   maddubs     vpmaddubsw, vpmaddwd(1), vpaddd                 only where no pair sum leaves int16
//   wide       2 × (vpmaddwd, vpaddd) on int16 operands         always
//   inplace    the same, from activations as they are          always
//   split      2 × (vpmaddubsw, vpaddw), widened every eighth  always
//   scheduled  vpmaddubsw, vpaddw, widened after each group    where a group's weights are light enough
//
// A quad takes one step or more: each broadcasts one dword of A and multiplies it with the B vectors. The
// wide variant has two, for the even and the odd depths, from an A that is staged as int16; what it takes a
// vector of B apart with is shared by a tile's rows. The inplace variant does without that A: it takes a
// broadcast quad apart in registers, two instructions that a tile's vectors share, which is the cheaper way
// where columns are few.
//
// The split variant takes an activation apart, a = 16·h + l with h and l ≤ 15. A pair sum of either is at most
// 2·15·128 = 3840, so eight quads of any weights add up within int16, 30720, before they are widened: l's by
// vpmaddwd with 1, h's with 16. Its A is staged with both halves, which are its steps. It is for tiles of few
// rows: a tile needs three registers for each of its vectors.
//
// The scheduled variant runs quads in the order and the groups of a schedule of its weights
// (kernels/weights/scheduled_vectors.h).
//
//   A quad   vnni, maddubs, inplace: a0 a1 a2 a3 (u8)
//            wide: a0 a2 | a1 a3 (u16)   split: l0 l1 l2 l3 | h0 h1 h2 h3
//   B quad   b0 b1 b2 b3 (s8) for all variants; the wide ones split a loaded vector with shifts
#ifndef INTACT_JIT_EMITTERS_DOT_H_
#define INTACT_JIT_EMITTERS_DOT_H_

#include <array>
#include <compare>
#include <memory>
#include <string_view>
#include <vector>

#include "core/isas.h"
#include "jit/emitters/emitter.h"

namespace intact::jit {

/// What a vnni variant takes the bytes of A and of B for. All other variants multiply u8 by s8, and so does
/// AVX-512's VNNI.
struct DotSigns {
  bool a_signed = false, b_signed = true;
  auto operator<=>(const DotSigns&) const = default;
};

enum class DotKind : uint8_t { kVnni, kMaddubs, kWide, kWideInPlace, kSplit, kScheduled };
std::string_view ToString(DotKind kind);
/// Bytes of a row's quad in A as kernels read it.
constexpr int ActivationQuadBytes(DotKind kind) {
  return kind == DotKind::kWide || kind == DotKind::kSplit ? 8 : 4;
}

/// Registers that together hold one B vector.
using Operand = std::vector<Vec>;

class DotVariant {
 public:
  explicit DotVariant(Emitter& emitter) : emitter_(emitter) {}
  virtual ~DotVariant() = default;
  DotVariant(const DotVariant&) = delete;
  DotVariant& operator=(const DotVariant&) = delete;

  /// Steps of a quad: each multiplies a dword of A that is broadcast.
  virtual int steps() const { return 1; }
  /// Whether A holds a dword for all steps together, which Part() takes apart; else it holds one for each.
  virtual bool takes_quads_apart() const { return false; }
  /// What `step` multiplies of the quad in `a`, which it may destroy. Steps are asked for in their order.
  virtual const Vec& Part(const Vec& a, int /*step*/) { return a; }
  /// The most quads that are summed in int16 before they are widened, in one sum for each step; 0: none are.
  virtual int group_quads() const { return 0; }
  /// Registers that a B vector is loaded to: one for each step, or one for all, which may stay in memory
  /// where registers are short.
  virtual int b_registers() const { return 1; }
  /// Loads the first `bytes` of a B vector (Emitter::LoadFirst()).
  virtual void LoadB(const Operand& b, const Mem& from, int bytes) { emitter().LoadFirst(b[0], from, bytes); }
  /// Takes the variant's own registers; Release() frees them, so that the epilogue may have them.
  virtual void TakeRegisters() {}
  virtual void Release() {}
  /// Emits constants.
  virtual void Prepare() {}
  /// `b` is a register or memory; `sum` the accumulator, or the step's int16 sum if quads are summed there.
  virtual void Dot(const Vec& sum, const Vec& a, const asmjit::Operand_& b) = 0;
  /// The same where `sum` holds nothing yet.
  virtual void FirstDot(const Vec& /*sum*/, const Vec& /*a*/, const asmjit::Operand_& /*b*/) {}
  /// Adds int16 sums, one of each step, to their accumulators, and destroys them.
  struct Sums {
    Vec accumulator;
    std::array<Vec, 2> of_step;
  };
  virtual void Widen(const std::vector<Sums>& /*sums*/) {}

 protected:
  asmjit::x86::Assembler& code() { return emitter_.code(); }
  RegisterFile& registers() { return emitter_.registers(); }
  Emitter& emitter() { return emitter_; }

 private:
  Emitter& emitter_;
};

/// Other `signs` than the usual ones need an ISA with DotProducts::kAllSigns.
std::unique_ptr<DotVariant> MakeDotVariant(DotKind kind, core::Isa isa, Emitter& emitter,
                                           DotSigns signs = {});

/// "vpdpbusd", "vpdpbssd", …
const char* VnniInstruction(DotSigns signs);

/// Emits that instruction, for CPUs that have it in this encoding; `b` is a register or memory.
void EmitDot(asmjit::x86::Assembler& code, core::Encoding encoding, DotSigns signs, const Vec& accumulator,
             const Vec& a, const asmjit::Operand_& b);

/// Fills `words` with int16 whose low `bits` are set.
void SetLowBits(Emitter& emitter, const Vec& words, int bits);
/// Fills `ones` with int16 ones, which turn vpmaddwd into the widening of int16 pairs.
void SetOnes(Emitter& emitter, const Vec& ones);
Vec NewOnes(Emitter& emitter);

}  // namespace intact::jit
#endif  // INTACT_JIT_EMITTERS_DOT_H_
