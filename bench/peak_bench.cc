#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "bench/benchmarks.h"
#include "bench/ingredients.h"
#include "bench/peaks.h"

namespace intact::bench {
namespace {

void RunProbe(benchmark::State& state, const Peak& peak, const Ingredients& ingredients) {
  Result<IngredientProbe> probe = IngredientProbe::Create(peak, ingredients);
  if (!probe) return Fail(state, probe.error().message);
  probe->Run();
  if (const int64_t wrong = probe->WrongSums(); wrong != 0) {
    return Fail(state, fmt::format("{} of {} sums are wrong", wrong, probe->CountSums()));
  }
  double gops = 0, peak_gops = 0;
  for ([[maybe_unused]] auto _ : state) {  // in turns; the fastest of each
    gops = std::max(gops, probe->MeasureGops());
    peak_gops = std::max(peak_gops, MeasureGops(peak));
  }
  state.counters["GOPS"] = gops;
  state.counters["of_peak"] = gops / peak_gops;
}

}  // namespace

void RegisterPeaks() {
  for (const Peak& peak : AvailablePeaks()) {
    const std::string name = "peak/" + peak.name;
    benchmark::RegisterBenchmark(name.c_str(), [peak](benchmark::State& state) {
      double gops = 0;
      for ([[maybe_unused]] auto _ : state) gops = MeasureGops(peak);
      state.counters["GOPS"] = gops;
    })->Unit(benchmark::kMillisecond);
    if (!HasProbes(peak)) continue;
    for (const Ingredients& ingredients : AllIngredients()) {
      benchmark::RegisterBenchmark((name + "/" + ingredients.name).c_str(), RunProbe, peak, ingredients)
          ->Unit(benchmark::kMillisecond);
    }
  }
}

}  // namespace intact::bench
