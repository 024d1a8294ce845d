// What generators of functions on packed groups (grouped_weights.h) have in common.
#ifndef INTACT_KERNELS_CODEGEN_GROUPED_GENERATOR_H_
#define INTACT_KERNELS_CODEGEN_GROUPED_GENERATOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "core/isas.h"
#include "core/types.h"
#include "jit/assembler.h"
#include "jit/emitters/emitter.h"
#include "kernels/weights/grouped_weights.h"

namespace intact::kernels {

inline const char* NameOf(GroupedStep step) {
  switch (step) {
    case GroupedStep::kBytes:
      return "w8";
    case GroupedStep::kNibbles:
      return "w4";
    case GroupedStep::kSplitBytes:
      return "w8split";
    case GroupedStep::kHalves:
      return "w8halves";
    case GroupedStep::kSignBytes:
      return "w8signs";
  }
  return "w?";
}

/// "w4f16_zb8_za16": weights, scales, and the bits of zero points and sums.
inline std::string NameOf(const GroupedLayout& layout) {
  std::string name = NameOf(layout.step);
  name += core::NameOf(layout.scale_type);
  if (layout.zero_point_bytes != 0) {
    name += (layout.signed_zero_points ? "_zbs" : "_zb") + std::to_string(8 * layout.zero_point_bytes);
  }
  if (layout.sum_bytes != 0) name += "_za" + std::to_string(8 * layout.sum_bytes);
  return name;
}

/// The operations that generators of functions on packed groups share.
class GroupedGenerator {
 public:
  /// `name`: see jit::Assembler.
  GroupedGenerator(core::Isa isa, const GroupedLayout& layout, std::function<std::string()> name)
      : isa_(isa),
        layout_(layout),
        session_(std::move(name)),
        registers_(jit::MakeRegisterFile(isa)),
        emitter_(jit::MakeEmitter(isa, session_.code(), registers_)) {}

 protected:
  asmjit::x86::Assembler& code() { return session_.code(); }
  int vector_bytes() const { return registers_.vector_bytes(); }
  int columns() const { return GroupedLayout::kVectors * vector_bytes() / 4; }
  bool is_evex() const { return core::TraitsOf(isa_).vectors.encoding == core::Encoding::kEvex; }
  jit::Mem Argument(size_t member) const {
    return asmjit::x86::ptr(registers_.Argument(), static_cast<int>(member));
  }
  jit::Mem Constant(size_t member) const { return asmjit::x86::ptr(constants_, static_cast<int>(member)); }

  void And(const jit::Vec& to, const asmjit::Operand_& mask) {
    code().emit(is_evex() ? asmjit::x86::Inst::kIdVpandd : asmjit::x86::Inst::kIdVpand, to, to, mask);
  }
  // Keeps the low or the high nibbles of bytes. Masks bits of other bytes that the shift moves in.
  void LowNibbles(const jit::Vec& bytes, const asmjit::Operand_& mask) { And(bytes, mask); }
  void HighNibbles(const jit::Vec& to, const jit::Vec& bytes, const asmjit::Operand_& mask) {
    code().vpsrlw(to, bytes, 4);
    And(to, mask);
  }

  // Column values of the header at `header` + offset, vector j, as 32-bit lanes.
  void LoadScales(const jit::Vec& to, const jit::Gp& header, int j, int offset = 0) {
    const jit::Mem from =
        asmjit::x86::ptr(header, offset + j * vector_bytes() / 4 * core::BytesOf(layout_.scale_type));
    if (layout_.scale_type == INTACT_F32) return emitter_->Load(to, from);
    if (layout_.scale_type == INTACT_F16) {
      code().vcvtph2ps(to, from);
    } else {
      code().vpmovzxwd(to, from);
      code().vpslld(to, to, 16);
    }
  }
  void LoadZeroPoints(const jit::Vec& to, const jit::Gp& header, int j, int offset = 0) {
    offset += static_cast<int>(layout_.ZeroPointOffset(columns()));
    const jit::Mem from =
        asmjit::x86::ptr(header, offset + j * vector_bytes() / 4 * layout_.zero_point_bytes);
    if (layout_.zero_point_bytes == 4) return emitter_->Load(to, from);
    if (layout_.signed_zero_points) {
      code().vpmovsxbd(to, from);
    } else {
      code().vpmovzxbd(to, from);
    }
  }
  void LoadSums(const jit::Vec& to, const jit::Gp& header, int j, int offset = 0) {
    offset += static_cast<int>(layout_.SumOffset(columns()));
    const jit::Mem from = asmjit::x86::ptr(header, offset + j * vector_bytes() / 4 * layout_.sum_bytes);
    if (layout_.sum_bytes == 4) return emitter_->Load(to, from);
    code().vpmovsxwd(to, from);
  }

  core::Isa isa_;
  GroupedLayout layout_;
  jit::Assembler session_;
  jit::RegisterFile registers_;
  std::unique_ptr<jit::Emitter> emitter_;
  jit::Gp constants_;
};

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_CODEGEN_GROUPED_GENERATOR_H_
