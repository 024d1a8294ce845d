#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "bench/report/report.h"
#include "bench/report/report_table.h"
#include "core/isas.h"
#include "support/html.h"
#include "support/turns.h"

namespace intact::bench {
namespace {

namespace html = support::html;

/// Speeds with a mark are of results that are not exact: html::Tone::kDoubtful.
std::vector<html::Row> RowsOf(const Table& table) {
  std::vector<html::Row> rows;
  for (const std::vector<std::string>& line : table.rows) {
    html::Row& row = rows.emplace_back();
    for (const std::string& text : line) {
      row.emplace_back(text, text.ends_with(kMark) ? html::Tone::kDoubtful : html::Tone::kPlain);
    }
  }
  return rows;
}

std::string ToHtml(const Table& table) {
  std::string text = fmt::format("<h2>{}</h2>\n{}", html::Escape(table.title),
                                 html::Table({table.head.begin(), table.head.end()}, RowsOf(table), 1));
  for (const std::string& note : table.notes)
    text += fmt::format("<p class=\"note\">{}</p>\n", html::Escape(note));
  return text;
}

constexpr std::array kColours = {"#b35900", "#6a3d9a", "#1f78b4", "#116329",
                                 "#a40e26", "#7a6a00", "#00736b", "#444444"};
static_assert(kColours.size() >= core::kAllIsas.size());

std::string ColourOf(std::string_view isa) {
  const Result<core::Isa> parsed = core::ParseIsa(isa);
  return kColours[static_cast<size_t>(std::ranges::find(core::kAllIsas, *parsed) - core::kAllIsas.begin())];
}

/// Commands for gnuplot: data blocks, then one `plot` with all of them.
class Roofline {
 public:
  explicit Roofline(const Results& results) {
    SetRange(results.rows);
    AddBandwidths(results.reads);
    for (const std::string& isa : results.Isas()) {
      const std::vector<Row> rows = results.RowsOf(isa);
      AddPeak(isa, rows);
      AddPoints(isa, rows, kIntact, "pt 7", "");
      for (const std::string& other : OthersOf(rows)) {
        if (other != kSaturating) AddPoints(isa, rows, other, "pt 6", ", " + other);
      }
    }
  }

  std::string Commands() const {
    return fmt::format(
        "set logscale xy\nset xlabel 'operations per byte of A, B and C'\nset ylabel 'GOPS'\nset grid\n"
        "set key outside right noenhanced font ',10'\nset xrange [{}:{}]\nset yrange [{}:{}]\n{}plot {}\n",
        x_low_, x_high_, y_low_, 1.3 * top_, data_, fmt::join(plots_, ", "));
  }

 private:
  void SetRange(const std::vector<Row>& rows) {
    for (const Row& row : rows) {
      x_low_ = std::min(x_low_, Intensity(row) / 2);
      x_high_ = std::max(x_high_, Intensity(row) * 2);
      top_ = std::max(top_, row.peak_gops);
      for (const Timing& timing : row.timings) {
        if (!timing.IsTimed()) continue;
        y_low_ = std::min(y_low_, Gops(row, timing) / 2);
        top_ = std::max(top_, Gops(row, timing));
      }
    }
  }

  void Add(const std::string& lines, const std::string& how) {
    const std::string name = fmt::format("$data{}", plots_.size());
    data_ += fmt::format("{} << EOD\n{}EOD\n", name, lines);
    plots_.push_back(fmt::format("{} using 1:2 with {}", name, how));
  }

  /// The smallest buffer of each level.
  void AddBandwidths(const std::vector<ReadResult>& reads) {
    for (size_t i = 0; i < reads.size(); ++i) {
      if (i > 0 && reads[i - 1].level == reads[i].level) continue;
      const double rate = reads[i].gb_per_s;
      const double x_end = std::min(x_high_, top_ / rate);
      Add(fmt::format("{} {}\n{} {}\n", x_low_, rate * x_low_, x_end, rate * x_end),
          fmt::format("lines lw 1 dt {} lc '#7a828c' title '{} {:.0f} GB/s'", i + 2, reads[i].level, rate));
    }
  }

  void AddPeak(const std::string& isa, const std::vector<Row>& rows) {
    std::vector<double> peaks;
    std::ranges::transform(rows, std::back_inserter(peaks), &Row::peak_gops);
    const double peak = support::Median(std::move(peaks));
    Add(fmt::format("{} {}\n{} {}\n", x_low_, peak, x_high_, peak),
        fmt::format("lines lw 2 lc '{}' title '{} {:.0f} GOPS'", ColourOf(isa), isa, peak));
  }

  void AddPoints(const std::string& isa, const std::vector<Row>& rows, std::string_view contender,
                 std::string_view point, std::string_view suffix) {
    std::string lines;
    for (const Row& row : rows) {
      const bool is_peer_of_blocks = row.shape.blocks && contender != kIntact;
      const Timing* const timing = row.Find(contender, is_peer_of_blocks ? kByBlock : MainFormat(row));
      if (timing != nullptr) lines += fmt::format("{} {}\n", Intensity(row), Gops(row, *timing));
    }
    if (lines.empty()) return;
    Add(lines, fmt::format("points {} ps 0.8 lc '{}' title '{}{}'", point, ColourOf(isa), isa, suffix));
  }

  double x_low_ = 1, x_high_ = 1, y_low_ = 1e9, top_ = 0;
  std::string data_;
  std::vector<std::string> plots_;
};

}  // namespace

std::string ToHtml(const Results& results) {
  std::string body =
      fmt::format("<p>{}</p>\n<p>{}</p>\n{}", html::Escape(Title(results)),
                  html::Judged(results.AllRight(), "All that intact computed was right.",
                               "A result of intact was wrong and is not timed; see the notes."),
                  html::Table({}, RowsOf(MachineTable(results)), 2));
  if (results.not_measured > 0) {
    body += fmt::format("<p>{}</p>\n", html::Escape(MissingText(results.not_measured)));
  }
  body +=
      html::Figure("roofline", Roofline(results).Commands(),
                   "Each shape with s32 output, or with float32 input and output. Filled: intact. Hollow: "
                   "the peer. Level lines: the ISA's "
                   "instruction peak. Slopes: read bandwidth of one core.");
  for (const Table& table : Tables(results)) body += ToHtml(table);
  return html::Page("intact bench", results.origin, body);
}

}  // namespace intact::bench
