#include "jit/emitters/emitter.h"

#include "core/isas.h"

namespace intact::jit {
namespace {

// Adds the sums of the lanes of four ymm to memory.
void AddYmmLaneSums(asmjit::x86::Assembler& code, const Mem& to, const std::array<Vec, 4>& vectors) {
  const Vec first = vectors[0].ymm();
  const Vec second = vectors[2].ymm();
  code.vphaddd(first, first, vectors[1].ymm());
  code.vphaddd(second, second, vectors[3].ymm());
  code.vphaddd(first, first, second);
  code.vextracti128(second.xmm(), first, 1);
  code.vpaddd(first.xmm(), first.xmm(), second.xmm());
  code.vpaddd(first.xmm(), first.xmm(), to);
  code.vmovdqu(to, first.xmm());
}

class YmmEmitter final : public Emitter {
 public:
  using Emitter::Emitter;
  void Load(const Vec& to, const Mem& from) override { code().vmovdqu(to, from); }
  void Store(const Mem& to, const Vec& from) override { code().vmovdqu(to, from); }
  void Copy(const Vec& to, const Vec& from) override { code().vmovdqa(to, from); }
  void Zero(const Vec& to) override { code().vpxor(to, to, to); }
  void StorePart(const Mem& to, const Vec& from, int bytes, int part) override {
    if (bytes == 32) return Store(to, from);
    if (bytes == 16) {
      part == 0 ? code().vmovdqu(to, from.xmm()) : code().vextracti128(to, from, 1);
      return;
    }
    if (part == 2) code().vextracti128(from.xmm(), from, 1);
    part % 2 == 0 ? code().vmovq(to, from.xmm()) : code().vmovhps(to, from.xmm());
  }
  void AddLaneSums(const Mem& to, const std::array<Vec, 4>& vectors) override {
    AddYmmLaneSums(code(), to, vectors);
  }

 protected:
  void LoadPart(const Vec& to, const Mem& from, int /*bytes*/) override { code().vmovdqu(to.xmm(), from); }
  void LoadHalves(const Vec& to, const Mem& low, const Mem& high) override {
    code().vmovdqu(to.xmm(), low);
    code().vinserti128(to, to, high, 1);
  }
  void TransposeQuarters(std::vector<Vec>* vectors) override {
    Vec spare = registers().NewVector("spare");
    Butterfly(
        &(*vectors)[0], &(*vectors)[1], &spare,
        [&](const Vec& to, const Vec& x, const Vec& y) { code().vperm2i128(to, x, y, 0x20); },
        [&](const Vec& to, const Vec& x, const Vec& y) { code().vperm2i128(to, x, y, 0x31); });
    registers().Free(spare);
  }
};

class ZmmEmitter final : public Emitter {
 public:
  using Emitter::Emitter;
  void Load(const Vec& to, const Mem& from) override { code().vmovdqu32(to, from); }
  void Store(const Mem& to, const Vec& from) override { code().vmovdqu32(to, from); }
  void Copy(const Vec& to, const Vec& from) override { code().vmovdqa32(to, from); }
  void Zero(const Vec& to) override { code().vpxord(to, to, to); }
  void StorePart(const Mem& to, const Vec& from, int bytes, int part) override {
    if (bytes == 64) return Store(to, from);
    if (bytes == 32) {
      part == 0 ? code().vmovdqu32(to, from.ymm()) : code().vextracti32x8(to, from, part);
    } else {
      part == 0 ? code().vmovdqu32(to, from.xmm()) : code().vextracti32x4(to, from, part);
    }
  }
  void AddLaneSums(const Mem& to, const std::array<Vec, 4>& vectors) override {
    const Vec high = registers().NewVector("high half");
    for (const Vec& vector : vectors) {
      code().vextracti64x4(high.ymm(), vector, 1);
      code().vpaddd(vector.ymm(), vector.ymm(), high.ymm());
    }
    registers().Free(high);
    AddYmmLaneSums(code(), to, vectors);
  }

