#include "bench/measure/grouped.h"

#include <fmt/format.h>
#include <intact/grouped.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <intact/grouped.hpp>
#include <memory>
#include <stdexcept>
#include <utility>

#include "bench/cases/contender.h"
#include "bench/measure/bandwidth.h"
#include "bench/measure/measure.h"
#include "bench/measure/peaks.h"
#include "bench/report/report_table.h"
#include "core/isas.h"
#include "core/result.h"
#include "kernels/codegen/dispatch.h"
#include "reference/contract/grouped.h"
#include "support/random.h"
#include "support/turns.h"
#include "verify/report/report_json.h"
#include "verify/targets/guarded_grouped.h"

namespace intact::bench {
namespace {

constexpr int64_t kCheckedColumns = 40;
constexpr int64_t kCheckedRows = 128;
// The largest error of a peer, relative to the mean of Σ|a·w|. An activation that is quantized otherwise,
// weights in another order or a neighbour's scale make a larger error. Rounding in float32 makes a smaller
// error.
constexpr double kLargestError = 2e-6;

/// `count` numbers from 0 to extent − 1, evenly spaced, with both ends; fewer if the extent is smaller.
std::vector<int64_t> Sample(int64_t extent, int64_t count) {
  std::vector<int64_t> sample(static_cast<size_t>(std::min(extent, count)));
  const int64_t last = std::max<int64_t>(std::ssize(sample) - 1, 1);
  for (int64_t i = 0; i < std::ssize(sample); ++i) {
    sample[static_cast<size_t>(i)] = i * (extent - 1) / last;
  }
  return sample;
}

// Random weights, and activations for `m` rows.
class Operands {
 public:
  Operands(const GroupedShape& shape, int64_t m)
      : shape_(shape), m_(m), columns_(Sample(shape.n, kCheckedColumns)) {
    support::Random random(1, 0, 0);
    format_.b_type = shape.bits == 4 ? INTACT_U4 : INTACT_S8;
    format_.group = shape.group;
    b_.resize(static_cast<size_t>(shape.n * format_.ColumnBytes(shape.k)));
    for (size_t i = 0; i + sizeof(uint64_t) <= b_.size(); i += sizeof(uint64_t)) {
      const uint64_t bytes = random.Next();
      std::memcpy(b_.data() + i, &bytes, sizeof(bytes));
    }
    // 2⁻⁷ to 2⁻⁵ as float16
    scales_.resize(static_cast<size_t>(shape.n * groups()));
    for (uint16_t& scale : scales_) scale = static_cast<uint16_t>(0x2000 + random.Integer(0, 0x7ff));
    a_.resize(static_cast<size_t>(m * shape.k));
    for (float& number : a_) number = static_cast<float>(random.Gauss());
  }

  const uint8_t* a() const { return reinterpret_cast<const uint8_t*>(a_.data()); }
  int64_t m() const { return m_; }

  intact_grouped_desc Describe(core::Isa isa, bool by_groups) const {
    reference::Grouped all = SampleOf({}, by_groups);
    all.n = shape_.n;
    intact_grouped_desc desc = verify::DescOf(all, {});
    desc.max_isa = static_cast<int32_t>(isa);
    desc.b_scales = scales_.data();
    return desc;
  }
  const uint8_t* b() const { return b_.data(); }
  GroupedOperands ForPeers(core::Isa isa) const { return {shape_, isa, m_, b_, scales_}; }

  /// "" or what is wrong with the outputs of intact for `m` rows. Sampled outputs are compared.
  std::string CompareWithReference(const float* c, int64_t m, bool by_groups) const {
    const std::vector<int64_t> rows = Sample(m, kCheckedRows);
    reference::Grouped sample = SampleOf(rows, by_groups);
    reference::QuantizeActivations(&sample);
    const std::vector<uint8_t> expected = reference::Outputs(sample);
    const std::vector<float> found = SampleOf(c, rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      const size_t bytes = columns_.size() * sizeof(float);
      if (std::memcmp(&found[i * columns_.size()], &expected[i * bytes], bytes) != 0) {
        return fmt::format("row {} differs from the reference", rows[i]);
      }
    }
    return "";
  }

