#include "kernels/codegen/microkernel.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "core/isas.h"
#include "jit/assembler.h"
#include "jit/code_cache.h"
#include "kernels/weights/cut_panels.h"
#include "kernels/weights/scheduled_vectors.h"

namespace intact::kernels {
namespace {

namespace x86 = asmjit::x86;
using jit::Gp;
using jit::Mem;
using jit::Vec;

constexpr int kUnroll = 4;         // quads in the main loop, unless the variant sums more
constexpr int kStripAhead = 2048;  // a prefetch distance in bytes, measured on Zen 3
constexpr int kLine = 64;

constexpr x86::KReg kLowerHalf = x86::k1, kUpperHalf = x86::k2;  // of a vector that rows share

class Microkernel {
 public:
  explicit Microkernel(const MicrokernelSpec& spec)
      : spec_(spec),
        line_(LineOf(spec.loop)),
        session_([this] { return spec_.Name(); }),
        registers_(jit::MakeRegisterFile(spec.isa)),
        emitter_(jit::MakeEmitter(spec.isa, session_.code(), registers_)),
        dot_(jit::MakeDotVariant(spec.dot, spec.isa, *emitter_, spec.signs)),
        epilogue_(spec.epilogue, *emitter_) {}

  Result<jit::Code> Generate() {
    assert(dot_->steps() == 1 || !Steps());
    TakeRegisters();
    session_.Begin(registers_);
    if (spec_.pairs_rows) LoadMasks();
    const asmjit::Label tile = code().newLabel();
    code().bind(tile);
    dot_->Prepare();
    Prologue();
    Products();
    if (spec_.dot == jit::DotKind::kCut) ExtraLoop();
    AddChains();
    ReleaseOperands();
    StoreTile();
    code().sub(x86::qword_ptr(registers_.Argument(), offsetof(MicrokernelArgs, tiles)), 1);
    code().jnz(tile);
    session_.End();
    return session_.Finish(registers_);
  }

 private:
  struct Span {
    int begin, end;
  };

  x86::Assembler& code() { return session_.code(); }
  Mem Argument(size_t member) const { return x86::ptr(registers_.Argument(), static_cast<int>(member)); }
  Vec& accumulator(int chain, int row, int vector) {
    return accumulators_[static_cast<size_t>(chain) * static_cast<size_t>(spec_.mr) +
                         static_cast<size_t>(row)][static_cast<size_t>(vector)];
  }
  // Whether two rows share vector `vector` of columns. The row below then has the accumulator of the row above.
  bool IsShared(int vector) const { return spec_.pairs_rows && vector + 1 == spec_.vectors; }
  bool IsUpper(int row, int vector) const { return IsShared(vector) && row % 2 == 1; }
  int accumulator_count() const { return spec_.mr * spec_.vectors - (spec_.pairs_rows ? spec_.mr / 2 : 0); }
  // Quads in the main loop: a group's, if the variant sums groups.
  int unroll() const { return std::max(kUnroll, dot_->group_quads()); }
  // Bytes of a row's quad; of the wide variant, a pair of int16 takes the place of a quad.
  int a_bytes() const { return dot_->takes_quads_apart() ? kQuad : dot_->steps() * kQuad; }
  int panels() const { return (spec_.nr() + kPanelColumns - 1) / kPanelColumns; }

  // Sets of accumulators, enough to hide the latency of dot products.
  int Chains() const {
    if (spec_.dot != jit::DotKind::kVnni) return 1;
    const int tile = accumulator_count();
    const int wanted = std::min((kInFlight + tile - 1) / tile, kUnroll);
    return std::clamp((registers_.FreeVectors() - spec_.vectors - (spec_.pairs_rows ? 2 : 1)) / tile, 1,
                      wanted);
  }

