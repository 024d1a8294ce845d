#include "kernels/codegen/amx_kernel.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <compare>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "core/isas.h"
#include "jit/assembler.h"
#include "jit/code_cache.h"
#include "jit/emitters/emitter.h"
#include "kernels/weights/pack.h"

namespace intact::kernels {
namespace {

namespace x86 = asmjit::x86;
using jit::Gp;
using jit::Mem;
using jit::Tile;
using jit::Vec;

constexpr core::Isa kIsa = core::Isa::kAmxInt8;

// Numbers of tiles.
constexpr int SumTile(int row_tiles, int row, int panel) {
  return row * (kMaxBlockTiles / row_tiles) + panel;
}
// A third operand replaces the first, and so on.
constexpr int ATile(int row) { return kMaxBlockTiles + row % kOperandTiles; }
constexpr int BTile(int panel) { return kMaxBlockTiles + kOperandTiles + panel % kOperandTiles; }

// Emits the requantization of finished sums, a row at a time.
class RowStore {
 public:
  RowStore(jit::Emitter& emitter, const EpilogueSpec& spec, int panels, int args_offset)
      : emitter_(emitter), epilogue_(spec, emitter), panels_(panels), offset_(args_offset) {}

  void TakeRegisters() {
    sums_ = emitter_.registers().NewGeneral("finished sums");
    c_ = emitter_.registers().NewGeneral("c");
    for (int j = 0; j < panels_; ++j) {
      row_.push_back(emitter_.registers().NewVector("finished row"));
      compensation_.push_back(emitter_.registers().NewVector("compensation"));
    }
  }

  void Prepare() {
    code().mov(sums_, Argument(offsetof(AmxStoreArgs, compensation)));
    for (int j = 0; j < panels_; ++j) {
      emitter_.Load(compensation_[static_cast<size_t>(j)], x86::ptr(sums_, j * emitter_.vector_bytes()));
    }
    code().mov(sums_, Argument(offsetof(AmxStoreArgs, sums)));
    code().mov(c_, Argument(offsetof(AmxStoreArgs, c)));
    epilogue_.Prepare(emitter_.registers().Argument(),
                      offset_ + static_cast<int>(offsetof(AmxStoreArgs, epilogue)));
  }

  void StoreRow() {
    const asmjit::Label none = code().newLabel();
    JumpIfNone(none);
    EmitRow();
    code().bind(none);
  }

  void StoreTail() {
    const asmjit::Label next = code().newLabel();
    const asmjit::Label none = code().newLabel();
    code().bind(next);
    JumpIfNone(none);
    EmitRow();
    code().jmp(next);
    code().bind(none);
  }

 private:
  x86::Assembler& code() { return emitter_.code(); }
  Mem Argument(size_t member) const {
    return x86::ptr(emitter_.registers().Argument(), offset_ + static_cast<int>(member));
  }
  void JumpIfNone(const asmjit::Label& none) {
    code().cmp(sums_, Argument(offsetof(AmxStoreArgs, sums_end)));
    code().je(none);
  }
  void EmitRow() {
    for (int j = 0; j < panels_; ++j) {
      const auto vector = static_cast<size_t>(j);
      code().vpaddd(row_[vector], compensation_[vector], x86::ptr(sums_, j * emitter_.vector_bytes()));
    }
    epilogue_.StoreRow(row_, x86::ptr(c_));
    code().add(sums_, panels_ * emitter_.vector_bytes());
    code().add(c_, Argument(offsetof(AmxStoreArgs, c_stride_bytes)));
    const asmjit::Label in_line = code().newLabel();
    code().cmp(sums_, Argument(offsetof(AmxStoreArgs, gap)));
    code().jne(in_line);
    SkipGap();
    code().bind(in_line);
  }
  void SkipGap() {
    code().add(sums_, Argument(offsetof(AmxStoreArgs, gap_bytes)));
    code().push(c_);
    code().mov(c_, sums_);
    code().add(c_, Argument(offsetof(AmxStoreArgs, line_bytes)));
    code().mov(Argument(offsetof(AmxStoreArgs, gap)), c_);
    code().pop(c_);
  }

