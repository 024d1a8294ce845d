// GEMM throughput by ISA, mode, weights and shape. Each result is checked against the scalar reference before
// it is timed; operations are counted unpadded; the share of peak refers to a peak measured just before.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <intact/intact.hpp>
#include <string>
#include <vector>

#include "bench/benchmarks.h"
#include "bench/peaks.h"
#include "kernels/dispatch.h"
#include "reference/gemm.h"
#include "verify/problem.h"

namespace intact::bench {
namespace {

struct Shape {
  int64_t m, n, k;
};

constexpr std::array kShapes = {
    Shape{1, 4096, 4096},  Shape{8, 4096, 4096},  Shape{32, 4096, 4096},   Shape{64, 1024, 1024},
    Shape{128, 768, 768},  Shape{128, 3072, 768}, Shape{128, 768, 3072},   Shape{196, 256, 2304},
    Shape{784, 128, 1152}, Shape{3136, 64, 576},  Shape{1024, 1024, 1024}, Shape{2048, 2048, 2048},
};

struct Weights {
  const char* name;
  verify::Fill fill;
};

constexpr std::array kWeights = {
    Weights{"t4", verify::Fill::kStudent}, Weights{"laplace", verify::Fill::kLaplace},
    Weights{"gauss", verify::Fill::kGauss}, Weights{"uniform", verify::Fill::kUniform}};

constexpr std::array kModes = {INTACT_EXACT, INTACT_SATURATING};

struct Case {
  jit::Isa isa;
  intact_mode mode;
  Weights weights;
  int amax;  // declared; 0 = full range
  Shape shape;

  std::string Name() const {
    return "gemm/isa:" + std::string(jit::ToString(isa)) +
           "/mode:" + (mode == INTACT_EXACT ? "exact" : "saturating") + "/weights:" + weights.name +
           (amax == 0 ? "" : "/amax:" + std::to_string(amax)) + "/m:" + std::to_string(shape.m) +
           "/n:" + std::to_string(shape.n) + "/k:" + std::to_string(shape.k);
  }

  verify::Problem Problem() const {
    verify::Problem problem;
    problem.m = shape.m;
    problem.n = shape.n;
    problem.k = shape.k;
    problem.fill = weights.fill;
    if (amax != 0) problem.amax = amax;
    return problem;
  }
};

// The first, middle and last row of `gemm`, which the scalar reference can afford at any size.
reference::Gemm Sample(const reference::Gemm& gemm, std::vector<int64_t>* rows) {
  reference::Gemm sample = gemm;
  *rows = {0, gemm.m / 2, gemm.m - 1};
  sample.m = static_cast<int64_t>(rows->size());
  sample.a.clear();
  for (const int64_t row : *rows) {
    sample.a.insert(sample.a.end(), gemm.a.begin() + row * gemm.k, gemm.a.begin() + (row + 1) * gemm.k);
  }
  return sample;
}

bool IsRight(const reference::Gemm& gemm, reference::Model model, const std::vector<int32_t>& c) {
  std::vector<int64_t> rows;
  const reference::Gemm sample = Sample(gemm, &rows);
  const std::vector<int32_t> expected = reference::Accumulators(sample, model);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto n = static_cast<size_t>(gemm.n);
    if (!std::equal(expected.begin() + static_cast<std::ptrdiff_t>(i * n),
                    expected.begin() + static_cast<std::ptrdiff_t>((i + 1) * n),
                    c.begin() + rows[i] * gemm.n)) {
      return false;
    }
  }
  return true;
}

void RunCase(benchmark::State& state, const Case& c) {
  reference::Gemm gemm = verify::Materialize(c.Problem());
  GemmDesc desc = MakeGemmDesc();
  desc.n = gemm.n;
  desc.k = gemm.k;
  desc.mode = c.mode;
  desc.a_max = c.amax;
  desc.max_isa = static_cast<intact_isa>(c.isa);
  const Result<Gemm> plan = Gemm::Create(desc, gemm.b.data());
  if (!plan) return state.SkipWithError(plan.error().message.c_str());
  std::vector<int32_t> output(static_cast<size_t>(gemm.m * gemm.n));
  const MatrixView<const uint8_t> a(gemm.a.data(), gemm.m, gemm.k);
  const MatrixView<int32_t> out(output.data(), gemm.m, gemm.n);
  const bool saturates = kernels::PairsSaturate(c.isa, c.mode);
  if (plan->Run(a, out, 1) != INTACT_OK) return state.SkipWithError(intact_last_error());
  if (!IsRight(gemm, saturates ? reference::Model::kTriple : reference::Model::kExact, output)) {
    return state.SkipWithError("the result is wrong: not timed");
  }
  const double peak = MeasureGops(PeakOf(c.isa));
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(plan->Run(a, out, 1));
  const double operations = 2e-9 * static_cast<double>(gemm.m) * static_cast<double>(gemm.n) *
                            static_cast<double>(gemm.k) * static_cast<double>(state.iterations());
  state.counters["GOPS"] = benchmark::Counter(operations, benchmark::Counter::kIsRate);
  state.counters["of_peak"] = benchmark::Counter(operations / peak, benchmark::Counter::kIsRate);
  state.SetLabel(plan->Info().kernel);
}

}  // namespace

void RegisterGemm() {
  for (const jit::Isa isa : jit::kAllIsas) {
    if (intact_isa_available(static_cast<intact_isa>(isa)) == 0) continue;
    for (const intact_mode mode : kModes) {
      if (mode == INTACT_SATURATING && !kernels::PairsSaturate(isa, mode))
        continue;  // there it is the exact kernel
      // A declared range changes exact kernels without VNNI only.
      const bool has_range = kernels::UsesSchedule(isa, mode);
      for (const Weights& weights : kWeights) {
        for (const int amax : has_range ? std::vector<int>{0, 127} : std::vector<int>{0}) {
          for (const Shape& shape : kShapes) {
            const Case c{isa, mode, weights, amax, shape};
            benchmark::RegisterBenchmark(c.Name().c_str(), RunCase, c)->Unit(benchmark::kMicrosecond);
          }
        }
      }
    }
  }
}

}  // namespace intact::bench
