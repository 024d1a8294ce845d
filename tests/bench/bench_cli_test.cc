// The command line of intact_bench.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <intact/intact.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/peers.h"
#include "bench/suites.h"
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

  /// Google Benchmark's report of the benchmarks that match the filter in `arguments`.
  json Named(const std::string& arguments) {
    const Outcome outcome = Run(arguments + " --benchmark_format=json --benchmark_min_time=0.001");
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return json::parse(outcome.out)["benchmarks"];
  }
};

TEST_F(BenchCli, BadUsage) {
  ExpectBadInput("frobnicate", "frobnicate");
  ExpectBadInput("--frobnicate", "--frobnicate");
  ExpectBadInput("--suite long",
                 "intact_bench: --suite: long not in "
                 "{short,figures,small-m,bert,llm,transformer,square,conv,transposed,resnet50,mobilenet_v2,"
                 "segmentation,text_detection,text_recognition,tune,traps}");
  ExpectBadInput("--weights heavy", "intact_bench: --weights: heavy not in {t4,laplace,gauss,uniform}");
  ExpectBadInput("--isa AVX2", "intact_bench: --isa: 'AVX2' is unknown");
  ExpectBadInput("--isa avx512", "--isa avx512: not available here: ", "INTACT_MAX_ISA=avx2");
  ExpectBadInput("--milliseconds 0", "--milliseconds: Value 0 not in range");
  ExpectBadInput("--milliseconds soon", "--milliseconds");
  ExpectBadInput("--peer mkl", "intact_bench: --peer mkl: is unknown; expected onednn=LIBRARY");
  ExpectBadInput("--peer fbgemm --suite tune", "--peer: has no meaning with --suite tune");
  ExpectBadInput("--peer fbgemm --tune", "--peer: has no meaning with --tune");
  ExpectBadInput("--suite bert --grouped", "--suite bert: has no meaning with --grouped; expected llm");
  ExpectBadInput("--peer onednn=x --grouped",
                 "--peer onednn=x: has no meaning with --grouped; expected onnxruntime or ggml");
  ExpectBadInput("--peer ggml=x", "--peer ggml=x: needs --grouped");
  ExpectBadInput("--peer ggml --grouped", "--peer ggml: is unknown; expected onednn=LIBRARY");
  ExpectBadInput("--peer ggml=/no/folder --grouped", "--peer ggml=/no/folder: ");
  ExpectBadInput("--grouped --benchmark_filter=peak",
                 "--grouped: has no meaning with --benchmark_... options");
  ExpectBadInput("--peer fbgemm --suite traps", "--peer: has no meaning with --suite traps");
  ExpectBadInput("--peer fbgemm --balance", "--peer: has no meaning with --balance");
  ExpectBadInput("--peer fbgemm --benchmark_filter=peak",
                 "--peer: has no meaning with --benchmark_... options");
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
  ExpectLostOutput("--benchmark_list_tests=true");
}

TEST_F(BenchCli, BadUsageOfGoogleBenchmark) {
  ExpectBadInput("--benchmark_frobnicate", "--benchmark_frobnicate: is unknown");
  ExpectBadInput("--benchmark_filter=nothing", "nothing");
  ExpectBadInput("'--benchmark_filter=('", "regular expression");
  for (const char* seconds : {"long", "-1", "nan", "inf", "1e400", "", "0.001x", "0"}) {
    ExpectBadInput(
        fmt::format("--benchmark_min_time={}", seconds),
        fmt::format("intact_bench: --benchmark_min_time='{}' is not a number from 1e-06 to 3600", seconds));
  }
  ExpectBadInput("--benchmark_min_warmup_time=-1", "--benchmark_min_warmup_time='-1' is not a number");
  for (const char* count : {"many", "0", "-1", "", "1.5", "99999999999999999999"}) {
    ExpectBadInput(fmt::format("--benchmark_repetitions={}", count),
                   fmt::format("--benchmark_repetitions='{}' is not an integer from 1 to 1000000", count));
  }
  ExpectBadInput("--benchmark_format=prose", "--benchmark_format='prose' is unknown");
  ExpectBadInput("--benchmark_time_unit=hours",
                 "--benchmark_time_unit='hours' is unknown; expected one of ns");
  ExpectBadInput("--benchmark_list_tests=maybe", "--benchmark_list_tests='maybe' is unknown");
  ExpectBadInput("--benchmark_out='" + folder_ + "/missing/x'",
                 "/missing/x: cannot be written: No such file");
  ExpectBadInput("--benchmark_out='" + folder_ + "'", "cannot be written: Is a directory");
  ExpectBadInput("--benchmark_filter=peak --json '" + folder_ + "/x.json'",
                 "--json: has no meaning with --benchmark_... options");
}

