#include "bench/grouped.h"

#include <fmt/format.h>
#include <intact/grouped.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "bench/bandwidth.h"
#include "bench/measure.h"
#include "bench/peaks.h"
#include "bench/report_table.h"
#include "core/isas.h"
#include "kernels/codegen/dispatch.h"
#include "reference/contract/grouped.h"
#include "support/random.h"
#include "support/turns.h"
#include "verify/report/report_json.h"

namespace intact::bench {
namespace {

constexpr int64_t kCheckedColumns = 40;
constexpr std::array<int64_t, 4> kRows = {1, 4, 16, 128};

struct Destroy {
  void operator()(intact_grouped* plan) const { intact_grouped_destroy(plan); }
};

// A plan, and the tensors of a run with some number of rows.
class Product {
 public:
  Product(const GroupedShape& shape, core::Isa isa) : shape_(shape) {
    reference_.n = std::min(shape.n, kCheckedColumns);
    reference_.k = shape.k;
    reference_.group = shape.group;
    reference_.b_type = b_type();
    support::Random random(1, 0, 0);
    const int64_t groups = reference_.groups();
    b_.resize(static_cast<size_t>(shape.n * shape.k * shape.bits / 8));
    for (size_t i = 0; i + sizeof(uint64_t) <= b_.size(); i += sizeof(uint64_t)) {
      const uint64_t bytes = random.Next();
      std::memcpy(b_.data() + i, &bytes, sizeof(bytes));
    }
    // 2⁻⁷ to 2⁻⁵ as float16
    scales_.resize(static_cast<size_t>(shape.n * groups));
    for (uint16_t& scale : scales_) scale = static_cast<uint16_t>(0x2000 + random.Integer(0, 0x7ff));
    for (int64_t n = 0; n < reference_.n; ++n) {
      for (int64_t k = 0; k < shape.k; ++k) reference_.b.push_back(Weight(k, n));
    }
    reference_.b_scales.resize(static_cast<size_t>(reference_.n * groups) * sizeof(uint16_t));
    std::memcpy(reference_.b_scales.data(), scales_.data(), reference_.b_scales.size());
    intact_grouped_desc desc = INTACT_GROUPED_DESC_INIT;
    desc.n = shape.n;
    desc.k = shape.k;
    desc.group = shape.group;
    desc.b_type = b_type();
    desc.b_scales = scales_.data();
    desc.max_isa = static_cast<int32_t>(isa);
    intact_grouped* plan = nullptr;
    status_ = intact_grouped_create(&desc, b_.data(), &plan);
    plan_.reset(plan);
    if (status_ == INTACT_OK) intact_grouped_query(plan, &info_);
  }

  /// Makes tensors for `m` rows.
  void SetRows(int64_t m) {
    support::Random random(2, 0, 0);
    a_.resize(static_cast<size_t>(m * shape_.k));
    for (float& number : a_) number = static_cast<float>(random.Gauss());
    c_.resize(static_cast<size_t>(m * shape_.n));
    args_.m = m;
    args_.a = a_.data();
    args_.c = c_.data();
    args_.threads = 1;
    if (plan_ == nullptr) return;
    intact_run_info info = INTACT_RUN_INFO_INIT;
    status_ = intact_grouped_prepare(plan_.get(), &args_, &info);
    scratch_.resize(info.scratch_bytes);
    args_.scratch = scratch_.data();
    args_.scratch_bytes = scratch_.size();
  }

  const intact_grouped_info& info() const { return info_; }
  void Run() { status_ = intact_grouped_run(plan_.get(), &args_); }

  /// "" or what is wrong with the outputs. The first columns are compared with the reference.
  std::string Check() {
    if (status_ == INTACT_OK) Run();
    if (status_ != INTACT_OK) return intact_last_error();
    reference_.m = args_.m;
    reference_.a_source.resize(a_.size() * sizeof(float));
    std::memcpy(reference_.a_source.data(), a_.data(), reference_.a_source.size());
    reference::QuantizeActivations(&reference_);
    const std::vector<uint8_t> expected = reference::Outputs(reference_);
    const size_t row_bytes = static_cast<size_t>(reference_.n) * sizeof(float);
    for (int64_t row = 0; row < args_.m; ++row) {
      const void* const outputs = c_.data() + row * shape_.n;
      if (std::memcmp(outputs, expected.data() + static_cast<size_t>(row) * row_bytes, row_bytes) != 0) {
        return fmt::format("row {} differs from the reference", row);
      }
    }
    return "";
  }

 private:
  int32_t b_type() const { return shape_.bits == 4 ? int32_t{INTACT_U4} : int32_t{INTACT_S8}; }
  int16_t Weight(int64_t k, int64_t n) const {
    if (shape_.bits == 8) return static_cast<int8_t>(b_[static_cast<size_t>(n * shape_.k + k)]);
    return static_cast<int16_t>(b_[static_cast<size_t>((n * shape_.k + k) / 2)] >> (k % 2 * 4) & 15);
  }