  jit::Emitter& emitter_;
  Epilogue epilogue_;
  int panels_;
  int offset_;  // offset of the AmxStoreArgs from the argument register
  Gp sums_, c_;
  std::vector<Vec> row_, compensation_;
};

class AmxKernel {
 public:
  explicit AmxKernel(const AmxKernelSpec& spec)
      : spec_(spec),
        session_([this] { return spec_.Name(); }),
        registers_(jit::MakeRegisterFile(kIsa)),
        emitter_(jit::MakeEmitter(kIsa, session_.code(), registers_)),
        store_(*emitter_, spec.epilogue, spec.panels, offsetof(AmxKernelArgs, store)) {}

  Result<jit::Code> Generate() {
    TakeRegisters();
    session_.Begin(registers_);
    const asmjit::Label block = code().newLabel();
    const asmjit::Label done = code().newLabel();
    const asmjit::Label end = code().newLabel();
    code().bind(block);
    BeginSums();
    Prologue();
    Segments();
    store_.StoreTail();
    StoreSums();
    code().sub(x86::qword_ptr(registers_.Argument(), offsetof(AmxKernelArgs, blocks)), 1);
    code().jz(done);
    MoveToNextBlock();
    code().jmp(block);
    code().bind(done);
    code().sub(x86::qword_ptr(registers_.Argument(), offsetof(AmxKernelArgs, row_blocks)), 1);
    code().jz(end);
    MoveToNextRows();
    code().jmp(block);
    code().bind(end);
    session_.End();
    return session_.Finish(registers_);
  }

 private:
  x86::Assembler& code() { return session_.code(); }
  static Mem Field(const Gp& base, size_t member) { return x86::ptr(base, static_cast<int>(member)); }
  Mem Argument(size_t member) const { return Field(registers_.Argument(), member); }
  int quad_bytes() const { return spec_.width * kQuad; }
  int b_step_bytes() const { return kTileDepth / kQuad * quad_bytes(); }
  bool prefetches() const { return AmxKernelPrefetches(spec_.row_tiles, spec_.panels); }
  Gp& a(int row) { return a_[static_cast<size_t>(row)]; }
  Gp& b(int panel) { return b_[static_cast<size_t>(panel)]; }
  const Tile& tile(int number) const { return tiles_[static_cast<size_t>(number)]; }
  const Tile& sum(int row, int panel) const { return tile(SumTile(spec_.row_tiles, row, panel)); }

  void TakeRegisters() {
    // The epilogue takes registers when it is prepared, after Begin(). Leave it scratch registers.
    constexpr int kEpilogueRegisters = Epilogue::kGeneralRegisters;
    std::vector<Gp> epilogue;
    epilogue.reserve(kEpilogueRegisters);
    for (int i = 0; i < kEpilogueRegisters; ++i) epilogue.push_back(registers_.NewGeneral("epilogue"));
    store_.TakeRegisters();
    a_stride_ = registers_.NewGeneral("a stride");
    b_stride_ = registers_.NewGeneral("b stride");
    if (prefetches()) prefetch_ = registers_.NewGeneral("prefetch");
    for (int i = 0; i < spec_.row_tiles; ++i) a_.push_back(registers_.NewGeneral("a"));
    for (int j = 0; j < spec_.panels; ++j) b_.push_back(registers_.NewGeneral("b"));
    for (int t = 0; t < kMaxBlockTiles; ++t) tiles_.push_back(registers_.NewTile("sums"));
    for (int t = 0; t < kOperandTiles; ++t) tiles_.push_back(registers_.NewTile("a"));
    for (int t = 0; t < kOperandTiles; ++t) tiles_.push_back(registers_.NewTile("b"));
    for (const Gp& general : epilogue) registers_.Free(general);
  }

  Mem SumsOf(int row_tile) const {
    return Argument(offsetof(AmxKernelArgs, sums) + sizeof(void*) * static_cast<size_t>(row_tile));
  }

