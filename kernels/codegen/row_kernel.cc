#include "kernels/codegen/row_kernel.h"

#include <cstddef>
#include <memory>
#include <vector>

#include "core/types.h"
#include "jit/assembler.h"
#include "jit/code_cache.h"
#include "jit/emitters/emitter.h"
#include "kernels/weights/pack.h"

namespace intact::kernels {
namespace {

namespace x86 = asmjit::x86;
using jit::Gp;
using jit::Mem;
using jit::Vec;

class RowKernel {
 public:
  explicit RowKernel(const RowKernelSpec& spec)
      : spec_(spec),
        session_([this] { return spec_.Name(); }),
        registers_(jit::MakeRegisterFile(spec.isa)),
        emitter_(jit::MakeEmitter(spec.isa, session_.code(), registers_)),
        dot_(jit::MakeDotVariant(jit::DotKind::kVnni, spec.isa, *emitter_, spec.signs)),
        epilogue_(spec.epilogue, *emitter_) {}

  Result<jit::Code> Generate() {
    TakeRegisters();
    session_.Begin(registers_);
    if (spec_.shifts) shift_ = jit::NewShift(*emitter_);
    code().mov(panel_, Argument(offsetof(MicrokernelArgs, rows)));
    code().mov(row_, x86::ptr(panel_));
    code().mov(panel_, Argument(offsetof(MicrokernelArgs, b)));
    code().mov(panel_stride_, Argument(offsetof(MicrokernelArgs, b_panel_stride_bytes)));
    code().mov(compensation_, Argument(offsetof(MicrokernelArgs, compensation)));
    const asmjit::Label tile = code().newLabel();
    code().bind(tile);
    Panels();
    StoreTile();
    code().sub(x86::qword_ptr(registers_.Argument(), offsetof(MicrokernelArgs, tiles)), 1);
    code().jnz(tile);
    session_.End();
    return session_.Finish(registers_);
  }

 private:
  static constexpr int kUnroll = 4;  // quads, each with its own sum

  x86::Assembler& code() { return session_.code(); }
  Mem Argument(size_t member) const { return x86::ptr(registers_.Argument(), static_cast<int>(member)); }

  // Callee-saved registers can be taken only before Begin(). The epilogue takes the registers of the loops.
  void TakeRegisters() {
    for (Gp* const general :
         {&row_, &panel_, &panel_stride_, &compensation_, &panels_, &taps_, &offset_, &end_, &b_}) {
      *general = registers_.NewGeneral("row kernel");
    }
    for (int i = 0; i < spec_.vectors; ++i) outputs_.push_back(registers_.NewVector("outputs"));
  }

  void Panels() {
    sums_ = {outputs_.back()};
    while (sums_.size() < kUnroll) sums_.push_back(registers_.NewVector("sums"));
    const Vec a = registers_.NewVector("a");
    const Vec b = registers_.NewVector("b");
    const asmjit::Label panel = code().newLabel();
    const asmjit::Label tap = code().newLabel();
    code().mov(panels_, spec_.vectors);
    code().bind(panel);
    for (size_t i = 1; i < outputs_.size(); ++i) emitter_->Copy(outputs_[i - 1], outputs_[i]);
    emitter_->Load(sums_[0], x86::ptr(compensation_));
    for (size_t i = 1; i < sums_.size(); ++i) emitter_->Zero(sums_[i]);
    code().mov(b_, panel_);
    code().mov(taps_, Argument(offsetof(MicrokernelArgs, taps)));
    code().bind(tap);
    Tap(a, b);
    code().add(taps_, static_cast<int>(sizeof(int64_t)));
    code().cmp(taps_, Argument(offsetof(MicrokernelArgs, taps_end)));
    code().jne(tap);
    for (size_t i = 1; i < sums_.size(); ++i) code().vpaddd(sums_[0], sums_[0], sums_[i]);
    code().add(panel_, panel_stride_);
    code().add(compensation_, kPanelQuadBytes);
    code().dec(panels_);
    code().jnz(panel);
    for (size_t i = 1; i < sums_.size(); ++i) registers_.Free(sums_[i]);
    registers_.Free(a);
    registers_.Free(b);
  }