  /// "" or what is wrong with the outputs of a peer, which quantizes groups of a row by `127 / largest`, and
  /// rounds scales to `scale_type`.
  std::string CompareWithFloats(const float* c, int64_t m, intact_type scale_type) const {
    const std::vector<int64_t> rows = Sample(m, kCheckedRows);
    const reference::Grouped sample = SampleOf(rows, true);
    const std::vector<float> found = SampleOf(c, rows);
    double largest = 0, magnitude = 0;
    std::vector<double> real(static_cast<size_t>(shape_.k));
    for (size_t i = 0; i < rows.size(); ++i) {
      const float* const row = &a_[static_cast<size_t>(rows[i] * shape_.k)];
      for (int64_t g = 0; g < groups(); ++g) QuantizeByPeer(row, g, scale_type, real.data());
      for (size_t j = 0; j < columns_.size(); ++j) {
        double sum = 0;
        for (int64_t k = 0; k < shape_.k; ++k) {
          const auto place = static_cast<size_t>(k);
          const double weight = Scale(columns_[j], k / shape_.group) *
                                (sample.b[j * real.size() + place] - format_.DefaultZeroPoint());
          sum += real[place] * weight;
          magnitude += std::fabs(real[place] * weight);
        }
        const double error = std::fabs(static_cast<double>(found[i * columns_.size() + j]) - sum);
        if (std::isnan(error)) return "wrong outputs: not a number";
        largest = std::max(largest, error);
      }
    }
    magnitude /= static_cast<double>(found.size());
    if (largest <= kLargestError * magnitude) return "";
    return fmt::format(
        "wrong outputs: an error of {:.1e} of the mean sum of absolute products; expected at most {:.0e}",
        largest / magnitude, kLargestError);
  }

 private:
  int64_t groups() const { return format_.Groups(shape_.k); }
  double Scale(int64_t n, int64_t g) const {
    return core::DecodeFloat(core::TraitsOf(INTACT_F16), scales_[static_cast<size_t>(n * groups() + g)]);
  }

  /// The real numbers that the integers of group g represent.
  void QuantizeByPeer(const float* row, int64_t g, intact_type scale_type, double* real) const {
    const int64_t begin = g * shape_.group, end = std::min(shape_.k, begin + shape_.group);
    float largest = 0;
    for (int64_t k = begin; k < end; ++k) largest = std::max(largest, std::fabs(row[k]));
    const float factor = 127.0f / largest;
    double scale = largest / 127.0f;
    const double unit = std::ldexp(1.0, std::ilogb(scale) - core::TraitsOf(scale_type).fraction);
    scale = std::nearbyint(scale / unit) * unit;
    for (int64_t k = begin; k < end; ++k)
      real[k] = scale * static_cast<double>(std::nearbyint(row[k] * factor));
  }

  reference::Grouped SampleOf(const std::vector<int64_t>& rows, bool by_groups) const {
    reference::Grouped sample;
    sample.m = std::ssize(rows);
    sample.n = std::ssize(columns_);
    sample.k = shape_.k;
    static_cast<core::WeightFormat&>(sample) = format_;
    sample.SetGroupScales(by_groups);
    for (const int64_t row : rows) {
      const auto* const begin = reinterpret_cast<const uint8_t*>(&a_[static_cast<size_t>(row * shape_.k)]);
      sample.a_source.insert(sample.a_source.end(), begin, begin + shape_.k * int64_t{sizeof(float)});
    }
    for (const int64_t column : columns_) {
      const uint8_t* const weights = &b_[static_cast<size_t>(column * format_.ColumnBytes(shape_.k))];
      for (int64_t k = 0; k < shape_.k; ++k)
        sample.b.push_back(static_cast<int16_t>(format_.Code(weights, k)));
      const auto* const begin =
          reinterpret_cast<const uint8_t*>(&scales_[static_cast<size_t>(column * groups())]);
      sample.b_scales.insert(sample.b_scales.end(), begin, begin + groups() * int64_t{sizeof(uint16_t)});
    }
    return sample;
  }
  std::vector<float> SampleOf(const float* c, const std::vector<int64_t>& rows) const {
    std::vector<float> sample;
    for (const int64_t row : rows) {
      for (const int64_t column : columns_) sample.push_back(c[row * shape_.n + column]);
    }
    return sample;
  }

