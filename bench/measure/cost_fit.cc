#include "bench/measure/cost_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <tuple>
#include <type_traits>
#include <utility>

#include "bench/cases/workload.h"
#include "bench/peers/contenders.h"
#include "kernels/api/create.h"
#include "kernels/codegen/dispatch.h"
#include "kernels/engines/amx_engine.h"
#include "kernels/engines/block_cost.h"
#include "kernels/runtime/blocking.h"

namespace intact::bench {
namespace {

using core::Isa;
using kernels::Costs;
using kernels::CostTable;
using kernels::GemmPlan;
using kernels::kTileDepth;

// ----- measuring -------------------------------------------------------------------------------------------

template <class T, size_t kCount>
T AnyOf(const std::array<T, kCount>& values, std::minstd_rand* random) {
  return values[(*random)() / 7 % kCount];
}

/// A plan of random weights. Some weights are larger than L2.
Case DrawPlan(std::minstd_rand* random) {
  constexpr std::array<int64_t, 14> kColumns = {16,  24,  32,  48,  64,  96,   128,
                                                200, 256, 384, 512, 768, 1000, 1024};
  constexpr std::array<int64_t, 14> kDepths = {16,  27,  32,  64,  72,   100,  128,
                                               256, 300, 512, 768, 1024, 1152, 2048};
  constexpr std::array<std::pair<int64_t, int64_t>, 5> kLarge = {
      {{3072, 768}, {768, 3072}, {1024, 4096}, {2048, 1024}, {2048, 2048}}};
  constexpr std::array<size_t, 5> kDistributions = {1, 1, 1, 2, 3};  // three laplace, gauss, uniform
  Case c;
  c.shape.m = 128;
  c.shape.n = AnyOf(kColumns, random);
  c.shape.k = AnyOf(kDepths, random);
  constexpr std::array kIsLarge = {false, false, false, false, false, false, true};
  if (AnyOf(kIsLarge, random)) std::tie(c.shape.n, c.shape.k) = AnyOf(kLarge, random);
  c.weights = kWeights[AnyOf(kDistributions, random)];
  c.format = AnyOf(std::array{false, true}, random) ? kU8 : kS32;
  return c;
}

// Seconds to time all engines for `m` rows: at least some turns of slow ones.
kernels::TuningBudget BudgetFor(const Shape& shape, int64_t m) {
  constexpr double kLeast = 3e-3, kTurns = 3, kEngines = 7, kProductsPerSecond = 80e9;
  const double products = static_cast<double>(m) * static_cast<double>(shape.n * shape.k);
  return kernels::TuningBudget(kLeast + kTurns * kEngines * products / kProductsPerSecond);
}

size_t NextProblem(const CostSamples& measured) {
  return measured.samples.empty() ? 0 : measured.samples.back().problem + 1;
}

// Copies of 32 rows of some taps, in L1. Nothing competes with them.
void AddStaging(Isa isa, CostSamples* to) {
  constexpr int64_t kRows = 32, kRuns = 100;  // so that the time of a call does not count
  constexpr int kPasses = 9;
  for (const int64_t count : {1, 3, 7}) {
    for (const int64_t depth : {12, 24, 40, 64, 96, 192, 320}) {
      kernels::Taps taps;
      taps.depth = depth;
      for (int64_t i = 1; i < count; ++i) taps.offsets.push_back(i * kRows * depth);
      const std::vector<uint8_t> a(static_cast<size_t>(count * kRows * depth));
      std::vector<uint8_t> staged(static_cast<size_t>(kRows * kernels::RoundUp(count * depth, kTileDepth)));
      const kernels::RowMap rows(a.data(), depth);
      double seconds = std::numeric_limits<double>::max();
      for (int pass = 0; pass < kPasses; ++pass) {
        seconds = std::min(seconds, kernels::TimeRuns(kRuns, [&] {
                             kernels::StageRows({rows, 0}, taps, kRows, 0, count * depth, staged.data());
                           }));
      }
      to->samples.push_back({isa, NextProblem(*to),
                             fmt::format("{} staging of {} taps of {}", core::ToString(isa), count, depth),
                             seconds * kRuns, [=] {
                               const kernels::TileCosts& costs = Costs().tiles;
                               const auto tiles = static_cast<double>(kernels::CeilDivide(depth, kTileDepth));
                               return static_cast<double>(kRuns * kRows * count) *
                                      (costs.copy + costs.copy_tile * tiles) * 2 /
                                      kernels::HalfCycles(kernels::VectorIsa(isa));
                             }});
    }
  }
}

Error AddSamples(Case c, std::span<const core::Isa> isas, std::span<const int64_t> rows,
                 const EngineTimer& time, CostSamples* to) {
  const Workload workload(c);
  const Shape& shape = c.shape;
  for (const core::Isa isa : isas) {
    c.isa = isa;
    const GemmDesc desc = GemmDescOf(workload, c);
    ASSIGN_OR_RETURN(auto made, kernels::MakePlan(desc, desc.linear, workload.b().data()));
    GemmPlan* const plan = to->plans.emplace_back(std::move(made)).get();
    const core::Isa vectors = kernels::VectorIsa(isa);
    const auto products =
        static_cast<double>(kernels::CeilDivide(shape.n, core::TraitsOf(vectors).vectors.bytes / 4) *
                            kernels::CeilDivide(shape.k, kernels::kQuad));
    constexpr size_t kPasses = 4;
    // Passes lie apart. A disturbance only adds time, so the least of their medians counts.
    std::vector<std::vector<std::vector<GemmPlan::TimedEngine>>> passes(kPasses);
    for (auto& pass : passes) {
      for (const int64_t m : rows) {
        ASSIGN_OR_RETURN(auto timed, time(plan, m, BudgetFor(shape, m)));
        pass.push_back(std::move(timed));
      }
    }
    for (size_t row = 0; row < rows.size(); ++row) {
      const int64_t m = rows[row];
      const size_t problem = NextProblem(*to);
      for (size_t i = 0; i < passes.front()[row].size(); ++i) {
        const kernels::Engine* const engine = passes.front()[row][i].engine;
        std::vector<double> seconds;
        seconds.reserve(passes.size());
        for (const auto& pass : passes) seconds.push_back(pass[row][i].times.median);
        to->samples.push_back({isa, problem,
                               fmt::format("{} {}×{}×{} {}: {}", core::ToString(isa), m, shape.n, shape.k,
                                           ToString(c.format), engine->KernelName()),
                               std::ranges::min(seconds), [=] { return engine->Cost(m) * products; }});
      }
    }
  }
  return {};
}

// ----- fitting ---------------------------------------------------------------------------------------------

constexpr double kCall = 20e-9;         // seconds that every engine takes for a run, at the start
constexpr double kTypicalError = 0.1;   // of a sample's logarithm
constexpr double kTypicalChange = 1.5;  // of a constant's logarithm, from the start: 1.5 is a factor of 4.5

/// The fastest time of each sample's problem.
std::vector<double> FastestOf(std::span<const CostSample> samples) {
  std::map<size_t, double> fastest;
  for (const CostSample& sample : samples) {
    double& seconds = fastest.try_emplace(sample.problem, sample.seconds).first->second;
    seconds = std::min(seconds, sample.seconds);
  }
  std::vector<double> of_samples;
  for (const CostSample& sample : samples) of_samples.push_back(fastest.at(sample.problem));
  return of_samples;
}

/// The positive fractional constants of a table, except half cycles of products: they relate ISAs.
std::vector<double*> Constants(CostTable* table) {
  std::vector<double*> constants;
  kernels::ForEachCost(*table, [&](const std::string& name, const char*, auto& value) {
    if constexpr (std::is_same_v<std::remove_reference_t<decltype(value)>, double>) {
      if (value > 0 && name.find(".half_cycles_") == name.npos) constants.push_back(&value);
    }
  });
  return constants;
}

/// log(cost) of each sample by `table`.
std::vector<double> LogCosts(std::span<const CostSample> samples, const CostTable& table) {
  kernels::SetCosts(table);
  std::vector<double> logs;
  for (const CostSample& sample : samples) logs.push_back(std::log(sample.cost()));
  return logs;
}

/// Solves M·x = y by Cholesky decomposition. M is symmetric and positive definite.
std::vector<double> Solve(std::vector<std::vector<double>> m, std::vector<double> y) {
  const size_t size = y.size();
  for (size_t j = 0; j < size; ++j) {
    for (size_t k = 0; k < j; ++k) m[j][j] -= m[j][k] * m[j][k];
    m[j][j] = std::sqrt(m[j][j]);
    for (size_t i = j + 1; i < size; ++i) {
      for (size_t k = 0; k < j; ++k) m[i][j] -= m[i][k] * m[j][k];
      m[i][j] /= m[j][j];
    }
  }
  for (size_t i = 0; i < size; ++i) {
    for (size_t k = 0; k < i; ++k) y[i] -= m[i][k] * y[k];
    y[i] /= m[i][i];
  }
  for (size_t i = size; i-- > 0;) {
    for (size_t k = i + 1; k < size; ++k) y[i] -= m[k][i] * y[k];
    y[i] /= m[i][i];
  }
  return y;
}

class Fitter {
 public:
  /// `fits_table`: otherwise only times are fitted.
  Fitter(std::span<const CostSample> samples, const CostTable& start, bool fits_table)
      : samples_(samples), start_(start), fastest_(FastestOf(samples)) {
    const std::vector<double> logs = LogCosts(samples, start);
    CostTable changed = start;
    const std::vector<double*> constants = Constants(&changed);
    for (size_t i = 0; fits_table && i < constants.size(); ++i) {
      const double value = *constants[i];
      *constants[i] = 2 * value;
      if (LogCosts(samples, changed) != logs) used_.push_back(i);
      *constants[i] = value;
    }
    std::map<core::Isa, std::pair<double, double>> means;
    for (size_t i = 0; i < samples.size(); ++i) {
      auto& [sum, weight] = means[samples[i].isa];
      sum += Weight(i) * (std::log(samples[i].seconds) - logs[i]);
      weight += Weight(i);
    }
    for (const auto& [isa, mean] : means) {
      isas_[isa] = {isas_.size(), mean.first / mean.second, std::nullopt};
    }
    for (auto& [isa, of_isa] : isas_) of_isa.like = LikeOf(isa);
  }

