#include "kernels/codegen/narrow_kernel.h"

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/isas.h"
#include "jit/assembler.h"
#include "jit/code_cache.h"
#include "jit/emitters/dot.h"
#include "jit/emitters/emitter.h"
#include "kernels/codegen/dispatch.h"
#include "kernels/weights/pack.h"

namespace intact::kernels {
namespace {

namespace x86 = asmjit::x86;
using jit::Gp;
using jit::Mem;
using jit::Vec;

// The quad of each lane, for panels of 2, 4 and 8 columns.
constexpr auto kQuadsOfLanes = [] {
  std::array<std::array<int32_t, 16>, 3> quads{};
  for (size_t i = 0; i < quads.size(); ++i) {
    for (size_t lane = 0; lane < quads[i].size(); ++lane) {
      quads[i][lane] = static_cast<int32_t>(lane >> (i + 1));
    }
  }
  return quads;
}();

// The lane of each output, without the lanes of missing columns: for 3 of 4 columns, and 5, 6 and 7 of 8.
constexpr auto kLanesOfOutputs = [] {
  std::array<std::array<int32_t, 16>, 4> lanes{};
  constexpr std::array<size_t, 4> kColumns = {3, 5, 6, 7};
  for (size_t i = 0; i < lanes.size(); ++i) {
    const size_t columns = kColumns[i], width = columns == 3 ? 4 : 8;
    for (size_t output = 0; output < 16 / width * columns; ++output) {
      lanes[i][output] = static_cast<int32_t>(output / columns * width + output % columns);
    }
  }
  return lanes;
}();

// Even quadwords, then odd quadwords.
constexpr std::array<int32_t, 16> kEvenThenOdd = {0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15};

jit::DotKind NarrowDot(core::Isa isa) {
  const jit::DotKind dot = DotOf(isa, INTACT_EXACT);
  return dot == jit::DotKind::kVnni ? dot : jit::DotKind::kWideInPlace;
}

class NarrowKernel {
 public:
  explicit NarrowKernel(const NarrowKernelSpec& spec)
      : spec_(spec),
        session_([this] { return spec_.Name(); }),
        registers_(jit::MakeRegisterFile(spec.isa)),
        emitter_(jit::MakeEmitter(spec.isa, session_.code(), registers_)),
        dot_(jit::MakeDotVariant(NarrowDot(spec.isa), spec.isa, *emitter_)),
        epilogue_(EpilogueOf(spec), *emitter_),
        fours_(spec.step_rows > 1 ? 0 : static_cast<size_t>(spec.tile_rows()) / 4),
        sums_(static_cast<size_t>(spec.tile_rows() / spec.step_rows)) {}

  Result<jit::Code> Generate() {
    TakeRegisters();
    session_.Begin(registers_);
    LoadConstants();
    const asmjit::Label tile = code().newLabel();
    code().bind(tile);
    Sums();
    Store();
    code().sub(x86::qword_ptr(registers_.Argument(), offsetof(NarrowKernelArgs, tiles)), 1);
    code().jnz(tile);
    session_.End();
    return session_.Finish(registers_);
  }

 private:
  using Tail = NarrowKernelSpec::Tail;
  static EpilogueSpec EpilogueOf(const NarrowKernelSpec& spec) {
    EpilogueSpec epilogue = spec.epilogue;
    if (spec.columns != spec.width) {
      epilogue.variant.masked_vectors = 1;
      epilogue.variant.last_columns = spec.quads() * spec.columns;
    }
    return epilogue;
  }

  x86::Assembler& code() { return session_.code(); }
  Mem Argument(size_t member) const { return x86::ptr(registers_.Argument(), static_cast<int>(member)); }