  GroupedShape shape_;
  core::WeightFormat format_;  // with f16 scales
  int64_t m_;
  std::vector<int64_t> columns_;  // that are checked
  std::vector<uint8_t> b_;
  std::vector<uint16_t> scales_;
  std::vector<float> a_;
};

// A plan of intact.
class GroupedPlan final : public GroupedContender {
 public:
  static Result<std::unique_ptr<GroupedPlan>> Make(const Operands& operands, core::Isa isa, bool by_groups) {
    ASSIGN_OR_RETURN(Grouped plan, Grouped::Create(operands.Describe(isa, by_groups), operands.b()));
    return std::unique_ptr<GroupedPlan>(new GroupedPlan(std::move(plan)));
  }

  const intact_grouped_info& info() const { return info_; }
  std::string Implementation() const override { return info_.kernel; }
  void SetRows(int64_t m) override {
    args_.m = m;
    const Result<intact_run_info> needs = plan_.Prepare(args_);
    if (!needs) return;  // runs fail too
    scratch_.resize(needs->scratch_bytes);
    args_.scratch = scratch_.data();
    args_.scratch_bytes = scratch_.size();
  }
  bool Run(const uint8_t* a, uint8_t* c) override {
    args_.a = a;
    args_.c = c;
    if (const Error error = plan_.Run(args_); !error.ok()) throw std::runtime_error(error.message);
    return true;
  }

 private:
  explicit GroupedPlan(Grouped plan) : plan_(std::move(plan)), info_(plan_.Info()) { args_.threads = 1; }

