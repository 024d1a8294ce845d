#include "bench/measure/peaks.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <random>
#include <utility>

#include "core/isas.h"
#include "jit/assembler.h"
#include "jit/isa.h"
#include "kernels/codegen/amx_kernel.h"
#include "kernels/codegen/dispatch.h"
#include "kernels/weights/pack.h"

namespace intact::bench {
namespace {

using LoopFunction = jit::Function<void(int64_t)>;
constexpr int kUnroll = 4;

struct Loop {
  LoopFunction run;
  double multiply_adds_per_iteration;
};

using Session = jit::Assembler;

// The operands of all loops. Products of zeros take less power, and a CPU then runs at a higher clock: with tiles of
// zeros, an Intel Xeon (family 6, model 207) has 1.13 to 1.25 times the speed of products of random bytes.
struct alignas(64) Operands {
  std::array<uint8_t, 4 * kernels::kTileBytes> bytes;
  Operands() {
    std::minstd_rand random(1);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random() >> 8);
  }
};

const uint8_t* OperandBytes() {
  static const Operands operands;
  return operands.bytes.data();
}

// Emits a loop of kUnroll bodies, and ends the function.
void EmitLoop(Session& session, const jit::RegisterFile& registers, const std::function<void()>& body) {
  const asmjit::Label loop = session.code().newLabel();
  session.code().bind(loop);
  for (int i = 0; i < kUnroll; ++i) body();
  session.code().dec(registers.Argument());
  session.code().jnz(loop);
  session.End();
}

Loop Finish(Session& session, const jit::RegisterFile& registers, double multiply_adds) {
  Result<jit::Code> function = session.Finish(registers);
  if (!function) {
    std::fprintf(stderr, "%s\n", function.error().message.c_str());
    std::exit(1);
  }
  return {LoopFunction(std::move(*function)), kUnroll * multiply_adds};
}

// Accumulators in all registers that the variant leaves free: independent ones hide the latency.
Loop GenerateVectorLoop(const Peak& peak) {
  Session session([&] { return "peak_" + peak.name; });
  jit::RegisterFile registers = jit::MakeRegisterFile(peak.isa);
  const auto emitter = jit::MakeEmitter(peak.isa, session.code(), registers);
  const auto variant = jit::MakeDotVariant(peak.dot, peak.isa, *emitter, peak.signs);
  session.Begin(registers);
  const jit::Vec a = registers.NewVector("a");
  jit::Operand b;
  for (int i = 0; i < variant->b_registers(); ++i) b.push_back(registers.NewVector("b"));
  variant->TakeRegisters();
  variant->Prepare();
  std::vector<jit::Vec> sums;
  while (registers.FreeVectors() > 0) sums.push_back(registers.NewVector("accumulator"));
  const jit::Gp operands = registers.NewGeneral("operands");
  session.code().mov(operands, reinterpret_cast<uint64_t>(OperandBytes()));
  emitter->Load(a, asmjit::x86::ptr(operands));
  int offset = 0;
  for (const jit::Vec& vector : b)
    emitter->Load(vector, asmjit::x86::ptr(operands, offset += emitter->vector_bytes()));
  for (const jit::Vec& vector : sums) emitter->Zero(vector);
  EmitLoop(session, registers, [&] {
    for (const jit::Vec& sum : sums) {
      for (int step = 0; step < variant->steps(); ++step)
        variant->Dot(sum, a, b[static_cast<size_t>(step) % b.size()]);
    }
  });
  return Finish(session, registers, static_cast<double>(sums.size()) * registers.vector_bytes());
}

// The 2×2 tiles of the AMX kernel: each product adds to sums that the product 4 before it wrote.
Loop GenerateTileLoop(const Peak& peak) {
  Session session([&] { return "peak_" + peak.name; });
  jit::RegisterFile registers = jit::MakeRegisterFile(peak.isa);
  session.Begin(registers);
  std::vector<jit::Tile> sums, operands;
  for (int i = 0; i < kernels::kMaxBlockTiles; ++i) sums.push_back(registers.NewTile("sums"));
  for (int i = 0; i < 4; ++i) operands.push_back(registers.NewTile("a or b"));
  const jit::Gp bytes = registers.NewGeneral("operands"), stride = registers.NewGeneral("stride");
  session.code().mov(bytes, reinterpret_cast<uint64_t>(OperandBytes()));
  session.code().mov(stride, kernels::kTileDepth);
  for (size_t i = 0; i < operands.size(); ++i) {
    session.code().tileloadd(operands[i],
                             asmjit::x86::ptr(bytes, stride, 0, static_cast<int>(i * kernels::kTileBytes)));
  }
  EmitLoop(session, registers, [&] {
    for (size_t i = 0; i < sums.size(); ++i) {
      session.code().tdpbusd(sums[i], operands[i / 2], operands[2 + i % 2]);
    }
  });
  constexpr double kTileMultiplyAdds = kernels::kTileRows * kernels::kPanelColumns * kernels::kTileDepth;
  return Finish(session, registers, kernels::kMaxBlockTiles * kTileMultiplyAdds);
}

Loop GenerateLoop(const Peak& peak) {
  return kernels::UsesTiles(peak.isa) ? GenerateTileLoop(peak) : GenerateVectorLoop(peak);
}

const Loop& GetLoop(const Peak& peak) {
  static std::vector<std::pair<std::string, Loop>> loops;
  for (const auto& [name, loop] : loops) {
    if (name == peak.name) return loop;
  }
  return loops.emplace_back(peak.name, GenerateLoop(peak)).second;
}

bool IsZmm(core::Isa isa) { return jit::VectorBytes(isa) == 64; }

Peak MakePeak(core::Isa isa, jit::DotKind dot, jit::DotSigns signs = {}) {
  if (kernels::UsesTiles(isa)) return {"tdpbusd/tmm", isa, dot};
  const char* sequence = dot == jit::DotKind::kVnni      ? jit::VnniInstruction(signs)
                         : dot == jit::DotKind::kMaddubs ? "maddubs"
                                                         : "wide";
  return {std::string(sequence) + (IsZmm(isa) ? "/zmm" : "/ymm"), isa, dot, signs};
}

}  // namespace