  GroupedShape shape_;
  reference::Grouped reference_;  // the first columns
  std::vector<uint8_t> b_, scratch_;
  std::vector<uint16_t> scales_;
  std::vector<float> a_, c_;
  intact_status status_ = INTACT_OK;
  std::unique_ptr<intact_grouped, Destroy> plan_;
  intact_grouped_info info_ = INTACT_GROUPED_INFO_INIT;
  intact_grouped_args args_ = INTACT_GROUPED_ARGS_INIT;
};

GroupedRow MeasureRow(const GroupedShape& shape, int64_t m, Product* product, Seconds budget, core::Isa isa) {
  GroupedRow row;
  row.isa = core::ToString(isa);
  row.shape = shape;
  row.m = m;
  product->SetRows(m);
  row.error = product->Check();
  if (!row.error.empty()) return row;
  row.kernel = product->info().kernel;
  const auto bytes = product->info().packed_bytes;
  row.bytes_per_weight = static_cast<double>(bytes) / static_cast<double>(shape.n * shape.k);
  const Result<ReadBandwidth> read = ReadBandwidth::Create(isa, bytes);
  if (!read) {
    row.error = read.error().message;
    return row;
  }
  const Peak peak = PeakOf(kernels::VectorIsa(isa));
  row.peak = peak.name;
  const double operations = 2e-3 * static_cast<double>(m * shape.n) * static_cast<double>(shape.k);
  const std::array<support::Measurement, 3> turns = {
      TurnOf([&](int64_t calls) { return support::MicrosecondsPerCall([&] { product->Run(); }, calls); },
             kShortestTurn),
      [&] { return 1e-3 * static_cast<double>(bytes) / read->Measure(); },
      [&] { return operations / MeasureGops(peak); }};
  const std::vector<std::vector<double>> figures = support::TakeTurns(turns, budget);
  row.microseconds = support::Median(figures[0]);
  row.of_bandwidth = support::MedianRatio(figures[1], figures[0]);
  row.of_peak = support::MedianRatio(figures[2], figures[0]);
  return row;
}

Table TableOf(const std::vector<GroupedRow>& rows, const std::string& isa) {
  Table table;
  table.title = fmt::format("{}: grouped weights, f32 activations quantized to s8", isa);
  table.head = {"weights", "group", "M", "K×N", "us", "bytes/weight", "of bandwidth", "of peak"};
  for (const GroupedRow& row : rows) {
    if (row.isa != isa) continue;
    const GroupedShape& shape = row.shape;
    std::vector<std::string> cells = {shape.bits == 4 ? "u4" : "s8", fmt::format("{}", shape.group),
                                      fmt::format("{}", row.m), fmt::format("{}×{}", shape.k, shape.n)};
    if (row.IsMeasured()) {
      for (std::string& cell :
           std::array{fmt::format("{:.1f}", row.microseconds), fmt::format("{:.3f}", row.bytes_per_weight),
                      fmt::format("{:.2f}", row.of_bandwidth), fmt::format("{:.2f}", row.of_peak)}) {
        cells.push_back(std::move(cell));
      }
    } else {
      cells.insert(cells.end(), 4, "-");
      table.notes.push_back(fmt::format("M = {}, K×N = {}×{}: {}", row.m, shape.k, shape.n, row.error));
    }
    table.rows.push_back(std::move(cells));
  }
  return table;
}

}  // namespace

bool GroupedResults::AllRight() const { return std::ranges::all_of(rows, &GroupedRow::IsMeasured); }

std::vector<GroupedShape> GroupedShapes() {
  std::vector<GroupedShape> shapes;
  for (const int bits : {4, 8}) {
    for (const int64_t group : {32, 128}) {
      for (const int64_t n : {4096, 14336}) shapes.push_back({bits, n, 4096, group});
    }
  }
  return shapes;
}

GroupedResults RunGrouped(const Request& request, const std::vector<GroupedShape>& shapes,
                          const verify::Progress& progress) {
  GroupedResults results;
  results.machine = support::DescribeMachine();
  const auto total = static_cast<int64_t>(shapes.size() * request.isas.size());
  int64_t done = 0;
  progress(done, total);
  for (const core::Isa isa : request.isas) {
    for (const GroupedShape& shape : shapes) {
      Product product(shape, isa);
      for (const int64_t m : kRows)
        results.rows.push_back(MeasureRow(shape, m, &product, request.budget, isa));
      progress(++done, total);
    }
  }
  return results;
}

std::string ToText(const GroupedResults& results) {
  std::string text =
      fmt::format("intact {}; one thread, medians of turns\n  {}, family {}, model {}\n", intact_version(),
                  results.machine.cpu, results.machine.family, results.machine.model);
  std::string last;
  for (const GroupedRow& row : results.rows) {
    if (row.isa != last) text += ToText(TableOf(results.rows, row.isa));
    last = row.isa;
  }
  return text;
}

nlohmann::ordered_json ToJson(const GroupedResults& results) {
  nlohmann::ordered_json json = {{"schema", "intact-bench-grouped"},
                                 {"schema_version", 1},
                                 {"version", intact_version()},
                                 {"machine", verify::ToJson(results.machine)},
                                 {"rows", nlohmann::ordered_json::array()}};
  for (const GroupedRow& row : results.rows) {
    const GroupedShape& shape = row.shape;
    json["rows"].push_back({{"isa", row.isa},
                            {"bits", shape.bits},
                            {"m", row.m},
                            {"n", shape.n},
                            {"k", shape.k},
                            {"group", shape.group},
                            {"error", row.error},
                            {"kernel", row.kernel},
                            {"peak", row.peak},
                            {"bytes_per_weight", row.bytes_per_weight},
                            {"microseconds", row.microseconds},
                            {"of_bandwidth", row.of_bandwidth},
                            {"of_peak", row.of_peak}});
  }
  return json;
}

}  // namespace intact::bench
