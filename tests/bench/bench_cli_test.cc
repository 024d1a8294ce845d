// The command line of intact_bench.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <intact/intact.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/cases/suites.h"
#include "tests/support/binary_test.h"
#include "tests/support/require_isas.h"

namespace {

using intact::tests::Outcome;
using nlohmann::json;
using testing::HasSubstr;

class BenchCli : public intact::tests::BinaryTest {
 protected:
  void SetUp() override {
    if (intact_isa_available(INTACT_ISA_AVX2) == 0) INTACT_SKIP_ISA("avx2");
  }
};

TEST_F(BenchCli, BadUsage) {
  ExpectBadInput("frobnicate", "frobnicate");
  ExpectBadInput("tune --layer '1x256x256 u4/32'", "no layer can be tuned");
  ExpectBadInput("--frobnicate", "--frobnicate");
  ExpectBadInput("--suite long",
                 "intact_bench: --suite: long not in "
                 "{short,figures,small-m,bert,llm,transformer,blocks,llm-blocks,square,conv,transposed,"
                 "resnet50,mobilenet_v2,"
                 "segmentation,text_detection,text_recognition,tune}");
  ExpectBadInput("--weights heavy", "intact_bench: --weights: heavy not in {t4,laplace,gauss,uniform}");
  ExpectBadInput("--isa AVX2", "intact_bench: --isa: 'AVX2' is unknown");
  ExpectBadInput("--isa avx512", "--isa avx512: not available here: ", "INTACT_MAX_ISA=avx2");
  ExpectBadInput("--turns 0", "--turns: 0 is not a number from 0.001 to 60");
  ExpectBadInput("--turns soon", "--turns");
  ExpectBadInput("--peer mkl", "intact_bench: --peer mkl: is unknown; expected onednn=LIBRARY");
  ExpectBadInput("tune --peer fbgemm", "--peer");
  ExpectBadInput("--peer fbgemm tune", "tune excludes --peer");
  ExpectBadInput("--peer ggml=x",
                 "--peer ggml=x: computes only weights in blocks; expected `--suite blocks`");
  ExpectBadInput("--suite blocks --peer ggml", "--peer ggml: is unknown; expected onednn=LIBRARY");
  ExpectBadInput("--suite blocks --peer ggml=/no/folder", "--peer ggml=/no/folder: ");
  ExpectBadInput("--layer '1x8x32 u4/32' --weights t4", "--weights: has no meaning with weights in blocks");
  ExpectBadInput("traps --html x", "--html");
  ExpectBadInput("search", "--time is required");
  ExpectBadInput("search --time 0", "--time: 0 is not a number from 0.1 to 1e+09");
  ExpectBadInput("fit", "FILE is required");
  for (const char* shape : {"", "128", "128x768", "0x1x1", "8x8x8x8", "64x8x8 3x3", "dw 8x8x8->8 3x3",
                            "64x8x8->64 3x3 g7", "8x8x8 u4/8", "64x8x8->64 3x3 d9 ", "12345678x1x1"}) {
    ExpectBadInput(fmt::format("--layer '{}'", shape), fmt::format("--layer '{}': is not a shape", shape));
  }
  ExpectBadInput("--layer 1x2x3 --suite bert", "--suite excludes --layer");
  ExpectBadInput("--json", "--json");
  ExpectBadInput("--json ''", "cannot be written");
  std::ofstream(folder_ + "/file") << "x";
  ExpectBadInput("--html '" + folder_ + "/file/x.html'", "cannot be written");
  ExpectBadInput("", "INTACT_MAX_ISA: unknown ISA 'sse9'", "INTACT_MAX_ISA=sse9");
  EXPECT_EQ(Run("--help").status, 0);
}

TEST_F(BenchCli, NothingIsLost) {
  const std::string file = "'" + folder_ + "/x.json'";
  ExpectBadInput("--json " + file + " --html " + file, "x.json: is also the file of --json");
  ExpectLostOutput("--help");
}

TEST_F(BenchCli, TunedPlansBesideTheModels) {
  const std::string report = folder_ + "/tune.json";
  const Outcome outcome = Run("tune --suite square --isa avx2 --turns 1ms --json '" + report + "'");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("suite square"));
  EXPECT_THAT(outcome.out, HasSubstr("\navx2: GEMMs to s32, convolutions to u8\n"));
  EXPECT_THAT(outcome.out, HasSubstr("geometric mean of model over tuned: "));
  EXPECT_THAT(outcome.out, HasSubstr(" of 6\n"));
  EXPECT_THAT(outcome.err, HasSubstr("tuning: 6 of 6 (100 %)"));
  const json results = json::parse(Contents(report));
  EXPECT_EQ(results["schema"], "intact-bench-tune");
  ASSERT_EQ(results["rows"].size(), 6u);
  for (const json& row : results["rows"]) {
    EXPECT_EQ(row["error"], "");
    EXPECT_EQ(row["conv"], nullptr);
    EXPECT_GT(row["model_microseconds"], 0);
    if (row["model"] == row["tuned"]) {
      EXPECT_EQ(row["ratio"], 1);
      EXPECT_EQ(row["model_microseconds"], row["tuned_microseconds"]);
    }
  }
}

