#include "bench/measure/traps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "bench/cases/workload.h"
#include "bench/measure/bandwidth.h"
#include "bench/measure/measure.h"
#include "bench/peers/contenders.h"
#include "bench/report/report_table.h"
#include "core/isas.h"
#include "support/machine.h"
#include "support/turns.h"
#include "verify/report/report_json.h"

namespace intact::bench {
namespace {

/// A loop over pixels, outputs, taps inside the input, and channels: to u8, with scales and ReLU.
class NaiveLoop final : public Contender {
 public:
  explicit NaiveLoop(const Workload& workload, const Shape& shape)
      : geometry_(shape.AsConvolution()), scales_(workload.operation().scales) {
    const std::span<const int8_t> b = workload.b();
    weights_.assign(b.begin(), b.end());
    if (shape.conv) return;
    for (int64_t n = 0; n < shape.n; ++n) {
      for (int64_t k = 0; k < shape.k; ++k) {
        weights_[static_cast<size_t>(n * shape.k + k)] = b[static_cast<size_t>(k * shape.n + n)];
      }
    }
  }

  std::string Implementation() const override { return "naive loop"; }

  bool Run(const uint8_t* a, uint8_t* c) override {
    const Geometry& g = geometry_;
    for (int64_t y = 0; y < g.OutHeight(); ++y) {
      for (int64_t x = 0; x < g.OutWidth(); ++x) {
        for (int64_t n = 0; n < g.c_out; ++n) *c++ = Output(Sum(a, y, x, n), n);
      }
    }
    return true;
  }

 private:
  int32_t Sum(const uint8_t* a, int64_t y, int64_t x, int64_t n) const {
    const Geometry& g = geometry_;
    const int8_t* weights = weights_.data() + n * g.Taps() * g.Channels();
    int32_t sum = 0;
    for (int64_t i = 0; i < g.kernel.height; ++i) {
      for (int64_t j = 0; j < g.kernel.width; ++j, weights += g.Channels()) {
        const int64_t from_y = y * g.stride.height - g.PadBegin().height + i * g.dilation;
        const int64_t from_x = x * g.stride.width - g.PadBegin().width + j * g.dilation;
        if (from_y < 0 || from_y >= g.height || from_x < 0 || from_x >= g.width) continue;
        const uint8_t* const pixel = a + (from_y * g.width + from_x) * g.c_in;
        for (int64_t k = 0; k < g.Channels(); ++k) sum += pixel[k] * weights[k];
      }
    }
    return sum;
  }

  uint8_t Output(int32_t sum, int64_t n) const {
    constexpr float kToInteger = 12582912.0f;  // 1.5·2²³: adding it rounds to the nearest integer
    const float f = static_cast<float>(sum) * scales_[static_cast<size_t>(n)];
    return static_cast<uint8_t>(std::clamp(f, 0.0f, 255.0f) + kToInteger - kToInteger);
  }

  Geometry geometry_;
  std::vector<float> scales_;
  std::vector<int8_t> weights_;  // [output][tap][channel]
};

/// A measurement, or why there is none.
struct Figure {
  std::string name;
  std::string error;
  support::Measurement measure;
};

/// The contenders of a trap and its neighbours, and what they need.
class Match {
 public:
  Match(const Trap& trap, const Request& request, core::Isa isa) : trap_(trap) {
    case_.weights = request.weights.value_or(kLaplace);
    case_.isa = isa;
    case_.shape = trap.shape;
    case_.format = trap.format;
    case_.is_bound = trap.is_bound;
    workloads_.push_back(std::make_unique<Workload>(case_));
    Enter(case_, MakeContender(*workloads_.back(), case_), "");
    AddNeighbours();
  }

  /// The trap, then its neighbours.
  const std::vector<Figure>& figures() const { return figures_; }

 private:
  void Enter(const Case& c, Result<std::unique_ptr<Contender>> contender, std::string name) {
    entrants_.push_back(
        std::unique_ptr<Entrant>(new Entrant{c, workloads_.back().get(), std::move(contender)}));
    outputs_.push_back(workloads_.back()->NewC(c.format.c_type));
    const Timing timing = Check(*entrants_.back());
    const bool is_right = timing.result == kExact;
    figures_.push_back({std::move(name), is_right ? "" : timing.result,
                        is_right ? TurnOf(*entrants_.back(), outputs_.back().data()) : nullptr});
  }

  void AddNeighbours() {
    using Kind = Neighbour::Kind;
    const Neighbour& neighbour = trap_.neighbour;
    Case c = case_;
    switch (neighbour.kind) {
      case Kind::kShape:
        c.shape = neighbour.shape;
        c.format = neighbour.format;
        workloads_.push_back(std::make_unique<Workload>(c));
        return Enter(c, MakeContender(*workloads_.back(), c),
                     fmt::format("{} {}", c.shape.ToString(), ToString(c.format)));
      case Kind::kNaive:
        return Enter(c, std::unique_ptr<Contender>(new NaiveLoop(*workloads_.back(), c.shape)), "naive loop");
      case Kind::kLowerCaps:
        for (const core::Isa isa : core::kAllIsas) {
          if (core::TraitsOf(isa).rank >= core::TraitsOf(case_.isa).rank) continue;
          if (intact_isa_available(static_cast<intact_isa>(isa)) == 0) continue;
          c.isa = isa;
          Enter(c, MakeContender(*workloads_.back(), c), std::string(core::ToString(isa)));
        }
        return;
      case Kind::kReadB: {
        Result<ReadBandwidth> read = ReadBandwidth::Create(c.isa, c.shape.WeightBytes());
        if (!read) return figures_.push_back({"reading B", read.error().message, nullptr});
        const double gigabytes = 1e-9 * static_cast<double>(c.shape.WeightBytes());
        const auto measure = [gigabytes, shared = std::make_shared<ReadBandwidth>(std::move(*read))] {
          return 1e6 * gigabytes / shared->Measure();
        };
        return figures_.push_back({"reading B", "", measure});
      }
      case Kind::kTime:
        return figures_.push_back({fmt::format("{} us", neighbour.microseconds), "",
                                   [time = neighbour.microseconds] { return time; }});
    }
  }

