#include "kernels/microkernel.h"

#include <cstddef>
#include <memory>
#include <vector>

#include "jit/assembler.h"
#include "jit/code_cache.h"

namespace intact::kernels {
namespace {

namespace x86 = asmjit::x86;
using jit::Gp;
using jit::Mem;
using jit::Operand;
using jit::Vec;

constexpr int kUnroll = 4;  // quads in the main loop

class Microkernel {
 public:
  explicit Microkernel(const MicrokernelSpec& spec)
      : spec_(spec),
        session_(spec.Name()),
        registers_(jit::MakeRegisterFile(spec.isa)),
        emitter_(jit::MakeEmitter(spec.isa, session_.code(), registers_)),
        dot_(jit::MakeDotForm(spec.dot, spec.isa, *emitter_)),
        epilogue_(spec.epilogue, *emitter_) {}

  Result<const void*> Generate() {
    TakeRegisters();
    session_.Begin(registers_);
    Prologue();
    DepthLoop();
    ReleaseOperands();
    StoreTile();
    session_.End();
    return session_.Finish(registers_);
  }

 private:
  x86::Assembler& code() { return session_.code(); }
  Mem Argument(size_t member) const { return x86::ptr(registers_.Argument(), static_cast<int>(member)); }
  Vec& accumulator(int row, int vector) {
    return accumulators_[static_cast<size_t>(row)][static_cast<size_t>(vector)];
  }

  void TakeRegisters() {
    a_ = registers_.NewGeneral("a");
    b_ = registers_.NewGeneral("b");
    counter_ = registers_.NewGeneral("counter");
    c_ = registers_.NewGeneral("c");
    c_stride_ = registers_.NewGeneral("c stride");
    panel_stride_ = registers_.NewGeneral("panel stride");
    panel_stride3_ = registers_.NewGeneral("3 panel strides");
    accumulators_.resize(static_cast<size_t>(spec_.mr));
    for (std::vector<Vec>& row : accumulators_) {
      for (int j = 0; j < spec_.vectors; ++j) row.push_back(registers_.NewVector("accumulator"));
    }
    for (int j = 0; j < spec_.vectors; ++j) b_operands_.push_back(dot_->NewB("b"));
    a_operand_ = registers_.NewVector("a");
    dot_->Prepare();
  }

  void Prologue() {
    code().mov(a_, Argument(offsetof(MicrokernelArgs, a)));
    code().mov(b_, Argument(offsetof(MicrokernelArgs, b)));
    code().mov(panel_stride_, Argument(offsetof(MicrokernelArgs, b_panel_stride_bytes)));
    code().lea(panel_stride3_, x86::ptr(panel_stride_, panel_stride_, 1));  // stride·(1 + 2)
    code().mov(c_, Argument(offsetof(MicrokernelArgs, initial)));
    for (int j = 0; j < spec_.vectors; ++j) {
      emitter_->Load(accumulator(0, j), x86::ptr(c_, j * registers_.vector_bytes()));
      for (int i = 1; i < spec_.mr; ++i) emitter_->Copy(accumulator(i, j), accumulator(0, j));
    }
    code().mov(c_, Argument(offsetof(MicrokernelArgs, c)));
    code().mov(c_stride_, Argument(offsetof(MicrokernelArgs, c_stride_bytes)));
  }

  // Vector j of the quad at b_ + quad·64: columns beyond the first 16 are in the next panels.
  Mem BAddress(int j, int quad) const {
    const int panel = j * registers_.vector_bytes() / kPanelQuadBytes;
    const int offset = j * registers_.vector_bytes() % kPanelQuadBytes + quad * kPanelQuadBytes;
    switch (panel) {
      case 0:
        return x86::ptr(b_, offset);
      case 1:
        return x86::ptr(b_, panel_stride_, 0, offset);
      case 2:
        return x86::ptr(b_, panel_stride_, 1, offset);
      default:
        return x86::ptr(b_, panel_stride3_, 0, offset);
    }
  }

  void Quad(int quad) {
    for (int j = 0; j < spec_.vectors; ++j)
      dot_->LoadB(b_operands_[static_cast<size_t>(j)], BAddress(j, quad));
    for (int step = 0; step < dot_->steps(); ++step) {
      for (int i = 0; i < spec_.mr; ++i) {
        const int offset = (quad * spec_.mr + i) * jit::ActivationQuadBytes(spec_.dot) + step * 4;
        code().vpbroadcastd(a_operand_, x86::ptr(a_, offset));
        for (int j = 0; j < spec_.vectors; ++j) {
          dot_->Dot(step, accumulator(i, j), a_operand_, b_operands_[static_cast<size_t>(j)]);
        }
      }
    }
  }

  void Advance(int quads) {
    code().add(a_, quads * spec_.mr * jit::ActivationQuadBytes(spec_.dot));
    code().add(b_, quads * kPanelQuadBytes);
  }

  void DepthLoop() {
    const asmjit::Label main = code().newLabel();
    const asmjit::Label rest = code().newLabel();
    const asmjit::Label single = code().newLabel();
    const asmjit::Label done = code().newLabel();
    code().mov(counter_, Argument(offsetof(MicrokernelArgs, quads)));
    code().sub(counter_, kUnroll);
    code().jl(rest);
    code().align(asmjit::AlignMode::kCode, 32);
    code().bind(main);
    for (int quad = 0; quad < kUnroll; ++quad) Quad(quad);
    Advance(kUnroll);
    code().sub(counter_, kUnroll);
    code().jge(main);
    code().bind(rest);
    code().add(counter_, kUnroll);
    code().jz(done);
    code().bind(single);
    Quad(0);
    Advance(1);
    code().dec(counter_);
    code().jnz(single);
    code().bind(done);
  }

  void ReleaseOperands() {
    for (const Operand& operand : b_operands_) Release(operand);
    registers_.Free(a_operand_);
    dot_->Release();
    for (const Gp& general : {a_, b_, counter_, panel_stride_, panel_stride3_}) registers_.Free(general);
  }

  void Release(const Operand& operand) {
    for (const Vec& vector : operand) registers_.Free(vector);
  }

  void StoreTile() {
    epilogue_.Prepare(registers_.Argument(), offsetof(MicrokernelArgs, epilogue));
    for (int i = 0; i < spec_.mr; ++i) {
      if (i > 0) code().add(c_, c_stride_);
      epilogue_.StoreRow(accumulators_[static_cast<size_t>(i)], c_);
    }
  }

  MicrokernelSpec spec_;
  jit::Assembler session_;
  jit::RegisterFile registers_;
  std::unique_ptr<jit::Emitter> emitter_;
  std::unique_ptr<jit::DotForm> dot_;
  Epilogue epilogue_;

  Gp a_, b_, counter_, c_, c_stride_, panel_stride_, panel_stride3_;
  std::vector<std::vector<Vec>> accumulators_;
  std::vector<Operand> b_operands_;
  Vec a_operand_;
};

}  // namespace

std::string MicrokernelSpec::Name() const {
  return "u8s8" + epilogue.Name() + "_gemm_" + std::to_string(mr) + "x" + std::to_string(nr()) + "c4_" +
         std::string(jit::ToString(dot)) + "_" + jit::CompactName(isa);
}

Result<MicrokernelFunction> GetMicrokernel(const MicrokernelSpec& spec) {
  const Result<const void*> function =
      jit::GetOrGenerate(spec.Name(), [&] { return Microkernel(spec).Generate(); });
  if (!function) return function.error();
  return reinterpret_cast<MicrokernelFunction>(const_cast<void*>(*function));
}

}  // namespace intact::kernels