TEST_F(BenchCli, NamedBenchmarks) {
  const std::string variant = "weights:laplace/c:u8/m:1/n:4096/k:4096";
  const json benchmarks =
      Named("--isa avx2 --suite figures '--benchmark_filter=isa:avx2/.*" + variant + "$'");
  std::vector<std::string> names;
  for (const json& benchmark : benchmarks) {
    names.push_back(benchmark["name"]);
    const bool is_peer = names.back().find("peer:") != std::string::npos;
    const bool is_exact = !is_peer && names.back().find("mode:exact") != std::string::npos;
    const std::string label = benchmark["label"];
    EXPECT_GT(benchmark["GOPS"], 0);
    EXPECT_GT(benchmark["of_peak"], 0);
    EXPECT_GT(benchmark["of_bandwidth"], 0);
    EXPECT_EQ(label.find("saturates") != std::string::npos, is_peer) << label;
    EXPECT_FALSE(is_exact && label.find("maddubs") != std::string::npos) << label;
  }
  std::vector<std::string> expected;
  std::vector<std::string> contenders = {"mode:exact", "mode:saturating"};
  for (const intact::bench::Peer* peer : intact::bench::Peers()) contenders.push_back("peer:" + peer->Name());
  for (const std::string& contender : contenders) {
    expected.push_back(fmt::format("gemm/isa:avx2/{}/{}", contender, variant));
  }
  EXPECT_EQ(names, expected);
}

TEST_F(BenchCli, NamedConvolutions) {
  const std::string geometry = "in:28x28/c_in:192/c_out:192/kernel:3x3/stride:1/groups:192/batch:1";
  const json benchmarks =
      Named("--isa avx2 '--benchmark_filter=^conv/.*weights:laplace/(quant:none/)?c:.*" + geometry + "$'");
  std::vector<std::string> names;
  for (const json& benchmark : benchmarks) {
    names.push_back(benchmark["name"]);
    EXPECT_GT(benchmark["GOPS"], 0);
    EXPECT_GT(benchmark["of_peak"], 0);
    EXPECT_FALSE(std::string(benchmark["label"]).empty());
  }
  std::vector<std::string> expected;
  const auto expect = [&](const std::string& contender, const std::vector<std::string>& formats) {
    for (const std::string& format : formats) {
      expected.push_back(fmt::format("conv/isa:avx2/{}/weights:laplace/{}/{}", contender, format, geometry));
    }
  };
  expect("mode:exact", {"c:s32", "c:u8"});
  expect("mode:saturating", {"c:s32", "c:u8"});
  for (const intact::bench::Peer* peer : intact::bench::Peers()) {
    expect("peer:" + peer->Name(), {"c:s32", "c:u8", "quant:none/c:f32"});
  }
  EXPECT_EQ(names, expected);
}

TEST_F(BenchCli, NamedTransformers) {
  const json benchmarks = Named(
      "--suite transformer --isa avx2 '--benchmark_filter=weights:laplace/.*(m:8/n:768/k:768|n:64/k:128/"
      "batch:12/b:runtime.*)$'");
  std::vector<std::string> names;
  for (const json& benchmark : benchmarks) {
    names.push_back(benchmark["name"]);
    EXPECT_GT(benchmark["GOPS"], 0) << benchmark;
  }
  std::vector<std::string> expected;
  const auto expect = [&](const std::string& contender, const std::string& shape,
                          const std::vector<std::string>& formats) {
    for (const std::string& format : formats) {
      expected.push_back(fmt::format("gemm/isa:avx2/{}/weights:laplace{}{}", contender, format, shape));
    }
  };
  const std::string gemm = "/m:8/n:768/k:768", batch = "/m:128/n:64/k:128/batch:12/b:runtime";
  for (const char* mode : {"mode:exact", "mode:saturating"}) {
    expect(mode, gemm, {"/c:f32", "/quant:tensor/c:f32", "/quant:row/c:f32"});
    expect(mode, batch + "/b_type:u8", {"", "/c:f32"});
    expect(mode, batch, {"", "/c:f32"});
  }
  for (const intact::bench::Peer* peer : intact::bench::Peers()) {
    expect("peer:" + peer->Name(), gemm,
           {"/c:f32", "/quant:tensor/c:f32", "/quant:row/c:f32", "/quant:none/c:f32"});
    expect("peer:" + peer->Name(), batch, {"", "/c:f32", "/quant:none/c:f32"});
  }
  EXPECT_EQ(names, expected);
}