  Trap trap_;
  Case case_;
  std::vector<std::unique_ptr<Workload>> workloads_;
  std::vector<std::unique_ptr<Entrant>> entrants_;
  std::vector<Bytes> outputs_;
  std::vector<Figure> figures_;
};

TrapRow MeasureRow(const Trap& trap, const Request& request, core::Isa isa) {
  TrapRow row;
  row.isa = core::ToString(isa);
  row.trap = trap;
  const Match match(trap, request, isa);
  std::vector<support::Measurement> turns;
  for (const Figure& figure : match.figures()) {
    if (!figure.error.empty()) row.error = figure.error;
    turns.push_back(figure.measure);
  }
  if (!row.error.empty()) return row;
  const std::vector<std::vector<double>> figures = support::TakeTurns(turns, request.budget);
  row.microseconds = support::Median(figures[0]);
  for (size_t i = 1; i < figures.size(); ++i) {
    const double microseconds = support::Median(figures[i]);
    if (!row.neighbour.empty() && microseconds >= row.neighbour_microseconds) continue;
    row.neighbour = match.figures()[i].name;
    row.neighbour_microseconds = microseconds;
    row.ratio = support::MedianRatio(figures[0], figures[i]);
  }
  return row;
}

Table TableOf(const std::vector<TrapRow>& rows, const std::string& isa) {
  Table table;
  table.title = fmt::format("{}: traps and their neighbours", isa);
  table.head = {"trap", "shape", "us", "neighbour", "us", "ratio", "target", ""};
  size_t all = 0, met = 0;
  for (const TrapRow& row : rows) {
    if (row.isa != isa) continue;
    const std::string number = fmt::format("{}", row.trap.number);
    const std::string shape = fmt::format("{} {}{}", row.trap.shape.ToString(), ToString(row.trap.format),
                                          row.trap.is_bound ? ", bound" : "");
    const std::string target = fmt::format("{:.2f}", row.trap.target);
    ++all;
    met += row.MeetsTarget() ? 1 : 0;
    if (row.IsMeasured()) {
      table.rows.push_back({number, shape, fmt::format("{:.2f}", row.microseconds), row.neighbour,
                            fmt::format("{:.2f}", row.neighbour_microseconds),
                            fmt::format("{:.2f}", row.ratio), target, row.MeetsTarget() ? "" : "missed"});
    } else {
      table.rows.push_back({number, shape, "-", "-", "-", "-", target, "missed"});
      table.notes.push_back(fmt::format("{}: {}", shape, row.error));
    }
  }
  table.notes.push_back(fmt::format("targets met: {} of {}", met, all));
  return table;
}

}  // namespace

bool TrapResults::AllRight() const { return std::ranges::all_of(rows, &TrapRow::IsMeasured); }

TrapResults RunTraps(const Request& request, const verify::Progress& progress) {
  TrapResults results;
  results.weights = request.weights.value_or(kLaplace).name;
  results.machine = support::DescribeMachine();
  const auto total = static_cast<int64_t>(Traps().size() * request.isas.size());
  int64_t done = 0;
  progress(done, total);
  for (const core::Isa isa : request.isas) {
    for (const Trap& trap : Traps()) {
      if (done > 0 && request.deadline.IsOver()) break;
      const bool is_lowest = core::IsCompiled(isa) && trap.neighbour.kind == Neighbour::Kind::kLowerCaps;
      if (!is_lowest) results.rows.push_back(MeasureRow(trap, request, isa));
      progress(++done, total);
    }
  }
  results.not_measured = total - done;
  return results;
}

std::string ToText(const TrapResults& results) {
  std::string text = fmt::format(
      "intact {}, suite traps, {} weights; one thread, medians of turns\n  {}, family {}, model {}\n",
      intact_version(), results.weights, results.machine.cpu, results.machine.family, results.machine.model);
  text += MissingText(results.not_measured);
  std::string last;
  for (const TrapRow& row : results.rows) {
    if (row.isa != last) text += ToText(TableOf(results.rows, row.isa));
    last = row.isa;
  }
  return text;
}

nlohmann::ordered_json ToJson(const TrapResults& results) {
  nlohmann::ordered_json json = {{"schema", "intact-bench-traps"},
                                 {"schema_version", 1},
                                 {"version", intact_version()},
                                 {"weights", results.weights},
                                 {"machine", verify::ToJson(results.machine)},
                                 {"not_measured", results.not_measured},
                                 {"rows", nlohmann::ordered_json::array()}};
  for (const TrapRow& row : results.rows) {
    nlohmann::ordered_json made = {{"isa", row.isa}, {"trap", row.trap.number}};
    made.update(nlohmann::ordered_json(nlohmann::json(row.trap.shape)));
    made["format"] = ToString(row.trap.format);
    made["bound"] = row.trap.is_bound;
    made["neighbour"] = row.neighbour;
    made["error"] = row.error;
    made["microseconds"] = row.microseconds;
    made["neighbour_microseconds"] = row.neighbour_microseconds;
    made["ratio"] = row.ratio;
    made["target"] = row.trap.target;
    json["rows"].push_back(std::move(made));
  }
  return json;
}

}  // namespace intact::bench