// First the saturating variants of each ISA, the best ISA first, each followed by the variant for s8
// activations, if it differs. Then the exact variants. ISAs whose kernels run the same loop share a peak.
std::vector<Peak> AvailablePeaks() {
  std::vector<Peak> peaks;
  const Result<core::IsaSet> permitted = jit::PermittedIsas();
  for (const intact_mode mode : {INTACT_SATURATING, INTACT_EXACT}) {
    for (const core::Isa isa : kernels::IsasByRank()) {
      if (!permitted || !permitted->Has(isa) || YardstickOf(isa) != isa) continue;
      const jit::DotKind dot = kernels::DotOf(isa, mode);
      const bool takes_signed = core::TraitsOf(isa).dot_products == core::DotProducts::kAllSigns;
      for (const bool a_signed : {false, true}) {
        const Peak peak = MakePeak(isa, dot, {a_signed, true});
        const bool is_new = std::ranges::find(peaks, peak.name, &Peak::name) == peaks.end();
        if (is_new && (!a_signed || takes_signed)) peaks.push_back(peak);
      }
    }
  }
  return peaks;
}

Peak PeakOf(core::Isa isa) {
  const core::Isa yardstick = YardstickOf(isa);
  return MakePeak(yardstick, kernels::DotOf(yardstick, INTACT_SATURATING));
}

double MeasureGops(const Peak& peak) {
  constexpr int64_t kIterations = 4000;
  constexpr int kRuns = 16;
  const Loop& loop = GetLoop(peak);
  kernels::TileFunctions tile_functions;
  std::optional<kernels::ScopedTiles> tiles;
  if (kernels::UsesTiles(peak.isa)) {
    Result<kernels::TileFunctions> made = kernels::GetTileFunctions();
    if (!made) return 0;
    tile_functions = std::move(*made);
    tiles.emplace(tile_functions).Configure(kernels::kTileRows);
  }
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    const auto start = std::chrono::steady_clock::now();
    loop.run(kIterations);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, 2 * loop.multiply_adds_per_iteration * kIterations / seconds.count() / 1e9);
  }
  return best;
}

}  // namespace intact::bench