  void TakeRegisters() {
    rows_.reserve(static_cast<size_t>(spec_.mr));
    for (int i = 0; i < (shared_ != nullptr ? 1 : spec_.mr); ++i)
      rows_.push_back(registers_.NewGeneral("row"));
    offset_ = registers_.NewGeneral("offset");
    if (shared_ == nullptr) end_ = registers_.NewGeneral("tap's end");
    if (HasVectorStep()) vector_step_ = registers_.NewGeneral("vector step");
    taps_ = registers_.NewGeneral("taps");
    b_ = registers_.NewGeneral("b");
    if (panels() > 1) panel_stride_ = registers_.NewGeneral("panel stride");
    if (panels() > 3) panel_stride3_ = registers_.NewGeneral("3 panel strides");
    if (Prefetches()) prefetch_ = registers_.NewGeneral("prefetch");
    if (shared_ != nullptr) TakePixelRegisters();
    if (strip_ != nullptr) {
      counts_ = registers_.NewGeneral("counts");
      windows_ = registers_.NewGeneral("windows");
    }
    chains_ = Chains();
    accumulators_.resize(static_cast<size_t>(chains_) * static_cast<size_t>(spec_.mr));
    for (int row = 0; row < chains_ * spec_.mr; ++row) {
      std::vector<Vec>& vectors = accumulators_[static_cast<size_t>(row)];
      vectors.reserve(static_cast<size_t>(spec_.vectors));
      for (int j = 0; j < spec_.vectors; ++j) {
        vectors.push_back(IsUpper(row % spec_.mr, j) ? accumulators_[static_cast<size_t>(row) - 1].back()
                                                     : registers_.NewVector("accumulator"));
      }
    }
    if (dot_->group_quads() != 0) TakeSums();
    a_operand_ = registers_.NewVector("a");
    if (spec_.pairs_rows) lower_a_operand_ = registers_.NewVector("a of the row below");
    dot_->TakeRegisters();
    b_operands_.reserve(static_cast<size_t>(spec_.vectors));
    // B vectors without a register are read from memory, row by row.
    for (int j = 0; j < spec_.vectors; ++j) {
      if (dot_->b_registers() == 1 && registers_.FreeVectors() == 0) break;
      jit::Operand& b = b_operands_.emplace_back();
      for (int i = 0; i < dot_->b_registers(); ++i) b.push_back(registers_.NewVector("b"));
    }
    // A vector that rows share is half a vector in memory.
    assert(!spec_.pairs_rows || static_cast<int>(b_operands_.size()) == spec_.vectors);
    if (spec_.dot != jit::DotKind::kCut) return;
    for (int j = 0; j < spec_.vectors; ++j) indices_.push_back(registers_.NewVector("quads of a window"));
  }

  void TakeSums() {
    for (const std::vector<Vec>& row : accumulators_) {
      for (const Vec& accumulator : row) {
        jit::DotVariant::Sums& sums = sums_.emplace_back();
        sums.accumulator = accumulator;
        for (int i = 0; i < dot_->steps(); ++i)
          sums.of_step.at(static_cast<size_t>(i)) = registers_.NewVector("sum");
      }
    }
  }

  // Registers for pixels after the first, as long as any are free.
  void TakePixelRegisters() {
    const int pixels = shared_->pattern.column_count() - 1;
    int left = registers_.FreeGenerals();
    if (pixels > left) {
      pixel_offsets_ = registers_.NewGeneral("pixel offsets");
      other_pixel_ = registers_.NewGeneral("another pixel");
      left -= 2;
    }
    for (int i = 0; i < std::min(pixels, left); ++i) pixels_.push_back(registers_.NewGeneral("pixel"));
  }

  void Prologue() {
    const int first = line_.begins ? 1 : 0;
    const int last = spec_.mr - (line_.ends ? 1 : 0);
    code().mov(taps_, Argument(offsetof(MicrokernelArgs, compensation)));
    LoadCompensation(first, false);
    for (int j = 0; j < spec_.vectors; ++j) {
      for (int i = first + 1; i < last; ++i) {
        if (!IsUpper(i, j)) emitter_->Copy(accumulator(0, i, j), accumulator(0, first, j));
      }
    }
    if (line_.begins || line_.ends) {
      code().mov(end_, Argument(offsetof(MicrokernelArgs, compensation_stride_bytes)));
      code().add(taps_, end_);
      if (line_.begins) LoadCompensation(0, true);
      code().add(taps_, end_);
      if (line_.ends) LoadCompensation(last, true);
    }
    for (int chain = 1; chain < chains_; ++chain) {
      for (int i = 0; i < spec_.mr; ++i) {
        for (int j = 0; j < spec_.vectors; ++j) emitter_->Zero(accumulator(chain, i, j));
      }
    }
    if (shared_ != nullptr) {
      code().mov(taps_, Argument(offsetof(MicrokernelArgs, pixel_offsets)));
      if (pixel_offsets_.isValid()) code().mov(pixel_offsets_, taps_);
      for (size_t i = 0; i < pixels_.size(); ++i) {
        code().mov(pixels_[i], PixelOffset(taps_, static_cast<int>(i) + 1));
      }
    }
    if (HasVectorStep()) code().mov(vector_step_, Argument(offsetof(MicrokernelArgs, vector_step)));
    code().mov(taps_, Argument(offsetof(MicrokernelArgs, rows)));
    for (size_t i = 0; i < rows_.size(); ++i) code().mov(rows_[i], x86::ptr(taps_, static_cast<int>(i) * 8));
    code().mov(b_, Argument(offsetof(MicrokernelArgs, b)));
    if (panels() > 1) code().mov(panel_stride_, Argument(offsetof(MicrokernelArgs, b_panel_stride_bytes)));
    if (panels() > 3) code().lea(panel_stride3_, x86::ptr(panel_stride_, panel_stride_, 1));  // 1 + 2
    if (Prefetches()) code().mov(prefetch_, Argument(offsetof(MicrokernelArgs, prefetch)));
    if (strip_ != nullptr) {
      code().mov(windows_, Argument(offsetof(MicrokernelArgs, windows)));
    } else {
      code().mov(taps_, Argument(offsetof(MicrokernelArgs, taps)));
    }
  }

