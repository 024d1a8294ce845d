// The time to create or load plans. The plan of a single GEMM finds its code in the cache: another plan of
// the GEMM lives. The plans of a network are kept until the whole network is made, and are then destroyed.
// So each pass generates the network's code once.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/benchmarks.h"
#include "bench/contender.h"
#include "bench/workload.h"
#include "core/isas.h"
#include "kernels/runtime/aligned_buffer.h"

namespace intact::bench {
namespace {

constexpr std::array kPlans = {Shape{1, 16, 64}, Shape{1, 1024, 1024}, Shape{1, 4096, 4096}};
constexpr std::array<std::string_view, 2> kNetworks = {"resnet50", "mobilenet_v2"};

void RunCreate(benchmark::State& state, const Case& c) {
  const Workload workload(c);
  const GemmDesc desc = GemmDescOf(workload, c);
  const auto create = [&] { return Gemm::Create(desc, workload.b().data()); };
  const Result<Gemm> first = create();
  if (!first) return Fail(state, first.error().message);
  for ([[maybe_unused]] auto _ : state) {
    const Result<Gemm> plan = create();
    if (!plan) return Fail(state, plan.error().message);
    benchmark::DoNotOptimize(&plan);
  }
  state.SetBytesProcessed(state.iterations() * c.shape.WeightBytes());
  state.SetLabel(first->Info().kernel);
}

/// The workload of a network's layer; it is made once, because that takes longer than to measure its plan.
const Workload& WorkloadOfLayer(std::string_view network, size_t layer, const Case& c) {
  static std::map<std::pair<std::string_view, size_t>, Workload> workloads;
  return workloads.try_emplace({network, layer}, c).first->second;
}

/// Plans of all layers of a network, created or loaded from memory.
void RunNetwork(benchmark::State& state, std::string_view network, core::Isa isa, bool loads) {
  struct Plan {
    ConvDesc desc;
    const int8_t* weights;
    kernels::AlignedBuffer<uint8_t> saved;
    size_t saved_bytes;
    int times;
  };
  std::vector<Plan> plans;
  int64_t bytes = 0;
  const std::span<const Layer> layers = FindSuite(network)->layers;
  for (size_t i = 0; i < layers.size(); ++i) {
    Case c;
    c.isa = isa;
    c.shape = layers[i].shape;
    c.format = kU8;
    c.weights = DefaultWeights(layers[i]);
    const Workload& workload = WorkloadOfLayer(network, i, c);
    Plan& plan = plans.emplace_back();
    plan.desc = ConvDescOf(workload, c);
    plan.weights = workload.b().data();
    plan.times = layers[i].times;
    bytes += plan.times * c.shape.WeightBytes();
    const Result<Conv> first = Conv::Create(plan.desc, plan.weights);
    if (!first) return Fail(state, first.error().message);
    const auto saved = first->SaveMemory();
    if (!saved) return Fail(state, saved.error().message);
    plan.saved_bytes = saved->size();
    if (!plan.saved.Resize(saved->size())) return Fail(state, "no memory for a saved plan");
    std::copy(saved->begin(), saved->end(), plan.saved.data());
  }
  std::vector<Conv> made_plans;
  for ([[maybe_unused]] auto _ : state) {
    for (const Plan& plan : plans) {
      for (int i = 0; i < plan.times; ++i) {
        Result<Conv> made =
            loads ? Conv::LoadMemory(plan.saved.data(), plan.saved_bytes, static_cast<int32_t>(isa))
                  : Conv::Create(plan.desc, plan.weights);
        if (!made) return Fail(state, made.error().message);
        made_plans.push_back(std::move(*made));
      }
    }
    state.PauseTiming();
    made_plans.clear();
    state.ResumeTiming();
  }
  state.SetBytesProcessed(state.iterations() * bytes);
}

}  // namespace

void RegisterPlans(std::span<const core::Isa> isas) {
  for (const core::Isa isa : isas) {
    const std::string_view isa_name = core::ToString(isa);
    for (const Shape& shape : kPlans) {
      Case c;
      c.isa = isa;
      c.shape = shape;
      const std::string name = fmt::format("plan/create/isa:{}/n:{}/k:{}", isa_name, shape.n, shape.k);
      benchmark::RegisterBenchmark(name.c_str(), RunCreate, c)->Unit(benchmark::kMicrosecond);
    }
    for (const std::string_view network : kNetworks) {
      for (const bool loads : {false, true}) {
        const std::string name =
            fmt::format("plan/{}/isa:{}/network:{}", loads ? "load" : "create", isa_name, network);
        benchmark::RegisterBenchmark(name.c_str(), RunNetwork, network, isa, loads)
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
}

}  // namespace intact::bench
