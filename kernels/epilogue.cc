#include "kernels/epilogue.h"

#include <cstddef>

namespace intact::kernels {

namespace x86 = asmjit::x86;

std::string EpilogueSpec::Name() const {
  const char* type = c_type == INTACT_S32   ? "s32"
                     : c_type == INTACT_F32 ? "f32"
                     : c_type == INTACT_U8  ? "u8"
                                            : "s8";
  return std::string(type) + (has_bias ? "_bias" : "") + (streams ? "_streamed" : "");
}

int ElementBytes(intact_type type) { return type == INTACT_S32 || type == INTACT_F32 ? 4 : 1; }

void Epilogue::Prepare(const jit::Gp& args, int offset) {
  if (spec_.c_type == INTACT_S32) return;
  x86::Assembler& code = emitter_.code();
  jit::RegisterFile& registers = emitter_.registers();
  const auto field = [&](size_t member) { return x86::ptr(args, offset + static_cast<int>(member)); };
  scales_ = registers.NewGeneral("scales");
  code.mov(scales_, field(offsetof(EpilogueArgs, scales)));
  if (spec_.has_bias) {
    bias_ = registers.NewGeneral("bias");
    code.mov(bias_, field(offsetof(EpilogueArgs, bias)));
  }
  lo_ = registers.NewVector("lo");
  code.vbroadcastss(lo_, field(offsetof(EpilogueArgs, lo)));
  hi_ = registers.NewVector("hi");
  code.vbroadcastss(hi_, field(offsetof(EpilogueArgs, hi)));
  if (spec_.c_type == INTACT_F32) return;
  zero_point_ = registers.NewVector("zero point");
  code.vpbroadcastd(zero_point_, field(offsetof(EpilogueArgs, zero_point)));
}

void Epilogue::StoreRow(const std::vector<jit::Vec>& accumulators, const jit::Gp& c) {
  const int vector_stride = emitter_.lanes() * ElementBytes(spec_.c_type);
  for (int j = 0; j < static_cast<int>(accumulators.size()); ++j) {
    const jit::Vec& accumulator = accumulators[static_cast<size_t>(j)];
    Requantize(accumulator, j);
    const jit::Mem to = x86::ptr(c, j * vector_stride);
    if (spec_.streams) {
      emitter_.code().vmovntdq(to, accumulator);
    } else if (ElementBytes(spec_.c_type) == 4) {
      emitter_.Store(to, accumulator);
    } else {
      emitter_.StoreBytes(to, accumulator, spec_.c_type == INTACT_S8);
    }
  }
}

void Epilogue::Requantize(const jit::Vec& accumulator, int vector) {
  if (spec_.c_type == INTACT_S32) return;
  x86::Assembler& code = emitter_.code();
  const int offset = vector * emitter_.vector_bytes();
  code.vcvtdq2ps(accumulator, accumulator);
  code.vmulps(accumulator, accumulator, x86::ptr(scales_, offset));
  if (spec_.has_bias) code.vaddps(accumulator, accumulator, x86::ptr(bias_, offset));
  // With the bound as second operand, equal values take the bound: −0 becomes the bound's +0.
  code.vmaxps(accumulator, accumulator, lo_);
  code.vminps(accumulator, accumulator, hi_);
  if (spec_.c_type == INTACT_F32) return;
  code.vcvtps2dq(accumulator, accumulator);
  code.vpaddd(accumulator, accumulator, zero_point_);
}

}  // namespace intact::kernels
