#include "bench/report/report_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>

#include "core/isas.h"
#include "support/counted.h"
#include "support/deadline.h"
#include "support/turns.h"
#include "verify/report/report_terminal.h"

namespace intact::bench {
namespace {

std::string Percent(double share) { return fmt::format("{:.0f} %", 100 * share); }
std::string Ratio(double ratio) { return fmt::format("{:.2f}x", ratio); }
std::string Cost(double cost) { return fmt::format("{:+.1f} %", 100 * cost); }

std::string OrDash(const std::optional<double>& value, const std::function<std::string(double)>& text) {
  return value ? text(*value) : "-";
}

/// Builds a table of GEMMs, of convolutions, or of a network's layers on one ISA, column by column. Lines of
/// means follow the rows; for a network also a line of worst ratios and a line of sums.
class Builder {
 public:
  explicit Builder(std::vector<Row> rows)
      : rows_(std::move(rows)), groups_(GroupsOf(rows_)), layers_(Layers(rows_)), others_(OthersOf(rows_)) {}

  Table Build() && {
    const Row& first = rows_.front();
    const auto is_conv = [](const Row& row) { return row.shape.conv.has_value(); };
    const bool has_conv = std::ranges::any_of(rows_, is_conv);
    const bool has_gemm = !std::ranges::all_of(rows_, is_conv);
    const std::string_view what = first.shape.is_dynamic ? ", from float32 to float32"
                                  : first.shape.blocks   ? ", weights in blocks, from float32 to float32"
                                  : first.shape.batch    ? ", batches with runtime B"
                                  : !has_conv            ? ""
                                  : has_gemm             ? ", layers"
                                                         : ", convolutions";
    table_.title = fmt::format("{}{}: peak is {}", first.isa, what, first.peak);
    AddHeads(has_conv, has_gemm);
    if (layers_ > 0) Add("times", [](const Row& row) { return fmt::format("{}", row.times); });
    if (first.shape.blocks) {
      AddGops(kByRow, "by row GOPS");
      AddRoof();
      AddGops(kByBlock, "by block GOPS");
    } else if (first.shape.is_dynamic) {
      AddDynamic();
    } else {
      AddStatic(ScaledFormat(first));
    }
    AddOthers(kFloat);
    AddNotes();
    return std::move(table_);
  }

 private:
  using Value = std::function<std::optional<double>(const Row&)>;
  using Text = std::function<std::string(const Row&)>;
  using Print = std::function<std::string(double)>;

  static std::optional<double> RoofShare(const Row& row) {
    const Timing* const timing = row.Find(kIntact, MainFormat(row));
    return timing == nullptr ? std::nullopt : std::optional(OfRoof(row, *timing));
  }
  static std::string RoofText(const Row& row) {
    return OrDash(RoofShare(row), Percent) + (IsMemoryBound(row) ? " read" : " peak");
  }
  /// The time of `format` over the time of the main format.
  static std::optional<double> Factor(const Row& row, const Format& format) {
    const std::optional<double> cost = CostOf(row, format);
    return cost ? std::optional(1 + *cost) : std::nullopt;
  }
  static std::string GopsText(const Row& row, const Timing* timing) {
    if (timing == nullptr) return "-";
    return fmt::format("{:.1f}{}", Gops(row, *timing), timing->result == kSaturates ? kMark : "");
  }

  std::optional<double> Sum(std::string_view contender, const Format& format) const {
    return NetworkMilliseconds(rows_, contender, format);
  }

  /// The first cell of each line.
  void AddHeads(bool has_conv, bool has_gemm) {
    table_.head = {!has_conv ? "M×N×K" : has_gemm ? "C×H×W→O, M×N×K" : "C×H×W→O"};
    for (const Row& row : rows_)
      table_.rows.push_back({row.shape.ToString() + (row.IsUnsteady() ? " ?" : "")});
    for (const Group& group : groups_) {
      table_.rows.push_back({"geometric mean" + (has_conv ? ", " + group.name : "")});
    }
    if (layers_ == 0) return;
    table_.rows.push_back({"worst ratio"});
    table_.rows.push_back({fmt::format("sum of {}, ms", layers_)});
  }

