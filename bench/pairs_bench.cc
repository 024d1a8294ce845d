// Compares two plans that run the same input in turns: open against known extents of a convolution; kernels
// chosen by measurement against kernels chosen by the cost model; pairs of the flattened window against pairs
// within a tap.
#include <benchmark/benchmark.h>

#include <array>
#include <chrono>
#include <string>
#include <vector>

#include "bench/benchmarks.h"
#include "bench/contender.h"
#include "bench/workload.h"
#include "core/isas.h"
#include "kernels/codegen/dispatch.h"
#include "support/turns.h"

namespace intact::bench {
namespace {

// Measures the first of the pair. `counter`: how many times as fast it is as the second.
void RunPair(benchmark::State& state, const std::array<Case, 2>& pair, const char* counter) {
  using Clock = std::chrono::steady_clock;
  const Workload& workload = WorkloadOf(pair[0]);
  std::vector<std::unique_ptr<Contender>> contenders;
  for (const Case& c : pair) {
    Result<std::unique_ptr<Contender>> made = MakeContender(workload, c);
    if (!made) return Fail(state, made.error().message);
    if (!workload.Recognise(made->get(), c.format, AdmissibleModels(c))) {
      return Fail(state, "the result is wrong: not timed");
    }
    contenders.push_back(std::move(*made));
  }
  Bytes output = workload.NewC(pair[0].format.c_type);
  std::vector<double> ratios;
  size_t first = 0;
  for ([[maybe_unused]] auto _ : state) {
    std::array<double, 2> seconds = {};
    for (const size_t turn : {first, 1 - first}) {
      const Clock::time_point begin = Clock::now();
      benchmark::DoNotOptimize(contenders[turn]->Run(workload.a(pair[0].format), output.data()));
      seconds.at(turn) = std::chrono::duration<double>(Clock::now() - begin).count();
    }
    first = 1 - first;
    ratios.push_back(seconds[1] / seconds[0]);
    state.SetIterationTime(seconds[0]);
  }
  state.counters[counter] = support::Median(std::move(ratios));
  const std::string replaced = contenders[0]->Replaced();
  state.SetLabel(contenders[0]->Implementation() + (replaced.empty() ? "" : " for " + replaced));
}

void Register(const Case& measured, const Case& other, const char* counter) {
  const std::array<Case, 2> pair = {measured, other};
  benchmark::RegisterBenchmark(measured.Name().c_str(), RunPair, pair, counter)
      ->Unit(benchmark::kMicrosecond)
      ->UseManualTime();
}

}  // namespace

void RegisterPairs(std::span<const Layer> layers, std::span<const core::Isa> isas) {
  for (const core::Isa isa : isas) {
    for (const Layer& layer : layers) {
      if (layer.shape.batch) continue;  // batches cannot be tuned
      Case c;
      c.isa = isa;
      c.shape = layer.shape;
      c.weights = DefaultWeights(layer);
      if (layer.shape.conv) {
        Case open = c;
        open.format = c.format = kU8;
        open.is_open = true;
        Register(open, c, "of_fixed");
        Case tuned = c;
        tuned.is_tuned = true;
        Register(tuned, c, "of_model");
        if (!kernels::PairsSaturate(isa, INTACT_SATURATING) || layer.shape.conv->transposed) continue;
        Case within_tap = c;
        within_tap.mode = INTACT_SATURATING;
        Case flattened = within_tap;
        flattened.pairing = INTACT_PAIRING_FLATTENED;
        Register(flattened, within_tap, "of_within_tap");
        continue;
      }
      for (const Weights& weights : WeightsOf(layer)) {
        c.weights = weights;
        Case tuned = c;
        tuned.is_tuned = true;
        Register(tuned, c, "of_model");
      }
    }
  }
}

}  // namespace intact::bench