  CostFit Fit() const {
    const std::vector<double> x = WithFewerLosses(LeastSquares());
    CostFit fit = {TableOf(x), {}};
    for (const auto& [isa, of_isa] : isas_) fit.times[isa] = TimesOf(x, isa);
    return fit;
  }

 private:
  // The unknowns x are logarithms of changes: of the constants that samples depend on, then of each ISA's two
  // times.

  struct IsaStart {
    size_t place = 0;
    double log_product = 0;   // logarithm of the seconds of a product at the start
    std::optional<Isa> like;  // the time of its product determines the time of this ISA's product
  };

  static bool HasVnni(Isa isa) {
    return kernels::DotOf(kernels::VectorIsa(isa), INTACT_EXACT) == jit::DotKind::kVnni;
  }

  /// Without VNNI, no cost is one product by definition: all costs of an ISA could double if its product took
  /// half the time. So the product's time follows from the product with VNNI on the same registers. Without
  /// such an ISA, the time is that of the start.
  std::optional<Isa> LikeOf(Isa isa) const {
    if (HasVnni(isa)) return std::nullopt;
    for (const auto& [other, of_other] : isas_) {
      if (HasVnni(other) && &start_.Of(other) == &start_.Of(isa)) return other;
    }
    return isa;
  }

  double Weight(size_t sample) const { return fastest_[sample] / samples_[sample].seconds; }
  static double Dot(const std::vector<double>& a, const std::vector<double>& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  }