  void BeginSums() {
    const Gp from = a(0), stride = a_stride_;
    const asmjit::Label adds = code().newLabel();
    const asmjit::Label begins_with_zeros = code().newLabel();
    const asmjit::Label done = code().newLabel();
    const auto load = [&](int i) {
      for (int j = 0; j < spec_.panels; ++j) {
        code().tileloadd(sum(i, j), x86::ptr(from, stride, 0, j * emitter_->vector_bytes()));
      }
    };
    code().cmp(x86::dword_ptr(registers_.Argument(), offsetof(AmxKernelArgs, adds)), 0);
    code().jne(adds);
    code().mov(from, Argument(offsetof(AmxKernelArgs, seed)));
    code().test(from, from);
    code().jz(begins_with_zeros);
    code().xor_(stride, stride);
    for (int i = 0; i < spec_.row_tiles; ++i) load(i);
    code().jmp(done);
    code().bind(adds);
    code().mov(stride, Argument(offsetof(AmxKernelArgs, sums_stride_bytes)));
    for (int i = 0; i < spec_.row_tiles; ++i) {
      code().mov(from, SumsOf(i));
      load(i);
    }
    code().jmp(done);
    code().bind(begins_with_zeros);
    for (int i = 0; i < spec_.row_tiles; ++i) {
      for (int j = 0; j < spec_.panels; ++j) code().tilezero(sum(i, j));
    }
    code().bind(done);
  }

  void Prologue() {
    code().mov(b(0), Argument(offsetof(AmxKernelArgs, b)));
    for (int j = 1; j < spec_.panels; ++j) {
      code().mov(b(j), b(j - 1));
      code().add(b(j), Argument(offsetof(AmxKernelArgs, b_panel_stride_bytes)));
    }
    code().mov(b_stride_, quad_bytes());
    if (prefetches()) code().mov(prefetch_, Argument(offsetof(AmxKernelArgs, prefetch)));
    store_.Prepare();
  }

  void Segments() {
    const asmjit::Label segment = code().newLabel();
    const asmjit::Label step = code().newLabel();
    const asmjit::Label end = code().newLabel();
    const asmjit::Label last = code().newLabel();
    const Mem last_b = Argument(offsetof(AmxKernelArgs, last_b));
    SetSegment(0);
    const Mem is_loaded = x86::dword_ptr(registers_.Argument(), offsetof(AmxKernelArgs, is_loaded));
    code().cmp(is_loaded, 0);
    code().jne(segment);
    for (int i = 0; i < std::min(spec_.row_tiles, kOperandTiles); ++i) LoadA(i, 0);
    for (int j = 0; j < std::min(spec_.panels, kOperandTiles); ++j) LoadB(j, 0);
    code().bind(segment);
    code().cmp(b(0), last_b);
    code().je(end);
    code().align(asmjit::AlignMode::kCode, 32);
    code().bind(step);
    Step(Next::kStep);
    code().cmp(b(0), last_b);
    code().jne(step);
    code().bind(end);
    const Gp next = a(0);  // its tile of this step is loaded
    code().mov(next, Argument(offsetof(AmxKernelArgs, segment)));
    code().add(next, sizeof(AmxSegment));
    code().cmp(next, Argument(offsetof(AmxKernelArgs, segments_end)));
    code().je(last);
    code().mov(Argument(offsetof(AmxKernelArgs, segment)), next);
    Step(Next::kSegment);
    code().jmp(segment);
    code().bind(last);
    const asmjit::Label none = code().newLabel(), done = code().newLabel();
    code().cmp(x86::qword_ptr(registers_.Argument(), offsetof(AmxKernelArgs, next_b)), 0);
    code().je(none);
    Step(Next::kBlock);
    code().jmp(done);
    code().bind(none);
    Step(Next::kNone);
    code().bind(done);
  }

