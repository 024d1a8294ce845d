#include "kernels/codegen/row_sums.h"

#include <emmintrin.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "core/isas.h"
#include "core/result.h"
#include "jit/assembler.h"
#include "jit/code_cache.h"
#include "jit/emitters/dot.h"
#include "jit/emitters/emitter.h"
#include "kernels/weights/pack.h"

namespace intact::kernels {
namespace {

namespace x86 = asmjit::x86;
using jit::Gp;
using jit::Mem;
using jit::Vec;

constexpr int kRows = 4;

// The sum of bytes [depth, k) of a row, shifted to u8.
uint32_t SumTail(const uint8_t* a, int64_t depth, int64_t k, uint8_t shift) {
  const __m128i shift_bytes = _mm_set1_epi8(static_cast<char>(shift));
  __m128i sums = _mm_setzero_si128();
  for (; depth + 16 <= k; depth += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a + depth));
    sums = _mm_add_epi64(sums, _mm_sad_epu8(_mm_xor_si128(bytes, shift_bytes), _mm_setzero_si128()));
  }
  const __m128i both = _mm_add_epi64(sums, _mm_unpackhi_epi64(sums, sums));
  auto sum = static_cast<uint32_t>(_mm_cvtsi128_si32(both));
  for (; depth < k; ++depth) sum += static_cast<uint8_t>(a[depth] ^ shift);
  return sum;
}

}  // namespace

Result<RowSums> RowSums::Create(core::Isa isa, intact_type a_type) {
  RowSums sums;
  sums.a_type_ = a_type;
  sums.vector_bytes_ = jit::VectorBytes(isa);
  if (core::IsCompiled(isa)) return sums;
  ASSIGN_OR_RETURN(sums.function_, jit::GetFunction<Function>(Spec{isa, a_type}, Generate));
  return sums;
}

// Adds the sums of rows of whole vectors, kRows at a time.
Result<jit::Code> RowSums::Generate(const Spec& spec) {
  const uint8_t shift = ActivationShift(spec.a_type);
  jit::Assembler session(
      [&] { return (shift != 0 ? "s8_row_sums_4_" : "u8_row_sums_4_") + core::CompactName(spec.isa); });
  jit::RegisterFile registers = jit::MakeRegisterFile(spec.isa);
  const auto emitter = jit::MakeEmitter(spec.isa, session.code(), registers);
  x86::Assembler& code = session.code();
  const auto argument = [&](size_t member) {
    return x86::ptr(registers.Argument(), static_cast<int>(member));
  };
  const Gp rows = registers.NewGeneral("rows");
  const Gp a = registers.NewGeneral("a");
  const Gp stride = registers.NewGeneral("stride");
  const Gp stride3 = registers.NewGeneral("3 strides");
  const Gp vectors = registers.NewGeneral("vectors");
  const Gp fours = registers.NewGeneral("fours");
  const Gp to = registers.NewGeneral("sums");
  session.Begin(registers);

  code.mov(rows, argument(offsetof(Args, a)));
  code.mov(stride, argument(offsetof(Args, stride)));
  code.lea(stride3, x86::ptr(stride, stride, 1));
  code.mov(fours, argument(offsetof(Args, fours)));
  code.mov(to, argument(offsetof(Args, sums)));
  const Vec zero = registers.NewVector("zero");
  emitter->Zero(zero);
  Vec shifts;
  if (shift != 0) shifts = jit::NewShift(*emitter);
  std::array<Vec, kRows> sums;
  for (Vec& sum : sums) sum = registers.NewVector("sum");
  const Vec bytes = registers.NewVector("bytes");
  const asmjit::Label four = code.newLabel();
  const asmjit::Label loop = code.newLabel();
  code.bind(four);
  code.mov(a, rows);
  code.mov(vectors, argument(offsetof(Args, vectors)));
  for (const Vec& sum : sums) emitter->Zero(sum);
  code.bind(loop);
  const std::array<Mem, kRows> row = {x86::ptr(a), x86::ptr(a, stride), x86::ptr(a, stride, 1),
                                      x86::ptr(a, stride3)};
  for (size_t i = 0; i < kRows; ++i) {
    emitter->Load(bytes, row[i]);
    if (shift != 0) code.vpaddb(bytes, bytes, shifts);
    code.vpsadbw(bytes, bytes, zero);
    code.vpaddd(sums[i], sums[i], bytes);
  }
  code.add(a, registers.vector_bytes());
  code.dec(vectors);
  code.jnz(loop);
  emitter->AddLaneSums(x86::ptr(to), sums);
  code.lea(rows, x86::ptr(rows, stride, 2));
  code.add(to, kRows * static_cast<int>(sizeof(int32_t)));
  code.dec(fours);
  code.jnz(four);
  session.End();
  return session.Finish(registers);
}

void RowSums::Sum(const RowMap& a, int64_t row_begin, int64_t row_end, const Taps& taps,
                  int32_t* sums) const noexcept {
  std::fill_n(sums, row_end - row_begin, 0);
  RowCursor cursor(a, row_begin);
  for (int64_t row = row_begin; row < row_end;) {
    const int64_t rows = std::min(row_end - row, cursor.rows_left());
    const uint8_t* const from = cursor.Skip(rows);
    for (const int64_t tap : taps.offsets) AddRows(from + tap, a.stride, rows, taps.depth, sums);
    sums += rows;
    row += rows;
  }
}

void RowSums::AddRows(const uint8_t* a, int64_t stride, int64_t rows, int64_t k,
                      int32_t* sums) const noexcept {
  const uint8_t shift = ActivationShift(a_type_);
  const int64_t vectors = function_ ? k / vector_bytes_ : 0;
  const auto add = [](int32_t* sum, uint32_t more) {
    *sum = static_cast<int32_t>(static_cast<uint32_t>(*sum) + more);
  };
  const int64_t fours = vectors == 0 ? 0 : rows / kRows;
  int64_t row = 0;
  if (fours != 0) {
    const Args args{a, stride, vectors, fours, sums};
    function_(&args);
    const int64_t depth = vectors * vector_bytes_;
    const int64_t summed = fours * kRows;
    if (depth == k) row = summed;
    for (; row < summed; ++row) add(&sums[row], SumTail(a + row * stride, depth, k, shift));
  }
  for (; row < rows; ++row) add(&sums[row], SumTail(a + row * stride, 0, k, shift));
}

}  // namespace intact::kernels