  Grouped plan_;
  intact_grouped_info info_;
  intact_grouped_args args_ = INTACT_GROUPED_ARGS_INIT;
  std::vector<uint8_t> scratch_;
};

// A contender of a shape on an ISA, or why there is none.
struct GroupedEntrant {
  std::string name;
  Result<std::unique_ptr<GroupedContender>> contender;
  std::function<std::string(const float* c, int64_t m)> check;  // "" or what is wrong
};

GroupedEntrant EnterIntact(const Operands& operands, core::Isa isa, bool by_groups) {
  Result<std::unique_ptr<GroupedPlan>> plan = GroupedPlan::Make(operands, isa, by_groups);
  GroupedEntrant entrant = {std::string(kIntact), Error{}, [&operands, by_groups](const float* c, int64_t m) {
                              return operands.CompareWithReference(c, m, by_groups);
                            }};
  if (plan) {
    entrant.contender = std::unique_ptr<GroupedContender>(std::move(*plan));
  } else {
    entrant.contender = plan.error();
  }
  return entrant;
}

GroupedEntrant EnterPeer(const Operands& operands, core::Isa isa, const Peer& peer,
                         const std::string& kernels) {
  return {peer.Name() + (kernels.empty() ? "" : " " + kernels),
          peer.MakeGrouped(operands.ForPeers(isa), kernels),
          [&operands, type = peer.GroupedScaleType()](const float* c, int64_t m) {
            return operands.CompareWithFloats(c, m, type);
          }};
}

/// Sets the rows of an entrant, and checks a run. Returns "" or why it cannot be measured.
std::string Check(const GroupedEntrant& entrant, const Operands& operands, int64_t m, std::vector<float>* c) {
  if (!entrant.contender) return entrant.contender.error().message;
  (*entrant.contender)->SetRows(m);
  std::ranges::fill(*c, std::nanf(""));
  try {
    (*entrant.contender)->Run(operands.a(), reinterpret_cast<uint8_t*>(c->data()));
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return entrant.check(c->data(), m);
}

support::Measurement GroupedTurn(const GroupedEntrant& entrant, const Operands& operands,
                                 std::vector<float>* c) {
  return TurnOf(
      [contender = entrant.contender->get(), name = entrant.name, &operands, c](int64_t times) {
        try {
          return contender->Microseconds(operands.a(), reinterpret_cast<uint8_t*>(c->data()), times);
        } catch (const std::runtime_error& error) {
          throw ContenderFailed(name, error.what());
        }
      },
      kShortestTurn);
}

/// `by_groups`: nothing, or intact and its peers.
GroupedRow MeasureRow(const GroupedShape& shape, int64_t m, const Operands& operands,
                      const GroupedEntrant& ours, std::span<const GroupedEntrant> by_groups, Seconds budget,
                      core::Isa isa) {
  GroupedRow row;
  row.isa = core::ToString(isa);
  row.shape = shape;
  row.m = m;
  std::vector<float> c(static_cast<size_t>(operands.m() * shape.n));
  row.error = Check(ours, operands, m, &c);
  for (const GroupedEntrant& entrant : by_groups) {
    GroupedTiming timing = {entrant.name, "", Check(entrant, operands, m, &c), 0, 0};
    if (entrant.contender) timing.implementation = (*entrant.contender)->Implementation();
    row.by_groups.push_back(std::move(timing));
  }
  if (!row.by_groups.empty() && row.error.empty()) row.error = row.by_groups.front().error;
  if (!row.error.empty()) return row;
  const intact_grouped_info& info = static_cast<const GroupedPlan&>(**ours.contender).info();
  row.kernel = info.kernel;
  row.bytes_per_weight = static_cast<double>(info.packed_bytes) / static_cast<double>(shape.n * shape.k);
  const Result<ReadBandwidth> read = ReadBandwidth::Create(isa, info.packed_bytes);
  if (!read) {
    row.error = read.error().message;
    return row;
  }
  const bool is_of_tiles = row.kernel.find("_tiles_") != std::string::npos;
  const Peak peak = PeakOf(is_of_tiles ? isa : kernels::VectorIsa(isa));
  row.peak = peak.name;
  const double operations = 2e-3 * static_cast<double>(m * shape.n) * static_cast<double>(shape.k);
  for (;;) {
    std::vector<support::Measurement> turns = {
        GroupedTurn(ours, operands, &c),
        [&] { return 1e-3 * static_cast<double>(info.packed_bytes) / read->Measure(); },
        [&] { return operations / MeasureGops(peak); }};
    for (size_t i = 0; i < by_groups.size(); ++i) {
      if (row.by_groups[i].IsMeasured()) turns.push_back(GroupedTurn(by_groups[i], operands, &c));
    }
    std::vector<std::vector<double>> figures;
    try {
      figures = support::TakeTurns(turns, budget);
    } catch (const ContenderFailed& failed) {
      const auto timing = std::ranges::find(row.by_groups, failed.name(), &GroupedTiming::name);
      if (timing == row.by_groups.end() || failed.name() == kIntact) {
        row.error = failed.what();
        return row;
      }
      timing->error = failed.what();
      continue;
    }
    row.microseconds = support::Median(figures[0]);
    row.of_bandwidth = support::MedianRatio(figures[1], figures[0]);
    row.of_peak = support::MedianRatio(figures[2], figures[0]);
    size_t next = 3;
    for (GroupedTiming& timing : row.by_groups) {
      if (!timing.IsMeasured()) continue;
      timing.microseconds = support::Median(figures[next]);
      timing.of_intact = support::MedianRatio(figures[next], figures[3]);
      ++next;
    }
    return row;
  }
}

Table TableOf(const std::vector<GroupedRow>& rows, const std::string& isa) {
  Table table;
  table.title = fmt::format("{}: grouped weights, f32 activations quantized to s8", isa);
  table.head = {"weights", "group", "M", "K×N", "us", "bytes/weight", "of bandwidth", "of peak"};
  const auto note = [&](std::string text) {
    if (std::ranges::find(table.notes, text) == table.notes.end()) table.notes.push_back(std::move(text));
  };
  std::vector<std::string> names;  // of contenders by groups, intact first
  for (const GroupedRow& row : rows) {
    for (const GroupedTiming& timing : row.by_groups) {
      if (row.isa == isa && std::ranges::find(names, timing.name) == names.end())
        names.push_back(timing.name);
    }
  }
  for (const std::string& name : names) {
    table.head.push_back(name == kIntact ? "by groups us" : name + " us");
    if (name != kIntact) table.head.emplace_back("ratio");
  }
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
      note(fmt::format("M = {}, K×N = {}×{}: {}", row.m, shape.k, shape.n, row.error));
    }
    for (const std::string& name : names) {
      const auto timing = std::ranges::find(row.by_groups, name, &GroupedTiming::name);
      const bool is_measured = row.IsMeasured() && timing != row.by_groups.end() && timing->IsMeasured();
      cells.push_back(is_measured ? fmt::format("{:.1f}", timing->microseconds) : "-");
      if (name != kIntact) cells.push_back(is_measured ? fmt::format("{:.2f}x", timing->of_intact) : "-");
      if (timing != row.by_groups.end() && !timing->IsMeasured()) {
        note(fmt::format("{}, {} bits, groups of {}: {}", name, shape.bits, shape.group, timing->error));
      }
    }
    table.rows.push_back(std::move(cells));
  }
  return table;
}

}  // namespace

