#include "bench/report_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <utility>

#include "verify/report_terminal.h"
#include "verify/turns.h"

namespace intact::bench {
namespace {

constexpr std::string_view kMark = "!";

std::string Percent(double share) { return fmt::format("{:.0f} %", 100 * share); }
std::string Ratio(double ratio) { return fmt::format("{:.2f}x", ratio); }
std::string Cost(double cost) { return fmt::format("{:+.1f} %", 100 * cost); }

std::string OrDash(const std::optional<double>& value, const std::function<std::string(double)>& text) {
  return value ? text(*value) : "-";
}

/// The columns of one ISA's table, cell by cell; remembers what the means are of.
class Builder {
 public:
  explicit Builder(const Results& results, std::string_view isa) : rows_(results.RowsOf(isa)) {
    for (const PeerVersion& peer : results.peers) peers_.push_back(peer.name);
  }

  Table Build() && {
    table_.head = {"M×N×K"};
    for (const Row& row : rows_) table_.rows.push_back({row.shape().ToString()});
    table_.rows.push_back({"geometric mean"});
    AddGops("s32", "s32 GOPS");
    Add("of roof", RoofText, RoofShare, Percent);
    AddGops("u8", "u8 GOPS");
    Add(
        "u8 cost", [](const Row& row) { return OrDash(FusedCost(row), Cost); }, FusedFactor,
        [](double factor) { return Cost(factor - 1); });
    AddNotes();
    return std::move(table_);
  }

 private:
  using Value = std::function<std::optional<double>(const Row&)>;
  using Text = std::function<std::string(const Row&)>;

  static std::optional<double> RoofShare(const Row& row) {
    const Timing* const timing = row.Find(kIntact, "s32");
    return timing == nullptr ? std::nullopt : std::optional(OfRoof(row, *timing));
  }
  static std::string RoofText(const Row& row) {
    return OrDash(RoofShare(row), Percent) + (IsMemoryBound(row) ? " read" : " peak");
  }
  static std::optional<double> FusedFactor(const Row& row) {
    const std::optional<double> cost = FusedCost(row);
    return cost ? std::optional(1 + *cost) : std::nullopt;
  }
  static std::string GopsText(const Row& row, const Timing* timing) {
    if (timing == nullptr) return "-";
    return fmt::format("{:.1f}{}", Gops(row, *timing), timing->result == kSaturates ? kMark : "");
  }

  /// A column: a cell of each row, and the geometric mean of the values that there are.
  void Add(std::string head, const Text& text, const Value& value = {},
           const std::function<std::string(double)>& mean = {}) {
    table_.head.push_back(std::move(head));
    std::vector<double> values;
    for (size_t i = 0; i < rows_.size(); ++i) {
      table_.rows[i].push_back(text(rows_[i]));
      const std::optional<double> v = value ? value(rows_[i]) : std::nullopt;
      if (v) values.push_back(*v);
    }
    table_.rows.back().push_back(mean ? OrDash(GeometricMean(values), mean) : "");
  }

  void AddGops(const std::string& c_type, std::string head) {
    Add(std::move(head), [&](const Row& row) { return GopsText(row, row.Find(kIntact, c_type)); });
    for (const std::string& peer : peers_) {
      Add(peer, [&](const Row& row) { return GopsText(row, row.Find(peer, c_type)); });
      const auto speed_up = [&](const Row& row) { return SpeedUp(row, peer, c_type); };
      const bool is_marked = std::ranges::any_of(rows_, [&](const Row& row) {
        const Timing* const timing = row.Find(peer, c_type);
        return timing != nullptr && timing->result == kSaturates;
      });
      saturates_ = saturates_ || is_marked;
      Add(
          "ratio", [&](const Row& row) { return OrDash(speed_up(row), Ratio); }, speed_up,
          [&](double mean) { return Ratio(mean) + std::string(is_marked ? kMark : ""); });
    }
  }

  void AddNotes() {
    if (saturates_) {
      table_.notes.emplace_back(
          "! saturates in int16: equal to the model of its instructions, not to the exact result");
    }
    if (!rows_.empty() && rows_.front().peak.starts_with("triple")) {
      table_.notes.emplace_back(
          "the peak widens after each k-quad; exact kernels widen once a group, and may exceed it");
    }
    for (const Row& row : rows_) {
      for (const Timing& timing : row.timings) {
        if (timing.IsTimed()) continue;
        table_.notes.push_back(fmt::format("{}, {}, {}: {}", row.shape().ToString(), timing.contender,
                                           timing.c_type, timing.result));
      }
    }
  }

