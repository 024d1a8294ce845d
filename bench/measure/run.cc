#include "bench/measure/run.h"
#include "bench/peers/contenders.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/cases/workload.h"
#include "bench/measure/bandwidth.h"
#include "bench/measure/child.h"
#include "bench/measure/peaks.h"
#include "bench/peers/peers.h"
#include "core/isas.h"
#include "core/result.h"
#include "kernels/codegen/dispatch.h"
#include "support/machine.h"

namespace intact::bench {
namespace {

/// The workloads of a row's contenders.
struct Workloads {
  explicit Workloads(const Case& base) : ours(base) {
    if (!base.shape.batch || base.shape.batch->b_type == INTACT_S8) return;
    Case of_peers = base;
    of_peers.shape.batch->b_type = INTACT_S8;
    with_s8.emplace(of_peers);
  }
  Workload ours;
  std::optional<Workload> with_s8;  // for peers, if the case is a batch with u8 Bs: no peer takes them
};

bool Has(std::span<const Timing> failed, const std::string& contender) {
  return std::ranges::find(failed, contender, &Timing::contender) != failed.end();
}

/// Intact, its saturating kernel where pairs can saturate, and the peers. Without the contenders in `failed`.
std::vector<Entrant> EntrantsOf(const Workloads& workloads, const Case& base,
                                std::span<const Peer* const> peers, std::span<const Timing> failed) {
  std::vector<Entrant> entrants;
  const auto add = [&](Case c, const Workload& workload) {
    if (Has(failed, NameOf(c))) return;
    for (const Format& format : FormatsOf(c)) {
      c.format = format;
      if (!c.peer.empty() && !FindPeer(c.peer)->Takes(c)) continue;
      entrants.push_back({c, &workload, MakeContender(workload, c)});
    }
  };
  Case c = base;
  add(c, workloads.ours);
  c.mode = INTACT_SATURATING;
  // Plans with weights in blocks have no such mode.
  if (!c.shape.blocks && kernels::PairsSaturate(c.isa, c.mode)) add(c, workloads.ours);
  c.mode = base.mode;
  if (c.shape.batch) c.shape.batch->b_type = INTACT_S8;
  for (const Peer* peer : peers) {
    c.peer = peer->Name();
    for (const std::string& kernels : peer->Kernels(c)) {
      c.kernels = kernels;
      add(c, workloads.with_s8 ? *workloads.with_s8 : workloads.ours);
    }
  }
  return entrants;
}

/// The peers that take `base` in any format.
std::vector<const Peer*> PeersFor(const Case& base) {
  std::vector<const Peer*> peers;
  for (const Peer* peer : Peers()) {
    const auto takes = [&](const Format& format) {
      Case c = base;
      c.format = format;
      return peer->Takes(c);
    };
    if (std::ranges::any_of(FormatsOf(base), takes)) peers.push_back(peer);
  }
  return peers;
}

/// Measures the row, again without a peer's kernels that fail. If the process itself fails, no peer remains.
Row RunRow(const Workloads& workloads, const Case& base, Seconds budget) {
  std::vector<const Peer*> peers = PeersFor(base);
  std::vector<Timing> failed;
  const auto fail = [&](std::string_view contender, const std::string& why) {
    const Format format = base.shape.blocks ? kByBlock : FormatsOf(base).front();
    failed.push_back({std::string(contender), format, "", why});
  };
  for (;;) {
    const Result<nlohmann::json> json = RunInChild([&]() -> nlohmann::json {
      if (const std::optional<Error> error = Confine(peers, base.isa))
        throw std::runtime_error(error->message);
      try {
        Result<Row> row = MeasureRow(EntrantsOf(workloads, base, peers, failed), budget);
        if (!row) throw std::runtime_error(row.error().message);
        return *row;
      } catch (const ContenderFailed& error) {
        return {{"failed", error.name()}, {"why", error.what()}};
      }
    });
    if (json && !json->contains("failed")) {
      Row row = json->get<Row>();
      std::ranges::move(failed, std::back_inserter(row.timings));
      return row;
    }
    if (json) {
      const auto contender = json->at("failed").get<std::string>();
      if (contender != kIntact && contender != kSaturating && !Has(failed, contender)) {
        fail(contender, json->at("why").get<std::string>());
        continue;
      }
    }
    const std::string why = json ? json->at("why").get<std::string>() : json.error().message;
    for (const Peer* peer : peers) fail(peer->Name(), why);
    if (peers.empty()) {
      Row row = EmptyRow(base);
      fail(kIntact, why);
      row.timings = std::move(failed);
      return row;
    }
    peers.clear();
  }
}

FirstCall RunFirstCall(const Workload& tiny, const Workload& large, core::Isa isa, Seconds budget) {
  const Result<nlohmann::json> json =
      RunInChild([&]() -> nlohmann::json { return MeasureFirstCall(tiny, large, isa, budget); });
  if (json) return json->get<FirstCall>();
  FirstCall call;
  call.isa = core::ToString(isa);
  call.error = json.error().message;
  return call;
}

std::optional<Error> MeasureMachine(core::Isa isa, Results* results) {
  results->origin = support::CurrentOrigin();
  results->machine = support::DescribeMachine();
  results->isas = support::DescribeIsas();
  for (const Peak& peak : AvailablePeaks()) results->peaks.push_back({peak.name, MeasureGops(peak)});
  const support::Machine& machine = results->machine;
  for (const ReadSize& size : ReadSizes(machine.l1d_bytes, machine.l2_bytes, machine.l3_bytes)) {
    ASSIGN_OR_RETURN(const ReadBandwidth read, ReadBandwidth::Create(isa, size.bytes));
    results->reads.push_back({size.bytes, size.level, read.Measure()});
  }
  for (const Peer* peer : Peers()) {
    results->peers.push_back({peer->Name(), peer->Version(), peer->CallMicroseconds()});
  }
  return std::nullopt;
}

}  // namespace

Result<Results> Run(const Request& request, const verify::Progress& progress) {
  Results results;
  results.suite = request.suite.name;
  results.weights = request.WeightsFor(request.suite.layers.front()).name;
  if (const std::optional<Error> error = MeasureMachine(request.isas.back(), &results)) return *error;

  const auto total = static_cast<int64_t>((request.suite.layers.size() + 1) * request.isas.size());
  int64_t done = 0;
  progress(done, total);
  Case base;
  for (const Layer& layer : request.suite.layers) {
    if (done > 0 && request.deadline.IsOver()) break;
    base.shape = layer.shape;
    base.weights = request.WeightsFor(layer);
    const Workloads workloads(base);
    for (const core::Isa isa : request.isas) {
      if (done > 0 && request.deadline.IsOver()) break;
      base.isa = isa;
      results.rows.push_back(RunRow(workloads, base, request.budget));
      results.rows.back().times = layer.times;
      progress(++done, total);
    }
  }
  const auto place = [&](const Row& row) {
    return std::ranges::find(request.isas, *core::ParseIsa(row.isa));
  };
  std::ranges::stable_sort(results.rows, {}, place);

  base.weights = request.weights.value_or(kLaplace);
  base.shape = kTinyShape;
  const Workload tiny(base);
  base.shape = kThreadsShape;
  const Workload large(base);
  for (const core::Isa isa : request.isas) {
    if (done > 0 && request.deadline.IsOver()) break;
    results.first_calls.push_back(RunFirstCall(tiny, large, isa, request.budget));
    progress(++done, total);
  }
  results.not_measured = total - done;
  // A part of a network is no network: nothing adds up its times.
  for (Row& row : results.rows) row.times = results.not_measured > 0 ? 1 : row.times;
  return results;
}

}  // namespace intact::bench