  // Sets the pointers to A of the next call.
  void SetNextA() {
    code().mov(a_stride_, Argument(offsetof(AmxKernelArgs, next_a_stride_bytes)));
    for (int i = 0; i < spec_.row_tiles; ++i) {
      code().mov(a(i), Argument(offsetof(AmxKernelArgs, next_a) + sizeof(void*) * static_cast<size_t>(i)));
    }
  }
  // Sets the pointers to B so that a step later is the first of the next call.
  void SetNextB() {
    code().mov(b(0), Argument(offsetof(AmxKernelArgs, next_b)));
    code().sub(b(0), b_step_bytes());
    if (spec_.panels == 1) return;
    code().mov(b(1), b(0));
    code().add(b(1), Argument(offsetof(AmxKernelArgs, b_panel_stride_bytes)));
  }

  // Sets the pointers to A and the address of B's last tile of the segment. B's first tile is `b_steps` steps
  // beyond b(0).
  void SetSegment(int b_steps) {
    const Gp segment = a(spec_.row_tiles - 1), length = a_stride_;
    code().mov(segment, Argument(offsetof(AmxKernelArgs, segment)));
    code().mov(length, Field(segment, offsetof(AmxSegment, steps)));
    code().shl(length, std::countr_zero(static_cast<unsigned>(b_step_bytes())));
    code().lea(length, x86::ptr(b(0), length, 0, (b_steps - 1) * b_step_bytes()));
    code().mov(Argument(offsetof(AmxKernelArgs, last_b)), length);
    code().mov(a_stride_, Field(segment, offsetof(AmxSegment, a_stride_bytes)));
    for (int i = 0; i < spec_.row_tiles; ++i) {
      code().mov(a(i), Field(segment, offsetof(AmxSegment, a) + sizeof(void*) * static_cast<size_t>(i)));
    }
  }

  void LoadA(int row, int step) {
    Load(tile(ATile(row)), x86::ptr(a(row), a_stride_, 0, step * kTileDepth), !spec_.b_stays);
  }
  void LoadB(int panel, int step) {
    Load(tile(BTile(panel)), x86::ptr(b(panel), b_stride_, 0, step * b_step_bytes()), spec_.b_stays);
  }
  void Load(const Tile& to, const Mem& from, bool stays) {
    stays ? code().tileloadd(to, from) : code().tileloaddt1(to, from);
  }

  // What follows a step: nothing, a step of the same segment, or the first step of the next segment or of the next call.
  enum class Next : uint8_t { kNone, kStep, kSegment, kBlock };

  // All dot products of 64 depths, row by row. After an operand's last dot product, its tile is loaded with
  // another operand: of this step, else with the first of the next step.
  void Step(Next next) {
    const int a_step = next == Next::kSegment || next == Next::kBlock ? 0 : 1;
    for (int i = 0; i < spec_.row_tiles; ++i) {
      for (int j = 0; j < spec_.panels; ++j) {
        Dot(sum(i, j), tile(ATile(i)), tile(BTile(j)));
        if (j + 1 == spec_.panels) {
          if (i + kOperandTiles < spec_.row_tiles) {
            LoadA(i + kOperandTiles, 0);
          } else if (next != Next::kNone) {
            const bool is_first = i == std::max(spec_.row_tiles - kOperandTiles, 0);
            if (next == Next::kSegment && is_first) SetSegment(1);
            if (next == Next::kBlock && is_first) SetNextA();
            LoadA(i % kOperandTiles, a_step);
          }
        }
        if (i + 1 == spec_.row_tiles) {
          if (j + kOperandTiles < spec_.panels) {
            LoadB(j + kOperandTiles, 0);
          } else if (next != Next::kNone) {
            if (next == Next::kBlock && j == std::max(spec_.panels - kOperandTiles, 0)) SetNextB();
            LoadB(j % kOperandTiles, 1);
          }
        }
        if (!spec_.b_stays || j < 2) store_.StoreRow();
        if (!prefetches()) continue;
        code().prefetcht1(x86::ptr(prefetch_));
        code().add(prefetch_, Argument(offsetof(AmxKernelArgs, prefetch_stride_bytes)));
      }
    }
    if (prefetches()) code().add(prefetch_, Argument(offsetof(AmxKernelArgs, prefetch_step_bytes)));
    for (const Gp& pointer : a_) {
      if (a_step != 0) code().add(pointer, a_step * kTileDepth);
    }
    for (const Gp& pointer : b_) code().add(pointer, b_step_bytes());
  }

