#include "bench/measure/measure.h"
#include "bench/peers/contenders.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/cases/suites.h"
#include "bench/cases/workload.h"
#include "bench/measure/bandwidth.h"
#include "bench/measure/peaks.h"
#include "core/isas.h"
#include "core/result.h"
#include "support/machine.h"
#include "support/turns.h"

namespace intact::bench {
namespace {

/// Median, once the code is cached.
double MicrosecondsToCreate(const Workload& workload, const Case& c, Seconds budget) {
  const GemmDesc desc = GemmDescOf(workload, c);
  const auto create = [&] { (void)Gemm::Create(desc, workload.b().data()); };
  create();
  const std::vector<support::Measurement> turn = {[&] { return support::MicrosecondsPerCall(create, 1); }};
  return support::Median(support::TakeTurns(turn, budget).front());
}

// Turns; if those of a contender differ too much, as on a shared core, the steadier of two measurements. The first
// two turns are of the machine.
std::vector<std::vector<double>> SteadyTurns(const std::vector<support::Measurement>& turns, Seconds budget) {
  const auto worst = [](const std::vector<std::vector<double>>& figures) {
    double spread = 0;
    for (size_t i = 2; i < figures.size(); ++i) spread = std::max(spread, support::Spread(figures[i]));
    return spread;
  };
  std::vector<std::vector<double>> first = support::TakeTurns(turns, budget);
  if (worst(first) <= Timing::kMostSpread) return first;
  std::vector<std::vector<double>> second = support::TakeTurns(turns, budget);
  return worst(second) < worst(first) ? second : first;
}

}  // namespace

std::string NameOf(const Case& c) {
  if (!c.peer.empty()) return c.kernels.empty() ? c.peer : c.peer + " " + c.kernels;
  return std::string(c.mode == INTACT_EXACT ? kIntact : kSaturating);
}

support::Measurement TurnOf(TimedCalls microseconds, Seconds shortest) {
  return [=, microseconds = std::move(microseconds)] {
    (void)microseconds(1);
    const Seconds once(1e-6 * microseconds(1));
    return microseconds(static_cast<int64_t>(shortest / once) + 1);
  };
}

support::Measurement TurnOf(const Entrant& entrant, uint8_t* c) {
  const auto run = [=, contender = entrant.contender->get(), a = entrant.workload->a(entrant.what.format),
                    name = NameOf(entrant.what)](int64_t times) {
    try {
      return contender->Microseconds(a, c, times);
    } catch (const std::runtime_error& error) {
      throw ContenderFailed(name, error.what());
    }
  };
  return TurnOf(run, kShortestTurn);
}

Timing Check(const Entrant& entrant) {
  Timing timing;
  const Case& what = entrant.what;
  const Workload& workload = *entrant.workload;
  timing.contender = NameOf(what);
  timing.format = what.format;
  if (!entrant.contender) {
    timing.result = entrant.contender.error().message;
    return timing;
  }
  Contender* const contender = entrant.contender->get();
  timing.implementation = contender->Implementation();
  try {
    if (const std::optional<BlockOperands>& blocks = workload.blocks()) {
      timing.result = blocks->Check(contender, what);
      if (timing.result.empty()) timing.result = what.peer.empty() ? kExact : kNear;
      return timing;
    }
    auto model = workload.Recognise(contender, what.format, AdmissibleModels(what));
    // If no pair can saturate, the models agree.
    constexpr std::array kExactModel = {reference::Model::kExact};
    if (model && workload.Recognise(contender, what.format, kExactModel)) model = reference::Model::kExact;
    timing.result = !model ? kWrong : *model == reference::Model::kExact ? kExact : kSaturates;
  } catch (const std::runtime_error& error) {
    timing.result = error.what();
  }
  return timing;
}

Row EmptyRow(const Case& c) {
  Row row;
  row.isa = core::ToString(c.isa);
  row.shape = c.shape;
  return row;
}

Result<Row> MeasureRow(std::span<const Entrant> entrants, Seconds budget) {
  const Case& base = entrants.front().what;
  Row row = EmptyRow(base);
  const Peak peak = PeakOf(base.isa);
  row.peak = peak.name;
  ASSIGN_OR_RETURN(const ReadBandwidth read, ReadBandwidth::Create(base.isa, base.shape.WeightBytes()));

  std::vector<support::Measurement> turns = {[&] { return MeasureGops(peak); },
                                             [&] { return read.Measure(); }};
  std::vector<size_t> timed;  // for each turn after the first two, its index in row.timings
  Bytes output = entrants.front().workload->NewC(INTACT_S32);
  for (const Entrant& entrant : entrants) {
    row.timings.push_back(Check(entrant));
    constexpr std::array kTimed = {kExact, kSaturates, kNear};
    if (std::ranges::find(kTimed, row.timings.back().result) == kTimed.end()) continue;
    timed.push_back(row.timings.size() - 1);
    turns.push_back(TurnOf(entrant, output.data()));
  }
  const std::vector<std::vector<double>> figures = SteadyTurns(turns, budget);
  row.peak_gops = support::Median(figures[0]);
  row.read_gb_per_s = support::Median(figures[1]);
  for (size_t i = 0; i < timed.size(); ++i) {
    Timing& timing = row.timings[timed[i]];
    const std::vector<double>& microseconds = figures[i + 2];
    timing.microseconds = support::Median(microseconds);
    timing.spread = support::Spread(microseconds);
  }
  for (size_t i = 0; i < timed.size(); ++i) {
    Timing& timing = row.timings[timed[i]];
    if (!IsDynamic(timing.format.quantization)) continue;
    const auto is_static = [&](size_t other) {
      return row.timings[other].contender == timing.contender && row.timings[other].format == kF32;
    };
    const auto found = std::ranges::find_if(timed, is_static) - timed.begin();
    if (found == std::ssize(timed)) continue;
    timing.over_static = support::MedianRatio(figures[i + 2], figures[static_cast<size_t>(found) + 2]);
  }
  return row;
}

FirstCall MeasureFirstCall(const Workload& tiny, const Workload& large, core::Isa isa, Seconds budget) {
  FirstCall call;
  call.isa = core::ToString(isa);
  Case c;
  c.isa = isa;
  c.shape = kThreadsShape;
  call.create_microseconds = MicrosecondsToCreate(tiny, c, budget / 2);
  call.pack_gb_per_s =
      1e-3 * static_cast<double>(kThreadsShape.WeightBytes()) / MicrosecondsToCreate(large, c, budget / 2);
  if (support::UsableThreads() < 2) return call;
  std::vector<Entrant> entrants;
  std::vector<support::Measurement> turns;
  Bytes output = large.NewC(c.format.c_type);
  for (const int threads : {1, 2}) {
    c.threads = threads;
    entrants.push_back({c, &large, MakeContender(large, c)});
    const Timing timing = Check(entrants.back());
    if (timing.result != kExact) call.error = timing.result;
    if (timing.result != kExact) return call;
    turns.push_back(TurnOf(entrants.back(), output.data()));
  }
  const std::vector<std::vector<double>> figures = support::TakeTurns(turns, budget);
  call.speed_up_of_two_threads = support::Median(figures[0]) / support::Median(figures[1]);
  return call;
}

}  // namespace intact::bench
