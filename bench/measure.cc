#include "bench/measure.h"

#include <algorithm>
#include <functional>
#include <span>
#include <stdexcept>
#include <thread>
#include <utility>

#include "bench/bandwidth.h"
#include "bench/child.h"
#include "bench/peaks.h"
#include "bench/peers.h"
#include "bench/workload.h"
#include "tools/machine.h"
#include "verify/turns.h"

namespace intact::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr Seconds kShortestTurn(50e-6);

template <class Function>
double MicrosecondsOf(const Function& function, int64_t times = 1) {
  const auto start = Clock::now();
  for (int64_t i = 0; i < times; ++i) function();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count() / static_cast<double>(times);
}

/// A turn of a contender that writes to `c`: microseconds per run.
verify::Measurement TurnOf(Contender* contender, const Workload& workload, uint8_t* c) {
  return [=, a = workload.a()] {
    const auto run = [=] { (void)contender->Run(a, c); };
    const Seconds once(1e-6 * MicrosecondsOf(run));
    return MicrosecondsOf(run, static_cast<int64_t>(kShortestTurn / once) + 1);
  };
}

/// Name and outcome of `entrant`, not yet timed; it is to be timed if the model was recognised.
Timing Check(const Workload& workload, const Entrant& entrant, bool* is_right) {
  Timing timing;
  timing.contender = entrant.what.peer.empty() ? kIntact : entrant.what.peer;
  timing.c_type = verify::ToString(entrant.what.c_type);
  *is_right = false;
  if (!entrant.contender) {
    timing.result = entrant.contender.error().message;
    return timing;
  }
  Contender* const contender = entrant.contender->get();
  timing.implementation = contender->Implementation();
  const auto model = workload.Recognise(contender, entrant.what.c_type, AdmissibleModels(entrant.what));
  *is_right = model.has_value();
  timing.result = !model ? "wrong: not timed" : *model == reference::Model::kExact ? kExact : kSaturates;
  return timing;
}

std::vector<Entrant> EntrantsOf(const Workload& workload, const Case& base,
                                std::span<const Peer* const> peers) {
  std::vector<std::string> names = {""};
  for (const Peer* peer : peers) names.push_back(peer->Name());
  std::vector<Entrant> entrants;
  for (const std::string& name : names) {
    for (const intact_type c_type : {INTACT_S32, INTACT_U8}) {
      Case c = base;
      c.peer = name;
      c.c_type = c_type;
      entrants.push_back({c, MakeContender(workload, c)});
    }
  }
  return entrants;
}

Row RowOf(const Case& c) {
  Row row;
  row.isa = jit::ToString(c.isa);
  row.m = c.shape.m;
  row.n = c.shape.n;
  row.k = c.shape.k;
  return row;
}

/// With the peers, or without them if that process does not survive them.
Row MeasureInChild(const Workload& workload, const Case& base, Seconds budget) {
  const auto measure = [&](std::span<const Peer* const> peers) {
    return RunInChild([&, peers]() -> nlohmann::json {
      for (const Peer* peer : peers) {
        if (const std::optional<Error> error = peer->Confine(base.isa))
          throw std::runtime_error(error->message);
      }
      Result<Row> row = MeasureRow(workload, EntrantsOf(workload, base, peers), budget);
      if (!row) throw std::runtime_error(row.error().message);
      return *row;
    });
  };
  const auto failed = [](std::string_view contender, const Error& error) {
    return Timing{std::string(contender), "s32", "", error.message};
  };
  const Result<nlohmann::json> json = measure(Peers());
  if (json) return json->get<Row>();
  const Result<nlohmann::json> alone = measure({});
  Row row = alone ? alone->get<Row>() : RowOf(base);
  if (!alone) row.timings.push_back(failed(kIntact, alone.error()));
  for (const Peer* peer : Peers()) row.timings.push_back(failed(peer->Name(), json.error()));
  return row;
}

FirstCall MeasureFirstCall(const Workload& tiny, const Workload& large, jit::Isa isa, Seconds budget) {
  FirstCall call;
  call.isa = jit::ToString(isa);
  Case c;
  c.isa = isa;
  c.shape = kThreadsShape;
  const auto create = [&](const Workload& workload) {
    const Result<Gemm> plan = Gemm::Create(DescOf(workload, c), workload.gemm().b.data());
    if (!plan) call.error = plan.error().message;
  };
  const auto microseconds_to_create = [&](const Workload& workload) {
    create(workload);  // generates the code
    const std::vector<verify::Measurement> measurement = {
        [&] { return MicrosecondsOf([&] { create(workload); }); }};
    return verify::Median(verify::TakeTurns(measurement, budget / 2).front());
  };
  call.create_microseconds = microseconds_to_create(tiny);
  call.pack_gb_per_s =
      1e-3 * static_cast<double>(kThreadsShape.WeightBytes()) / microseconds_to_create(large);
  if (!call.error.empty() || std::thread::hardware_concurrency() < 2) return call;
  Bytes output = large.NewC(c.c_type);
  std::vector<std::unique_ptr<Contender>> contenders;
  std::vector<verify::Measurement> turns;
  for (const int threads : {1, 2}) {
    c.threads = threads;
    Result<std::unique_ptr<Contender>> contender = MakeContender(large, c);
    if (!contender || !large.Recognise(contender->get(), c.c_type, AdmissibleModels(c))) {
      call.error = contender ? "wrong: not timed" : contender.error().message;
      return call;
    }
    turns.push_back(TurnOf(contender->get(), large, output.data()));
    contenders.push_back(std::move(*contender));
  }
  std::vector<std::vector<double>> figures = verify::TakeTurns(turns, budget);
  call.speed_up_of_two_threads =
      verify::Median(std::move(figures[0])) / verify::Median(std::move(figures[1]));
  return call;
}

