#include "bench/measure/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/cases/workload.h"
#include "bench/peers/contenders.h"
#include "bench/report/report_table.h"
#include "core/isas.h"
#include "support/machine.h"
#include "support/turns.h"
#include "verify/report/report_json.h"

namespace intact::bench {
namespace {

/// Short runs are timed together.
constexpr Seconds kShortestTurn(1e-3);

/// A turn: a run that brings the operands into the caches, then some that are timed.
support::Measurement TurnOf(Contender* contender, const uint8_t* a, uint8_t* c) {
  return [=] {
    const Seconds once(1e-6 * contender->Microseconds(a, c, 1));
    return contender->Microseconds(a, c, static_cast<int64_t>(kShortestTurn / once) + 1);
  };
}

/// The plan as its cost model makes it, and a tuned one.
struct Pair {
  std::unique_ptr<Contender> model, tuned;
};

/// "" if both pass the workload's checks and all their bytes are equal; else what is wrong.
std::string WhyWrong(const Workload& workload, const Case& c, const Pair& pair) {
  Bytes outputs[] = {workload.NewC(c.format.c_type), workload.NewC(c.format.c_type)};
  Contender* const contenders[] = {pair.model.get(), pair.tuned.get()};
  for (size_t i = 0; i < std::size(contenders); ++i) {
    if (!workload.Recognise(contenders[i], c.format, AdmissibleModels(c))) return std::string(kWrong);
    if (!contenders[i]->Run(workload.a(c.format), outputs[i].data())) return "the run failed";
  }
  const bool is_same = std::memcmp(outputs[0].data(), outputs[1].data(), outputs[0].size()) == 0;
  return is_same ? "" : "wrong: tuning changed the output";
}

void MeasurePair(const Workload& workload, const Case& c, const Pair& pair, Seconds budget, TunedRow* row) {
  Bytes output = workload.NewC(c.format.c_type);
  const auto turn_of = [&](const std::unique_ptr<Contender>& contender) {
    return TurnOf(contender.get(), workload.a(c.format), output.data());
  };
  std::vector<support::Measurement> turns = {turn_of(pair.model)};
  if (!row->is_same) turns.push_back(turn_of(pair.tuned));
  const std::vector<std::vector<double>> figures = support::TakeTurns(turns, budget);
  row->model_microseconds = row->tuned_microseconds = support::Median(figures[0]);
  if (row->is_same) return;
  row->tuned_microseconds = support::Median(figures[1]);
  row->ratio = support::MedianRatio(figures[0], figures[1]);
}

TunedRow MeasureRow(const Workload& workload, Case c, Seconds budget) {
  TunedRow row;
  row.isa = core::ToString(c.isa);
  row.shape = c.shape;
  Result<std::unique_ptr<Contender>> model = MakeContender(workload, c);
  c.is_tuned = true;
  Result<std::unique_ptr<Contender>> tuned =
      MakeContender(workload, c, std::chrono::duration<double, std::milli>(budget).count());
  for (const auto* made : {&model, &tuned}) {
    if (!*made) row.error = made->error().message;
  }
  if (!row.error.empty()) return row;
  const Pair pair = {std::move(*model), std::move(*tuned)};
  row.tuned = pair.tuned->Implementation();
  row.is_same = pair.tuned->Replaced().empty();
  row.model = row.is_same ? row.tuned : pair.tuned->Replaced();
  row.error = WhyWrong(workload, c, pair);
  if (row.error.empty()) MeasurePair(workload, c, pair, budget, &row);
  return row;
}

std::vector<TunedRow> RowsOf(const TunedResults& results, const std::string& isa) {
  std::vector<TunedRow> rows;
  std::ranges::copy_if(results.rows, std::back_inserter(rows),
                       [&](const TunedRow& row) { return row.isa == isa; });
  return rows;
}

/// The summary of the rows of one ISA.
std::vector<std::string> NotesOf(const std::vector<TunedRow>& rows) {
  std::vector<double> ratios;
  size_t wrong = 0;
  const TunedRow* worst = nullptr;
  double model_milliseconds = 0, tuned_milliseconds = 0;
  bool is_network = false;
  std::vector<std::string> notes;
  for (const TunedRow& row : rows) {
    if (!row.IsMeasured()) {
      notes.push_back(fmt::format("{}: {}", row.shape.ToString(), row.error));
      continue;
    }
    ratios.push_back(row.ratio);
    if (row.ratio > kWrongChoice) ++wrong;
    if (worst == nullptr || row.ratio > worst->ratio) worst = &row;
    model_milliseconds += 1e-3 * row.times * row.model_microseconds;
    tuned_milliseconds += 1e-3 * row.times * row.tuned_microseconds;
    is_network = is_network || row.times > 1;
  }
  if (ratios.empty()) return notes;
  notes.push_back(fmt::format("geometric mean of model over tuned: {:.3f}", *GeometricMean(ratios)));
  notes.push_back(fmt::format("wrong choices of the model (by more than {:.0f} %): {} of {}",
                              100 * (kWrongChoice - 1), wrong, ratios.size()));
  if (worst->ratio > kWrongChoice) {
    notes.push_back(
        fmt::format("the worst: {}, {:.2f} times as long as tuned", worst->shape.ToString(), worst->ratio));
  }
  if (is_network && ratios.size() == rows.size()) {
    notes.push_back(fmt::format("all layers of the network: {:.2f} ms by the model, {:.2f} ms tuned",
                                model_milliseconds, tuned_milliseconds));
  }
  return notes;
}

Table TableOf(const std::vector<TunedRow>& rows) {
  Table table;
  table.title = fmt::format("{}: GEMMs to s32, convolutions to u8", rows.front().isa);
  table.head = {"shape", "model us", "tuned us", "ratio", "by the model", "tuned"};
  for (const TunedRow& row : rows) {
    if (!row.IsMeasured()) {
      table.rows.push_back({row.shape.ToString(), "-", "-", "-", row.model, row.tuned});
      continue;
    }
    table.rows.push_back({row.shape.ToString(), fmt::format("{:.1f}", row.model_microseconds),
                          row.is_same ? "=" : fmt::format("{:.1f}", row.tuned_microseconds),
                          row.is_same ? "=" : fmt::format("{:.2f}x", row.ratio), row.model,
                          row.is_same ? "=" : row.tuned});
  }
  table.notes = NotesOf(rows);
  return table;
}

}  // namespace

bool TunedResults::AllRight() const { return std::ranges::all_of(rows, &TunedRow::IsMeasured); }

bool IsTunable(const Layer& layer) { return !layer.shape.batch && !layer.shape.blocks; }

TunedResults RunTuned(const Request& request, const verify::Progress& progress) {
  TunedResults results;
  results.suite = request.suite.name;
  results.weights = request.WeightsFor(request.suite.layers.front()).name;
  results.machine = support::DescribeMachine();
  std::vector<Layer> layers;
  std::ranges::copy_if(request.suite.layers, std::back_inserter(layers), IsTunable);
  const auto total = static_cast<int64_t>(layers.size() * request.isas.size());
  int64_t done = 0;
  progress(done, total);
  Case c;
  for (const Layer& layer : layers) {
    if (done > 0 && request.deadline.IsOver()) break;
    c.shape = layer.shape;
    c.weights = request.WeightsFor(layer);
    c.format = c.shape.conv ? kU8 : kS32;
    const Workload workload(c);
    for (const core::Isa isa : request.isas) {
      if (done > 0 && request.deadline.IsOver()) break;
      c.isa = isa;
      results.rows.push_back(MeasureRow(workload, c, request.budget));
      results.rows.back().times = layer.times;
      progress(++done, total);
    }
  }
  results.not_measured = total - done;
  for (TunedRow& row : results.rows) row.times = results.not_measured > 0 ? 1 : row.times;  // as in run.cc
  const auto place = [&](const TunedRow& row) {
    return std::ranges::find(request.isas, *core::ParseIsa(row.isa));
  };
  std::ranges::stable_sort(results.rows, {}, place);
  return results;
}

std::string ToText(const TunedResults& results) {
  std::string text = fmt::format(
      "intact {}, suite {}, {} weights; kernels by the cost model and by stopwatch, one thread, "
      "medians of turns\n  {}, family {}, model {}\n",
      intact_version(), results.suite, results.weights, results.machine.cpu, results.machine.family,
      results.machine.model);
  text += MissingText(results.not_measured);
  std::string last;
  for (const TunedRow& row : results.rows) {
    if (row.isa != last) text += ToText(TableOf(RowsOf(results, row.isa)));
    last = row.isa;
  }
  return text;
}

nlohmann::ordered_json ToJson(const TunedResults& results) {
  nlohmann::ordered_json json = {
      {"schema", "intact-bench-tune"},        {"schema_version", 1},
      {"version", intact_version()},          {"suite", results.suite},
      {"weights", results.weights},           {"machine", verify::ToJson(results.machine)},
      {"not_measured", results.not_measured}, {"rows", nlohmann::ordered_json::array()}};
  for (const TunedRow& row : results.rows) {
    nlohmann::ordered_json made = {{"isa", row.isa}};
    made.update(nlohmann::ordered_json(nlohmann::json(row.shape)));
    made["times"] = row.times;
    made["error"] = row.error;
    made["model"] = row.model;
    made["tuned"] = row.tuned;
    made["model_microseconds"] = row.model_microseconds;
    made["tuned_microseconds"] = row.tuned_microseconds;
    made["ratio"] = row.ratio;
    json["rows"].push_back(std::move(made));
  }
  return json;
}

}  // namespace intact::bench
