// What a convolution pays for extents that are given with the run: a plan that leaves them open and one that
// knows them run the same input in turns.
#include <benchmark/benchmark.h>

#include <array>
#include <chrono>
#include <vector>

#include "bench/benchmarks.h"
#include "bench/contender.h"
#include "bench/workload.h"
#include "verify/turns.h"

namespace intact::bench {
namespace {

void RunPair(benchmark::State& state, const Case& open) {
  using Clock = std::chrono::steady_clock;
  Case fixed = open;
  fixed.is_open = false;
  const Workload& workload = WorkloadOf(open);
  std::array<std::unique_ptr<Contender>, 2> contenders;
  for (const Case* const c : std::array<const Case*, 2>{&open, &fixed}) {
    Result<std::unique_ptr<Contender>> made = MakeContender(workload, *c);
    if (!made) return Fail(state, made.error().message);
    if (!workload.Recognise(made->get(), c->c_type, AdmissibleModels(*c))) {
      return Fail(state, "the result is wrong: not timed");
    }
    contenders[c->is_open ? 0 : 1] = std::move(*made);
  }
  Bytes output = workload.NewC(open.c_type);
  std::vector<double> ratios;
  size_t first = 0;
  for ([[maybe_unused]] auto _ : state) {
    std::array<double, 2> seconds = {};
    for (const size_t turn : {first, 1 - first}) {
      const Clock::time_point begin = Clock::now();
      benchmark::DoNotOptimize(contenders.at(turn)->Run(workload.a(open.c_type), output.data()));
      seconds.at(turn) = std::chrono::duration<double>(Clock::now() - begin).count();
    }
    first = 1 - first;
    ratios.push_back(seconds[1] / seconds[0]);
    state.SetIterationTime(seconds[0]);
  }
  state.counters["of_fixed"] = verify::Median(std::move(ratios));
  state.SetLabel(contenders[0]->Implementation());
}

}  // namespace

void RegisterOpenExtents(const Suite& suite, std::span<const jit::Isa> isas) {
  Case c;
  c.is_open = true;
  c.c_type = INTACT_U8;
  for (const jit::Isa isa : isas) {
    c.isa = isa;
    for (const Layer& layer : suite.layers) {
      if (!layer.shape.conv) continue;
      c.shape = layer.shape;
      benchmark::RegisterBenchmark(c.Name().c_str(), RunPair, c)
          ->Unit(benchmark::kMicrosecond)
          ->UseManualTime();
    }
  }
}

}  // namespace intact::bench