  std::vector<Row> rows_;
  std::vector<std::string> peers_;
  Table table_;
  bool saturates_ = false;
};

/// A labelled list, on as many lines as it takes.
void AddItems(std::string label, const std::vector<std::string>& items, Table* table) {
  constexpr size_t kLineBytes = 64;
  std::string line;
  for (const std::string& item : items) {
    if (!line.empty() && line.size() + item.size() > kLineBytes) {
      table->rows.push_back({std::exchange(label, ""), std::exchange(line, "") + ","});
    }
    line += (line.empty() ? "" : ", ") + item;
  }
  if (!line.empty()) table->rows.push_back({label, line});
}

/// How much the turns of a timing differ.
std::string SpreadText(const std::vector<Row>& rows) {
  std::vector<double> spreads;
  for (const Row& row : rows) {
    for (const Timing& timing : row.timings) {
      if (timing.IsTimed()) spreads.push_back(timing.spread);
    }
  }
  if (spreads.empty()) return "nothing was timed";
  return fmt::format("interquartile range {:.1f} % of the median time, at worst {:.1f} %",
                     100 * verify::Median(spreads), 100 * std::ranges::max(spreads));
}

}  // namespace

Table MachineTable(const Results& results) {
  Table table;
  const verify::Machine& machine = results.machine;
  const auto add = [&](std::string_view label, std::string text) {
    table.rows.push_back({std::string(label), std::move(text)});
  };
  add("CPU", fmt::format("{}, family {}, model {}", machine.cpu, machine.family, machine.model));
  add("cores, threads", fmt::format("{}, {}", machine.cores, machine.threads));
  add("caches", fmt::format("L1d {}, L2 {}, L3 {}", verify::BytesText(machine.l1d_bytes),
                            verify::BytesText(machine.l2_bytes), verify::BytesText(machine.l3_bytes)));
  std::vector<std::string> available;
  for (const verify::IsaStatus& status : results.isas) {
    if (status.available) available.emplace_back(intact_isa_name(status.isa));
  }
  AddItems("ISAs", available, &table);
  for (const verify::IsaStatus& status : results.isas) {
    if (!status.available) add(fmt::format("not {}", intact_isa_name(status.isa)), status.reason);
  }
  std::vector<std::string> items;
  for (const PeakResult& peak : results.peaks)
    items.push_back(fmt::format("{} {:.0f}", peak.name, peak.gops));
  AddItems("peaks, GOPS", items, &table);
  items.clear();
  for (const ReadResult& read : results.reads) {
    items.push_back(fmt::format("{} ({}) {:.1f}", verify::BytesText(read.bytes), read.level, read.gb_per_s));
  }
  AddItems("read bandwidth, GB/s", items, &table);
  for (const PeerVersion& peer : results.peers) add("peer " + peer.name, peer.version);
  if (results.peers.empty()) add("peers", "none; libdnnl-dev was not there when intact was configured");
  add("spread of turns", SpreadText(results.rows));
  return table;
}

Table IsaTable(const Results& results, std::string_view isa) {
  Table table = Builder(results, isa).Build();
  const std::vector<Row> rows = results.RowsOf(isa);
  const std::string peak = rows.empty() ? "" : rows.front().peak;
  table.title = fmt::format("{}: peak is {}", isa, peak);
  return table;
}

Table FirstCallTable(const Results& results) {
  Table table;
  table.title = "plans and threads";
  table.head = {"ISA", "create, N=16 K=64", "pack, N=K=1024", "two threads, 1024×1024×1024"};
  for (const FirstCall& call : results.first_calls) {
    if (!call.error.empty()) {
      table.rows.push_back({call.isa, "-", "-", "-"});
      table.notes.push_back(fmt::format("{}: {}", call.isa, call.error));
      continue;
    }
    table.rows.push_back({call.isa, fmt::format("{:.1f} us", call.create_microseconds),
                          fmt::format("{:.3f} GB/s", call.pack_gb_per_s),
                          call.speed_up_of_two_threads == 0 ? "-" : Ratio(call.speed_up_of_two_threads)});
  }
  return table;
}

}  // namespace intact::bench
