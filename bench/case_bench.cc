// Throughput of GEMMs and convolutions by ISA, mode or peer, weights and shape. Each result is checked
// against the scalar reference before it is timed. Padding does not count as operations. Shares refer to a
// peak measured just before.
#include <benchmark/benchmark.h>

#include <optional>
#include <vector>

#include "bench/bandwidth.h"
#include "bench/benchmarks.h"
#include "bench/contender.h"
#include "bench/peaks.h"
#include "bench/peers.h"
#include "bench/workload.h"
#include "core/isas.h"
#include "kernels/codegen/dispatch.h"

namespace intact::bench {
namespace {

// Up to this many rows, reading the weights may limit the speed.
constexpr int64_t kFewRows = 16;

void RunCase(benchmark::State& state, const Case& c) {
  const Workload& workload = WorkloadOf(c);
  const Result<std::unique_ptr<Contender>> contender = MakeContender(workload, c);
  if (!contender) return Fail(state, contender.error().message);
  const auto model = workload.Recognise(contender->get(), c.format, AdmissibleModels(c));
  if (!model) return Fail(state, "the result is wrong: not timed");
  const bool has_few_rows = c.shape.m <= kFewRows;
  double gigabytes_per_second = 0;
  if (has_few_rows) {
    const Result<ReadBandwidth> read = ReadBandwidth::Create(c.isa, c.shape.WeightBytes());
    if (!read) return Fail(state, read.error().message);
    gigabytes_per_second = read->Measure();
  }
  const double peak = MeasureGops(PeakOf(c.isa));
  Bytes output = workload.NewC(c.format.c_type);
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize((*contender)->Run(workload.a(c.format), output.data()));
  }
  const auto runs = static_cast<double>(state.iterations());
  const auto rate = [](double value) { return benchmark::Counter(value, benchmark::Counter::kIsRate); };
  const double operations = 1e-9 * c.shape.Operations() * runs;
  state.counters["GOPS"] = rate(operations);
  state.counters["of_peak"] = rate(operations / peak / c.threads);
  if (has_few_rows) {
    const double gigabytes = 1e-9 * static_cast<double>(c.shape.WeightBytes()) * runs;
    state.counters["of_bandwidth"] = rate(gigabytes / gigabytes_per_second);
  }
  const bool saturates = !c.peer.empty() && *model == reference::Model::kMaddubs;
  state.SetLabel((*contender)->Implementation() + (saturates ? "; saturates" : ""));
}

void Register(const Case& c) {
  auto* const registered =
      benchmark::RegisterBenchmark(c.Name().c_str(), RunCase, c)->Unit(benchmark::kMicrosecond);
  if (c.threads != 1) registered->UseRealTime();
}

void RegisterFormats(Case c) {
  for (const Format& format : FormatsOf(c)) {
    c.format = format;
    Register(c);
  }
}

/// Registers intact's benchmarks of `layer`, with all its weights and activation ranges.
void RegisterVariants(Case c, const Layer& layer) {
  c.shape = layer.shape;
  for (const Weights& weights : WeightsOf(layer)) {
    c.weights = weights;
    // An activation range changes exact kernels without VNNI only.
    const bool has_range =
        kernels::UsesSchedule(c.isa, c.mode) && !layer.shape.is_dynamic && !layer.shape.batch;
    for (const int amax : has_range ? std::vector<int>{0, 127} : std::vector<int>{0}) {
      c.amax = amax;
      RegisterFormats(c);
    }
  }
}

void RegisterPeer(Case c, std::span<const Layer> layers) {
  for (const Layer& layer : layers) {
    c.shape = layer.shape;
    c.weights = DefaultWeights(layer);
    RegisterFormats(c);
  }
}

}  // namespace

const Workload& WorkloadOf(const Case& c) {
  static std::optional<Case> last;
  static std::optional<Workload> workload;
  const bool is_same = last && last->shape == c.shape && last->weights == c.weights && last->amax == c.amax;
  if (!is_same) {
    workload.emplace(c);
    last = c;
  }
  return *workload;
}

void RegisterLayers(std::span<const Layer> layers, std::span<const core::Isa> isas, core::Isa peer_isa) {
  Case c;
  for (const core::Isa isa : isas) {
    c.isa = isa;
    for (const intact_mode mode : {INTACT_EXACT, INTACT_SATURATING}) {
      if (mode == INTACT_SATURATING && !kernels::PairsSaturate(isa, mode)) {
        continue;  // saturating mode runs the exact kernel
      }
      c.mode = mode;
      for (const Layer& layer : layers) {
        RegisterVariants(c, layer);
      }
    }
  }
  c = {};
  c.isa = peer_isa;
  for (const Peer* peer : Peers()) {
    c.peer = peer->Name();
    RegisterPeer(c, layers);
  }
}

void RegisterThreads(std::span<const core::Isa> isas) {
  Case c;
  c.shape = kThreadsShape;
  c.threads = 2;
  for (const core::Isa isa : isas) {
    c.isa = isa;
    Register(c);
  }
}

}  // namespace intact::bench