bool GroupedResults::AllRight() const { return std::ranges::all_of(rows, &GroupedRow::IsMeasured); }

std::optional<GroupedSuite> FindGroupedSuite(std::string_view name) {
  const bool is_llm = name == "llm";
  if (!is_llm && !name.empty()) return std::nullopt;
  using DepthAndColumns = std::pair<int64_t, int64_t>;  // K×N
  std::vector<DepthAndColumns> extents = {{4096, 4096}};
  GroupedSuite suite = {{}, {1, 4, 16, 128}};
  if (is_llm) {
    extents = {{4096, 4096}, {4096, 11008}, {4096, 14336}, {11008, 4096}, {8192, 8192}, {8192, 28672}};
    suite.rows.push_back(512);
  }
  for (const int bits : {4, 8}) {
    for (const int64_t group : {32, 128}) {
      for (const auto& [k, n] : extents) suite.shapes.push_back({bits, n, k, group});
    }
  }
  return suite;
}

GroupedResults RunGrouped(const Request& request, const GroupedSuite& suite,
                          std::span<const Peer* const> peers, const verify::Progress& progress) {
  GroupedResults results;
  results.machine = support::DescribeMachine();
  for (const Peer* peer : peers)
    results.peers.push_back({peer->Name(), peer->Version(), peer->CallMicroseconds()});
  const auto total = static_cast<int64_t>(suite.shapes.size() * suite.rows.size() * request.isas.size());
  int64_t done = 0;
  progress(done, total);
  for (const core::Isa isa : request.isas) {
    for (const GroupedShape& shape : suite.shapes) {
      const Operands operands(shape, *std::ranges::max_element(suite.rows));
      const GroupedEntrant ours = EnterIntact(operands, isa, false);
      std::vector<GroupedEntrant> by_groups;
      if (!peers.empty()) by_groups.push_back(EnterIntact(operands, isa, true));
      for (const Peer* peer : peers) {
        for (const std::string& kernels : peer->GroupedKernels(shape, isa)) {
          by_groups.push_back(EnterPeer(operands, isa, *peer, kernels));
        }
      }
      for (const int64_t m : suite.rows) {
        results.rows.push_back(MeasureRow(shape, m, operands, ours, by_groups, request.budget, isa));
        progress(++done, total);
      }
    }
  }
  return results;
}

std::string ToText(const GroupedResults& results) {
  std::string text =
      fmt::format("intact {}; one thread, medians of turns\n  {}, family {}, model {}\n", intact_version(),
                  results.machine.cpu, results.machine.family, results.machine.model);
  for (const PeerVersion& peer : results.peers) {
    text += fmt::format("  {} {}; a call takes {:.1f} us\n", peer.name, peer.version, peer.call_microseconds);
  }
  if (!results.peers.empty()) {
    text +=
        "  ratio: a peer's time over intact's, if both quantize each group of a row\n"
        "  oneDNN is not measured: version 3.12.1 ignores the groups, or runs its reference implementation\n";
  }
  std::string last;
  for (const GroupedRow& row : results.rows) {
    if (row.isa != last) text += ToText(TableOf(results.rows, row.isa));
    last = row.isa;
  }
  return text;
}

nlohmann::ordered_json ToJson(const GroupedResults& results) {
  nlohmann::ordered_json json = {{"schema", "intact-bench-grouped"},
                                 {"schema_version", 2},
                                 {"version", intact_version()},
                                 {"machine", verify::ToJson(results.machine)},
                                 {"peers", nlohmann::json(results.peers)},
                                 {"rows", nlohmann::ordered_json::array()}};
  for (const GroupedRow& row : results.rows) {
    const GroupedShape& shape = row.shape;
    nlohmann::ordered_json by_groups = nlohmann::ordered_json::array();
    for (const GroupedTiming& timing : row.by_groups) {
      by_groups.push_back({{"name", timing.name},
                           {"implementation", timing.implementation},
                           {"error", timing.error},
                           {"microseconds", timing.microseconds},
                           {"of_intact", timing.of_intact}});
    }
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
                            {"of_peak", row.of_peak},
                            {"by_groups", std::move(by_groups)}});
  }
  return json;
}

}  // namespace intact::bench
