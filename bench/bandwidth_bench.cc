#include <benchmark/benchmark.h>

#include "bench/bandwidth.h"
#include "bench/benchmarks.h"
#include "core/isas.h"
#include "support/machine.h"

namespace intact::bench {
namespace {

void RunRead(benchmark::State& state, core::Isa isa, int64_t bytes) {
  const Result<ReadBandwidth> read = ReadBandwidth::Create(isa, bytes);
  if (!read) return Fail(state, read.error().message);
  double rate = 0;
  for ([[maybe_unused]] auto _ : state) rate = read->Measure();
  state.counters["GB_per_s"] = rate;
  state.SetLabel(read->Describe());
}

}  // namespace

void RegisterBandwidth(core::Isa isa) {
  const support::Machine machine = support::DescribeMachine();
  for (const ReadSize& size : ReadSizes(machine.l1d_bytes, machine.l2_bytes, machine.l3_bytes)) {
    benchmark::RegisterBenchmark(size.Name().c_str(), RunRead, isa, size.bytes)
        ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace intact::bench
