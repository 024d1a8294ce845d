// The suites of intact_bench; each registers its benchmarks by name.
#ifndef INTACT_BENCH_BENCHMARKS_H_
#define INTACT_BENCH_BENCHMARKS_H_

namespace intact::bench {

void RegisterPeaks();  // peak/vpdpbusd/zmm, …
void RegisterGemm();   // gemm/isa:avx2/mode:exact/weights:laplace/m:128/n:768/k:3072, …

}  // namespace intact::bench
#endif  // INTACT_BENCH_BENCHMARKS_H_
