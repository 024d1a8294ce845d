#include "verify/report/report_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "core/isas.h"
#include "support/html.h"
#include "verify/report/report_terminal.h"

namespace intact::verify {
namespace {

template <class T>
std::string Str(const T& value) {
  return fmt::format("{}", value);
}

support::html::Cell VerdictCell(Verdict verdict) {
  const support::html::Tone tone = verdict == Verdict::kProven        ? support::html::Tone::kGood
                                   : verdict == Verdict::kHoldsOnData ? support::html::Tone::kDoubtful
                                                                      : support::html::Tone::kBad;
  return {Str(InWords(verdict)), tone};
}

/// A cell with a count that should be 0.
support::html::Cell FaultCell(int64_t count) {
  return {Str(count), count > 0 ? support::html::Tone::kBad : support::html::Tone::kPlain};
}

support::html::Cell TimingCell(const Cost& cost, const Timing* timing) {
  const bool is_wrong = timing != nullptr && !timing->time;
  return {Describe(cost, timing), is_wrong ? support::html::Tone::kBad : support::html::Tone::kPlain};
}

// Billions of additions and multiplications in a second.
std::string GopsCell(const Cost& cost, const Timing& timing) {
  if (!timing.time) return "-";
  const double operations =
      2.0 * static_cast<double>(cost.m) * static_cast<double>(cost.n) * static_cast<double>(cost.k);
  return fmt::format("{:.0f}", 1e-3 * operations / timing.time->microseconds);
}

std::string IsaSection(const Report& report) {
  std::vector<support::html::Row> rows;
  for (const support::IsaStatus& status : report.isas) {
    const bool saturates = core::SaturatesInt16(status.isa);
    rows.push_back({intact_isa_name(status.isa), status.available ? "yes" : "no: " + status.reason,
                    saturates ? "saturates in int16 (vpmaddubsw)" : "does not saturate",
                    saturates ? "True" : "False"});
  }
  return "<h2>What this CPU does with int8</h2>\n" +
         support::html::Table({"ISA", "here", "int8 dot product", "set reduce_range to"}, rows, 4) +
         "<p class=\"note\">For libraries that saturate. In intact's exact mode every ISA gives the same "
         "bytes and reduce_range is irrelevant.</p>\n";
}

std::string PairSection(const PairMap& map) {
  const ClampTable& counts = map.instruction_available ? map.by_instruction : map.by_model;
  std::string plot =
      "set logscale y\nset xlabel 'largest activation'\nset ylabel 'inputs that clamp'\nset xrange "
      "[120:255]\n"
      "set grid\nunset key\nset format y '10^{%L}'\n$data << EOD\n";
  for (int amax = 120; amax < ClampTable::kActivations; ++amax) {
    const int64_t total = counts.Within(amax, 128).Total();
    if (total > 0) plot += fmt::format("{} {}\n", amax, total);
  }
  plot += "EOD\nplot $data using 1:2 with lines linewidth 2 linecolor '#a40e26'\n";
  const ClampCount all = counts.Within(255, 128);
  return fmt::format(
             "<h2>Pair map</h2>\n<p>One int16 lane of vpmaddubsw, all {} inputs (a0, a1, w0, w1), counted by "
             "{}: {} "
             "clamp at +32767 and {} at −32768. Up to activation 127: {}. Instruction against model: "
             "{}.</p>\n",
             map.inputs, map.instruction_available ? "the instruction" : "the model (this CPU has no AVX2)",
             all.high, all.low, counts.Within(127, 128).Total(),
             support::html::Judged(map.Agrees(),
                                   map.instruction_available ? "equal on every input" : "not run here",
                                   "different")) +
         support::html::Figure("pairs", plot, "How many inputs clamp if no activation exceeds x.");
}

std::string MapSection(const SaturationMap& map) {
  std::string text = "<h2>Saturation map</h2>\n" + MapFigure(map, "map");
  text += fmt::format("<p>{} {}</p>\n",
                      map.measured
                          ? "Measured on " + Str(intact_isa_name(map.isa)) + " against the maddubs model:"
                          : "Predicted by the maddubs model:",
                      map.measured ? support::html::Judged(map.Agrees(), "equal in every output", "different")
                                   : "not run here");
  const auto worst = std::ranges::max_element(map.cells, {}, &SaturationCell::max_abs_error);
  const auto first =
      std::ranges::find_if(map.cells, [](const SaturationCell& cell) { return cell.witness.has_value(); });
  if (first != map.cells.end()) {
    text += fmt::format("<p>First witness: <code>{}</code>, {}. Worst error of an accumulator: {}.</p>\n",
                        support::html::Escape(first->problem.ToString()),
                        support::html::Escape(Describe(*first->witness, std::nullopt)), worst->max_abs_error);
  }
  return text;
}

std::string RampPicture(const Ramp& ramp) {
  return RampFigure(ramp, "ramp",
                    fmt::format(" on {}: exact outputs are monotonic, saturating ones are not.",
                                intact_isa_name(ramp.isa)));
}

std::string RampSection(const std::vector<Ramp>& ramps) {
  std::vector<support::html::Row> rows;
  int64_t monotonic = 0;
  for (const Ramp& ramp : ramps) {
    if (ramp.NonMonotonic() == 0) {
      ++monotonic;
      continue;
    }
    rows.push_back({intact_isa_name(ramp.isa), Str(ToString(ramp.mode)), ramp.layer,
                    Str(ramp.steps * ramp.columns), Str(ramp.NonMonotonic()), FaultCell(ramp.Unexplained())});
  }
  const auto with_kinks = std::ranges::find_if(ramps, [](const Ramp& ramp) { return !ramp.kinks.empty(); });
  return "<h2>Ramp</h2>\n<p>A linear layer under a rising constant: each output must move one way "
         "only.</p>\n" +
         (with_kinks != ramps.end() ? RampPicture(*with_kinks) : std::string()) +
         (rows.empty() ? std::string()
                       : support::html::Table(
                             {"ISA", "mode", "layer", "outputs", "non-monotonic", "unexplained"}, rows, 3)) +
         fmt::format("<p>{} of {} runs (ISA, mode and layer) are monotonic in every output.</p>\n", monotonic,
                     ramps.size());
}

std::string SweepSection(const SweepResult& sweep, std::string_view title, std::string_view problems) {
  std::vector<SweepRow> rows;
  for (const SweepCell& cell : sweep.cells) {
    rows.push_back({{intact_isa_name(cell.isa), Str(ToString(cell.mode))}, &cell});
  }
  return fmt::format("<h2>{}</h2>\n<p>All kernels, {}, all fills, against the scalar reference.</p>\n", title,
                     problems) +
         SweepTable({"ISA", "mode"}, rows);
}

std::string FailuresSection(const Report& report) {
  std::vector<SweepFailure> failures = report.sweep.failures;
  failures.insert(failures.end(), report.grouped.failures.begin(), report.grouped.failures.end());
  if (failures.empty()) return {};
  std::string text = "<h2>Failures</h2>\n<ul>\n";
  for (const SweepFailure& failure : failures) {
    text += fmt::format("<li>{}<br><code>intact verify replay '{}'</code></li>\n",
                        support::html::Escape(failure.Reason()), support::html::Escape(failure.Line()));
  }
  return text + "</ul>\n";
}

std::string AuditSection(const std::vector<LayerAudit>& audits) {
  std::vector<support::html::Row> rows;
  for (const LayerAudit& layer : audits) {
    support::html::Row row = {layer.layer, layer.audit.stated.premise, VerdictCell(layer.audit.verdict())};
    for (const BoundAudit& remedy : layer.audit.remedies) row.push_back(VerdictCell(remedy.verdict));
    row.push_back(Str(layer.audit.max_activation));
    rows.push_back(row);
  }
  return "<h2>reduce_range</h2>\n<p>Proven: no input within the bound can saturate. Holds on data: this "
         "layer's activations do not saturate, others could. Violated: they do.</p>\n" +
         support::html::Table({"layer", "declares", "verdict", "7-bit activations", "7-bit weights",
                               "7-bit s8, shifted", "largest activation"},
                              rows, 6);
}

std::string CostSection(const std::vector<Cost>& costs) {
  std::vector<support::html::Row> rows;
  for (const Cost& cost : costs) {
    for (const Timing& exact : cost.timings) {
      if (exact.mode != INTACT_EXACT || exact.seven_bits) continue;
      const Timing* with_range = cost.Find(exact.isa, INTACT_EXACT, true);
      rows.push_back({cost.layer, fmt::format("{}×{}×{}", cost.m, cost.n, cost.k), intact_isa_name(exact.isa),
                      TimingCell(cost, cost.Find(exact.isa, INTACT_SATURATING, false)),
                      TimingCell(cost, &exact), GopsCell(cost, exact), TimingCell(cost, with_range),
                      fmt::format("{} of {}", exact.certificate.failing_pairs, exact.certificate.pairs)});
    }
  }
  return "<h2>What exactness costs</h2>\n<p>One thread, medians and their spread (interquartile "
         "range over median); 1.20x is 1.2 times as fast as the saturating kernel of the same ISA. 7 bits: "
         "an activation range of [0, 127], as reduce_range promises, for layers that keep to it.</p>\n" +
         support::html::Table({"layer", "M×N×K", "ISA", "saturating", "exact", "exact, GOPS", "exact, 7 bits",
                               "pairs that can saturate"},
                              rows, 3);
}

}  // namespace

std::string SweepTable(support::html::Row head, const std::vector<SweepRow>& rows) {
  const size_t first_number = head.size();
  for (const char* count : {"problems", "skipped", "failed", "outputs", "not exact", "unexplained"}) {
    head.emplace_back(count);
  }
  std::vector<support::html::Row> lines;
  for (const auto& [names, cell] : rows) {
    const support::html::Row counts = {Str(cell->problems),     Str(cell->skipped),
                                       FaultCell(cell->failed), Str(cell->outputs),
                                       Str(cell->differing),    FaultCell(cell->Unexplained())};
    lines.push_back(names);
    lines.back().insert(lines.back().end(), counts.begin(), counts.end());
  }
  return support::html::Table(head, lines, first_number);
}

std::string MapFigure(const SaturationMap& map, std::string_view name) {
  std::string plot =
      "set xlabel 'largest activation'\nset ylabel 'largest weight magnitude'\nset cblabel '% of outputs "
      "changed'\n"
      "set cbrange [0:100]\nset palette defined (0 '#ffffff', 1 '#fde0c5', 25 '#f59053', 60 '#c3273b', 100 "
      "'#4b0d2b')\n"
      "unset key\nset xrange [7:263]\nset yrange [4:132]\nset tics out nomirror\n$data << EOD\n";
  for (size_t w = 0; w < map.wmax.size(); ++w) {
    for (size_t a = 0; a < map.amax.size(); ++a) {
      plot += fmt::format("{} {} {}\n", map.amax[a], map.wmax[w], 100 * map.At(w, a).Share());
    }
  }
  plot += "EOD\nplot $data using 1:2:3 with image pixels\n";
  return support::html::Figure(
      name, plot,
      "Share of outputs that clamped int16 sums change, for uniform activations and weights, "
      "depth 128.");
}

std::string RampFigure(const Ramp& ramp, std::string_view name, std::string_view caption) {
  const int64_t column = ramp.ShownColumn();
  std::string plot =
      "set autoscale xfix\nset xlabel 'constant activation'\nset ylabel 'output'\nset grid\nset key left "
      "top\n$data << EOD\n";
  for (int64_t m = 0; m < ramp.steps; ++m) {
    const auto at = static_cast<size_t>(m * ramp.columns + column);
    plot +=
        fmt::format("{} {} {}\n", ramp.activations[static_cast<size_t>(m)], ramp.outputs[at], ramp.exact[at]);
  }
  plot +=
      "EOD\nplot $data using 1:3 with lines linewidth 2 linecolor '#116329' title 'exact', "
      "$data using 1:2 with lines linewidth 2 linecolor '#a40e26' title 'computed'\n";
  return support::html::Figure(
      name, plot, fmt::format("Column {} of layer {}{}", column, support::html::Escape(ramp.layer), caption));
}

namespace {

std::string WhyNoParity(const Report& report) {
  if (!report.IsUnfinished()) {
    const std::string missing = report.MissingText();
    return "Difference: something does not compute what its mode promises; see below." +
           (missing.empty() ? "" : fmt::format(" Missing: {}: {}.", missing, support::kTimeIsOver));
  }
  return fmt::format("Unfinished: {}; missing: {}.", support::kTimeIsOver, report.MissingText());
}

}  // namespace

std::string ToHtml(const Report& report) {
  const support::Machine& machine = report.machine;
  return support::html::Page(
      "intact report", report.origin,
      fmt::format(
          "<p>{}, {} · intact {}</p>\n<p>{}</p>\n<p class=\"note\">{}</p>\n",
          support::html::Escape(CpuText(machine)), CoresText(machine), intact_version(),
          support::html::Judged(report.Parity(), "Parity: every kernel computes what its mode promises.",
                                WhyNoParity(report)),
          TriedText(report.sweep.tried)) +
          IsaSection(report) + (report.Has(kSaturationMap) ? MapSection(report.map) : "") +
          (report.Has(kRamp) ? RampSection(report.ramps) : "") + PairSection(report.pairs) +
          (report.Has(kReduceRange) ? AuditSection(report.audits) : "") +
          (report.Has(kCost) ? CostSection(report.costs) : "") +
          SweepSection(report.sweep, "Sweep",
                       "GEMMs around their blocks and convolutions around their edges") +
          SweepSection(report.grouped, "Grouped weights", "weights of 4 and 8 bits with scales of groups") +
          FailuresSection(report));
}

}  // namespace intact::verify