  CostTable TableOf(const std::vector<double>& x) const {
    CostTable table = start_;
    const std::vector<double*> constants = Constants(&table);
    for (size_t i = 0; i < used_.size(); ++i) *constants[used_[i]] *= std::exp(x[i]);
    return table;
  }

  CostTimes TimesOf(const std::vector<double>& x, Isa isa) const {
    const IsaStart& of_isa = isas_.at(isa);
    const double* const changes = &x[used_.size() + 2 * of_isa.place];
    const double call = kCall * std::exp(changes[1]);
    if (of_isa.like && *of_isa.like != isa) {
      const double ratio = kernels::HalfCycles(isa) / kernels::HalfCycles(kernels::VectorIsa(*of_isa.like));
      return {TimesOf(x, *of_isa.like).product * ratio, call};
    }
    return {std::exp(of_isa.log_product + (of_isa.like ? 0 : changes[0])), call};
  }

  /// Of samples, then of the pull to the start.
  std::vector<double> Residuals(const std::vector<double>& x) const {
    const std::vector<double> logs = LogCosts(samples_, TableOf(x));
    std::vector<double> residuals;
    for (size_t i = 0; i < samples_.size(); ++i) {
      const CostTimes times = TimesOf(x, samples_[i].isa);
      const double error = std::log((std::exp(logs[i]) * times.product + times.call) / samples_[i].seconds);
      // Few samples are disturbed: beyond three typical errors, the residual is the root of the error.
      constexpr double kMost = 3 * kTypicalError;
      const double size = std::abs(error);
      const double limited = size <= kMost ? size : std::sqrt(kMost * (2 * size - kMost));
      residuals.push_back(Weight(i) * std::copysign(limited, error));
    }
    for (const double change : x) residuals.push_back(kTypicalError / kTypicalChange * change);
    return residuals;
  }

