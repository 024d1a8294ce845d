#include "bench/ingredients.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>

#include "core/isas.h"
#include "core/result.h"
#include "kernels/codegen/microkernel.h"
#include "kernels/runtime/blocking.h"
#include "kernels/runtime/caches.h"
#include "kernels/weights/pack.h"

namespace intact::bench {
namespace {

namespace x86 = asmjit::x86;
using kernels::kPanelColumns;
using kernels::kPanelQuadBytes;
using kernels::kTileDepth;
using kernels::kTileRows;

constexpr int kUnroll = 4;  // quads
constexpr int kPanelBytes = kProbeDepth * kPanelColumns;
// A line more than the depth, so that rows map to different sets of L1.
constexpr int kAStride = kProbeDepth + 64;
constexpr int kTileBlock = 2;  // tiles of A, and of B
constexpr int64_t kFewBlocks = 16;
constexpr int32_t kUnset = -1;

// The block of the kernel that a peak is the yardstick of.
kernels::KernelBlock BlockOf(const Peak& peak) {
  if (kernels::UsesTiles(peak.isa)) return {peak.isa, peak.dot, kTileBlock * kTileRows, 0};
  return *std::ranges::find_if(kernels::kKernels, [&](const kernels::KernelBlock& block) {
    return block.isa == peak.isa && block.dot == peak.dot;
  });
}

}  // namespace

const std::vector<Ingredients>& AllIngredients() {
  static const std::vector<Ingredients> all = {
      {.name = "b_l1"},
      {.name = "b_l1/a", .has_a = true},
      {.name = "b_l2/a", .b_from_l2 = true, .has_a = true},
      {.name = "b_l2/a/c", .b_from_l2 = true, .has_a = true, .stores_c = true},
      {.name = "b_l2/a/c_crossing",
       .b_from_l2 = true,
       .has_a = true,
       .stores_c = true,
       .crosses_lines = true},
      {.name = "kernel", .b_from_l2 = true, .has_a = true, .stores_c = true, .is_kernel = true},
  };
  return all;
}

bool HasProbes(const Peak& peak) { return peak.name == PeakOf(peak.isa).name; }

IngredientProbe::IngredientProbe(const Peak& peak, const Ingredients& ingredients)
    : peak_(peak), ingredients_(ingredients), block_(BlockOf(peak)) {
  panels_ = has_tiles() ? kTileBlock : block_.vectors * jit::VectorBytes(peak.isa) / kPanelQuadBytes;
  blocks_ =
      ingredients.b_from_l2 ? kernels::Caches().l2_bytes / 2 / (int64_t{panels_} * kPanelBytes) : kFewBlocks;
}

Result<IngredientProbe> IngredientProbe::Create(const Peak& peak, const Ingredients& ingredients) {
  IngredientProbe probe(peak, ingredients);
  RETURN_IF_ERROR(probe.MakeOperands());
  if (probe.has_tiles()) {
    ASSIGN_OR_RETURN(probe.tile_functions_, kernels::GetTileFunctions());
  }
  if (ingredients.is_kernel) {
    RETURN_IF_ERROR(probe.has_tiles() ? probe.MakeTileKernel() : probe.MakeVectorKernel());
    return probe;
  }
  ASSIGN_OR_RETURN(jit::Code code, probe.has_tiles() ? probe.GenerateTileLoop() : probe.GenerateVectorLoop());
  probe.run_ = jit::Function<void(Args*)>(std::move(code));
  return probe;
}

// Small values: no pair of products saturates, and the sums of all blocks fit int32.
Error IngredientProbe::MakeOperands() {
  const int64_t b_blocks = ingredients_.b_from_l2 ? blocks_ : 1;
  const auto size = [](int64_t elements) { return static_cast<size_t>(elements); };
  if (!a_.Resize(size(block_.mr * kAStride)) || !b_.Resize(size(b_blocks * panels_ * kPanelBytes)) ||
      !c_.Resize(size(block_.mr * c_stride() + 1))) {
    return {INTACT_OUT_OF_MEMORY, "no memory for the operands of a peak's probe"};
  }
  for (size_t i = 0; i < a_.size(); ++i) a_[i] = static_cast<uint8_t>(i % 11);
  for (size_t i = 0; i < b_.size(); ++i) b_[i] = static_cast<int8_t>(static_cast<int>(i % 13) - 4);
  std::fill_n(c_.data(), c_.size(), kUnset);
  return {};
}

void IngredientProbe::EmitBlocks(jit::Assembler& session, const jit::RegisterFile& registers,
                                 const jit::Gp& b, const jit::Gp& c,
                                 const std::function<void()>& body) const {
  x86::Assembler& code = session.code();
  const jit::Gp args = registers.Argument();
  code.mov(b, x86::ptr(args, offsetof(Args, b)));
  code.mov(c, x86::ptr(args, offsetof(Args, c)));
  const asmjit::Label block = code.newLabel();
  code.bind(block);
  body();
  if (ingredients_.stores_c) code.add(c, columns() * 4);
  code.add(b, b_block_bytes() - kPanelBytes);  // body() moved it to the panel's end
  code.sub(x86::qword_ptr(args, offsetof(Args, blocks)), 1);
  code.jnz(block);
}

Result<jit::Code> IngredientProbe::GenerateVectorLoop() const {
  jit::Assembler session("peak_" + peak_.name + "/" + ingredients_.name);
  x86::Assembler& code = session.code();
  jit::RegisterFile registers = jit::MakeRegisterFile(peak_.isa);
  const auto emitter = jit::MakeEmitter(peak_.isa, code, registers);
  const auto variant = jit::MakeDotVariant(peak_.dot, peak_.isa, *emitter);
  const jit::Gp a = registers.NewGeneral("a"), b = registers.NewGeneral("b"), c = registers.NewGeneral("c");
  const jit::Gp steps = registers.NewGeneral("steps");
  session.Begin(registers);
  std::vector<jit::Operand> sums(static_cast<size_t>(block_.mr));
  for (jit::Operand& row : sums) {
    for (int j = 0; j < block_.vectors; ++j) row.push_back(registers.NewVector("accumulator"));
  }
  const jit::Vec a_quad = registers.NewVector("a");
  variant->TakeRegisters();
  variant->Prepare();
  jit::Operand b_vectors;  // as in a kernel, vectors without a register are read from memory
  for (int j = 0; j < block_.vectors && registers.FreeVectors() > 0; ++j)
    b_vectors.push_back(registers.NewVector("b"));
  const auto each_sum = [&](const auto& visit) {
    for (int i = 0; i < block_.mr; ++i) {
      for (int j = 0; j < block_.vectors; ++j) {
        const auto offset = static_cast<int>(i * c_stride() * 4 + j * emitter->vector_bytes());
        visit(sums[static_cast<size_t>(i)][static_cast<size_t>(j)], x86::ptr(c, offset));
      }
    }
  };
  const auto zero = [&] { each_sum([&](const jit::Vec& sum, const jit::Mem&) { emitter->Zero(sum); }); };
  const auto store = [&] {
    each_sum([&](const jit::Vec& sum, const jit::Mem& to) { emitter->Store(to, sum); });
  };
  const auto quad = [&](int number) {
    const auto from = [&](size_t j) {
      const int bytes = static_cast<int>(j) * emitter->vector_bytes();
      return x86::ptr(
          b, bytes / kPanelQuadBytes * kPanelBytes + bytes % kPanelQuadBytes + number * kPanelQuadBytes);
    };
    for (size_t j = 0; j < b_vectors.size(); ++j) emitter->Load(b_vectors[j], from(j));
    for (int i = 0; i < block_.mr; ++i) {
      if (ingredients_.has_a) code.vpbroadcastd(a_quad, x86::ptr(a, i * kAStride + number * kernels::kQuad));
      const jit::Operand& row = sums[static_cast<size_t>(i)];
      for (size_t j = 0; j < row.size(); ++j) {
        const asmjit::Operand operand = j < b_vectors.size() ? asmjit::Operand(b_vectors[j]) : from(j);
        variant->Dot(row[j], a_quad, operand);
      }
    }
  };
  const jit::Mem a_begin = x86::ptr(registers.Argument(), offsetof(Args, a));
  code.mov(a, a_begin);
  code.vpbroadcastd(a_quad, x86::ptr(a));
  zero();
  EmitBlocks(session, registers, b, c, [&] {
    if (ingredients_.stores_c) zero();
    code.mov(a, a_begin);
    code.mov(steps, kProbeDepth / kernels::kQuad / kUnroll);
    const asmjit::Label step = code.newLabel();
    code.align(asmjit::AlignMode::kCode, 32);
    code.bind(step);
    for (int number = 0; number < kUnroll; ++number) quad(number);
    code.add(a, kUnroll * kernels::kQuad);
    code.add(b, kUnroll * kPanelQuadBytes);
    code.dec(steps);
    code.jnz(step);
    if (ingredients_.stores_c) store();
  });
  if (!ingredients_.stores_c) store();
  session.End();
  return session.Finish(registers);
}

Result<jit::Code> IngredientProbe::GenerateTileLoop() const {
  jit::Assembler session("peak_" + peak_.name + "/" + ingredients_.name);
  x86::Assembler& code = session.code();
  jit::RegisterFile registers = jit::MakeRegisterFile(peak_.isa);
  const jit::Gp a = registers.NewGeneral("a"), b = registers.NewGeneral("b"), c = registers.NewGeneral("c");
  const jit::Gp other = registers.NewGeneral("the second tile");
  const jit::Gp a_stride = registers.NewGeneral("a stride"), b_stride = registers.NewGeneral("b stride");
  const jit::Gp c_stride_bytes = registers.NewGeneral("c stride"), steps = registers.NewGeneral("steps");
  session.Begin(registers);
  std::vector<jit::Tile> sums, a_tiles, b_tiles;  // sums row by row
  for (int i = 0; i < kTileBlock * kTileBlock; ++i) sums.push_back(registers.NewTile("sums"));
  for (int i = 0; i < kTileBlock; ++i) a_tiles.push_back(registers.NewTile("a"));
  for (int i = 0; i < kTileBlock; ++i) b_tiles.push_back(registers.NewTile("b"));
  const auto zero = [&] {
    for (const jit::Tile& sum : sums) code.tilezero(sum);
  };
  const auto load_a = [&] {
    code.tileloadd(a_tiles[0], x86::ptr(a, a_stride));
    code.tileloadd(a_tiles[1], x86::ptr(a, a_stride, 0, kTileRows * kAStride));
  };
  const auto store = [&] {
    code.mov(other, c);
    for (int i = 0; i < kTileBlock; ++i) {
      for (int j = 0; j < kTileBlock; ++j) {
        code.tilestored(x86::ptr(other, c_stride_bytes, 0, j * kPanelQuadBytes),
                        sums[static_cast<size_t>(i * kTileBlock + j)]);
      }
      code.add(other, static_cast<int>(kTileRows * c_stride() * 4));
    }
  };
  const jit::Mem a_begin = x86::ptr(registers.Argument(), offsetof(Args, a));
  code.mov(a_stride, kAStride);
  code.mov(b_stride, kPanelQuadBytes);
  code.mov(c_stride_bytes, c_stride() * 4);
  code.mov(a, a_begin);
  load_a();
  zero();
  EmitBlocks(session, registers, b, c, [&] {
    if (ingredients_.stores_c) zero();
    code.mov(a, a_begin);
    code.mov(steps, kProbeDepth / kTileDepth);
    const asmjit::Label step = code.newLabel();
    code.align(asmjit::AlignMode::kCode, 32);
    code.bind(step);
    for (int j = 0; j < kTileBlock; ++j) {
      code.tileloaddt1(b_tiles[static_cast<size_t>(j)], x86::ptr(b, b_stride, 0, j * kPanelBytes));
    }
    if (ingredients_.has_a) load_a();
    for (size_t i = 0; i < sums.size(); ++i)
      code.tdpbusd(sums[i], a_tiles[i / kTileBlock], b_tiles[i % kTileBlock]);
    code.add(a, kTileDepth);
    code.add(b, kTileDepth * kPanelColumns);
    code.dec(steps);
    code.jnz(step);
    if (ingredients_.stores_c) store();
  });
  if (!ingredients_.stores_c) store();
  session.End();
  return session.Finish(registers);
}

Error IngredientProbe::MakeVectorKernel() {
  kernels::MicrokernelSpec spec;
  spec.isa = peak_.isa;
  spec.dot = peak_.dot;
  spec.mr = block_.mr;
  spec.vectors = block_.vectors;
  ASSIGN_OR_RETURN(const kernels::MicrokernelFunction kernel, kernels::GetMicrokernel(spec));
  run_ = [kernel, mr = block_.mr, columns = columns(), stride = c_stride()](Args* args) {
    static constexpr int64_t kOneTap = 0;
    static constexpr std::array<int32_t, 64> kCompensation = {};
    std::array<const uint8_t*, kTileRows> rows;
    for (int i = 0; i < mr; ++i) rows[static_cast<size_t>(i)] = args->a + i * kAStride;
    kernels::MicrokernelArgs call;
    call.taps = &kOneTap;
    call.taps_end = call.taps + 1;
    call.tap_bytes = kProbeDepth;
    call.b_panel_stride_bytes = kPanelBytes;
    call.c_stride_bytes = stride * 4;
    for (int64_t block = 0; block < args->blocks; ++block) {
      call.tiles = 1;
      call.rows = rows.data();
      call.b = args->b + block * columns * kProbeDepth;
      call.compensation = kCompensation.data();
      call.c = args->c + block * columns;
      kernel(&call);
    }
  };
  return {};
}

Error IngredientProbe::MakeTileKernel() {
  kernels::AmxKernelSpec spec;
  ASSIGN_OR_RETURN(const kernels::AmxKernelFunction kernel, kernels::GetAmxKernel(spec));
  ASSIGN_OR_RETURN(const kernels::AmxStoreFunction store_last,
                   kernels::GetAmxStore({spec.panels, spec.epilogue}));
  run_ = [kernel, store_last, stride = c_stride()](Args* args) {
    constexpr int kColumns = kTileBlock * kPanelColumns, kSums = kTileBlock * kTileRows * kColumns;
    static constexpr std::array<int32_t, kColumns> kCompensation = {};
    alignas(64) std::array<int32_t, kSums> sums;
    kernels::AmxSegment segment = {
        {args->a, args->a + kTileRows * kAStride}, kAStride, kProbeDepth / kTileDepth};
    kernels::AmxKernelArgs call;
    call.segments_end = &segment + 1;
    call.b_panel_stride_bytes = kPanelBytes;
    call.sums_stride_bytes = kColumns * 4;
    for (size_t i = 0; i < kTileBlock; ++i) {
      call.sums[i] = sums.data() + i * kTileRows * kColumns;
    }
    call.store.c_stride_bytes = stride * 4;
    call.store.compensation = kCompensation.data();
    for (int64_t block = 0; block < args->blocks; ++block) {
      call.segment = &segment;
      call.blocks = call.row_blocks = 1;
      call.b = args->b + block * kColumns * kProbeDepth;
      call.prefetch = args->a;
      kernel(&call);
      call.store.sums = sums.data();
      call.store.sums_end = sums.data() + kSums;
      call.store.c = args->c + block * kColumns;
    }
    store_last(&call.store);
  };
  return {};
}

void IngredientProbe::Run(int passes) {
  std::optional<kernels::ScopedTiles> tiles;
  if (has_tiles()) tiles.emplace(tile_functions_).Configure(kTileRows);
  for (int pass = 0; pass < passes; ++pass) {
    Args args = {a_.data(), b_.data(), c_.data() + first_sum(), blocks_};
    run_(&args);
  }
}

int64_t IngredientProbe::WrongSums() const {
  const auto a = [&](int64_t row, int64_t depth) {
    if (!ingredients_.has_a && has_tiles()) depth %= kTileDepth;
    if (!ingredients_.has_a && !has_tiles()) {
      row = 0;
      depth %= kernels::kQuad;
    }
    return a_[static_cast<size_t>(row * kAStride + depth)];
  };
  int64_t wrong = 0;
  std::vector<int32_t> sums(static_cast<size_t>(c_columns()));
  for (int64_t row = 0; row < block_.mr; ++row) {
    std::ranges::fill(sums, 0);
    for (int64_t column = 0; column < blocks_ * columns(); ++column) {
      const int64_t of_b = ingredients_.b_from_l2 ? column : column % columns();
      const int8_t* const panel = b_.data() + of_b / kPanelColumns * kPanelBytes;
      int32_t& sum = sums[static_cast<size_t>(column % c_columns())];
      for (int64_t depth = 0; depth < kProbeDepth; ++depth) {
        sum += a(row, depth) * panel[kernels::OffsetInPanel(depth, of_b % kPanelColumns, kPanelQuadBytes)];
      }
    }
    const int32_t* const computed = c_.data() + first_sum() + row * c_stride();
    for (size_t i = 0; i < sums.size(); ++i) wrong += sums[i] != computed[i];
  }
  return wrong;
}

double IngredientProbe::MeasureGops() {
  constexpr int kRuns = 16, kPasses = 16;
  const double operations =
      2.0 * kPasses * static_cast<double>(blocks_ * block_.mr * columns()) * kProbeDepth;
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    const auto start = std::chrono::steady_clock::now();
    Run(kPasses);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, operations / seconds.count() / 1e9);
  }
  return best;
}

}  // namespace intact::bench