 protected:
  void LoadPart(const Vec& to, const Mem& from, int bytes) override {
    if (bytes == 32) {
      code().vmovdqu32(to.ymm(), from);
    } else {
      code().vmovdqu32(to.xmm(), from);
    }
  }
  void LoadHalves(const Vec& to, const Mem& low, const Mem& high) override {
    code().vmovdqu32(to.ymm(), low);
    code().vinserti64x4(to, to, high, 1);
  }
  // Two equal steps: each moves even quarters of a pair to the first vector, odd ones to the second.
  void TransposeQuarters(std::vector<Vec>* vectors) override {
    std::vector<Vec>& v = *vectors;
    Vec spare = registers().NewVector("spare");
    const auto step = [&](size_t x, size_t y) {
      Butterfly(
          &v[x], &v[y], &spare,
          [&](const Vec& to, const Vec& a, const Vec& b) { code().vshufi32x4(to, a, b, 0x88); },
          [&](const Vec& to, const Vec& a, const Vec& b) { code().vshufi32x4(to, a, b, 0xdd); });
    };
    step(0, 1);
    step(2, 3);
    step(0, 2);
    step(1, 3);
    registers().Free(spare);
  }
};

}  // namespace

// Columns i and i + 4 fill a vector. Squares of four rows are transposed within 128-bit quarters, by dwords and
// then by pairs of dwords. In a zmm, even quarters then hold one row, and odd quarters the fourth row after it.
void Emitter::LoadTransposed(const std::vector<Mem>& columns, std::vector<Vec>* rows) {
  std::vector<Vec>& r = *rows;
  Vec spare = registers_.NewVector("spare");
  for (size_t four = 0; four < r.size(); four += 4) {
    for (size_t i = four; i < four + 4; ++i) LoadHalves(r[i], columns[four + i], columns[four + i + 4]);
    for (const size_t i : {four, four + 2}) {
      Butterfly(
          &r[i], &r[i + 1], &spare,
          [&](const Vec& to, const Vec& x, const Vec& y) { code_.vpunpckldq(to, x, y); },
          [&](const Vec& to, const Vec& x, const Vec& y) { code_.vpunpckhdq(to, x, y); });
    }
    for (const size_t i : {four, four + 1}) {
      Butterfly(
          &r[i], &r[i + 2], &spare,
          [&](const Vec& to, const Vec& x, const Vec& y) { code_.vpunpcklqdq(to, x, y); },
          [&](const Vec& to, const Vec& x, const Vec& y) { code_.vpunpckhqdq(to, x, y); });
    }
    std::swap(r[four + 1], r[four + 2]);
  }
  for (size_t i = 0; i + 4 < r.size(); ++i) {
    Butterfly(
        &r[i], &r[i + 4], &spare,
        [&](const Vec& to, const Vec& x, const Vec& y) { code_.vshufi32x4(to, x, y, 0x88); },
        [&](const Vec& to, const Vec& x, const Vec& y) { code_.vshufi32x4(to, x, y, 0xdd); });
  }
  registers_.Free(spare);
}

void Emitter::OrderQuarters(std::vector<Vec>* four) {
  std::vector<Vec>& vectors = *four;
  const std::vector<Vec> quartered = vectors;
  const size_t side = static_cast<size_t>(lanes()) / 4;
  for (size_t first = 0; first < quartered.size(); first += side) {
    const auto begin = quartered.begin() + static_cast<std::ptrdiff_t>(first);
    std::vector<Vec> square(begin, begin + static_cast<std::ptrdiff_t>(side));
    TransposeQuarters(&square);
    for (size_t i = 0; i < side; ++i) vectors[(i * quartered.size() + first) / side] = square[i];
  }
}

void Emitter::PackQuarteredBytes(const std::vector<Vec>& vectors, const Mem* offset, bool is_signed) {
  const auto pack_words = [&](size_t low, size_t high) {
    code_.vpackssdw(vectors[low], vectors[low], vectors[high]);
    if (offset != nullptr) code_.vpaddsw(vectors[low], vectors[low], *offset);
  };
  const size_t count = vectors.size();
  const size_t upper = count == 4 ? 2 : 0;
  pack_words(0, 1 % count);
  if (upper != 0) pack_words(2, 3);
  const Vec& packed = vectors[0];
  if (is_signed) {
    code_.vpacksswb(packed, packed, vectors[upper]);
  } else {
    code_.vpackuswb(packed, packed, vectors[upper]);
  }
}

void Emitter::LoadFirst(const Vec& to, const Mem& from, int bytes) {
  if (bytes == vector_bytes()) return Load(to, from);
  if (bytes == 4) {
    code().vpbroadcastd(to, from);
  } else if (bytes == 8) {
    code().vmovq(to.xmm(), from);
  } else {
    LoadPart(to, from, bytes);
  }
}

// Packs work within 128-bit quarters: afterwards quarter q holds dwords of all vectors in turn. A permutation
// puts them in order across the quarters.
void Emitter::PackBytes(const std::vector<Vec>& vectors, const Mem& offset, bool is_signed,
                        const Mem& order) {
  PackQuarteredBytes(vectors, &offset, is_signed);
  const Vec& packed = vectors[0];
  const Vec indices = registers_.NewVector("pack order");
  Load(indices, order);
  code_.vpermd(packed, indices, packed);
  registers_.Free(indices);
}

std::vector<int32_t> PackOrder(int lanes) {
  const int quarters = lanes / 4;
  std::vector<int32_t> order;
  order.reserve(static_cast<size_t>(lanes));
  for (int i = 0; i < lanes; ++i) order.push_back(i % quarters * 4 + i / quarters);
  return order;
}

int VectorBytes(core::Isa isa) { return core::TraitsOf(isa).vectors.bytes; }

int VectorCount(core::Isa isa) { return core::TraitsOf(isa).vectors.count; }

RegisterFile MakeRegisterFile(core::Isa isa) { return {VectorBytes(isa), VectorCount(isa)}; }

std::unique_ptr<Emitter> MakeEmitter(core::Isa isa, asmjit::x86::Assembler& code, RegisterFile& registers) {
  if (core::TraitsOf(isa).vectors.encoding == core::Encoding::kVex)
    return std::make_unique<YmmEmitter>(code, registers);
  return std::make_unique<ZmmEmitter>(code, registers);
}

}  // namespace intact::jit