  std::vector<double> LeastSquares() const {
    std::vector<double> x(used_.size() + 2 * isas_.size(), 0.0);
    std::vector<double> residuals = Residuals(x);
    double damping = 1e-3;
    constexpr int kSteps = 60;
    constexpr double kLeastProgress = 1e-6, kMostDamping = 1e6;
    for (int step = 0; step < kSteps && damping < kMostDamping; ++step) {
      const std::vector<double> next = Step(x, residuals, damping);
      std::vector<double> next_residuals = Residuals(next);
      const double sum = Dot(residuals, residuals), next_sum = Dot(next_residuals, next_residuals);
      if (!(next_sum < sum)) {
        damping *= 8;
        continue;
      }
      x = next;
      residuals = std::move(next_residuals);
      damping /= 4;
      if (sum - next_sum < kLeastProgress * sum) break;
    }
    return x;
  }

  std::vector<double> Step(const std::vector<double>& x, const std::vector<double>& residuals,
                           double damping) const {
    constexpr double kDifference = 1e-4;
    std::vector<std::vector<double>> columns;
    for (size_t i = 0; i < x.size(); ++i) {
      std::vector<double> moved = x;
      moved[i] += kDifference;
      std::vector<double> column = Residuals(moved);
      for (size_t row = 0; row < column.size(); ++row)
        column[row] = (column[row] - residuals[row]) / kDifference;
      columns.push_back(std::move(column));
    }
    std::vector<std::vector<double>> normal(x.size(), std::vector<double>(x.size()));
    std::vector<double> gradient;
    for (size_t i = 0; i < x.size(); ++i) {
      for (size_t j = 0; j <= i; ++j) normal[i][j] = normal[j][i] = Dot(columns[i], columns[j]);
      normal[i][i] *= 1 + damping;
      gradient.push_back(-Dot(columns[i], residuals));
    }
    std::vector<double> next = Solve(std::move(normal), std::move(gradient));
    constexpr double kMostChange = 1;  // the model is not linear
    for (size_t i = 0; i < x.size(); ++i) next[i] = x[i] + std::clamp(next[i], -kMostChange, kMostChange);
    return next;
  }

  /// The mean over problems of the logarithm of the time that a choice loses. Engines with costs within some
  /// kUnsure of the lowest cost count as chosen too, by their probability.
  double Loss(const std::vector<double>& x) const {
    constexpr double kUnsure = 0.04;
    const std::vector<double> logs = LogCosts(samples_, TableOf(x));
    double loss = 0, problems = 0;
    for (size_t begin = 0, end = 0; begin < samples_.size(); begin = end) {
      double lowest = logs[begin];
      for (; end < samples_.size() && samples_[end].problem == samples_[begin].problem; ++end) {
        lowest = std::min(lowest, logs[end]);
      }
      double sum = 0, lost = 0;
      for (size_t i = begin; i < end; ++i) {
        const double probability = std::exp((lowest - logs[i]) / kUnsure);
        sum += probability;
        lost += probability * std::min(-std::log(Weight(i)), 1.0);
      }
      loss += lost / sum;
      ++problems;
    }
    return loss / problems;
  }

  /// Changes one constant at a time, as long as the loss decreases.
  std::vector<double> WithFewerLosses(std::vector<double> x) const {
    const std::vector<double> from = x;
    const auto pulled_loss = [&](const std::vector<double>& at) {
      constexpr double kPull = 1e-2;
      double pull = 0;
      for (size_t i = 0; i < at.size(); ++i) pull += (at[i] - from[i]) * (at[i] - from[i]);
      return Loss(at) + kPull * pull;
    };
    double loss = pulled_loss(x);
    for (const double step : {0.2, 0.1, 0.05, 0.025}) {
      for (size_t i = 0; i < used_.size(); ++i) {
        for (const double change : {step, -step}) {
          std::vector<double> next = x;
          next[i] += change;
          const double next_loss = pulled_loss(next);
          if (next_loss >= loss) continue;
          x = std::move(next);
          loss = next_loss;
        }
      }
    }
    return x;
  }