TEST_F(BenchCli, NamedMachineAndPlanBenchmarks) {
  const json benchmarks =
      Named("'--benchmark_filter=^(bandwidth/read/16MiB|plan/create/isa:avx2/n:16/k:64)$'");
  ASSERT_EQ(benchmarks.size(), 2u);
  EXPECT_EQ(benchmarks[0]["name"], "bandwidth/read/16MiB");
  EXPECT_GT(benchmarks[0]["GB_per_s"], 0);
  EXPECT_EQ(benchmarks[1]["name"], "plan/create/isa:avx2/n:16/k:64");
  EXPECT_GT(benchmarks[1]["bytes_per_second"], 0);
}

TEST_F(BenchCli, SuitesAndVariantsAreListed) {
  const Outcome listed = Run("--benchmark_list_tests=true");
  EXPECT_EQ(listed.status, 0) << listed.err;
  for (const char* name :
       {"peak/maddubs/ymm\n", "gemm/isa:avx2/mode:exact/weights:laplace/m:128/n:768/k:3072\n",
        "gemm/isa:avx2/mode:exact/weights:t4/amax:127/c:u8/m:2048/n:2048/k:2048\n",
        "gemm/isa:avx2/mode:exact/weights:laplace/m:1024/n:1024/k:1024/threads:2/real_time\n",
        "gemm/isa:avx2/mode:saturating/weights:uniform/c:u8/m:2/n:768/k:768\n",
        "gemm/isa:avx2/mode:exact/weights:t4/m:4/n:1024/k:4096\n",
        "gemm/isa:avx2/mode:exact/weights:gauss/m:16/n:4096/k:4096/tuned/manual_time\n",
        "conv/isa:avx2/mode:exact/weights:gauss/amax:127/c:u8/in:56x56/c_in:64/c_out:256/kernel:1x1/stride:1/"
        "groups:1/batch:1\n"}) {
    EXPECT_THAT(listed.out, HasSubstr(name));
  }
  const std::string once = "\ngemm/isa:avx2/mode:exact/weights:laplace/m:8/n:4096/k:4096\n";
  const size_t first = listed.out.find(once);
  EXPECT_NE(first, std::string::npos);
  EXPECT_EQ(listed.out.find(once, first + 1), std::string::npos) << "two suites have it";
  const Outcome trained = Run("--suite text_recognition --benchmark_list_tests=true");
  EXPECT_THAT(trained.out, HasSubstr("conv/isa:avx2/mode:saturating/weights:trained/c:u8/in:1x40/c_in:480/"
                                     "c_out:60/kernel:1x3/stride:1/groups:1/batch:1\n"));
  EXPECT_THAT(trained.out, HasSubstr("/kernel:3x3/stride:2x1/groups:64/batch:1\n"));
  EXPECT_THAT(trained.out, HasSubstr("gemm/isa:avx2/mode:exact/weights:trained/m:40/n:6625/k:120\n"));
  EXPECT_THAT(Run("--suite segmentation --benchmark_list_tests=true").out,
              HasSubstr("/kernel:3x3/stride:1/dilation:8/groups:1/batch:1\n"));
  const Outcome transformer = Run("--suite transformer --benchmark_list_tests=true");
  EXPECT_THAT(transformer.out,
              HasSubstr("gemm/isa:avx2/mode:exact/weights:laplace/quant:row/c:f32/m:1/n:4096/k:4096\n"));
  EXPECT_THAT(transformer.out, HasSubstr("gemm/isa:avx2/mode:exact/weights:laplace/m:128/n:128/k:64/batch:12/"
                                         "b:runtime/b_type:u8/b_order:nk\n"));
  EXPECT_THAT(transformer.out, testing::Not(testing::ContainsRegex("amax:.*quant:")));
  EXPECT_THAT(transformer.out, testing::Not(testing::ContainsRegex("batch:12[^\n]*/tuned")))
      << "nothing to tune";
  EXPECT_THAT(Run("--suite llm --benchmark_list_tests=true").out, HasSubstr("/m:32/n:4096/k:11008\n"));
  EXPECT_THAT(Run("--suite resnet50 --benchmark_list_tests=true").out,
              HasSubstr("/c:s32/in:14x14/c_in:512/c_out:512/kernel:3x3/stride:2/groups:1/batch:1\n"));
}