  void Dot(const Tile& sums, const Tile& a, const Tile& b) {
    if (spec_.a_signed) {
      spec_.b_signed ? code().tdpbssd(sums, a, b) : code().tdpbsud(sums, a, b);
    } else {
      spec_.b_signed ? code().tdpbusd(sums, a, b) : code().tdpbuud(sums, a, b);
    }
  }

  void StoreSums() {
    const Gp sums = a(0), stride = a_stride_;
    code().mov(stride, Argument(offsetof(AmxKernelArgs, sums_stride_bytes)));
    for (int i = 0; i < spec_.row_tiles; ++i) {
      code().mov(sums, SumsOf(i));
      for (int j = 0; j < spec_.panels; ++j) {
        code().tilestored(x86::ptr(sums, stride, 0, j * emitter_->vector_bytes()), sum(i, j));
      }
    }
  }

  void MoveToNextBlock() {
    const auto argument = [&](size_t member, int i) {
      return x86::qword_ptr(registers_.Argument(),
                            static_cast<int>(member) + i * static_cast<int>(sizeof(void*)));
    };
    code().mov(x86::dword_ptr(registers_.Argument(), offsetof(AmxKernelArgs, is_loaded)), 0);
    const Gp b_bytes = a_stride_;
    code().mov(b_bytes, Argument(offsetof(AmxKernelArgs, b_panel_stride_bytes)));
    for (int j = 0; j < spec_.panels; ++j) code().add(argument(offsetof(AmxKernelArgs, b), 0), b_bytes);
    const int columns_bytes = spec_.panels * emitter_->vector_bytes();
    code().mov(b_bytes, Argument(offsetof(AmxKernelArgs, seed_block_bytes)));
    code().add(argument(offsetof(AmxKernelArgs, seed), 0), b_bytes);
    for (int i = 0; i < spec_.row_tiles; ++i) {
      code().add(argument(offsetof(AmxKernelArgs, sums), i), columns_bytes);
    }
  }

  void MoveToNextRows() {
    const Gp bytes = a_stride_, segment = a(0);
    code().mov(x86::dword_ptr(registers_.Argument(), offsetof(AmxKernelArgs, is_loaded)), 0);
    code().mov(bytes, Argument(offsetof(AmxKernelArgs, blocks_again)));
    code().mov(Argument(offsetof(AmxKernelArgs, blocks)), bytes);
    code().mov(bytes, Argument(offsetof(AmxKernelArgs, next_rows_b)));
    code().add(Argument(offsetof(AmxKernelArgs, b)), bytes);
    code().mov(bytes, Argument(offsetof(AmxKernelArgs, next_rows_seed)));
    code().add(Argument(offsetof(AmxKernelArgs, seed)), bytes);
    code().mov(bytes, Argument(offsetof(AmxKernelArgs, next_rows_sums)));
    for (int i = 0; i < spec_.row_tiles; ++i) code().add(SumsOf(i), bytes);
    code().mov(segment, Argument(offsetof(AmxKernelArgs, segment)));
    code().mov(bytes, Argument(offsetof(AmxKernelArgs, next_rows_a)));
    for (int i = 0; i < spec_.row_tiles; ++i) {
      code().add(Field(segment, offsetof(AmxSegment, a) + sizeof(void*) * static_cast<size_t>(i)), bytes);
    }
  }

  AmxKernelSpec spec_;
  jit::Assembler session_;
  jit::RegisterFile registers_;
  std::unique_ptr<jit::Emitter> emitter_;
  RowStore store_;

