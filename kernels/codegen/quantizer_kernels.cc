// The part of quantizer.h that generates code.
#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "core/isas.h"
#include "core/result.h"
#include "core/types.h"
#include "jit/assembler.h"
#include "jit/code_cache.h"
#include "jit/emitters/emitter.h"
#include "kernels/codegen/quantizer.h"

namespace intact::kernels {
namespace {

namespace x86 = asmjit::x86;
using jit::Gp;
using jit::Vec;

constexpr int kVectors = 4;  // vectors of int32 that are packed into one vector of bytes

// Emits `body` for each of `count`, which may be 0.
template <class Body>
void Loop(const Gp& count, x86::Assembler* code, const Body& body) {
  const asmjit::Label loop = code->newLabel();
  const asmjit::Label done = code->newLabel();
  code->test(count, count);
  code->jz(done);
  code->bind(loop);
  body();
  code->dec(count);
  code->jnz(loop);
  code->bind(done);
}

}  // namespace

Result<Quantizer> Quantizer::Create(core::Isa isa, intact_type a_type, intact_type source) {
  Quantizer quantizer;
  quantizer.a_type_ = a_type;
  quantizer.source_ = source;
  if (core::IsCompiled(isa)) return quantizer;
  const int lanes = jit::VectorBytes(isa) / 4;
  quantizer.step_ = lanes;
  quantizer.block_ = int64_t{kVectors} * lanes;
  const std::vector<int32_t> order = jit::PackOrder(lanes);
  std::copy(order.begin(), order.end(), quantizer.pack_order_.begin());
  ASSIGN_OR_RETURN(quantizer.scan_, jit::GetFunction<ScanFunction>(ScanSpec{isa, source}, GenerateScan));
  ASSIGN_OR_RETURN(quantizer.quantize_,
                   jit::GetFunction<QuantizeFunction>(QuantizeSpec{isa, a_type, source}, GenerateQuantize));
  return quantizer;
}

Result<jit::Code> Quantizer::GenerateScan(const ScanSpec& spec) {
  jit::Assembler session(
      [&] { return "scan_" + std::string(core::NameOf(spec.source)) + "_" + core::CompactName(spec.isa); });
  jit::RegisterFile registers = jit::MakeRegisterFile(spec.isa);
  const auto emitter = jit::MakeEmitter(spec.isa, session.code(), registers);
  x86::Assembler& code = session.code();
  const auto argument = [&](size_t member) {
    return x86::ptr(registers.Argument(), static_cast<int>(member));
  };
  const bool is_f32 = spec.source == INTACT_F32;
  const auto max = [&](bool is_signed, const Vec& to, const auto& other) {
    if (is_f32) {
      is_signed ? code.vpmaxsd(to, to, other) : code.vpmaxud(to, to, other);
    } else {
      is_signed ? code.vpmaxsw(to, to, other) : code.vpmaxuw(to, to, other);
    }
  };
  const Gp x = registers.NewGeneral("x");
  const Gp blocks = registers.NewGeneral("blocks");
  session.Begin(registers);

  code.mov(x, argument(offsetof(ScanArgs, x)));
  code.mov(blocks, argument(offsetof(ScanArgs, blocks)));
  // A block of 16-bit numbers is half as long.
  const int vectors = is_f32 ? kVectors : kVectors / 2;
  std::vector<Vec> positive, negative;
  for (int i = 0; i < vectors; ++i) {
    for (std::vector<Vec>* const largest : {&positive, &negative}) {
      largest->push_back(registers.NewVector("largest"));
      emitter->Zero(largest->back());
    }
  }
  const Vec numbers = registers.NewVector("numbers");
  Loop(blocks, &code, [&] {
    for (int i = 0; i < vectors; ++i) {
      emitter->Load(numbers, x86::ptr(x, i * registers.vector_bytes()));
      max(true, positive[static_cast<size_t>(i)], numbers);
      max(false, negative[static_cast<size_t>(i)], numbers);
    }
    code.add(x, vectors * registers.vector_bytes());
  });
  code.mov(blocks, argument(offsetof(ScanArgs, steps)));
  Loop(blocks, &code, [&] {
    const int bytes = emitter->lanes() * core::BytesOf(spec.source);
    emitter->LoadFirst(numbers, x86::ptr(x), bytes);  // half a vector of 16-bit numbers: the other half is 0
    max(true, positive[0], numbers);
    max(false, negative[0], numbers);
    code.add(x, bytes);
  });
  for (size_t i = 1; i < positive.size(); ++i) {
    max(true, positive[0], positive[i]);
    max(false, negative[0], negative[i]);
  }
  // Folds halves, quarters, …: finally the low element is the largest.
  const auto fold = [&](bool is_signed, const Vec& largest, size_t member) {
    if (registers.vector_bytes() == 64) {
      code.vextracti64x4(numbers.ymm(), largest, 1);
      max(is_signed, largest.ymm(), numbers.ymm());
    }
    code.vextracti128(numbers.xmm(), largest.ymm(), 1);
    max(is_signed, largest.xmm(), numbers.xmm());
    constexpr int kSwapQuads = 0x4E;
    constexpr int kSwapDwords = 0xB1;
    for (const int swap : {kSwapQuads, kSwapDwords}) {
      code.vpshufd(numbers.xmm(), largest.xmm(), swap);
      max(is_signed, largest.xmm(), numbers.xmm());
    }
    if (!is_f32) {
      code.vpsrld(numbers.xmm(), largest.xmm(), 16);
      max(is_signed, largest.xmm(), numbers.xmm());
    }
    code.vmovq(argument(member), largest.xmm());
  };
  fold(true, positive[0], offsetof(ScanArgs, positive));
  fold(false, negative[0], offsetof(ScanArgs, negative));
  session.End();
  return session.Finish(registers);
}

Result<jit::Code> Quantizer::GenerateQuantize(const QuantizeSpec& spec) {
  const bool is_signed = spec.a_type == INTACT_S8;
  jit::Assembler session([&] {
    return "quantize_" + std::string(core::NameOf(spec.source)) + (is_signed ? "_s8_" : "_u8_") +
           core::CompactName(spec.isa);
  });
  jit::RegisterFile registers = jit::MakeRegisterFile(spec.isa);
  const auto emitter = jit::MakeEmitter(spec.isa, session.code(), registers);
  x86::Assembler& code = session.code();
  const auto argument = [&](size_t member) {
    return x86::ptr(registers.Argument(), static_cast<int>(member));
  };
  const Gp x = registers.NewGeneral("x");
  const Gp a = registers.NewGeneral("a");
  const Gp blocks = registers.NewGeneral("blocks");
  const Gp order = registers.NewGeneral("order");
  session.Begin(registers);

  code.mov(x, argument(offsetof(QuantizeArgs, x)));
  code.mov(order, argument(offsetof(QuantizeArgs, pack_order)));
  code.mov(a, argument(offsetof(QuantizeArgs, a)));
  code.mov(blocks, argument(offsetof(QuantizeArgs, blocks)));
  const Vec high = registers.NewVector("reciprocal");
  const Vec low = registers.NewVector("reciprocal's low part");
  const Vec number = registers.NewVector("number");
  code.vpbroadcastw(number, argument(offsetof(QuantizeArgs, zero_point)));
  emitter->Store(argument(offsetof(QuantizeArgs, zero_points)), number);
  code.vbroadcastss(high, argument(offsetof(QuantizeArgs, reciprocal.high)));
  code.vbroadcastss(low, argument(offsetof(QuantizeArgs, reciprocal.low)));
  std::vector<Vec> vectors;
  vectors.reserve(kVectors);
  for (int i = 0; i < kVectors; ++i) vectors.push_back(registers.NewVector("numbers"));
  const int source_bytes = core::BytesOf(spec.source);
  const int step = emitter->lanes() * source_bytes;
  const auto quantize = [&](int i) {
    const Vec& vector = vectors[static_cast<size_t>(i)];
    if (spec.source == INTACT_F32) {
      emitter->Load(number, x86::ptr(x, i * step));
    } else if (spec.source == INTACT_F16) {
      code.vcvtph2ps(number, x86::ptr(x, i * step));
    } else {
      code.vpmovzxwd(number, x86::ptr(x, i * step));
      code.vpslld(number, number, 16);
    }
    code.vmulps(vector, number, low);
    code.vfmadd231ps(vector, number, high);
    code.vcvtps2dq(vector, vector);
  };
  const auto pack = [&] {
    emitter->PackBytes(vectors, argument(offsetof(QuantizeArgs, zero_points)), is_signed, x86::ptr(order));
  };
  Loop(blocks, &code, [&] {
    for (int i = 0; i < kVectors; ++i) quantize(i);
    pack();
    emitter->Store(x86::ptr(a), vectors[0]);
    code.add(x, kVectors * step);
    code.add(a, registers.vector_bytes());
  });
  // Only the first quarter of the packed bytes is stored.
  code.mov(blocks, argument(offsetof(QuantizeArgs, steps)));
  Loop(blocks, &code, [&] {
    quantize(0);
    pack();
    emitter->StorePart(x86::ptr(a), vectors[0], emitter->lanes(), 0);
    code.add(x, step);
    code.add(a, emitter->lanes());
  });
  session.End();
  return session.Finish(registers);
}

}  // namespace intact::kernels