TEST_F(BenchCli, Balance) {
  const Outcome outcome = Run("--suite square --isa avx2 --balance");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("128 threads"));
  EXPECT_THAT(outcome.out, HasSubstr("\n2048×2048×2048 "));
  EXPECT_THAT(outcome.out, HasSubstr("\nbelow 0.85 "));
  const Outcome network = Run("--suite text_recognition --isa avx2 --balance");
  EXPECT_EQ(network.status, 0) << network.err;
  EXPECT_THAT(network.out, HasSubstr("worst of all threads"));
  ExpectBadInput("--balance --milliseconds 9", "--milliseconds: has no meaning with --balance");
  ExpectBadInput("--balance --benchmark_filter=peak",
                 "--balance: has no meaning with --benchmark_... options");
}

TEST_F(BenchCli, TunedPlansBesideTheModels) {
  const std::string report = folder_ + "/tune.json";
  const Outcome outcome = Run("--suite square --tune --isa avx2 --milliseconds 1 --json '" + report + "'");
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
  ExpectBadInput("--suite tune --html '" + folder_ + "/x.html'", "--html: has no meaning with --tune");
  ExpectBadInput("--benchmark_filter=peak --tune", "--tune: has no meaning with --benchmark_... options");
}

TEST_F(BenchCli, TrapsBesideTheirNeighbours) {
  const std::string report = folder_ + "/traps.json";
  const Outcome outcome = Run("--suite traps --isa avx2 --milliseconds 1 --json '" + report + "'");
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
  ExpectBadInput("--suite traps --html '" + folder_ + "/x.html'",
                 "--html: has no meaning with --suite traps");
}

TEST_F(BenchCli, SearchForTraps) {
  const std::string report = folder_ + "/search.json";
  const Outcome outcome = Run("--suite traps --isa avx2 --search 1 --seed 7 --json '" + report + "'");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("search for traps, seed 7;"));
  const json results = json::parse(Contents(report));
  EXPECT_EQ(results["schema"], "intact-bench-search");
  EXPECT_EQ(results["seed"], 7);
  EXPECT_GT(results["problems"], 0);
  EXPECT_GT(results["neighbours"], results["problems"]);
  ExpectBadInput("--search 1", "--search: needs --suite traps");
  ExpectBadInput("--suite traps --seed 1", "--seed: needs --search");
  ExpectBadInput("--suite traps --search 1 --milliseconds 5", "--milliseconds: has no meaning with --search");
  ExpectBadInput("--suite traps --search 1 --benchmark_filter=peak",
                 "--search: has no meaning with --benchmark_... options");
}

TEST_F(BenchCli, NamedTunedConvolutions) {
  const std::string name =
      "conv/isa:avx2/mode:exact/weights:laplace/c:u8/in:28x28/c_in:192/c_out:192/kernel:3x3/stride:1/"
      "groups:192/batch:1/tuned";
  const json benchmarks = Named("--isa avx2 '--benchmark_filter=^" + name + "/'");
  ASSERT_EQ(benchmarks.size(), 1u);
  EXPECT_GT(benchmarks[0]["of_model"], 0);
  EXPECT_THAT(std::string(benchmarks[0]["label"]), HasSubstr("depthwise: "));
}

TEST_F(BenchCli, TableJsonAndPage) {
  const std::string report = folder_ + "/new/bench";
  const Outcome outcome = Run("--suite square --isa avx2 --milliseconds 1 --json '" + folder_ +
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

}  // namespace