  // Callee-saved registers can be taken only before Begin(). Leaves registers to the epilogue, which has no residual.
  void TakeRegisters() {
    constexpr int kOfEpilogue = Epilogue::kGeneralRegisters - 1;
    std::vector<Gp> left;
    left.reserve(kOfEpilogue);
    for (int i = 0; i < kOfEpilogue; ++i) left.push_back(registers_.NewGeneral("left"));
    a_ = registers_.NewGeneral("a");
    stride_ = registers_.NewGeneral("stride");
    stride3_ = registers_.NewGeneral("3 strides");
    for (Gp& four : fours_) four = registers_.NewGeneral("four rows");
    c_ = registers_.NewGeneral("c");
    b_ = registers_.NewGeneral("b");
    steps_ = registers_.NewGeneral("steps");
    if (spec_.has_taps) taps_ = registers_.NewGeneral("taps");
    for (const Gp& general : left) registers_.Free(general);
  }

  void LoadConstants() {
    code().mov(a_, Argument(offsetof(NarrowKernelArgs, a)));
    code().mov(stride_, Argument(offsetof(NarrowKernelArgs, stride)));
    code().lea(stride3_, x86::ptr(stride_, stride_, 1));
    code().mov(c_, Argument(offsetof(NarrowKernelArgs, c)));
    if (spec_.width > 1 && !IsWhole()) {
      const size_t order = spec_.width == 2 ? 0 : spec_.width == 4 ? 1 : 2;
      order_ = registers_.NewVector("quads of lanes");
      code().mov(b_, reinterpret_cast<uint64_t>(kQuadsOfLanes[order].data()));
      emitter_->Load(order_, x86::ptr(b_));
    }
    const auto constant = [&](const char* name, const void* from) {
      const Vec made = registers_.NewVector(name);
      code().mov(b_, reinterpret_cast<uint64_t>(from));
      emitter_->Load(made, x86::ptr(b_));
      return made;
    };
    if (spec_.columns != spec_.width && !IsWhole()) {
      const auto place = static_cast<size_t>(spec_.columns == 3 ? 0 : spec_.columns - 4);
      outputs_ = constant("lanes of outputs", kLanesOfOutputs[place].data());
    }
    if (spec_.step_rows > 1 && RowQuads() > 1 && spec_.width < 4 && IsZmm()) {
      even_then_odd_ = constant("even, then odd", kEvenThenOdd.data());
    }
    if (spec_.shifts) shifts_ = jit::NewShift(*emitter_);
    epilogue_.Prepare(registers_.Argument(), offsetof(NarrowKernelArgs, epilogue));
    if (HasMask() && IsZmm()) code().kmovq(kBytes, Argument(offsetof(NarrowKernelArgs, tail_bytes)));
  }

  void Sums() {
    code().mov(b_, Argument(offsetof(NarrowKernelArgs, b)));
    for (Vec& sum : sums_) sum = registers_.NewVector("sums of a row");
    if (IsWhole()) {
      code().mov(steps_, Argument(offsetof(NarrowKernelArgs, compensation)));
      emitter_->Load(sums_[0], x86::ptr(steps_));
      for (size_t i = 1; i < sums_.size(); ++i) emitter_->Copy(sums_[i], sums_[0]);
    } else {
      for (const Vec& sum : sums_) emitter_->Zero(sum);
    }
    jit::Operand b(static_cast<size_t>(dot_->b_registers()));
    for (Vec& of_step : b) of_step = registers_.NewVector("b");
    const Vec a = registers_.NewVector("a row's quads");
    dot_->TakeRegisters();
    dot_->Prepare();
    if (spec_.step_rows > 1) {
      StepOfRows(a, b);
    } else if (spec_.has_taps) {
      Taps(a, b);
    } else {
      PointToRows();
      code().lea(a_, x86::ptr(fours_.back(), stride_, 2));
      Steps(a, b);
    }
    dot_->Release();
    registers_.Free(a);
    for (const Vec& of_step : b) registers_.Free(of_step);
  }

  // From a_.
  void PointToRows() {
    code().mov(fours_[0], a_);
    for (size_t i = 1; i < fours_.size(); ++i) code().lea(fours_[i], x86::ptr(fours_[i - 1], stride_, 2));
  }