TEST_F(BenchCli, TrapsBesideTheirNeighbours) {
  const std::string report = folder_ + "/traps.json";
  const Outcome outcome = Run("traps --isa avx2 --turns 1ms --json '" + report + "'");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("\navx2: traps and their neighbours\n"));
  EXPECT_THAT(outcome.out, HasSubstr("targets met: "));
  const json results = json::parse(Contents(report));
  EXPECT_EQ(results["schema"], "intact-bench-traps");
  ASSERT_EQ(results["rows"].size(), intact::bench::Traps().size());
  for (const json& row : results["rows"]) {
    SCOPED_TRACE(row.dump());
    EXPECT_EQ(row["error"], "");
    EXPECT_NE(row["neighbour"], "");
    EXPECT_GT(double{row["microseconds"]}, 0);
    EXPECT_GT(double{row["neighbour_microseconds"]}, 0);
    EXPECT_GT(double{row["ratio"]}, 0);
    if (row["neighbour"] == "0.15 us") {
      EXPECT_EQ(row["neighbour_microseconds"], 0.15);
    }
  }
}

TEST_F(BenchCli, EndsWithItsTime) {
  const std::string report = folder_ + "/part.json";
  for (const std::string command :
       {"--suite square", "tune --suite square --turns 0.1", "traps --turns 0.1"}) {
    const Outcome outcome = Run(command + " --isa avx2 --time 0.1 --json '" + report + "'");
    EXPECT_EQ(outcome.status, 4) << command << outcome.err;
    const json results = json::parse(Contents(report));
    const size_t missing = results["not_measured"];
    EXPECT_GT(missing, 0u) << command;
    EXPECT_THAT(outcome.err, HasSubstr(fmt::format("intact_bench: unfinished: {} measurements: "
                                                   "the time of --time was over\n",
                                                   missing)));
    if (command.starts_with("tune")) {
      EXPECT_EQ(results["rows"].size() + missing, 6u);
      EXPECT_GE(results["rows"].size(), 1u) << "the first row is always measured";
    }
  }
  const std::string table = folder_ + "/table.inc";
  const Outcome fit = Run("fit --isa avx2 --time 0.1 '" + table + "'");
  EXPECT_EQ(fit.status, 4) << fit.err;
  EXPECT_THAT(fit.err, HasSubstr("table.inc was not written: the time of --time was over"));
  EXPECT_FALSE(std::filesystem::exists(table));
}

TEST_F(BenchCli, SearchForTraps) {
  const std::string report = folder_ + "/search.json";
  const Outcome outcome = Run("search --time 1 --isa avx2 --seed 7 --json '" + report + "'");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("search for traps, seed 7;"));
  const json results = json::parse(Contents(report));
  EXPECT_EQ(results["schema"], "intact-bench-search");
  EXPECT_EQ(results["seed"], 7);
  EXPECT_GT(results["problems"], 0);
  EXPECT_GT(results["neighbours"], results["problems"]);
}

TEST_F(BenchCli, TableJsonAndPage) {
  const std::string report = folder_ + "/new/bench";
  const Outcome outcome = Run("--suite square --isa avx2 --turns 1ms --json '" + folder_ +
                              "/first.json' --json '" + report + ".json' --html '" + report + ".html'");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("suite square"));
  EXPECT_THAT(outcome.out, HasSubstr("\navx2: peak is maddubs/ymm\n"));
  EXPECT_THAT(outcome.out, HasSubstr("wrote " + report + ".json\nwrote " + report + ".html\n"));
  EXPECT_THAT(outcome.err, HasSubstr("(100 %)"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/first.json")) << "the last one counts";
  const json results = json::parse(Contents(report + ".json"));
  EXPECT_EQ(results["schema"], "intact-bench");
  EXPECT_EQ(results["rows"].size(), 6u);
  const std::string page = Contents(report + ".html");
  EXPECT_THAT(page, HasSubstr("<h2>avx2: peak is maddubs/ymm</h2>"));
  EXPECT_THAT(page, HasSubstr(" UTC · <code>"));
  EXPECT_THAT(page, HasSubstr("intact_bench --suite square --isa avx2 "));
  EXPECT_THAT(page, HasSubstr("<span class=\"good\">All that intact computed was right.</span>"));
}

TEST_F(BenchCli, MeasuresTheLayersItIsGiven) {
  const std::string report = folder_ + "/layers.json";
  const Outcome outcome =
      Run("--layer 5x6x7 --layer '12×9×8→24 3×3/2 g2' --isa avx2 --turns 1ms --json '" + report + "'");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("  5×6×7 "));
  EXPECT_THAT(outcome.out, HasSubstr("  12×9×8→24 3×3/2 g2 "));
  EXPECT_EQ(json::parse(Contents(report))["rows"].size(), 2u);
}

}  // namespace