  /// Adds a column: a cell for each row, the geometric mean of each group's values, and the cells `worst` and
  /// `sum`.
  void Add(std::string head, const Text& text, const Value& value = {}, const Print& mean = {},
           const std::string& worst = "", const std::string& sum = "") {
    table_.head.push_back(std::move(head));
    auto line = table_.rows.begin();
    for (const Row& row : rows_) (line++)->push_back(text(row));
    for (const Group& group : groups_) {
      std::vector<double> values;
      for (const Row& row : group.rows) {
        if (row.IsUnsteady()) continue;
        const std::optional<double> v = value ? value(row) : std::nullopt;
        if (v) values.push_back(*v);
      }
      (line++)->push_back(mean ? OrDash(GeometricMean(values), mean) : "");
    }
    if (layers_ == 0) return;
    (line++)->push_back(worst);
    line->push_back(sum);
  }

  void AddGopsOf(const std::string& contender, const Format& format, std::string head) {
    const auto text = [&](const Row& row) { return GopsText(row, row.Find(contender, format)); };
    const auto milliseconds = [](double sum) { return fmt::format("{:.2f}", sum); };
    Add(std::move(head), text, {}, {}, "", OrDash(Sum(contender, format), milliseconds));
  }

  /// Adds another contender's speed, and intact's speed over it.
  void AddOther(const std::string& other, const Format& format) {
    AddGopsOf(other, format, format == kFloat ? other + " f32" : other);
    const auto speed_up = [&](const Row& row) { return SpeedUp(row, other, format); };
    const bool is_marked = std::ranges::any_of(rows_, [&](const Row& row) {
      const Timing* const timing = row.Find(other, format);
      return timing != nullptr && timing->result == kSaturates;
    });
    saturates_ = saturates_ || is_marked;
    const auto mean = [&](double ratio) { return Ratio(ratio) + std::string(is_marked ? kMark : ""); };
    const std::optional<double> ours = Sum(kIntact, OursBeside(rows_.front(), format)),
                                theirs = Sum(other, format);
    Add(
        "ratio", [&](const Row& row) { return OrDash(speed_up(row), Ratio); }, speed_up, mean,
        OrDash(WorstOf(rows_, other, format), mean), ours && theirs ? mean(*theirs / *ours) : "-");
  }

  /// The contenders that computed `format` in any row, or failed to.
  void AddOthers(const Format& format) {
    const auto has = [&](const Row& row, const std::string& other) {
      return std::ranges::any_of(row.timings, [&](const Timing& timing) {
        return timing.contender == other && timing.format == format;
      });
    };
    for (const std::string& other : others_) {
      if (std::ranges::any_of(rows_, [&](const Row& row) { return has(row, other); }))
        AddOther(other, format);
    }
  }

  void AddGops(const Format& format, std::string head) {
    AddGopsOf(std::string(kIntact), format, std::move(head));
    AddOthers(format);
  }

  void AddRoof() { Add("of roof", RoofText, RoofShare, Percent); }

  /// Adds the extra time of `format` over the main format.
  void AddCost(const Format& format, std::string head) {
    Add(
        std::move(head), [&](const Row& row) { return OrDash(CostOf(row, format), Cost); },
        [&](const Row& row) { return Factor(row, format); }, [](double factor) { return Cost(factor - 1); });
  }

  /// Adds s32 outputs and scaled outputs.
  void AddStatic(const Format& scaled) {
    const std::string name(verify::ToString(scaled.c_type));
    AddGops(kS32, "s32 GOPS");
    AddRoof();
    AddGops(scaled, name + " GOPS");
    AddCost(scaled, name + " cost");
  }

  void AddDynamic() {
    AddGops(kF32, "static GOPS");
    AddRoof();
    for (const Format& format : {kByTensor, kByRow}) {
      AddCost(format, fmt::format("by {}", ToString(format.quantization)));
      AddOthers(format);
    }
  }

  void AddNotes() {
    if (std::ranges::any_of(rows_, &Row::IsUnsteady)) {
      table_.notes.push_back(
          fmt::format("? the turns of a time differ by more than {:.0f} % of the median, also when the row "
                      "was measured again: "
                      "in no mean and no worst ratio; sums have it",
                      100 * Timing::kMostSpread));
    }
    if (saturates_) {
      table_.notes.emplace_back(
          "! saturates in int16: equal to the model of its instructions, not to the exact result");
    }
    if (const auto isa = core::ParseIsa(rows_.front().isa); isa && core::SaturatesInt16(*isa)) {
      table_.notes.emplace_back(
          "the peak widens after each quad; exact kernels widen once per group, and may exceed it");
    }
    for (const std::string& other : others_) {
      if (!HasTiming(rows_, other, kFloat)) continue;
      const Format ours = OursBeside(rows_.front(), kFloat);
      table_.notes.push_back(fmt::format("{} f32: computed in float; its ratio compares it with intact's {}",
                                         other, ToString(ours)));
    }
    if (rows_.front().shape.is_dynamic) {
      table_.notes.emplace_back("by tensor, by row: extra time of runs that quantize A, over runs with u8 A");
      table_.notes.emplace_back("peers quantize and scale in separate passes: bench/peers/engine_passes.h");
    }
    const auto has_u8_b = [](const Row& row) {
      return row.shape.batch && row.shape.batch->b_type == INTACT_U8;
    };
    if (std::ranges::any_of(rows_, has_u8_b)) {
      table_.notes.emplace_back("peers take no u8 Bs, and get s8 Bs instead");
    }
    for (const Row& row : rows_) {
      for (const Timing& timing : row.timings) {
        if (timing.IsTimed()) continue;
        table_.notes.push_back(fmt::format("{}, {}, {}: {}", row.shape.ToString(), timing.contender,
                                           ToString(timing.format), timing.result));
      }
    }
  }

