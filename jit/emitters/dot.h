// The dot product: how four adjacent depths (a k-quad) of u8 activations and s8 weights are multiplied into
// int32 accumulators. One class per instruction sequence; the loops around them exist once, in the generator.
//
//   variant    instructions per vector and quad                exact
//   vnni       vpdpbusd, or its variants for other signs       always
//   maddubs    vpmaddubsw, vpmaddwd(1), vpaddd                 only if no pair sum leaves int16
//   cut        as maddubs                             if weights are cut: kernels/weights/cut_panels.h
//   wide       2 × (vpmaddwd, vpaddd) on int16 operands        always
//   inplace    as wide, from activations that are not staged   always
//   split      2 × (vpmaddubsw, vpaddw), widened every eighth  always
//   scheduled  vpmaddubsw, vpaddw, widened after each group    if pair sums of each group fit int16
//
// A quad takes one or more steps. Each step broadcasts one dword of A and multiplies it with the B vectors.
// The wide variant reads A and B as int16, so a pair of depths takes the place of a quad. The weights are
// widened when the plan is created, and A is staged. The inplace variant reads the panels and A as they are,
// and has two steps, for even and odd depths. The inplace variant splits a vector of B once for all rows of a
// tile, and a broadcast quad of A by two instructions for all vectors of a tile.
//
// The split variant splits an activation: a = 16·h + l with h and l ≤ 15. A pair sum of h or of l is at most
// 2·15·128 = 3840, so eight quads of any weights add up within int16 (30720). Then vpmaddwd widens these
// sums: l with 1, h with 16. A is staged as both halves. Each half is a step. The variant is for tiles of few
// rows, because a tile needs three registers for each of its vectors.
//
// The scheduled variant runs quads in the order and the groups of a schedule of its weights
// (kernels/weights/scheduled_vectors.h).
//
//   A quad   vnni, maddubs, cut, inplace: a0 a1 a2 a3 (u8)
//            wide: a0 a1 | a2 a3 (u16)   split: l0 l1 l2 l3 | h0 h1 h2 h3
//   B quad   wide: b0 b1 | b2 b3 (s16); b0 b1 b2 b3 (s8) for the other variants
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

/// The signs of A's and B's bytes in a vnni variant. All other variants multiply u8 by s8, and so does
/// AVX-512's VNNI.
struct DotSigns {
  bool a_signed = false, b_signed = true;
  auto operator<=>(const DotSigns&) const = default;
};

enum class DotKind : uint8_t { kVnni, kMaddubs, kCut, kWide, kWideInPlace, kSplit, kScheduled };
std::string_view ToString(DotKind kind);
/// Bytes of a row's quad in the A that kernels read.
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

  /// Steps of a quad: each multiplies a broadcast dword of A.
  virtual int steps() const { return 1; }
  /// Whether A holds one dword for all steps; Part() then splits the dword. Otherwise A holds a dword for
  /// each step.
  virtual bool takes_quads_apart() const { return false; }
  /// The part of the quad in `a` that `step` multiplies. May destroy `a`. Call it for each step, in order.
  virtual const Vec& Part(const Vec& a, int /*step*/) { return a; }
  /// The most quads that are summed in int16, in one sum for each step, before they are widened; 0: none.
  virtual int group_quads() const { return 0; }
  /// Registers that a B vector is loaded to: one for each step, or one for all steps. With one register for
  /// all steps, B may stay in memory when registers are short.
  virtual int b_registers() const { return 1; }
  /// Loads the first `bytes` of a B vector (Emitter::LoadFirst()).
  virtual void LoadB(const Operand& b, const Mem& from, int bytes) { emitter().LoadFirst(b[0], from, bytes); }
  /// Takes the variant's own registers. Release() frees them for the epilogue.
  virtual void TakeRegisters() {}
  virtual void Release() {}
  /// Emits constants.
  virtual void Prepare() {}
  /// `b` is a register or memory; `sum` is the accumulator, or the step's int16 sum if quads are summed in
  /// int16.
  virtual void Dot(const Vec& sum, const Vec& a, const asmjit::Operand_& b) = 0;
  /// Dot() that sets `sum` instead of adding to it.
  virtual void FirstDot(const Vec& /*sum*/, const Vec& /*a*/, const asmjit::Operand_& /*b*/) {}
  /// Adds int16 sums, one for each step, to their accumulators, and destroys the int16 sums.
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

/// `signs` other than u8×s8 need an ISA with DotProducts::kAllSigns.
std::unique_ptr<DotVariant> MakeDotVariant(DotKind kind, core::Isa isa, Emitter& emitter,
                                           DotSigns signs = {});

/// "vpdpbusd", "vpdpbssd", …
const char* VnniInstruction(DotSigns signs);

/// Emits VnniInstruction(signs), for CPUs that have the instruction in this encoding. `b` is a register or
/// memory.
void EmitDot(asmjit::x86::Assembler& code, core::Encoding encoding, DotSigns signs, const Vec& accumulator,
             const Vec& a, const asmjit::Operand_& b);

/// Fills `words` with int16 values that have the low `bits` bits set.
void SetLowBits(Emitter& emitter, const Vec& words, int bits);
/// Fills `ones` with int16 ones: vpmaddwd by them widens int16 pairs.
void SetOnes(Emitter& emitter, const Vec& ones);
Vec NewOnes(Emitter& emitter);
/// Bytes of 128: adding them, or their exclusive or, shifts s8 to u8.
Vec NewShift(Emitter& emitter);

}  // namespace intact::jit
#endif  // INTACT_JIT_EMITTERS_DOT_H_
