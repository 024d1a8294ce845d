#include "kernels/codegen/pixel_transpose.h"

#include <emmintrin.h>

#include <compare>
#include <cstddef>
#include <string>
#include <vector>

#include "core/isas.h"
#include "jit/assembler.h"
#include "jit/code_cache.h"
#include "jit/emitters/emitter.h"

namespace intact::kernels {
namespace {

namespace x86 = asmjit::x86;
using jit::Gp;
using jit::Mem;
using jit::Vec;

struct PixelTransposeSpec {
  bool shifts_to_u8 = false, shuffles = false;
  auto operator<=>(const PixelTransposeSpec&) const = default;
  std::string Name() const {
    return std::string(shifts_to_u8 ? "s8" : "u8") + "_pixel_transpose_8x16" + (shuffles ? "_shuffled" : "");
  }
};

class PixelTranspose {
 public:
  explicit PixelTranspose(const PixelTransposeSpec& spec)
      : spec_(spec),
        session_([this] { return spec_.Name(); }),
        registers_(jit::MakeRegisterFile(core::Isa::kAvx2)) {}

  Result<jit::Code> Generate() {
    TakeRegisters();
    session_.Begin(registers_);
    code().mov(pixels_, Argument(offsetof(PixelTransposeArgs, pixels)));
    code().mov(quad_bytes_, Argument(offsetof(PixelTransposeArgs, quad_bytes)));
    code().vmovdqu(largest_, Argument(offsetof(PixelTransposeArgs, largest)));
    if (spec_.shifts_to_u8) {
      code().vpcmpeqd(shift_, shift_, shift_);
      code().vpsllw(shift_, shift_, 15);
      code().vpacksswb(shift_, shift_, shift_);  // −32768 saturates to 0x80
    }
    const asmjit::Label eight = code().newLabel();
    code().bind(eight);
    EightPixels();
    code().add(pixels_, PixelTransposeArgs::kPixels * 8);
    code().add(x86::qword_ptr(registers_.Argument(), offsetof(PixelTransposeArgs, to)), kOutBytes);
    code().cmp(pixels_, Argument(offsetof(PixelTransposeArgs, pixels_end)));
    code().jne(eight);
    code().vmovdqu(Argument(offsetof(PixelTransposeArgs, largest)), largest_);
    session_.End();
    return session_.Finish(registers_);
  }

 private:
  static constexpr int kOutBytes = 32;  // a quad of eight pixels

  x86::Assembler& code() { return session_.code(); }
  Mem Argument(size_t member) const { return x86::ptr(registers_.Argument(), static_cast<int>(member)); }

  void TakeRegisters() {
    for (int i = 0; i < PixelTransposeArgs::kPixels; ++i) pixel_.push_back(registers_.NewGeneral("pixel"));
    pixels_ = registers_.NewGeneral("pixels");
    source_ = registers_.NewGeneral("source");
    offset_ = registers_.NewGeneral("offset");
    to_ = registers_.NewGeneral("to");
    quad_bytes_ = registers_.NewGeneral("quad bytes");
    for (int i = 0; i < 4; ++i) {
      rows_.push_back(registers_.NewVector("pixels"));
      turned_.push_back(registers_.NewVector("turned"));
    }
    largest_ = registers_.NewVector("largest");
    if (spec_.shifts_to_u8) shift_ = registers_.NewVector("shift");
    if (spec_.shuffles) shuffle_ = registers_.NewVector("shuffle");
  }

  void EightPixels() {
    for (size_t i = 0; i < pixel_.size(); ++i) {
      code().mov(pixel_[i], x86::ptr(pixels_, static_cast<int>(i) * 8));
    }
    code().mov(to_, Argument(offsetof(PixelTransposeArgs, to)));
    code().mov(source_, Argument(offsetof(PixelTransposeArgs, sources)));
    const asmjit::Label source = code().newLabel();
    code().bind(source);
    Load();
    Turn();
    for (size_t i = 0; i < turned_.size(); i += 2) {
      code().vmovdqu(x86::ptr(to_), turned_[i]);
      code().vmovdqu(x86::ptr(to_, quad_bytes_), turned_[i + 1]);
      code().lea(to_, x86::ptr(to_, quad_bytes_, 1));
    }
    code().add(source_, static_cast<int>(sizeof(QuadSource)));
    code().cmp(source_, Argument(offsetof(PixelTransposeArgs, sources_end)));
    code().jne(source);
  }

  // Pixels i and i + 4 into the halves of vector i.
  void Load() {
    code().mov(offset_, x86::ptr(source_, static_cast<int>(offsetof(QuadSource, offset))));
    if (spec_.shuffles) {
      code().vbroadcasti128(shuffle_, x86::ptr(source_, static_cast<int>(offsetof(QuadSource, shuffle))));
    }
    for (size_t i = 0; i < rows_.size(); ++i) {
      const Vec& row = rows_[i];
      code().vmovdqu(row.xmm(), x86::ptr(pixel_[i], offset_));
      code().vinserti128(row, row, x86::ptr(pixel_[i + 4], offset_), 1);
      if (spec_.shifts_to_u8) code().vpxor(row, row, shift_);
      if (spec_.shuffles) code().vpshufb(row, row, shuffle_);
      code().vpmaxub(largest_, largest_, row);
    }
  }

  void Turn() {
    const std::vector<Vec>& r = rows_;
    const std::vector<Vec>& t = turned_;
    code().vpunpckldq(t[0], r[0], r[1]);
    code().vpunpckhdq(t[1], r[0], r[1]);
    code().vpunpckldq(t[2], r[2], r[3]);
    code().vpunpckhdq(t[3], r[2], r[3]);
    code().vpunpcklqdq(r[0], t[0], t[2]);
    code().vpunpckhqdq(r[1], t[0], t[2]);
    code().vpunpcklqdq(r[2], t[1], t[3]);
    code().vpunpckhqdq(r[3], t[1], t[3]);
    std::swap(rows_, turned_);
  }

  PixelTransposeSpec spec_;
  jit::Assembler session_;
  jit::RegisterFile registers_;
  std::vector<Gp> pixel_;
  Gp pixels_, source_, offset_, to_, quad_bytes_;
  std::vector<Vec> rows_, turned_;
  Vec largest_, shift_, shuffle_;
};

}  // namespace

uint8_t PixelTransposeArgs::Largest() const {
  const auto* const halves = reinterpret_cast<const __m128i*>(largest.data());
  __m128i most = _mm_max_epu8(_mm_load_si128(halves), _mm_load_si128(halves + 1));
  most = _mm_max_epu8(most, _mm_srli_si128(most, 8));
  most = _mm_max_epu8(most, _mm_srli_si128(most, 4));
  most = _mm_max_epu8(most, _mm_srli_si128(most, 2));
  most = _mm_max_epu8(most, _mm_srli_si128(most, 1));
  return static_cast<uint8_t>(_mm_cvtsi128_si32(most));
}

Result<PixelTransposeFunction> GetPixelTranspose(bool shifts_to_u8, bool shuffles) {
  return jit::GetFunction<PixelTransposeFunction>(
      PixelTransposeSpec{shifts_to_u8, shuffles},
      [](const PixelTransposeSpec& spec) { return PixelTranspose(spec).Generate(); });
}

}  // namespace intact::kernels
