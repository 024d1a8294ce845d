#include "bench/peaks.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "jit/assembler.h"
#include "kernels/dispatch.h"

namespace intact::bench {
namespace {

using LoopFunction = void (*)(int64_t);
constexpr int kUnroll = 4;

struct Loop {
  LoopFunction run;
  double multiply_adds_per_iteration;
};

// As many independent accumulators as the form leaves registers for, so that latency is hidden.
Loop GenerateLoop(const Peak& peak) {
  int accumulators = 0;
  const auto generate = [&]() -> Result<const void*> {
    jit::Assembler session("peak_" + peak.name);
    jit::RegisterFile registers = jit::MakeRegisterFile(peak.isa);
    const auto emitter = jit::MakeEmitter(peak.isa, session.code(), registers);
    const auto form = jit::MakeDotForm(peak.dot, peak.isa, *emitter);
    session.Begin(registers);
    const jit::Vec a = registers.NewVector("a");
    const jit::Operand b = form->NewB("b");
    form->Prepare();
    std::vector<jit::Vec> sums;
    while (registers.FreeVectors() > 0) sums.push_back(registers.NewVector("accumulator"));
    accumulators = static_cast<int>(sums.size());
    emitter->Zero(a);
    for (const jit::Operand& operand : {b, sums}) {
      for (const jit::Vec& vector : operand) emitter->Zero(vector);
    }
    const asmjit::Label loop = session.code().newLabel();
    session.code().bind(loop);
    for (int i = 0; i < kUnroll; ++i) {
      for (const jit::Vec& sum : sums) {
        for (int step = 0; step < form->steps(); ++step) form->Dot(step, sum, a, b);
      }
    }
    session.code().dec(registers.Argument());
    session.code().jnz(loop);
    session.End();
    return session.Finish(registers);
  };
  const Result<const void*> function = generate();
  if (!function) {
    std::fprintf(stderr, "%s\n", function.error().message.c_str());
    std::exit(1);
  }
  const int lanes = jit::MakeRegisterFile(peak.isa).vector_bytes();
  return {reinterpret_cast<LoopFunction>(const_cast<void*>(*function)),
          double{kUnroll} * accumulators * lanes};
}

const Loop& GetLoop(const Peak& peak) {
  static std::vector<std::pair<std::string, Loop>> loops;
  for (const auto& [name, loop] : loops) {
    if (name == peak.name) return loop;
  }
  return loops.emplace_back(peak.name, GenerateLoop(peak)).second;
}

bool IsZmm(jit::Isa isa) { return jit::MakeRegisterFile(isa).vector_bytes() == 64; }

Peak MakePeak(jit::Isa isa, jit::DotKind dot) {
  const char* sequence = dot == jit::DotKind::kVnni     ? "vpdpbusd"
                         : dot == jit::DotKind::kTriple ? "triple"
                                                        : "wide";
  return {std::string(sequence) + (IsZmm(isa) ? "/zmm" : "/ymm"), isa, dot};
}

}  // namespace

std::vector<Peak> AvailablePeaks() {
  std::vector<Peak> peaks;
  for (const Peak& peak :
       {MakePeak(jit::Isa::kAvx512Vnni, jit::DotKind::kVnni),
        MakePeak(jit::Isa::kAvxVnni, jit::DotKind::kVnni), MakePeak(jit::Isa::kAvx512, jit::DotKind::kTriple),
        MakePeak(jit::Isa::kAvx2, jit::DotKind::kTriple), MakePeak(jit::Isa::kAvx512, jit::DotKind::kWide),
        MakePeak(jit::Isa::kAvx2, jit::DotKind::kWide)}) {
    if (jit::HardwareIsas().Has(peak.isa)) peaks.push_back(peak);
  }
  return peaks;
}

Peak PeakOf(jit::Isa isa) { return MakePeak(isa, kernels::DotOf(isa, INTACT_SATURATING)); }

double MeasureGops(const Peak& peak) {
  constexpr int64_t kIterations = 4000;
  constexpr int kRuns = 16;
  const Loop& loop = GetLoop(peak);
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
