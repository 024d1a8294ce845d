#include <benchmark/benchmark.h>

#include "bench/benchmarks.h"
#include "bench/peaks.h"

namespace intact::bench {

void RegisterPeaks() {
  for (const Peak& peak : AvailablePeaks()) {
    benchmark::RegisterBenchmark(("peak/" + peak.name).c_str(), [peak](benchmark::State& state) {
      double gops = 0;
      for ([[maybe_unused]] auto _ : state) gops = MeasureGops(peak);
      state.counters["GOPS"] = gops;
    })->Unit(benchmark::kMillisecond);
  }
}

}  // namespace intact::bench
