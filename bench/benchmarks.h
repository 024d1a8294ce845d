// The named benchmarks of intact_bench, run by Google Benchmark.
#ifndef INTACT_BENCH_BENCHMARKS_H_
#define INTACT_BENCH_BENCHMARKS_H_

#include <benchmark/benchmark.h>

#include <span>
#include <string>

#include "bench/suites.h"
#include "bench/workload.h"
#include "core/isas.h"

namespace intact::bench {

void RegisterPeaks();                   // peak/vpdpbusd/zmm, …
void RegisterBandwidth(core::Isa isa);  // bandwidth/read/64MiB, …, with `isa`'s loads
/// gemm/isa:avx2/mode:exact/weights:laplace/m:128/n:768/k:3072, conv/…: intact on `isas`, and peers confined
/// to `peer_isa`.
void RegisterLayers(std::span<const Layer> layers, std::span<const core::Isa> isas, core::Isa peer_isa);
void RegisterThreads(std::span<const core::Isa> isas);  // gemm/…/threads:2
void RegisterPlans(std::span<const core::Isa> isas);    // plan/create/isa:avx2/n:16/k:64, …
/// Pairs of plans that run in turns. A counter has the second plan's time over the first plan's time.
///   conv/…/open       a plan whose runs choose the input's extents; of_fixed: over a plan that knows them
///   …/tuned           a plan tuned by measurement; of_model: over the cost model's choice. The label names
///                     both kernels
///   conv/…/flattened  saturating kernels with INTACT_PAIRING_FLATTENED; of_within_tap: over kernels with
///                     INTACT_PAIRING_WITHIN_TAP
void RegisterPairs(std::span<const Layer> layers, std::span<const core::Isa> isas);

/// The workload of `c`. The last one is kept until a call needs another: a benchmark's function is called
/// several times, and making a workload takes longer than measuring. Not thread-safe.
const Workload& WorkloadOf(const Case& c);
/// Ends a benchmark that cannot be measured.
void Fail(benchmark::State& state, const std::string& why);
/// Whether Fail() was called.
bool AnyFailed();

}  // namespace intact::bench
#endif  // INTACT_BENCH_BENCHMARKS_H_
