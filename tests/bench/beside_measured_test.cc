// This CPU beside measured ones. The figures of the measured CPUs are the ones of their pages.
#include "bench/report/beside_measured.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string>

#include "support/npy.h"
#include "tests/bench/bench_fixtures.h"

namespace intact::bench {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

// An exact share of `share` in a row of `isa`.
Row RowWithShare(const std::string& isa, const Shape& shape, double share) {
  Row row = {isa, shape, 1, "vpdpbusd/zmm", 1000, 1e9, {}};
  row.timings = {{"intact", kS32, "ours", "exact", RoofMicroseconds(row) / share, 0.01}};
  return row;
}

TEST(BesideMeasured, MarksWhatIsUnusual) {
  Results results;
  results.machine.cpu = "AMD of a later family";
  results.machine.family = 27;
  for (const Shape& shape : kMeasuredShapes) results.rows.push_back(RowWithShare("avx512_vnni", shape, 0.95));
  EXPECT_THAT(ToText(BesideMeasured(results)),
              AllOf(HasSubstr("(Zen 5)"), HasSubstr("95 (98)"), HasSubstr("nothing is unusual")));
  results.rows[2] = RowWithShare("avx512_vnni", kMeasuredShapes[2], 0.5);
  results.rows[3] = RowWithShare("avx512_vnni", kMeasuredShapes[3], 1.1);
  results.rows[4].timings[0].spread = 0.5;
  results.rows[5].timings[0].microseconds = 0;
  const std::string text = ToText(BesideMeasured(results));
  EXPECT_THAT(text, HasSubstr("3 shares are unusual"));
  EXPECT_THAT(text, HasSubstr("! avx512_vnni, 128×768×768: only 0.52 of the nearest CPU's share"));
  EXPECT_THAT(text, HasSubstr("! avx512_vnni, 128×3072×768: above the roof"));
  EXPECT_THAT(text, HasSubstr("! avx512_vnni, 128×768×3072: unsteady"));
  EXPECT_THAT(text, HasSubstr("- (96)"));
  results.machine.cpu = "Intel(R) Xeon(R)";
  EXPECT_THAT(ToText(BesideMeasured(results)), HasSubstr("(Xeon 167)"));
  EXPECT_THAT(BesideMeasured(MadeUpResults()).rows, IsEmpty()) << "none of the shapes";
}

TEST(BesideMeasured, FitsAScreen) {
  Results results;
  results.machine.cpu = "Intel";
  for (const std::string isa : {"avx2", "avx_vnni", "avx512", "avx512_vnni", "amx_int8"}) {
    for (const Shape& shape : kMeasuredShapes) results.rows.push_back(RowWithShare(isa, shape, 0.1));
  }
  const std::string text = ToText(BesideMeasured(results));
  std::istringstream lines(text);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    EXPECT_LE(fmt::detail::compute_width(line), 80) << line;
  EXPECT_LE(count, 24) << text;
}

// The figures are the ones of the pages: a row "| M×N×K | …" after each of these titles has them.
TEST(BesideMeasured, HasThePagesFigures) {
  for (const Measured& measured : AllMeasured()) {
    const bool is_tiles = measured.isa == "amx_int8";
    const auto page = support::ReadFile(fmt::format(INTACT_SOURCE_DIR "/docs/measurements/{}_{}.md",
                                                    measured.vendor == "AMD" ? "amd" : "intel",
                                                    measured.cpu == "Zen 5"      ? "zen_5"
                                                    : measured.cpu == "Xeon 167" ? "xeon_167"
                                                                                 : "xeon_207"));
    ASSERT_TRUE(page);
    const std::string text(page->begin(), page->end());
    size_t at =
        text.find(is_tiles ? "| M×N×K, C×H×W→O | share of the peak, s32 |" : "Share of the peak; for M = 1");
    ASSERT_NE(at, std::string::npos);
    constexpr std::array kColumns = {"avx2", "avx_vnni", "avx512", "avx512_vnni"};
    const size_t column = is_tiles ? 0 : std::ranges::find(kColumns, measured.isa) - kColumns.begin();
    for (size_t i = 0; i < kMeasuredShapes.size(); ++i) {
      if (measured.shares[i] == 0) continue;
      const std::string head = fmt::format("| {} |", kMeasuredShapes[i].ToString());
      size_t cell = text.find(head, at);
      ASSERT_NE(cell, std::string::npos) << head;
      cell += head.size();
      for (size_t j = 0; j < column; ++j) cell = text.find('|', cell) + 1;
      EXPECT_EQ(fmt::format("{:.2f}", measured.shares[i]), text.substr(cell + 1, 4))
          << measured.cpu << head << measured.isa;
    }
  }
}

}  // namespace
}  // namespace intact::bench