  // The steps of all taps, one tap after the other. Then a_ points to the next tile.
  void Taps(const Vec& a, const jit::Operand& b) {
    const asmjit::Label tap = code().newLabel();
    code().mov(taps_, Argument(offsetof(NarrowKernelArgs, taps)));
    code().bind(tap);
    code().add(a_, x86::ptr(taps_));
    PointToRows();
    code().sub(a_, x86::ptr(taps_));
    Steps(a, b);
    code().add(taps_, static_cast<int>(sizeof(int64_t)));
    code().cmp(taps_, Argument(offsetof(NarrowKernelArgs, taps_end)));
    code().jne(tap);
    for (size_t i = 0; i < fours_.size(); ++i) code().lea(a_, x86::ptr(a_, stride_, 2));
  }

  void Steps(const Vec& a, const jit::Operand& b) {
    const asmjit::Label loop = code().newLabel();
    const asmjit::Label tail = code().newLabel();
    code().mov(steps_, Argument(offsetof(NarrowKernelArgs, steps)));
    code().test(steps_, steps_);
    code().jz(tail);
    code().bind(loop);
    Step(a, b, false);
    for (const Gp& four : fours_) code().add(four, spec_.quads() * kQuad);
    code().add(b_, emitter_->vector_bytes());
    code().dec(steps_);
    code().jnz(loop);
    code().bind(tail);
    if (spec_.tail == Tail::kNone) return;
    if (!HasMask()) {
      for (const Gp& four : fours_) code().sub(four, Argument(offsetof(NarrowKernelArgs, overlap)));
      code().mov(b_, Argument(offsetof(NarrowKernelArgs, tail_b)));
    }
    Step(a, b, HasMask());
  }

  // The only step of all rows.
  void StepOfRows(const Vec& a, const jit::Operand& b) {
    const int bytes = spec_.quads() * kQuad;
    dot_->LoadB(b, x86::ptr(b_), emitter_->vector_bytes());
    for (size_t i = 0; i < sums_.size(); ++i) {
      emitter_->LoadFirst(a, x86::ptr(a_, static_cast<int>(i) * bytes), bytes);
      Products(a, b, sums_[i]);
    }
    code().add(a_, static_cast<int>(sums_.size()) * bytes);
  }

  // Repeats the quads of `a`, and adds their products to `sum`.
  void Products(const Vec& a, const jit::Operand& b, const Vec& sum) {
    if (spec_.shifts) code().emit(IsZmm() ? x86::Inst::kIdVpxord : x86::Inst::kIdVpxor, a, a, shifts_);
    if (order_.isValid()) code().vpermd(a, order_, a);
    for (int step = 0; step < dot_->steps(); ++step) {
      dot_->Dot(sum, dot_->Part(a, step), b[static_cast<size_t>(step)]);
    }
  }

  // B has zeros for the bytes that a row does not have.
  void Step(const Vec& a, const jit::Operand& b, bool is_masked) {
    dot_->LoadB(b, x86::ptr(b_), emitter_->vector_bytes());
    if (is_masked && !IsZmm()) code().mov(steps_, Argument(offsetof(NarrowKernelArgs, tail_quads)));
    for (size_t row = 0; row < sums_.size(); ++row) {
      const Gp& four = fours_[row / 4];
      const std::array<Mem, 4> from = {x86::ptr(four), x86::ptr(four, stride_), x86::ptr(four, stride_, 1),
                                       x86::ptr(four, stride3_)};
      if (!is_masked && IsWhole()) {
        code().vpbroadcastd(a, from[row % 4]);
      } else if (!is_masked) {
        emitter_->LoadFirst(a, from[row % 4], spec_.quads() * kQuad);
      } else if (IsZmm()) {
        code().k(kBytes).z().vmovdqu8(a, from[row % 4]);
        if (IsWhole()) code().vpbroadcastd(a, a.xmm());
      } else {
        emitter_->Load(a, x86::ptr(steps_));
        code().vpmaskmovd(a, a, from[row % 4]);
      }
      Products(a, b, sums_[row]);
    }
  }