  std::span<const CostSample> samples_;
  CostTable start_;
  std::vector<double> fastest_;
  std::vector<size_t> used_;  // constants that samples depend on, by their place in Constants()
  std::map<core::Isa, IsaStart> isas_;
};

}  // namespace

Result<std::vector<GemmPlan::TimedEngine>> TimeEngines(GemmPlan* plan, int64_t m,
                                                       kernels::TuningBudget budget) {
  plan->RunAllAs(m);  // no other engine runs the tail
  return plan->TimeAll(m, budget);
}

Result<CostSamples> MeasureCosts(std::span<const core::Isa> isas, int problems,
                                 const verify::Progress& progress, const support::Deadline& deadline,
                                 const EngineTimer& time) {
  CostSamples measured;
  std::minstd_rand random(20261127);
  progress(0, problems);
  for (const Isa isa : isas) {
    if (kernels::UsesTiles(isa)) AddStaging(isa, &measured);
  }
  for (int i = 0; i < problems; ++i) {
    if (deadline.IsOver()) return Error{INTACT_UNSUPPORTED, support::kTimeIsOver};
    const Case c = DrawPlan(&random);
    const int64_t few = 1 + static_cast<int64_t>(random() / 7 % 4);
    const std::array rows = {few, AnyOf(std::array<int64_t, 4>{5, 6, 7, 8}, &random),
                             AnyOf(std::array<int64_t, 4>{10, 12, 14, 16}, &random),
                             AnyOf(std::array<int64_t, 5>{20, 24, 28, 32, 48}, &random),
                             AnyOf(std::array<int64_t, 4>{64, 80, 100, 128}, &random)};
    RETURN_IF_ERROR(AddSamples(c, isas, rows, time, &measured));
    progress(i + 1, problems);
  }
  return measured;
}

CostFit FitCosts(std::span<const CostSample> samples, const CostTable& start) {
  CostFit fit = Fitter(samples, start, true).Fit();
  kernels::SetCosts(start);
  return fit;
}

CostFit FitTimes(std::span<const CostSample> samples, const CostTable& table) {
  const CostTable own = Costs();
  CostFit fit = Fitter(samples, table, false).Fit();
  kernels::SetCosts(own);
  return fit;
}

std::vector<CostError> ErrorsOf(std::span<const CostSample> samples, const CostFit& fit) {
  struct Choice {
    size_t chosen, fastest;
  };
  const CostTable own = Costs();
  const std::vector<double> logs = LogCosts(samples, fit.table);
  kernels::SetCosts(own);
  std::map<core::Isa, CostError> by_isa;
  std::map<core::Isa, std::map<size_t, Choice>> choices;
  std::map<core::Isa, double> squares;
  for (size_t i = 0; i < samples.size(); ++i) {
    const CostSample& sample = samples[i];
    const CostTimes& times = fit.times.at(sample.isa);
    const double log = std::log((std::exp(logs[i]) * times.product + times.call) / sample.seconds);
    CostError& error = by_isa[sample.isa];
    error.isa = sample.isa;
    ++error.samples;
    squares[sample.isa] += log * log;
    if (const double ratio = std::exp(std::abs(log)); ratio > error.worst) {
      error.worst = ratio;
      error.worst_name = sample.name;
    }
    Choice& choice = choices[sample.isa].try_emplace(sample.problem, Choice{i, i}).first->second;
    if (logs[i] < logs[choice.chosen]) choice.chosen = i;
    if (sample.seconds < samples[choice.fastest].seconds) choice.fastest = i;
  }
  std::vector<CostError> errors;
  for (auto& [isa, error] : by_isa) {
    error.problems = choices[isa].size();
    error.deviation = std::sqrt(squares[isa] / static_cast<double>(error.samples));
    double losses = 0;
    for (const auto& [problem, choice] : choices[isa]) {
      const double loss = samples[choice.chosen].seconds / samples[choice.fastest].seconds;
      losses += std::log(loss);
      if (loss <= error.worst_loss) continue;
      error.worst_loss = loss;
      error.worst_choice = samples[choice.chosen].name;
    }
    error.loss = std::exp(losses / static_cast<double>(error.problems));
    errors.push_back(error);
  }
  return errors;
}

std::string ToText(std::span<const CostError> errors) {
  std::string text;
  for (const CostError& error : errors) {
    text += fmt::format(
        "{}: {} times of {} GEMMs\n"
        "  predicted over measured: standard deviation {:.1f} %, the worst {:.2f}x ({})\n"
        "  chosen over fastest: geometric mean {:.3f}, the worst {:.2f} ({})\n",
        core::ToString(error.isa), error.samples, error.problems, 100 * error.deviation, error.worst,
        error.worst_name, error.loss, error.worst_loss, error.worst_choice);
  }
  return text;
}

}  // namespace intact::bench