  Gp a_stride_, b_stride_, prefetch_;
  std::vector<Gp> a_, b_;    // pointers for each row tile, and for each panel
  std::vector<Tile> tiles_;  // SumTile(), ATile(), BTile()
};

// rdi points to a TileConfig.
Result<jit::Code> GenerateConfigure() {
  jit::Assembler session([] { return "configure_tiles_" + core::CompactName(kIsa); });
  const jit::RegisterFile registers = jit::MakeRegisterFile(kIsa);
  session.Begin(registers);
  session.code().ldtilecfg(x86::ptr(registers.Argument()));
  session.End();
  return session.Finish(registers);
}

Result<jit::Code> GenerateRelease() {
  jit::Assembler session([] { return "release_tiles_" + core::CompactName(kIsa); });
  const jit::RegisterFile registers = jit::MakeRegisterFile(kIsa);
  session.Begin(registers);
  session.code().tilerelease();
  session.End();
  return session.Finish(registers);
}

Result<jit::Code> GenerateStore(const AmxStoreSpec& spec) {
  jit::Assembler session([&] { return spec.Name(); });
  jit::RegisterFile registers = jit::MakeRegisterFile(kIsa);
  const auto emitter = jit::MakeEmitter(kIsa, session.code(), registers);
  RowStore store(*emitter, spec.epilogue, spec.panels, 0);
  store.TakeRegisters();
  session.Begin(registers);
  store.Prepare();
  store.StoreTail();
  session.End();
  return session.Finish(registers);
}

// Keys of the code cache; there is only one function of each kind.
struct ConfigureSpec {
  auto operator<=>(const ConfigureSpec&) const = default;
};
struct ReleaseSpec {
  auto operator<=>(const ReleaseSpec&) const = default;
};

}  // namespace

std::string AmxKernelSpec::Name() const {
  const char* a = a_signed ? "s" : "u";
  const char* b = b_signed ? "s" : "u";
  return std::string(a) + "8" + b + "8" + epilogue.Name() + "_gemm_" + std::to_string(row_tiles * kTileRows) +
         "x" + std::to_string(panels * kPanelColumns) + "c4" + NarrowName(width) +
         (b_stays ? "_b_stays" : "") + "_tdpb" + a + b + "d_" + core::CompactName(kIsa);
}

Result<AmxKernelFunction> GetAmxKernel(const AmxKernelSpec& spec) {
  return jit::GetFunction<AmxKernelFunction>(
      spec, [](const AmxKernelSpec& key) { return AmxKernel(key).Generate(); });
}

std::string AmxStoreSpec::Name() const {
  return epilogue.Name() + "_store_" + std::to_string(panels * kPanelColumns) + "_" + core::CompactName(kIsa);
}

Result<AmxStoreFunction> GetAmxStore(const AmxStoreSpec& spec) {
  return jit::GetFunction<AmxStoreFunction>(spec, GenerateStore);
}

TileConfig TileConfigFor(int64_t rows, int64_t depth) {
  assert(rows >= 1 && rows <= kTileRows && depth >= 4 && depth <= kTileDepth && depth % 4 == 0);
  constexpr size_t kTiles = kMaxBlockTiles + 2 * kOperandTiles;
  TileConfig config;
  std::fill_n(config.row_bytes.begin(), kTiles, uint16_t{kTileDepth});
  std::fill_n(config.rows.begin(), kTiles, static_cast<uint8_t>(rows));
  std::fill_n(config.row_bytes.begin() + ATile(0), kOperandTiles, static_cast<uint16_t>(depth));
  std::fill_n(config.rows.begin() + BTile(0), kOperandTiles, static_cast<uint8_t>(depth / kQuad));
  return config;
}

Result<TileFunctions> GetTileFunctions() {
  using Configure = jit::Function<void(const TileConfig*)>;
  using Release = jit::Function<void()>;
  Result<Configure> configure =
      jit::GetFunction<Configure>(ConfigureSpec(), [](ConfigureSpec) { return GenerateConfigure(); });
  if (!configure) return configure.error();
  Result<Release> release =
      jit::GetFunction<Release>(ReleaseSpec(), [](ReleaseSpec) { return GenerateRelease(); });
  if (!release) return release.error();
  return TileFunctions{std::move(*configure), std::move(*release)};
}

ScopedTiles::~ScopedTiles() {
  if (is_configured_) functions_.release();
}

void ScopedTiles::Configure(int64_t rows, int64_t depth) noexcept {
  const TileConfig config = TileConfigFor(rows, depth);
  functions_.configure(&config);
  is_configured_ = true;
}

}  // namespace intact::kernels
