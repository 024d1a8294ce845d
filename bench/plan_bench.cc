// The time to create a plan, mostly for packing the weights. Code is cached, as for every plan of a process
// after the first.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <array>

#include "bench/benchmarks.h"
#include "bench/contender.h"
#include "bench/workload.h"
#include "core/isas.h"

namespace intact::bench {
namespace {

constexpr std::array kPlans = {Shape{1, 16, 64}, Shape{1, 1024, 1024}, Shape{1, 4096, 4096}};

void RunCreate(benchmark::State& state, const Case& c) {
  const Workload workload(c);
  const GemmDesc desc = GemmDescOf(workload, c);
  const auto create = [&] { return Gemm::Create(desc, workload.b().data()); };
  const Result<Gemm> first = create();
  if (!first) return Fail(state, first.error().message);
  for ([[maybe_unused]] auto _ : state) {
    const Result<Gemm> plan = create();
    benchmark::DoNotOptimize(&plan);
  }
  state.SetBytesProcessed(state.iterations() * c.shape.WeightBytes());
  state.SetLabel(first->Info().kernel);
}

}  // namespace

void RegisterPlans(std::span<const core::Isa> isas) {
  for (const core::Isa isa : isas) {
    for (const Shape& shape : kPlans) {
      Case c;
      c.isa = isa;
      c.shape = shape;
      const std::string name =
          fmt::format("plan/create/isa:{}/n:{}/k:{}", core::ToString(isa), shape.n, shape.k);
      benchmark::RegisterBenchmark(name.c_str(), RunCreate, c)->Unit(benchmark::kMicrosecond);
    }
  }
}

}  // namespace intact::bench