  std::vector<Row> rows_;
  std::vector<Group> groups_;
  int layers_;  // of a network; 0 for other tables
  std::vector<std::string> others_;
  Table table_;
  bool saturates_ = false;
};

/// Adds a labelled list, broken into lines.
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
                     100 * support::Median(spreads), 100 * std::ranges::max(spreads));
}

/// Tables of the rows of one ISA that have the same columns.
std::vector<Table> IsaTables(const Results& results, std::string_view isa) {
  std::vector<Row> all = results.RowsOf(isa);
  if (Layers(all) > 0) return {Builder(std::move(all)).Build()};
  const auto place = [](const Row& row) {
    return row.shape.conv ? 1 : row.shape.is_dynamic ? 2 : row.shape.batch ? 3 : row.shape.blocks ? 4 : 0;
  };
  std::array<std::vector<Row>, 5> parts;
  for (Row& row : all) parts.at(place(row)).push_back(std::move(row));
  std::vector<Table> tables;
  for (std::vector<Row>& part : parts) {
    if (!part.empty()) tables.push_back(Builder(std::move(part)).Build());
  }
  return tables;
}

/// Has no rows if none of its shapes was measured.
Table DynamicTable(const Results& results) {
  constexpr std::array kShapes = {Shape{128, 768, 768}, Shape{1, 4096, 4096}};
  Table table;
  table.title = "quantizing A in the run: extra time over u8 activations, medians of turns";
  table.head = {"ISA", "M×N×K", "by tensor", "by row"};
  for (const Row& row : results.rows) {
    const auto is_size = [&](const Shape& shape) { return row.shape.ToString() == shape.ToString(); };
    if (!row.shape.is_dynamic || std::ranges::none_of(kShapes, is_size)) continue;
    table.rows.push_back({row.isa, row.shape.ToString(), OrDash(CostOf(row, kByTensor), Cost),
                          OrDash(CostOf(row, kByRow), Cost)});
  }
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

}  // namespace

std::string MissingText(int64_t not_measured) {
  if (not_measured == 0) return "";
  return fmt::format("  missing                {}: {}\n", support::Counted(not_measured, "measurement"),
                     support::kTimeIsOver);
}

Table MachineTable(const Results& results) {
  Table table;
  const support::Machine& machine = results.machine;
  const auto add = [&](std::string_view label, std::string text) {
    table.rows.push_back({std::string(label), std::move(text)});
  };
  add("CPU", verify::CpuText(machine));
  add("this process may use", verify::CoresText(machine));
  add("caches", verify::CachesText(machine));
  std::vector<std::string> available;
  for (const support::IsaStatus& status : results.isas) {
    if (status.available) available.emplace_back(intact_isa_name(status.isa));
  }
  AddItems("ISAs", available, &table);
  for (const support::IsaStatus& status : results.isas) {
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
  for (const PeerVersion& peer : results.peers) {
    add("peer " + peer.name, peer.call_microseconds == 0 ? peer.version
                                                         : fmt::format("{}; a call takes {:.1f} us",
                                                                       peer.version, peer.call_microseconds));
  }
  if (results.peers.empty())
    add("peers", "none; libdnnl-dev was not found when intact was configured; see --peer");
  add("spread of turns", SpreadText(results.rows));
  return table;
}

std::vector<Table> Tables(const Results& results) {
  std::vector<Table> tables;
  for (const std::string& isa : results.Isas()) {
    std::ranges::move(IsaTables(results, isa), std::back_inserter(tables));
  }
  for (const Table& table : {DynamicTable(results), FirstCallTable(results)}) {
    if (!table.rows.empty()) tables.push_back(table);
  }
  return tables;
}

}  // namespace intact::bench
