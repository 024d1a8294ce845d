#include "bench/report_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>

#include "verify/report_terminal.h"
#include "verify/turns.h"

namespace intact::bench {
namespace {

std::string Percent(double share) { return fmt::format("{:.0f} %", 100 * share); }
std::string Ratio(double ratio) { return fmt::format("{:.2f}x", ratio); }
std::string Cost(double cost) { return fmt::format("{:+.1f} %", 100 * cost); }

std::string OrDash(const std::optional<double>& value, const std::function<std::string(double)>& text) {
  return value ? text(*value) : "-";
}

/// The columns of a table of GEMMs, of convolutions, or of a network's layers on one ISA, cell by cell; then
/// means, and of a network the worst of each ratio and the sums.
class Builder {
 public:
  explicit Builder(std::vector<Row> rows)
      : rows_(std::move(rows)), groups_(GroupsOf(rows_)), layers_(Layers(rows_)), others_(OthersOf(rows_)) {}

  Table Build() && {
    const auto is_conv = [](const Row& row) { return row.shape.conv.has_value(); };
    const bool has_conv = std::ranges::any_of(rows_, is_conv);
    const bool has_gemm = !std::ranges::all_of(rows_, is_conv);
    const std::string_view what = !has_conv ? "" : has_gemm ? ", layers" : ", convolutions";
    table_.title = fmt::format("{}{}: peak is {}", rows_.front().isa, what, rows_.front().peak);
    AddHeads(has_conv, has_gemm);
    if (layers_ > 0) Add("times", [](const Row& row) { return fmt::format("{}", row.times); });
    AddGops("s32", "s32 GOPS");
    Add("of roof", RoofText, RoofShare, Percent);
    AddGops("u8", "u8 GOPS");
    Add(
        "u8 cost", [](const Row& row) { return OrDash(FusedCost(row), Cost); }, FusedFactor,
        [](double factor) { return Cost(factor - 1); });
    for (const std::string& other : others_) {
      if (HasTiming(rows_, other, "f32")) AddOther(other, "f32");
    }
    AddNotes();
    return std::move(table_);
  }

 private:
  using Value = std::function<std::optional<double>(const Row&)>;
  using Text = std::function<std::string(const Row&)>;
  using Format = std::function<std::string(double)>;

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

  std::optional<double> Sum(std::string_view contender, std::string_view c_type) const {
    return NetworkMilliseconds(rows_, contender, c_type);
  }

  /// The first cell of each line.
  void AddHeads(bool has_conv, bool has_gemm) {
    table_.head = {!has_conv ? "M×N×K" : has_gemm ? "C×H×W→O, M×N×K" : "C×H×W→O"};
    for (const Row& row : rows_) table_.rows.push_back({row.shape.ToString()});
    for (const Group& group : groups_) {
      table_.rows.push_back({"geometric mean" + (has_conv ? ", " + group.name : "")});
    }
    if (layers_ == 0) return;
    table_.rows.push_back({"worst ratio"});
    table_.rows.push_back({fmt::format("sum of {}, ms", layers_)});
  }

  /// A column: a cell of each row, the geometric mean of the values that there are in each group, the cells
  /// of the worst and of the sum.
  void Add(std::string head, const Text& text, const Value& value = {}, const Format& mean = {},
           const std::string& worst = "", const std::string& sum = "") {
    table_.head.push_back(std::move(head));
    auto line = table_.rows.begin();
    for (const Row& row : rows_) (line++)->push_back(text(row));
    for (const Group& group : groups_) {
      std::vector<double> values;
      for (const Row& row : group.rows) {
        const std::optional<double> v = value ? value(row) : std::nullopt;
        if (v) values.push_back(*v);
      }
      (line++)->push_back(mean ? OrDash(GeometricMean(values), mean) : "");
    }
    if (layers_ == 0) return;
    (line++)->push_back(worst);
    line->push_back(sum);
  }

  void AddGopsOf(const std::string& contender, const std::string& c_type, std::string head) {
    const auto text = [&](const Row& row) { return GopsText(row, row.Find(contender, c_type)); };
    const auto milliseconds = [](double sum) { return fmt::format("{:.2f}", sum); };
    Add(std::move(head), text, {}, {}, "", OrDash(Sum(contender, c_type), milliseconds));
  }

  /// Another contender's speed, and intact's over it.
  void AddOther(const std::string& other, const std::string& c_type) {
    AddGopsOf(other, c_type, c_type == "f32" ? other + " f32" : other);
    const auto speed_up = [&](const Row& row) { return SpeedUp(row, other, c_type); };
    const bool is_marked = std::ranges::any_of(rows_, [&](const Row& row) {
      const Timing* const timing = row.Find(other, c_type);
      return timing != nullptr && timing->result == kSaturates;
    });
    saturates_ = saturates_ || is_marked;
    const auto mean = [&](double ratio) { return Ratio(ratio) + std::string(is_marked ? kMark : ""); };
    const std::optional<double> ours = Sum(kIntact, OursBeside(c_type)), theirs = Sum(other, c_type);
    Add(
        "ratio", [&](const Row& row) { return OrDash(speed_up(row), Ratio); }, speed_up, mean,
        OrDash(WorstOf(rows_, other, c_type), mean), ours && theirs ? mean(*theirs / *ours) : "-");
  }

  void AddGops(const std::string& c_type, std::string head) {
    AddGopsOf(std::string(kIntact), c_type, std::move(head));
    for (const std::string& other : others_) AddOther(other, c_type);
  }

  void AddNotes() {
    if (saturates_) {
      table_.notes.emplace_back(
          "! saturates in int16: equal to the model of its instructions, not to the exact result");
    }
    if (rows_.front().peak.starts_with("triple")) {
      table_.notes.emplace_back(
          "the peak widens after each k-quad; exact kernels widen once a group, and may exceed it");
    }
    if (std::ranges::any_of(others_, [&](const std::string& o) { return HasTiming(rows_, o, "f32"); })) {
      table_.notes.emplace_back("f32: a peer in float; its ratio is that of intact's u8");
    }
    for (const Row& row : rows_) {
      for (const Timing& timing : row.timings) {
        if (timing.IsTimed()) continue;
        table_.notes.push_back(fmt::format("{}, {}, {}: {}", row.shape.ToString(), timing.contender,
                                           timing.c_type, timing.result));
      }
    }
  }

  std::vector<Row> rows_;
  std::vector<Group> groups_;
  int layers_;  // of a network; else 0
  std::vector<std::string> others_;
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

std::vector<Table> IsaTables(const Results& results, std::string_view isa) {
  std::vector<Row> gemms = results.RowsOf(isa), convolutions;
  if (Layers(gemms) > 0) return {Builder(std::move(gemms)).Build()};
  const auto is_conv = [](const Row& row) { return row.shape.conv.has_value(); };
  std::ranges::copy_if(gemms, std::back_inserter(convolutions), is_conv);
  std::erase_if(gemms, is_conv);
  std::vector<Table> tables;
  for (std::vector<Row>* rows : {&gemms, &convolutions}) {
    if (!rows->empty()) tables.push_back(Builder(std::move(*rows)).Build());
  }
  return tables;
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