  // Quads of a tap: several at a time, then one by one.
  void Tap(const Vec& a, const Vec& b) {
    const asmjit::Label several = code().newLabel();
    const asmjit::Label rest = code().newLabel();
    const asmjit::Label one = code().newLabel();
    const asmjit::Label done = code().newLabel();
    code().mov(offset_, x86::ptr(taps_));
    code().mov(end_, Argument(offsetof(MicrokernelArgs, tap_bytes)));
    code().add(end_, offset_);
    code().sub(end_, kUnroll * kQuad);
    code().cmp(offset_, end_);
    code().jg(rest);
    code().align(asmjit::AlignMode::kCode, 32);
    code().bind(several);
    Quads(kUnroll, a, b);
    code().cmp(offset_, end_);
    code().jle(several);
    code().bind(rest);
    code().add(end_, kUnroll * kQuad);
    code().cmp(offset_, end_);
    code().je(done);
    code().bind(one);
    Quads(1, a, b);
    code().cmp(offset_, end_);
    code().jne(one);
    code().bind(done);
  }

  void Quads(int quads, const Vec& a, const Vec& b) {
    for (int quad = 0; quad < quads; ++quad) {
      const Mem from = x86::ptr(b_, quad * kPanelQuadBytes);
      if (spec_.ahead != 0) code().prefetcht0(from.cloneAdjusted(spec_.ahead));
      emitter_->Load(b, from);
      code().vpbroadcastd(a, x86::ptr(row_, offset_, 0, quad * kQuad));
      if (spec_.shifts) code().vpxord(a, a, shift_);
      dot_->Dot(sums_[static_cast<size_t>(quad)], a, b);
    }
    code().add(b_, quads * kPanelQuadBytes);
    code().add(offset_, quads * kQuad);
  }

  void StoreTile() {
    const int columns = spec_.vectors * kPanelColumns;
    for (const Gp& general : {panels_, taps_, offset_, end_, b_}) registers_.Free(general);
    const Gp c = registers_.NewGeneral("c");
    code().mov(c, Argument(offsetof(MicrokernelArgs, c)));
    epilogue_.Prepare(registers_.Argument(), offsetof(MicrokernelArgs, epilogue));
    epilogue_.StoreRow(outputs_, x86::ptr(c));
    epilogue_.AdvanceColumns(spec_.vectors);
    code().add(c, columns * core::BytesOf(spec_.epilogue.c_type));
    code().mov(Argument(offsetof(MicrokernelArgs, c)), c);
  }

  RowKernelSpec spec_;
  jit::Assembler session_;
  jit::RegisterFile registers_;
  std::unique_ptr<jit::Emitter> emitter_;
  std::unique_ptr<jit::DotVariant> dot_;
  Epilogue epilogue_;
  Gp row_, panel_, panel_stride_, compensation_;
  Gp panels_, taps_, offset_, end_, b_;  // of the loops
  Vec shift_;
  std::vector<Vec> outputs_;  // of a tile
  std::vector<Vec> sums_;     // of a panel; the first is the last of the outputs
};

}  // namespace

std::string RowKernelSpec::Name() const {
  return std::string(signs.a_signed || shifts ? "s8" : "u8") + (signs.b_signed ? "s8" : "u8") +
         epilogue.Name() + "_row_1x" + std::to_string(vectors * kPanelColumns) + "c4" +
         (ahead != 0 ? "_ahead" : "") + "_" + std::string(jit::ToString(jit::DotKind::kVnni)) + "_" +
         core::CompactName(isa);
}

Result<MicrokernelFunction> GetRowKernel(const RowKernelSpec& spec) {
  return jit::GetFunction<MicrokernelFunction>(
      spec, [](const RowKernelSpec& key) { return RowKernel(key).Generate(); });
}

}  // namespace intact::kernels