  // x becomes the sums of x's and y's parts, which `low` and `high` select from both. Frees y.
  template <class Low, class High>
  Vec Add(const Vec& x, const Vec& y, const Low& low, const High& high) {
    const Vec spare = registers_.NewVector("spare");
    low(spare, x, y);
    high(y, x, y);
    code().vpaddd(x, spare, y);
    registers_.Free(spare);
    registers_.Free(y);
    return x;
  }
  // The halves of x and y: (x, y).
  Vec AddHalves(const Vec& x, const Vec& y) {
    if (!IsZmm()) {
      return Add(
          x, y, [&](const Vec& to, const Vec& a, const Vec& b) { code().vperm2i128(to, a, b, 0x20); },
          [&](const Vec& to, const Vec& a, const Vec& b) { code().vperm2i128(to, a, b, 0x31); });
    }
    return Add(
        x, y, [&](const Vec& to, const Vec& a, const Vec& b) { code().vshufi64x2(to, a, b, 0x44); },
        [&](const Vec& to, const Vec& a, const Vec& b) { code().vshufi64x2(to, a, b, 0xee); });
  }
  // The quarters of zmm registers, if x and y are pairs of rows: (x, x′, y, y′).
  Vec AddQuarters(const Vec& x, const Vec& y) {
    return Add(
        x, y, [&](const Vec& to, const Vec& a, const Vec& b) { code().vshufi32x4(to, a, b, 0x88); },
        [&](const Vec& to, const Vec& a, const Vec& b) { code().vshufi32x4(to, a, b, 0xdd); });
  }
  // Within 128-bit lanes: quadwords, and dwords.
  Vec AddQuadwords(const Vec& x, const Vec& y) {
    return Add(
        x, y, [&](const Vec& to, const Vec& a, const Vec& b) { code().vpunpcklqdq(to, a, b); },
        [&](const Vec& to, const Vec& a, const Vec& b) { code().vpunpckhqdq(to, a, b); });
  }
  Vec AddDwords(const Vec& x, const Vec& y) {
    return Add(
        x, y, [&](const Vec& to, const Vec& a, const Vec& b) { code().vshufps(to, a, b, 0x88); },
        [&](const Vec& to, const Vec& a, const Vec& b) { code().vshufps(to, a, b, 0xdd); });
  }
  // Rows `step` apart, each in a 128-bit lane.
  Vec Lanes(size_t row, size_t step) {
    const Vec low = AddHalves(sums_[row], sums_[row + step]);
    if (!IsZmm()) return low;
    return AddQuarters(low, AddHalves(sums_[row + 2 * step], sums_[row + 3 * step]));
  }
  int RowQuads() const { return spec_.quads() / spec_.step_rows; }
  // The sums of adjacent parts of x, then of y.
  Vec AddAdjacent(const Vec& x, const Vec& y) {
    if (spec_.width == 4) return AddQuarters(x, y);
    const Vec sums = spec_.width == 2 ? AddQuadwords(x, y) : AddDwords(x, y);
    IsZmm() ? code().vpermd(sums, even_then_odd_, sums) : code().vpermq(sums, sums, 0xd8);
    return sums;
  }
  // The outputs of the vector of outputs that begins with row `row`, if a step holds several rows.
  Vec OutputsOfSteps(size_t row) {
    const auto first = sums_.begin() + static_cast<int64_t>(row) / spec_.step_rows;
    std::vector<Vec> sums(first, first + RowQuads());
    for (; sums.size() > 1; sums.resize(sums.size() / 2)) {
      for (size_t i = 0; i < sums.size() / 2; ++i) sums[i] = AddAdjacent(sums[2 * i], sums[2 * i + 1]);
    }
    return sums[0];
  }