  // From taps_. `is_own`: the compensation is the row's own; else both rows of a shared vector get it.
  void LoadCompensation(int row, bool is_own) {
    for (int j = 0; j < spec_.vectors; ++j) {
      const Mem from = x86::ptr(taps_, j * registers_.vector_bytes());
      if (!IsShared(j)) {
        emitter_->Load(accumulator(0, row, j), from);
        continue;
      }
      if (is_own) code().k(row % 2 == 0 ? kLowerHalf : kUpperHalf);  // of the next instruction
      code().vbroadcasti32x8(accumulator(0, row, j), from);
    }
  }

  void LoadMasks() {
    code().mov(offset_.r32(), 0x00ff);
    code().kmovw(kLowerHalf, offset_.r32());
    code().mov(offset_.r32(), 0xff00);
    code().kmovw(kUpperHalf, offset_.r32());
  }

  int quad_bytes() const { return spec_.width * kQuad; }
  // Bytes of a vector of B: a whole vector, or a quad of a narrow panel.
  int b_bytes() const { return std::min(quad_bytes(), registers_.vector_bytes()); }
  void LoadB(const jit::Operand& b, const Mem& from) { dot_->LoadB(b, from, b_bytes()); }

  // Vector j of the quad at b_ + quad·quad_bytes(): columns beyond the first 16 are in the next panels.
  Mem BAddress(int j, int quad) const {
    const int panel = j * registers_.vector_bytes() / kPanelQuadBytes;
    const int offset = j * registers_.vector_bytes() % kPanelQuadBytes + quad * quad_bytes();
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

  void Quad(int quad, const Span& rows, bool fetches) {
    for (int j = 0; j < static_cast<int>(b_operands_.size()); ++j) {
      const jit::Operand& b = b_operands_[static_cast<size_t>(j)];
      if (IsShared(j)) {
        code().vbroadcasti32x8(b[0], BAddress(j, quad));
      } else {
        LoadB(b, BAddress(j, quad));
      }
    }
    if (fetches) Prefetch(quad);
    if (spec_.pairs_rows) return PairedDots(quad, rows);
    const auto broadcast = [&](int row, int step) {
      code().vpbroadcastd(
          a_operand_, x86::ptr(rows_[static_cast<size_t>(row)], offset_, 0, quad * a_bytes() + step * kQuad));
    };
    if (dot_->takes_quads_apart()) {
      for (int i = rows.begin; i < rows.end; ++i) {
        broadcast(i, 0);
        for (int step = 0; step < dot_->steps(); ++step) Dots(dot_->Part(a_operand_, step), step, i, quad);
      }
      return;
    }
    for (int step = 0; step < dot_->steps(); ++step) {
      for (int i = rows.begin; i < rows.end; ++i) {
        broadcast(i, step);
        Dots(a_operand_, step, i, quad);
      }
    }
  }

  // The products of a quad, if rows share the last vector. The rows of a pair may be in different spans: then the other
  // row's half of the quads is 0.
  void PairedDots(int quad, const Span& rows) {
    const int shared = spec_.vectors - 1;
    const auto own = [&](const Vec& a, int row) {
      for (int j = 0; j < shared; ++j) Dot(a, 0, row, j, quad);
    };
    const auto address = [&](int row) {
      return x86::ptr(rows_[static_cast<size_t>(row)], offset_, 0, quad * kQuad);
    };
    for (int i = rows.begin; i < rows.end; ++i) {
      code().vpbroadcastd(a_operand_, address(i));
      own(a_operand_, i);
      const bool is_upper = i % 2 == 1;
      if (!is_upper && i + 1 < rows.end) {
        code().vpbroadcastd(lower_a_operand_, address(++i));
        own(lower_a_operand_, i);
        code().k(kUpperHalf).vmovdqa32(a_operand_, lower_a_operand_);
      } else if (is_upper || i + 1 < spec_.mr) {
        code().k(is_upper ? kUpperHalf : kLowerHalf).z().vmovdqa32(a_operand_, a_operand_);
      }
      Dot(a_operand_, 0, i, shared, quad);
    }
  }

  void Dots(const Vec& a, int step, int row, int quad) {
    for (int j = 0; j < spec_.vectors; ++j) Dot(a, step, row, j, quad);
  }

  // Quads 0 to `quads` − 1. The first quad begins int16 sums.
  void Quads(int quads, const Span& rows, bool fetches = true) {
    for (int quad = 0; quad < quads; ++quad) {
      HasVectorStep() ? SteppingQuad(quad, rows) : Quad(quad, rows, fetches);
    }
    // An odd number of quads ends at the last vector.
    if (HasVectorStep() && quads % 2 == 1) StepVectors(-(spec_.vectors - 1));
  }

  // The parts of the rows that an unrolled body computes one after the other. The last part has enough
  // vectors to hide the latency of products.
  std::vector<Span> Parts(const Span& rows) const {
    constexpr int kLatency = 8;  // vectors
    const int last = (kLatency + spec_.vectors - 1) / spec_.vectors;
    if (panels_ == nullptr || !panels_->in_parts || rows.end - rows.begin <= last) return {rows};
    return {{rows.begin, rows.end - last}, {rows.end - last, rows.end}};
  }

  // A quad of each vector, in alternating order: each quad begins with the vector that the previous quad
  // ended with, so that offset_ only steps between adjacent vectors.
  void SteppingQuad(int quad, const Span& rows) {
    Prefetch(quad);
    const bool is_forward = quad % 2 == 0;
    for (int count = 0; count < spec_.vectors; ++count) {
      if (count > 0) StepVectors(is_forward ? 1 : -1);
      const int j = is_forward ? count : spec_.vectors - 1 - count;
      const auto vector = static_cast<size_t>(j);
      if (vector < b_operands_.size()) LoadB(b_operands_[vector], BAddress(j, quad));
      for (int i = rows.begin; i < rows.end; ++i) {
        code().vpbroadcastd(a_operand_,
                            x86::ptr(rows_[static_cast<size_t>(i)], offset_, 0, quad * a_bytes()));
        Dot(a_operand_, 0, i, j, quad);
      }
    }
  }

  bool Prefetches() const { return panels_ != nullptr && panels_->prefetches; }
  // Whether vectors of columns read different activations.
  bool Steps() const { return shared_ != nullptr || std::holds_alternative<SteppingLoop>(spec_.loop); }
  bool HasVectorStep() const { return Steps() && spec_.vectors > 1; }

  void StepVectors(int vectors) {
    for (; vectors > 0; --vectors) code().add(offset_, vector_step_);
    for (; vectors < 0; ++vectors) code().sub(offset_, vector_step_);
  }

  void Dot(const Vec& a, int step, int i, int j, int quad) {
    const auto vector = static_cast<size_t>(j);
    asmjit::Operand b = BAddress(j, quad);
    if (vector < b_operands_.size()) {
      b = b_operands_[vector][dot_->b_registers() == 1 ? 0 : static_cast<size_t>(step)];
    }
    if (sums_.empty()) return dot_->Dot(accumulator(quad % chains_, i, j), a, b);
    const jit::DotVariant::Sums& sums =
        sums_[static_cast<size_t>(i) * static_cast<size_t>(spec_.vectors) + vector];
    const Vec& sum = sums.of_step.at(static_cast<size_t>(step));
    if (begins_group_ && quad == 0) {
      dot_->FirstDot(sum, a, b);
    } else {
      dot_->Dot(sum, a, b);
    }
  }

  void Prefetch(int quad) {
    if (const int bytes = quad * PrefetchQuadBytes(spec_.dot, spec_.nr());
        Prefetches() && bytes % kLine == 0) {
      code().prefetcht1(x86::ptr(prefetch_, bytes));
    }
    const int lines_ahead = panels_ != nullptr ? panels_->ahead : 0;
    if (lines_ahead != 0 ? quad * quad_bytes() % kLine != 0 : quad != 0) return;
    constexpr int kPage = 4096;
    for (int panel = 0; panel < panels(); ++panel) {
      Mem ahead = BAddress(panel * kPanelQuadBytes / registers_.vector_bytes(), quad);
      ahead.addOffset(lines_ahead != 0 ? lines_ahead : kPage);
      code().prefetcht0(ahead);
    }
  }

  // The taps of a line of the filter: a quad of a pixel is loaded once for all rows and taps that read it.
  // offset_ is the address of the first pixel, and steps from vector to vector as in SteppingQuad().
  void LineTaps() {
    const int taps = shared_->pattern.width;
    code().add(offset_, rows_[0]);
    for (int quad = 0; quad < shared_->quads; ++quad) {
      const bool is_forward = quad % 2 == 0;
      for (int count = 0; count < spec_.vectors; ++count) {
        if (count > 0) StepVectors(is_forward ? 1 : -1);
        const int j = is_forward ? count : spec_.vectors - 1 - count;
        SharedQuad(quad, j);
      }
    }
    code().add(b_, taps * shared_->quads * quad_bytes());
  }

  struct Reader {
    int row, tap;
  };

  // Vector j's products of one quad of each pixel.
  void SharedQuad(int quad, int j) {
    const int taps = shared_->pattern.width;
    std::map<int, std::vector<Reader>> pixels;
    for (int tap = 0; tap < taps; ++tap) {
      for (int row = 0; row < spec_.mr; ++row) {
        pixels[shared_->pattern.Column(row, tap)].push_back({row, tap});
      }
    }
    const auto b_address = [&](int tap) { return BAddress(j, tap * shared_->quads + quad); };
    const int in_registers = std::min(static_cast<int>(b_operands_.size()), taps);
    for (int tap = 0; tap < in_registers; ++tap) {
      LoadB(b_operands_[static_cast<size_t>(tap)], b_address(tap));
    }
    for (const auto& [pixel, readers] : pixels) {
      code().vpbroadcastd(a_operand_, PixelAddress(pixel, quad * a_bytes()));
      for (const auto& [row, tap] : readers) {
        const Vec& sum = accumulator((tap + quad) % chains_, row, j);
        if (tap < in_registers) {
          dot_->Dot(sum, a_operand_, b_operands_[static_cast<size_t>(tap)][0]);
        } else {
          dot_->Dot(sum, a_operand_, b_address(tap));
        }
      }
    }
  }

  Mem PixelOffset(const Gp& offsets, int pixel) const {
    return x86::ptr(offsets, pixel * static_cast<int>(sizeof(int64_t)));
  }

  Mem PixelAddress(int pixel, int displacement) {
    if (pixel == 0) return x86::ptr(offset_, displacement);
    const auto held = static_cast<size_t>(pixel - 1);
    if (held < pixels_.size()) return x86::ptr(offset_, pixels_[held], 0, displacement);
    code().mov(other_pixel_, PixelOffset(pixel_offsets_, pixel));
    return x86::ptr(offset_, other_pixel_, 0, displacement);
  }

  void Advance(int quads) {
    code().add(b_, quads * quad_bytes());
    if (Prefetches()) code().add(prefetch_, quads * PrefetchQuadBytes(spec_.dot, spec_.nr()));
    code().add(offset_, quads * a_bytes());
  }

  void Products() {
    if (strip_ != nullptr) return WindowLoop();
    if (shared_ != nullptr) return TapLoop(shared_->pattern.width, [&] { LineTaps(); });
    TapLoop(1, [&] { Tap(); });
  }

  // Each `body` multiplies `taps` taps.
  template <class Body>
  void TapLoop(int taps, const Body& body) {
    const asmjit::Label tap = code().newLabel();
    code().bind(tap);
    code().mov(offset_, x86::ptr(taps_));
    if (Steps()) code().add(offset_, Argument(offsetof(MicrokernelArgs, a_offset)));
    body();
    code().add(taps_, taps * 8);
    code().cmp(taps_, Argument(offsetof(MicrokernelArgs, taps_end)));
    code().jne(tap);
  }

  // The extra quads of a panel that was cut.
  void ExtraLoop() {
    const asmjit::Label loop = code().newLabel();
    const asmjit::Label done = code().newLabel();
    code().mov(taps_, Argument(offsetof(MicrokernelArgs, extras)));
    code().mov(b_, Argument(offsetof(MicrokernelArgs, extra_b)));
    code().cmp(taps_, Argument(offsetof(MicrokernelArgs, extras_end)));
    code().je(done);
    code().bind(loop);
    code().mov(offset_, x86::ptr(taps_));
    const int bytes = registers_.vector_bytes();
    for (size_t j = 0; j < indices_.size(); ++j) {
      const int offset = static_cast<int>(j) * bytes;
      LoadB(b_operands_[j], x86::ptr(b_, static_cast<int>(offsetof(ExtraQuad, weights)) + offset));
      emitter_->Load(indices_[j], x86::ptr(b_, static_cast<int>(offsetof(ExtraQuad, quads)) + offset));
    }
    for (int i = 0; i < spec_.mr; ++i) {
      const Mem window = x86::ptr(rows_[static_cast<size_t>(i)], offset_);
      for (size_t j = 0; j < indices_.size(); ++j) {
        if (bytes == kWindowQuads * kQuad) {
          code().vpermd(a_operand_, indices_[j], window);
        } else {
          code().vbroadcasti64x4(a_operand_, window);
          code().vpermd(a_operand_, indices_[j], a_operand_);
        }
        Dot(a_operand_, 0, i, static_cast<int>(j), 0);
      }
    }
    code().add(b_, static_cast<int>(sizeof(ExtraQuad)));
    code().add(taps_, static_cast<int>(sizeof(int64_t)));
    code().cmp(taps_, Argument(offsetof(MicrokernelArgs, extras_end)));
    code().jne(loop);
    code().bind(done);
  }

  // The windows of a strip: b_ runs through weights, taps_ through the indices of their quads.
  void WindowLoop() {
    const asmjit::Label window = code().newLabel();
    code().bind(window);
    code().mov(counts_, b_);
    code().lea(taps_, x86::ptr(b_, sizeof(VectorWindowHeader)));
    code().mov(end_.r32(), x86::ptr(b_, offsetof(VectorWindowHeader, weights_begin)));
    code().add(end_, b_);
    // Fetches kStripAhead ahead of the header and the indices, as Groups() does of the weights.
    const asmjit::Label ahead = code().newLabel();
    code().bind(ahead);
    code().prefetcht0(x86::ptr(b_, kStripAhead));
    code().add(b_, kLine);
    code().cmp(b_, end_);
    code().jb(ahead);
    code().mov(b_, end_);
    for (int size = strip_->largest_group; size >= 1; --size) Groups(size);
    code().dec(windows_);
    code().jnz(window);
  }

  // All groups of `size` quads.
  void Groups(int size) {
    const asmjit::Label loop = code().newLabel();
    const asmjit::Label done = code().newLabel();
    constexpr int kQuadNumber = static_cast<int>(sizeof(uint16_t));
    const Gp& count = end_;
    code().movzx(count.r32(), x86::word_ptr(counts_, (kMaxGroup - size) * kQuadNumber));
    code().test(count.r32(), count.r32());
    code().jz(done);
    code().bind(loop);
    for (int quad = 0; quad < size; ++quad) {
      code().movzx(offset_.r32(), x86::word_ptr(taps_, quad * kQuadNumber));
      const int offset = quad * b_bytes();
      if (offset % kLine == 0) {
        code().prefetcht0(x86::ptr(b_, offset + kStripAhead));
        if (strip_->ahead != 0) code().prefetcht1(x86::ptr(b_, offset + strip_->ahead));
      }
      asmjit::Operand b = x86::ptr(b_, offset);
      if (!b_operands_.empty()) {
        LoadB(b_operands_[0], b.as<Mem>());
        b = b_operands_[0][0];
      }
      for (size_t i = 0; i < sums_.size(); ++i) {
        code().vpbroadcastd(a_operand_, x86::ptr(rows_[i], offset_, 2));
        const Vec& sum = sums_[i].of_step[0];
        quad == 0 ? dot_->FirstDot(sum, a_operand_, b) : dot_->Dot(sum, a_operand_, b);
      }
    }
    code().add(taps_, size * kQuadNumber);
    code().add(b_, size * b_bytes());
    dot_->Widen(sums_);
    code().dec(count.r32());
    code().jnz(loop);
    code().bind(done);
  }

  void Tap() {
    if (line_.begins) DepthLoop(offsetof(MicrokernelArgs, head_end), {1, spec_.mr});
    if (line_.ends) DepthLoop(offsetof(MicrokernelArgs, tail_begin), {0, spec_.mr});
    DepthLoop(offsetof(MicrokernelArgs, tap_bytes), {0, spec_.mr - (line_.ends ? 1 : 0)});
  }

  // From offset_ to the argument `end`, the end of the tap's part.
  void DepthLoop(size_t end, const Span& rows) {
    code().mov(end_, Argument(end));
    code().add(end_, x86::ptr(taps_));
    if (Steps()) code().add(end_, Argument(offsetof(MicrokernelArgs, a_offset)));
    const asmjit::Label main = code().newLabel();
    const asmjit::Label tail = code().newLabel();
    const asmjit::Label single = code().newLabel();
    const asmjit::Label done = code().newLabel();
    code().sub(end_, unroll() * a_bytes());
    code().cmp(offset_, end_);
    code().jg(tail);
    code().align(asmjit::AlignMode::kCode, 32);
    code().bind(main);
    begins_group_ = true;
    for (const Span& part : Parts(rows)) Quads(unroll(), part, part.begin == rows.begin);
    Advance(unroll());
    dot_->Widen(sums_);
    code().cmp(offset_, end_);
    code().jle(main);
    code().bind(tail);
    code().add(end_, unroll() * a_bytes());
    code().cmp(offset_, end_);
    code().je(done);
    begins_group_ = false;
    for (const jit::DotVariant::Sums& sums : sums_) {
      for (const Vec& sum : sums.of_step) emitter_->Zero(sum);
    }
    code().bind(single);
    Quads(1, rows);
    Advance(1);
    code().cmp(offset_, end_);
    code().jne(single);
    dot_->Widen(sums_);
    code().bind(done);
  }

  void AddChains() {
    for (int chain = 1; chain < chains_; ++chain) {
      for (int i = 0; i < spec_.mr; ++i) {
        for (int j = 0; j < spec_.vectors; ++j) {
          if (IsUpper(i, j)) continue;
          code().vpaddd(accumulator(0, i, j), accumulator(0, i, j), accumulator(chain, i, j));
          registers_.Free(accumulator(chain, i, j));
        }
      }
    }
  }

  void ReleaseOperands() {
    for (const jit::Operand& operand : b_operands_) {
      for (const Vec& vector : operand) registers_.Free(vector);
    }
    for (const jit::DotVariant::Sums& sums : sums_) {
      for (int i = 0; i < dot_->steps(); ++i) registers_.Free(sums.of_step.at(static_cast<size_t>(i)));
    }
    registers_.Free(a_operand_);
    if (spec_.pairs_rows) registers_.Free(lower_a_operand_);
    dot_->Release();
    for (const Vec& index : indices_) registers_.Free(index);
    for (const Gp& row : rows_) registers_.Free(row);
    for (const Gp& pixel : pixels_) registers_.Free(pixel);
    for (const Gp& general : {end_, vector_step_, pixel_offsets_, other_pixel_, counts_, windows_}) {
      if (general.isValid()) registers_.Free(general);
    }
    for (const Gp& general : {offset_, taps_, b_}) registers_.Free(general);
    if (panels() > 1) registers_.Free(panel_stride_);
    if (panels() > 3) registers_.Free(panel_stride3_);
    if (Prefetches()) {
      code().mov(Argument(offsetof(MicrokernelArgs, prefetch)), prefetch_);
      registers_.Free(prefetch_);
    }
  }

  void StoreTile() {
    const Gp c = registers_.NewGeneral("c");
    code().mov(c, Argument(offsetof(MicrokernelArgs, c)));
    epilogue_.Prepare(registers_.Argument(), offsetof(MicrokernelArgs, epilogue));
    accumulators_.resize(static_cast<size_t>(spec_.mr));
    for (size_t i = 1; spec_.pairs_rows && i < accumulators_.size(); i += 2) {
      const Vec own = registers_.NewVector("accumulator of the row below");
      code().vextracti64x4(own.ymm(), accumulators_[i].back(), 1);
      accumulators_[i].back() = own;
    }
    epilogue_.StoreRows(accumulators_, c, Argument(offsetof(MicrokernelArgs, c_stride_bytes)));
    epilogue_.Advance();
    code().add(c, Argument(offsetof(MicrokernelArgs, c_gap_bytes)));
    code().mov(Argument(offsetof(MicrokernelArgs, c)), c);
    if (spec_.epilogue.has_residual()) {
      code().mov(c, Argument(offsetof(MicrokernelArgs, residual_gap_bytes)));
      code().add(Argument(offsetof(MicrokernelArgs, epilogue) + offsetof(EpilogueArgs, residual)), c);
    }
    code().add(x86::qword_ptr(registers_.Argument(), offsetof(MicrokernelArgs, rows)), spec_.mr * 8);
  }

  // The ends of lines that tiles have.
  static LineEnds LineOf(const MicrokernelLoop& loop) {
    return std::visit(
        [](const auto& one) {
          if constexpr (requires { one.line; }) return one.line;
          return LineEnds();
        },
        loop);
  }

  MicrokernelSpec spec_;
  LineEnds line_;
  const PanelLoop* panels_ = std::get_if<PanelLoop>(&spec_.loop);  // or null, as below
  const SharedTaps* shared_ = std::get_if<SharedTaps>(&spec_.loop);
  const StripLoop* strip_ = std::get_if<StripLoop>(&spec_.loop);
  jit::Assembler session_;
  jit::RegisterFile registers_;
  std::unique_ptr<jit::Emitter> emitter_;
  std::unique_ptr<jit::DotVariant> dot_;
  Epilogue epilogue_;

  std::vector<Gp> rows_;
  Gp offset_, end_, taps_, b_, panel_stride_, panel_stride3_, prefetch_, vector_step_;
  Gp counts_, windows_;             // counts and windows of a scheduled strip
  std::vector<Gp> pixels_;          // offsets of pixels after the first, as registers allow
  Gp pixel_offsets_, other_pixel_;  // for pixels without a register: the table of offsets, and one of them
  int chains_ = 1;
  std::vector<std::vector<Vec>> accumulators_;  // [chains][mr]: a row of vectors
  std::vector<jit::DotVariant::Sums> sums_;     // [mr·vectors], if quads are summed in int16
  bool begins_group_ = false;                   // whether the next quad 0 begins int16 sums
  std::vector<jit::Operand> b_operands_;
  Vec a_operand_, lower_a_operand_;
  std::vector<Vec> indices_;  // of an extra quad: the quads of its columns
};

}  // namespace

std::string LineEnds::Name() const { return std::string(begins ? "_begin" : "") + (ends ? "_end" : ""); }

std::string PanelLoop::Name() const {
  return (prefetches ? "_prefetch" : "") + line.Name() + (in_parts ? "_parts" : "");
}

std::string SteppingLoop::Name() const { return "_step" + line.Name(); }

std::string SharedTaps::Name() const {
  return "_step_taps" + std::to_string(pattern.width) + "x" + std::to_string(quads) + "_" + pattern.Name();
}

std::string StripLoop::Name() const { return "_by" + std::to_string(largest_group); }

std::string MicrokernelSpec::Name() const {
  const std::string loop_name = std::visit([](const auto& one) { return one.Name(); }, loop);
  const bool is_strip = std::holds_alternative<StripLoop>(loop);
  return std::string(signs.a_signed ? "s8" : "u8") + (signs.b_signed ? "s8" : "u8") + epilogue.Name() +
         "_gemm_" + std::to_string(mr) + "x" + std::to_string(nr()) + "c4" + NarrowName(width) +
         (pairs_rows ? "_pairs" : "") + (is_strip ? "" : loop_name) + "_" + std::string(jit::ToString(dot)) +
         (is_strip ? loop_name : "") + "_" + core::CompactName(isa);
}

Result<MicrokernelFunction> GetMicrokernel(const MicrokernelSpec& spec) {
  return jit::GetFunction<MicrokernelFunction>(
      spec, [](const MicrokernelSpec& key) { return Microkernel(key).Generate(); });
}

}  // namespace intact::kernels