FirstCall MeasureFirstCallInChild(const Workload& tiny, const Workload& large, jit::Isa isa, Seconds budget) {
  const Result<nlohmann::json> json =
      RunInChild([&]() -> nlohmann::json { return MeasureFirstCall(tiny, large, isa, budget); });
  if (json) return json->get<FirstCall>();
  FirstCall call;
  call.isa = jit::ToString(isa);
  call.error = json.error().message;
  return call;
}

std::optional<Error> MeasureMachine(jit::Isa isa, Results* results) {
  results->machine = tools::DescribeMachine();
  results->isas = tools::DescribeIsas();
  for (const Peak& peak : AvailablePeaks()) results->peaks.push_back({peak.name, MeasureGops(peak)});
  const verify::Machine& machine = results->machine;
  for (const ReadSize& size : ReadSizes(machine.l1d_bytes, machine.l2_bytes, machine.l3_bytes)) {
    const Result<ReadBandwidth> read = ReadBandwidth::Create(isa, size.bytes);
    if (!read) return read.error();
    results->reads.push_back({size.bytes, size.level, read->Measure()});
  }
  for (const Peer* peer : Peers()) results->peers.push_back({peer->Name(), peer->Version()});
  return std::nullopt;
}

}  // namespace

Result<Row> MeasureRow(const Workload& workload, std::vector<Entrant> entrants, Seconds budget) {
  const Case& base = entrants.front().what;
  Row row = RowOf(base);
  const Peak peak = PeakOf(base.isa);
  row.peak = peak.name;
  const Result<ReadBandwidth> read = ReadBandwidth::Create(base.isa, base.shape.WeightBytes());
  if (!read) return read.error();

  std::vector<verify::Measurement> turns = {[&] { return MeasureGops(peak); },
                                            [&] { return read->Measure(); }};
  std::vector<size_t> timed;  // which of row.timings the further turns are
  Bytes output = workload.NewC(INTACT_S32);
  for (const Entrant& entrant : entrants) {
    bool is_right = false;
    row.timings.push_back(Check(workload, entrant, &is_right));
    if (!is_right) continue;
    timed.push_back(row.timings.size() - 1);
    turns.push_back(TurnOf(entrant.contender->get(), workload, output.data()));
  }
  std::vector<std::vector<double>> figures = verify::TakeTurns(turns, budget);
  row.peak_gops = verify::Median(std::move(figures[0]));
  row.read_gb_per_s = verify::Median(std::move(figures[1]));
  for (size_t i = 0; i < timed.size(); ++i) {
    Timing& timing = row.timings[timed[i]];
    const std::vector<double>& microseconds = figures[i + 2];
    timing.microseconds = verify::Median(microseconds);
    timing.spread =
        (verify::Quantile(microseconds, 0.75) - verify::Quantile(microseconds, 0.25)) / timing.microseconds;
  }
  return row;
}

Result<Results> MeasureAll(const Plan& plan, const verify::Progress& progress) {
  Results results;
  results.suite = plan.suite->name;
  results.weights = plan.weights.name;
  if (const std::optional<Error> error = MeasureMachine(plan.isas.back(), &results)) return *error;

  const auto total = static_cast<int64_t>((plan.suite->shapes.size() + 1) * plan.isas.size());
  int64_t done = 0;
  progress(done, total);
  Case base;
  base.weights = plan.weights;
  for (const Shape& shape : plan.suite->shapes) {
    base.shape = shape;
    const Workload workload(base);
    for (const jit::Isa isa : plan.isas) {
      base.isa = isa;
      results.rows.push_back(MeasureInChild(workload, base, plan.budget));
      progress(++done, total);
    }
  }
  std::ranges::stable_sort(results.rows, {}, [](const Row& row) { return *jit::ParseIsa(row.isa); });

  base.shape = kTinyShape;
  const Workload tiny(base);
  base.shape = kThreadsShape;
  const Workload large(base);
  for (const jit::Isa isa : plan.isas) {
    results.first_calls.push_back(MeasureFirstCallInChild(tiny, large, isa, plan.budget));
    progress(++done, total);
  }
  return results;
}

}  // namespace intact::bench