  // The outputs of the rows of a vector, from `row` on.
  Vec Outputs(size_t row) {
    if (spec_.step_rows > 1) return OutputsOfSteps(row);
    if (IsWhole()) return sums_[row];
    switch (spec_.width) {
      case 8:
        return AddHalves(sums_[row], sums_[row + 1]);
      case 4:
        return Lanes(row, 1);
      case 2: {
        const Vec first = Lanes(row, 2);
        return AddQuadwords(first, Lanes(row + 1, 2));
      }
      default: {
        const Vec first = Lanes(0, 4);
        const Vec low = AddQuadwords(first, Lanes(1, 4));
        const Vec third = Lanes(2, 4);
        return AddDwords(low, AddQuadwords(third, Lanes(3, 4)));
      }
    }
  }

  void Store() {
    const Gp compensation = steps_;
    if (!IsWhole()) code().mov(compensation, Argument(offsetof(NarrowKernelArgs, compensation)));
    std::vector<std::vector<Vec>> outputs;
    for (int i = 0; i < spec_.tile_rows() / spec_.quads(); ++i) {
      const Vec sums = Outputs(static_cast<size_t>(i) * static_cast<size_t>(spec_.quads()));
      if (outputs_.isValid()) code().vpermd(sums, outputs_, sums);
      if (!IsWhole()) code().vpaddd(sums, sums, x86::ptr(compensation));
      outputs.push_back({sums});
    }
    epilogue_.StoreRows(outputs, c_, Argument(offsetof(NarrowKernelArgs, c_vector_bytes)),
                        spec_.columns == spec_.width);
    for (const std::vector<Vec>& each : outputs) registers_.Free(each[0]);
  }

  // Whether a quad of all columns fills a vector.
  bool IsWhole() const { return spec_.width == spec_.lanes(); }
  bool HasMask() const { return spec_.tail == Tail::kMasked; }
  bool IsZmm() const { return emitter_->vector_bytes() == 64; }

  static constexpr x86::KReg kBytes = x86::k1;

  NarrowKernelSpec spec_;
  jit::Assembler session_;
  jit::RegisterFile registers_;
  std::unique_ptr<jit::Emitter> emitter_;
  std::unique_ptr<jit::DotVariant> dot_;
  Epilogue epilogue_;
  Gp a_, stride_, stride3_, c_, b_, steps_, taps_;
  std::vector<Gp> fours_;  // each four rows
  Vec order_, outputs_, even_then_odd_, shifts_;
  std::vector<Vec> sums_;
};

}  // namespace

int NarrowKernelSpec::MostStepRows(int64_t k) const {
  const int64_t row_quads = k / kQuad;
  const bool is_whole = k % kQuad == 0 && row_quads > 0 && quads() % row_quads == 0;
  return is_whole ? quads() / static_cast<int>(row_quads) : 1;
}

std::string NarrowKernelSpec::Name() const {
  constexpr std::array<const char*, 3> kTails = {"_", "_tail_", "_masked_"};
  std::string name(shifts ? "s8s8" : "u8s8");
  const auto add = [&](bool has, const char* before, int number) {
    if (has) name.append(before).append(std::to_string(number));
  };
  name += epilogue.Name();
  add(true, "_narrow_", tile_rows());
  add(true, "x", width);
  add(columns != width, "of", columns);
  if (has_taps) name += "_taps";
  add(step_rows > 1, "_by", step_rows);
  name += kTails[static_cast<size_t>(tail)];
  return name.append(jit::ToString(NarrowDot(isa))).append("_").append(core::CompactName(isa));
}

Result<NarrowFunction> GetNarrowKernel(const NarrowKernelSpec& spec) {
  return jit::GetFunction<NarrowFunction>(
      spec, [](const NarrowKernelSpec& key) { return NarrowKernel(key).Generate(); });
}

}  // namespace intact::kernels
