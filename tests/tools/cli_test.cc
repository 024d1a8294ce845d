// The command line `intact`.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <intact/intact.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <tuple>

#include "core/isas.h"
#include "support/npy.h"
#include "tests/support/binary_test.h"
#include "tests/support/npy_text.h"
#include "tests/support/require_isas.h"
#include "verify/explain/audit.h"

namespace {

using intact::tests::Outcome;
using intact::tests::UnreadPipe;
using nlohmann::json;
using testing::ContainsRegex;
using testing::HasSubstr;

const std::string kLayers = INTACT_TEST_DATA "/torch-layers/";

class Cli : public intact::tests::BinaryTest {
 protected:
  json LayerJson(const std::string& arguments, int status) {
    const std::string path = folder_ + "/layer.json";
    const Outcome outcome = Run("verify layer " + arguments + " --json '" + path + "'");
    EXPECT_EQ(outcome.status, status) << outcome.err;
    return json::parse(Contents(path));
  }

  // Runs `layers`, `count` in number, on each ISA.
  void ExpectThatExactLayersEqualPyTorch(const std::string& layers, size_t count) {
    for (const intact_isa isa : intact::core::kIsaLadder) {
      if (intact_isa_available(isa) == 0) continue;  // the differential test counts it
      const json results = LayerJson(layers + " --expect output_onednn.npy --isa " + intact_isa_name(isa), 0);
      ASSERT_EQ(results.size(), count);
      for (const json& layer : results) {
        EXPECT_EQ(layer["differing"], 0);
        EXPECT_EQ(layer["unexplained"], 0);
        EXPECT_EQ(layer["isa"], intact_isa_name(isa));
        EXPECT_EQ(layer["mode"], "exact");
        EXPECT_EQ(layer["cost"]["layer"], layer["layer"]);
        for (const json& timing : layer["cost"]["timings"]) EXPECT_EQ(timing["right"], true);
      }
    }
  }

  // `max_isa`: a limit for the library; "": none.
  void ExpectAStandardReport(const std::string& max_isa) {
    const Outcome outcome = Run("verify --quick --report '" + folder_ + "/report'",
                                max_isa.empty() ? "" : "INTACT_MAX_ISA=" + max_isa);
    EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("saturation map"));
    EXPECT_LT(outcome.out.find("pair map"), outcome.out.find("sweep:"));
    EXPECT_LT(outcome.out.find("sweep:"), outcome.out.find("grouped weights:"));
    EXPECT_THAT(outcome.out,
                testing::ContainsRegex("\nPARITY: every kernel computes what its mode promises\n"));
    const json report = json::parse(Contents(folder_ + "/report/report.json"));
    EXPECT_EQ(report["parity"], true);
    const json& pairs = report["pair_map"];
    EXPECT_EQ(pairs["inputs"], 4294967296);
    EXPECT_EQ(pairs["clamped_high"], 74715870);
    EXPECT_EQ(pairs["clamped_low"], 78847501);
    EXPECT_EQ(pairs["clamped_by_activation_max"]["127"], 0);
    EXPECT_EQ(pairs["clamped_by_activation_max"]["128"], 0);
    EXPECT_EQ(pairs["clamped_by_activation_max"]["129"], 5);
    EXPECT_TRUE(report["failures"].empty());
    const json& grouped = report["grouped_sweep"]["cells"];
    EXPECT_FALSE(grouped.empty());
    for (const json& cell : grouped) {
      EXPECT_GT(cell["problems"], 1000);
      EXPECT_EQ(cell["differing"], 0);
    }
    EXPECT_GT(report["grouped_sweep"]["digests"].size(), 1000);
    EXPECT_EQ(report["cost"].size(), 6u);
    const std::string page = Contents(folder_ + "/report/report.html");
    EXPECT_THAT(page, HasSubstr("</html>"));
    EXPECT_THAT(page, HasSubstr("<h2>Grouped weights</h2>"));
    EXPECT_THAT(page, testing::Not(HasSubstr("src=\"http")));
    EXPECT_THAT(page, testing::ContainsRegex("20[0-9][0-9]-[01][0-9]-[0-3][0-9] [0-2][0-9]:[0-5][0-9] UTC"));
    EXPECT_THAT(page, HasSubstr("intact verify --quick --report " + folder_ + "/report</code>"));
    EXPECT_THAT(page, HasSubstr("prefers-color-scheme: dark"));
    EXPECT_THAT(page, HasSubstr("<span class=\"good\">proven</span>"));
    EXPECT_THAT(page, HasSubstr("<span class=\"doubtful\">holds on data</span>"));
    EXPECT_THAT(page, HasSubstr("<span class=\"bad\">violated</span>"));
    EXPECT_THAT(page, testing::Not(HasSubstr("holds_on_data")));
    const std::string file = " '" + folder_ + "/report/report.json'";
    EXPECT_THAT(Run("verify compare" + file + file).out, HasSubstr("SAME BYTES"));
  }
};

class LongCli : public Cli {};

// Before all detail: what saturation does to the layer, and in which engines.
TEST_F(Cli, LayersAreSummedUp) {
  EXPECT_THAT(Run("verify layer " + kLayers + "u7_11").out,
              testing::ContainsRegex(
                  "on CPUs without VNNI +safe: 7-bit activations .reduce_range. cannot make a wrong sum\n"));
  // FBGEMM clamps pairs of taps, also of a depthwise convolution, where other engines clamp none.
  const std::string depthwise =
      "'" + std::string(INTACT_TEST_DATA) + "/torch-2.13-avx2/conv_16x16x5x5x1x2x1x16_uniform_pc'";
  EXPECT_THAT(
      Run("verify layer " + depthwise).out,
      testing::ContainsRegex("on CPUs without VNNI +wrong on this data: [1-9][0-9]* sums of two products are "
                             "clamped in FBGEMM"));
}

TEST_F(Cli, BadUsage) {
  ExpectBadInput("", "subcommand");
  ExpectBadInput("frobnicate", "frobnicate");
  ExpectBadInput("verify frobnicate", "frobnicate");
  ExpectBadInput("verify layer", "DIR");
  ExpectBadInput("verify ramp --isa sse9", "--isa");
  ExpectBadInput("verify ramp --isa AVX2", "intact: --isa: 'AVX2' is unknown");
  ExpectBadInput("verify ramp --mode sloppy", "intact: --mode: 'sloppy' is unknown");
  ExpectBadInput("verify --quick layer " + kLayers + "u8_11", "--quick: before 'layer' it has no meaning");
  ExpectBadInput("verify --report x sweep", "--report: before 'sweep' it has no meaning");
  ExpectBadInput("verify layer 'no\x1b[31m\nsuch'", "no\\x1b[31m\\x0asuch: is not a folder");
  ExpectBadInput("verify layer --isa", "--isa");
  ExpectBadInput("info", "INTACT_MAX_ISA", "INTACT_MAX_ISA=sse9");
  EXPECT_THAT(Run("--version").out, testing::StartsWith(intact_version()));
  EXPECT_EQ(Run("--help").status, 0);
  EXPECT_EQ(Run("verify layer --help").status, 0);
}

TEST_F(Cli, GroupedWeights) {
  const Outcome sweep = Run("verify grouped --quick --isa portable");
  EXPECT_EQ(sweep.status, 0);
  EXPECT_THAT(sweep.out, testing::ContainsRegex(
                             "\n  portable +exact +1384 +0 +0 +[0-9]+ +0 +0\nPASSED: 1384 problems\n"));
  const Outcome replay = Run("verify replay 'grouped s8u4f32 m=2 n=3 k=40 isa=portable'");
  EXPECT_EQ(replay.status, 0);
  EXPECT_EQ(replay.out, "grouped s8u4f32 m=2 n=3 k=40 isa=portable\n6 outputs: exact\n");
  ExpectBadInput("verify grouped --isa sse9", "--isa: 'sse9' is unknown");
  ExpectBadInput("verify replay 'grouped s8u4f32 m=1 n=1'", "replay: k is missing");
  ExpectBadInput("verify replay 'grouped s8u4f32 m=1 n=1 k=1' --target '" INTACT_FAULTY_TARGET "'",
                 "has no grouped weights; expected a target with INTACT_TARGET_GROUPED");
  ExpectBadInput("verify replay 'grouped s8u4f32 m=1 n=1 k=1 isa=avx2' --target '" INTACT_FAULTY_TARGET "'",
                 "isa= and mode= choose among our own kernels");
}

TEST_F(Cli, BadLayers) {
  const std::string json_option = " --json '" + folder_ + "/x.json'";
  ExpectBadInput("verify layer /nonexistent" + json_option, "/nonexistent: is not a folder");
  ExpectBadInput("verify layer '" + folder_ + "'" + json_option,
                 "has no layer.json; expected the folder of a layer");
  ExpectBadInput("verify layer " + kLayers + "u8_11 --expect nothing.npy" + json_option,
                 "nothing.npy: no such file");
  ExpectBadInput("verify layer " + kLayers + "u8_11 --expect bias.npy" + json_option,
                 "bias.npy: is f4 (10,)");
  const std::string copy = folder_ + "/conv";
  std::filesystem::copy(kLayers + "u8_11", copy);
  std::ofstream(copy + "/layer.json") << R"({"operator": "conv2d"})";
  ExpectBadInput("verify layer " + copy + json_option,
                 "weights.npy: is i1 (10, 160); expected i1 or u1 (N, KH, KW, C/groups)");
  ExpectBadInput("verify ramp " + kLayers + "u8_3_0", "is \"conv2d\"; a ramp probes a linear layer");
}

TEST_F(Cli, TheOtherLayersAreDone) {
  const std::string path = folder_ + "/layers.json";
  const Outcome outcome =
      Run("verify layer " + kLayers + "u8_11 /nonexistent " + kLayers + "u8_9 --json '" + path + "'");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.err,
            "intact: /nonexistent: is not a folder; expected one with layer.json and .npy tensors\n");
  EXPECT_THAT(outcome.out, testing::AllOf(HasSubstr("layer u8_11:"), HasSubstr("layer u8_9:")));
  const json layers = json::parse(Contents(path));
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[1]["layer"], "u8_9");
}

// A script with an unset variable passes an empty name. It must not count as a missing option.
TEST_F(Cli, EmptyNames) {
  const std::string write = " --json '" + folder_ + "/x.json'";
  ExpectBadInput("verify ramp ''" + write, "DIR: the value is empty");
  ExpectBadInput("verify layer ''" + write, "DIR: the value is empty");
  ExpectBadInput("verify layer " + kLayers + "u8_11 --expect ''" + write, "--expect: the value is empty");
  ExpectBadInput("verify certify ''" + write, "WEIGHTS: the value is empty");
  ExpectBadInput("verify compare x ''", "B: the value is empty");
  ExpectBadInput("verify --report ''", "--report: the value is empty");
  ExpectBadInput("verify ramp --isa ''", "--isa: '' is unknown");
}

TEST_F(Cli, WhatCannotBePrintedIsAnError) {
  for (const char* arguments : {"info", "verify replay 'gemm u8s8s32 m=1 n=1 k=4'", "--help"}) {
    ExpectLostOutput(arguments);
  }
}

TEST_F(Cli, RunsWithoutStandardError) {
  ExpectLostErrors("info", 0);
  ExpectLostErrors("frobnicate", 2);
  ExpectLostErrors("verify layer /nonexistent", 2);
  if (intact_isa_available(INTACT_ISA_AVX2) == 0) INTACT_SKIP_ISA("avx2");
  const std::string path = folder_ + "/sweep.json";
  ExpectLostErrors("verify sweep --quick --isa avx2 --shard 1/9 --json '" + path + "'",
                   0);  // its progress is not visible
  EXPECT_EQ(json::parse(Contents(path))["cells"].size(), 1u);
}

// Like any program of a pipeline: the signal ends it without a message. The shell may report that in its own
// way.
TEST_F(Cli, EndsWhereItsOutputIsNotRead) {
  const UnreadPipe unread;
  for (const char* err : {"", UnreadPipe::kName}) {
    const Outcome outcome = RunInto(UnreadPipe::kName, "info", "", err);
    EXPECT_THAT(outcome.status, testing::AnyOf(-1, 128 + SIGPIPE)) << err;
    EXPECT_EQ(outcome.err, "") << err;
  }
  const Outcome reported = RunInto(UnreadPipe::kName, "info", "env --ignore-signal=PIPE");
  EXPECT_EQ(reported.status, 2) << "ignoring the signal asks for a report";
  EXPECT_THAT(reported.err, HasSubstr("standard output: cannot be written: Broken pipe"));
}

/// The length of the longest line, in bytes.
size_t LongestLine(const std::string& text) {
  size_t longest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

bool IsAscii(const std::string& text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 128; });
}

// The locale decides, not whether the output is a terminal.
TEST_F(Cli, CharactersOfTheLocale) {
  const std::string file = folder_ + "/weights.npy";
  std::ofstream(file, std::ios::binary)
      << intact::tests::Npy(intact::tests::Dict("|i1", "(2, 1, 1, 2)"), "\x7f\x7f\x7f\x7f");
  const std::string certify = "verify certify '" + file + "'";
  EXPECT_THAT(Run(certify).out, HasSubstr("2 columns × 1×1 taps × 2 channels"));
  EXPECT_THAT(Run(certify, "LC_ALL=C").out, HasSubstr("2 columns x 1x1 taps x 2 channels"));
  for (const char* arguments : {"verify certify --help", "verify certify /nonexistent×.npy"}) {
    EXPECT_FALSE(IsAscii(Run(arguments).out + Run(arguments).err)) << arguments;
    EXPECT_TRUE(IsAscii(Run(arguments, "LC_ALL=C").out + Run(arguments, "LC_ALL=POSIX").err)) << arguments;
  }
}

TEST_F(Cli, LinesFitTheTerminal) {
  const std::string layer = "verify layer " + kLayers + "u8_ramp_64x10";
  for (const std::string& arguments : {std::string("info"), std::string("verify certify --help"), layer}) {
    EXPECT_GT(LongestLine(Run(arguments).out), 60u) << arguments << ": a file takes lines of any length";
    const Outcome narrow = Run(arguments, "COLUMNS=40");
    EXPECT_LE(LongestLine(narrow.out), 40u) << narrow.out;
    EXPECT_EQ(narrow.status, 0);
  }
  EXPECT_LE(LongestLine(Run("verify frobnicate a b c d e f g h i j k l m", "COLUMNS=40").err), 40u);
  const std::string words = Run("info", "COLUMNS=40").out;
  EXPECT_THAT(words, HasSubstr("\n      "));
  std::string once = Run("info").out, again = words;
  for (std::string* text : {&once, &again})
    std::erase_if(*text, [](char c) { return c == ' ' || c == '\n'; });
  EXPECT_EQ(once, again) << "nothing is lost";
}

TEST_F(Cli, FilesThatAreNone) {
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string weights = kLayers + "u8_11/weights.npy";
  std::future<std::string> read = std::async(std::launch::async, Contents, pipe);
  const Outcome piped = Run("verify certify " + weights + " --json '" + pipe + "'");
  EXPECT_THAT(piped.status, testing::AnyOf(0, 1)) << piped.err;
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  ExpectBadInput("verify certify " + weights + " --json '" + folder_ + "'",
                 "cannot be written: exists and is not a regular file");
  EXPECT_EQ(json::parse(read.get())["files"][0]["pairings"][0]["pairs"], 800);
  ExpectBadInput("verify certify /dev/null", "/dev/null: is neither a regular file nor a pipe");
  std::filesystem::create_symlink("loop", folder_ + "/loop");
  ExpectBadInput("verify layer '" + folder_ + "/loop'", "loop: is not a folder");
  ExpectBadInput("verify certify " + weights + " --json '" + folder_ + "/loop'", "loop: cannot be written");
}

TEST_F(Cli, ReadsPipes) {
  const std::string weights = kLayers + "u8_ramp_64x10/weights.npy";
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const auto write = [&](const std::string& file) {
    EXPECT_EQ(std::system(("cat '" + file + "' >'" + pipe + "' &").c_str()), 0);
  };
  write(weights);
  const Outcome certified = Run("verify certify '" + pipe + "'");
  EXPECT_EQ(certified.status, 0) << certified.err;
  EXPECT_THAT(certified.out, HasSubstr("93 of 320 pairs"));
  write("/dev/null");
  ExpectBadInput("verify certify '" + pipe + "'", "pipe: is not a .npy file");

  const std::string report = folder_ + "/report.json";
  std::ofstream(report) << json{{"schema", "intact-report"},
                                {"schema_version", 3},
                                {"filler", std::string(1 << 20, 'x')},  // more than a pipe holds
                                {"sweep", {{"digests", {{"gemm u8s8s32 m=1 n=1 k=4 isa=avx2", "1"}}}}}};
  write(report);
  const Outcome compared = Run("verify compare '" + report + "' '" + pipe + "'");
  EXPECT_EQ(compared.status, 0) << compared.err;
  EXPECT_THAT(compared.out, HasSubstr("SAME BYTES"));

  if (intact_isa_available(INTACT_ISA_AVX2) == 0) INTACT_SKIP_ISA("avx2");
  write(kLayers + "u8_ramp_64x10/output_onednn.npy");
  EXPECT_EQ(Run("verify layer " + kLayers + "u8_ramp_64x10 --expect '" + pipe + "'").status, 0);
}

TEST_F(Cli, UnwritableReport) {
  std::ofstream(folder_ + "/file") << "x";
  std::vector<std::string> paths = {"/file/x.json", "/", ""};  // the last is a folder
  paths[1].append(256, 'x');
  for (const std::string& part : {"layer " + kLayers + "u8_11", std::string("pairs"), std::string("sweep")}) {
    for (const std::string& path : paths) {
      const std::string arguments = "verify " + part + " --json '" + folder_ + path + "'";
      ExpectBadInput(arguments, "cannot be written");
      EXPECT_EQ(Run(arguments).out, "") << "found before the work, not after it";
    }
  }
  ExpectBadInput("verify pairs --json /proc/x.json", "/proc/x.json: cannot be written");
  const std::string report = folder_ + "/report";
  std::filesystem::create_directories(report + "/report.html");
  ExpectBadInput("verify --quick --report '" + report + "'",
                 "--report: " + report + "/report.html: cannot be written: exists and is not a regular file");
  EXPECT_FALSE(std::filesystem::exists(report + "/report.json"));
}

TEST_F(Cli, MakesNoFolderForBadInput) {
  ExpectBadInput("verify layer /nonexistent --json '" + folder_ + "/new/folder/x.json'", "is not a folder");
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/new"));
  const std::string good = "verify layer " + kLayers + "u8_11 --json '" + folder_ + "/new/folder/y.json'";
  EXPECT_EQ(Run(good).status, 0);
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/new/folder/y.json"));
}

// The report follows the text.
TEST_F(Cli, WritesReportsToStandardOutput) {
  const Outcome file = Run("verify layer " + kLayers + "u8_11 --json /dev/stdout");
  EXPECT_EQ(file.status, 0) << file.err;
  const size_t begin = file.out.find("\n[");
  ASSERT_NE(begin, std::string::npos) << file.out;
  EXPECT_THAT(file.out, HasSubstr("\nlayer u8_11:"));
  EXPECT_EQ(json::parse(file.out.substr(begin)).size(), 1u);
}

TEST_F(Cli, MissingIsa) {
  ExpectBadInput("verify sweep --quick --isa avx512", "--isa avx512: not available here",
                 "INTACT_MAX_ISA=avx2");
  if (intact_isa_available(INTACT_ISA_AMX_INT8) == 0) {
    ExpectBadInput("verify sweep --quick --isa amx_int8", "--isa amx_int8: not available here: ");
  }
  ExpectBadInput("verify ramp --isa avx512", "--isa avx512: not available here", "INTACT_MAX_ISA=avx2");
}

TEST_F(Cli, Info) {
  const Outcome outcome = Run("info");
  EXPECT_EQ(outcome.status, 0);
  for (const char* word :
       {"avx2", "avx_vnni", "avx512_vnni", "amx_int8", "saturates in int16", "reduce_range", "L1d"}) {
    EXPECT_THAT(outcome.out, HasSubstr(word));
  }
  EXPECT_THAT(outcome.out, ContainsRegex("L1d [1-9][0-9]* KiB, L2 [1-9][0-9]* [KM]iB"));
}

// Runs the program on one of the logical CPUs that this test may use.
TEST_F(Cli, InfoCountsTheCoresThatMayBeUsed) {
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &set)) ++cpu;
  const std::string expected = sysconf(_SC_NPROCESSORS_ONLN) == 1 ? ", 1 thread" : ", 1 of ";
  EXPECT_THAT(Run("info", "taskset -c " + std::to_string(cpu)).out, HasSubstr(expected));
}

TEST_F(Cli, ExactLayersEqualPyTorchOnEveryIsa) {
  ExpectThatExactLayersEqualPyTorch(kLayers + "u?_9 " + kLayers + "u7_6_0", 3);
}

TEST_F(LongCli, ExactLayersEqualPyTorchOnEveryIsa) { ExpectThatExactLayersEqualPyTorch(kLayers + "u*", 20); }

TEST_F(Cli, SaturatingLayersEqualPyTorchOnAvx2) {
  if (intact_isa_available(INTACT_ISA_AVX2) == 0) INTACT_SKIP_ISA("avx2");
  const std::string choice = " --mode saturating --isa avx2 ";
  const json ramp = LayerJson(kLayers + "u8_ramp_64x10 --expect output_avx2.npy" + choice, 0)[0];
  EXPECT_EQ(ramp["differing"], 0);
  EXPECT_EQ(ramp["saturated_accumulators"], 3459);
  EXPECT_EQ(ramp["explained"], 2974);
  EXPECT_EQ(ramp["unexplained"], 0);
  ASSERT_EQ(ramp["differences"].size(), 2974u);
  for (const json& difference : ramp["differences"]) {
    EXPECT_EQ(difference["cause"], "int16 saturation");
    EXPECT_FALSE(difference["pairs"].empty());
  }
  EXPECT_EQ(ramp["reduce_range"][0]["verdict"], "violated");
  EXPECT_EQ(ramp["reduce_range"][0]["max_activation"], 255);
  // Compared with a wrong expectation, the run reports a difference.
  const json wrong = LayerJson(kLayers + "u8_ramp_64x10 --expect output_onednn.npy" + choice, 1)[0];
  EXPECT_EQ(wrong["differing"], 2974);
  EXPECT_EQ(wrong["max_abs_difference"], 162);
}

// The first line identifies the arithmetic of the engine that wrote the file.
TEST_F(Cli, AnExpectedOutputIsIdentified) {
  const auto first_line = [&](const std::string& file, int status) {
    const Outcome outcome = Run("verify layer " + kLayers + "u8_ramp_64x10 --expect " + file);
    EXPECT_EQ(outcome.status, status);
    return outcome.out.substr(0, outcome.out.find('\n'));
  };
  // With 64 depths and few columns, sums in several orders clamp alike.
  EXPECT_THAT(
      first_line("output_avx2.npy", 1),
      testing::StartsWith("output_avx2.npy: pairs of adjacent depths clamped to int16 (maddubs): all 8000 "
                          "outputs reproduced, 2974 of them differ from exact"));
  EXPECT_EQ(first_line("output_onednn.npy", 0),
            "output_onednn.npy: exact: all 8000 outputs reproduced; saturation would have shown");

  const json expected = LayerJson(kLayers + "u8_ramp_64x10 --expect output_avx2.npy", 1)[0]["expected"];
  EXPECT_EQ(expected["arithmetic"], "maddubs");
  EXPECT_EQ(expected["unexplained_by_it"], 0);
  EXPECT_EQ(expected["saturation_shows"], true);
  EXPECT_EQ(expected["differing_from_exact"], 2974);
  EXPECT_EQ(expected["causes"]["int16 saturation"], 2974);
  EXPECT_EQ(expected["differences"].size(), 2974u);
}

// Without options: identifies every output_*.npy of the folder. For a folder of folders it prints a table.
TEST_F(Cli, RecordedOutputsAreIdentified) {
  const Outcome layer = Run("verify layer " + kLayers + "u8_9");
  EXPECT_THAT(
      layer.out,
      HasSubstr("as FBGEMM, ONNX Runtime, oneDNN, OpenVINO on CPUs with AVX2 and no AVX-512 or VNNI\n"));
  EXPECT_THAT(layer.out, HasSubstr("output_onednn.npy: exact: all "));
  const Outcome table = Run("verify layer " + kLayers);
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr(": 20 layers\n"));
  EXPECT_THAT(table.out, testing::ContainsRegex(
                             "u8_9 +output_avx2.npy +[0-9]+ of +[0-9]+ not exact  pairs of adjacent"));
  const json recorded = LayerJson(kLayers + "u8_0_0", 0)[0]["recorded"];
  ASSERT_EQ(recorded.size(), 2u);
  EXPECT_EQ(recorded[0]["file"], "output_avx2.npy");
  EXPECT_EQ(recorded[0]["engines"], "as oneDNN, OpenVINO on CPUs with AVX2 and no AVX-512 or VNNI");
}

// The library's output for a PyTorch layer with a residual, bounds and another output type, on every ISA; and
// for a layer with s32 outputs.
TEST_F(Cli, LayersWithOtherEpilogues) {
  const std::string layer = folder_ + "/layer";
  std::filesystem::copy(kLayers + "u8_3_0", layer);
  std::filesystem::copy(layer + "/output_onednn.npy", layer + "/residual.npy");
  json fields = json::parse(Contents(layer + "/layer.json"));
  fields.erase("relu");
  fields["activation"] = "relu6";
  fields["residual"] = {{"scale", 0.02}, {"zero_point", 100}};
  fields["output"]["type"] = "s8";
  fields["output"]["zero_point"] = -100;
  const auto expect_right = [&](const char* type) {
    std::ofstream(layer + "/layer.json") << fields;
    for (const auto& file : std::filesystem::directory_iterator(layer)) {
      if (file.path().filename().string().starts_with("output_")) std::filesystem::remove(file);
    }
    const json results = LayerJson("'" + layer + "'", 0);
    ASSERT_EQ(results.size(), 1u) << type;
    EXPECT_EQ(results[0]["differing"], 0) << type;
    EXPECT_GT(results[0]["cost"]["timings"].size(), 0u);
    for (const json& timing : results[0]["cost"]["timings"])
      EXPECT_EQ(timing["right"], true) << type << timing;
  };
  expect_right("s8");
  fields["output"] = {{"type", "f16"}};
  expect_right("f16");
  fields["output"] = {{"type", "f32"}};
  fields["padding"] = "SAME";
  std::filesystem::remove(layer + "/residual.npy");
  fields.erase("residual");
  expect_right("f32");
  fields["output"] = {{"type", "s32"}};
  fields.erase("activation");
  fields["input"].erase("scale");
  fields["weight"].erase("scales");
  std::filesystem::remove(layer + "/bias.npy");
  expect_right("s32");
  ExpectBadInput("verify ramp '" + layer + "'", "a ramp probes a linear layer");
  const std::string linear = folder_ + "/linear";
  std::filesystem::copy(kLayers + "u8_11", linear);
  fields = json::parse(Contents(linear + "/layer.json"));
  fields["output"] = {{"type", "f32"}};
  std::ofstream(linear + "/layer.json") << fields;
  ExpectBadInput(
      "verify ramp '" + linear + "'",
      "layer.json: has f32 outputs; a ramp probes 8-bit activations and outputs without a residual");
}

// A sum beyond int32 is refused, or computed modulo 2^32 if the layer says that it wraps.
TEST_F(Cli, LayerWhoseSumsWrap) {
  const std::string layer = folder_ + "/layer";
  std::filesystem::create_directory(layer);
  const auto write = [&](const char* file, const char* type, char byte) {
    std::ofstream(layer + file, std::ios::binary)
        << intact::tests::Npy(intact::tests::Dict(type, "(1, 66312)"), std::string(66312, byte));
  };
  write("/activations.npy", "|u1", '\xff');
  write("/weights.npy", "|i1", '\x7f');
  json fields = {{"operator", "linear"},
                 {"input", {{"zero_point", 0}}},
                 {"output", {{"type", "s32"}}},
                 {"weight", {{"zero_points", {0}}}}};
  std::ofstream(layer + "/layer.json") << fields;
  ExpectBadInput("verify layer '" + layer + "'", "leaves int32");
  fields["overflow"] = "wraps";
  std::ofstream(layer + "/layer.json") << fields;
  for (const intact_isa isa : intact::core::kIsaLadder) {
    if (intact_isa_available(isa) == 0) continue;
    const json result = LayerJson("'" + layer + "' --isa " + intact_isa_name(isa), 0)[0];
    EXPECT_EQ(result["differing"], 0);
    for (const json& timing : result["cost"]["timings"]) EXPECT_EQ(timing["right"], true) << timing;
  }
}

// A convolution with dynamic quantization, on every ISA, with float and with 8-bit outputs.
TEST_F(Cli, DynamicConvolution) {
  const std::string layer = folder_ + "/layer";
  std::filesystem::create_directory(layer);
  for (const char* file : {"/weights.npy", "/bias.npy", "/layer.json"}) {
    std::filesystem::copy(kLayers + "u8_3_0" + file, layer + file);
  }
  auto npy = intact::support::ReadNpy(kLayers + "u8_3_0/activations.npy");
  ASSERT_TRUE(npy) << npy.error().message;
  npy->bytes.resize(npy->bytes.size() / static_cast<size_t>(npy->shape[0]));  // the first image
  npy->shape[0] = 1;
  std::string numbers;
  for (const uint8_t byte : npy->bytes) {
    const float x = 0.03f * static_cast<float>(byte) - 2.2f;
    numbers.append(reinterpret_cast<const char*>(&x), sizeof x);
  }
  std::ofstream(layer + "/activations.npy", std::ios::binary)
      << intact::tests::Npy(intact::tests::Dict("<f4", intact::support::ShapeString(npy->shape)), numbers);
  json fields = json::parse(Contents(layer + "/layer.json"));
  json output = fields["output"];
  output["type"] = "u8";
  fields["operator"] = "conv2d_dynamic";
  fields.erase("ramp");
  for (const json& of_outputs : {json{{"type", "f32"}}, json{{"type", "f16"}}, output}) {
    fields["output"] = of_outputs;
    for (const char* type : {"u8", "s8"}) {
      fields["input"] = {{"type", type}, {"per", "tensor"}};
      std::ofstream(layer + "/layer.json") << fields;
      for (const intact_isa isa : intact::core::kIsaLadder) {
        if (intact_isa_available(isa) == 0) continue;
        const json result = LayerJson("'" + layer + "' --isa " + intact_isa_name(isa), 0)[0];
        EXPECT_EQ(result["differing"], 0) << of_outputs << type;
        for (const json& timing : result["cost"]["timings"]) EXPECT_EQ(timing["right"], true) << timing;
      }
    }
  }
}

// The cost is measured with the pairing of the layer's run.
TEST_F(Cli, CostOfAPairing) {
  if (intact_isa_available(INTACT_ISA_AVX2) == 0) INTACT_SKIP_ISA("avx2");
  const std::string layer = kLayers + "u8_0_0 --mode saturating --isa avx2 --pairing ";
  const std::string weights = kLayers + "u8_0_0/weights.npy", path = folder_ + "/certificate.json";
  EXPECT_EQ(Run("verify certify " + weights + " --json '" + path + "'").status, 0);
  const json pairings = json::parse(Contents(path))["files"][0]["pairings"];
  ASSERT_EQ(pairings.size(), 2u);
  EXPECT_NE(pairings[0]["failing_pairs"], pairings[1]["failing_pairs"]);
  for (const json& pairing : pairings) {
    const json cost = LayerJson(layer + pairing["pairing"].get<std::string>(), 0)[0]["cost"];
    EXPECT_EQ(cost["certificate"]["failing_pairs"], pairing["failing_pairs"]);
    for (const json& timing : cost["timings"]) EXPECT_EQ(timing["right"], true) << timing;
  }
}

// A target runs the layer instead of our kernels.
TEST_F(Cli, ATargetRunsALayer) {
  const std::string layer = kLayers + "u8_ramp_64x10";
  const std::string faulty = INTACT_FAULTY_TARGET;
  const auto first_line = [&](const std::string& options, int status) {
    const std::string target = faulty + ":" + options;
    const Outcome outcome = Run("verify layer " + layer + " --target " + target);
    EXPECT_EQ(outcome.status, status) << outcome.out << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("\nlayer u8_ramp_64x10: linear, by " + target + "\n"));
    EXPECT_THAT(outcome.out, testing::StartsWith(target + ": "));
    return outcome.out.substr(target.size() + 2, outcome.out.find('\n') - target.size() - 2);
  };
  EXPECT_EQ(first_line("=any", 0), "exact: all 8000 outputs reproduced; saturation would have shown");
  const std::string maddubs =
      "pairs of adjacent depths clamped to int16 (maddubs): all 8000 outputs reproduced, 2974 of them differ";
  EXPECT_THAT(first_line("maddubs=any", 0), testing::StartsWith(maddubs));
  EXPECT_THAT(first_line("maddubs", 1), testing::StartsWith(maddubs)) << "for it claims to be exact";
  const std::string target = " --target " + faulty + ":maddubs=any";
  const json found = LayerJson(layer + target, 0)[0];
  EXPECT_EQ(found["computed"]["arithmetic"], "maddubs");
  EXPECT_EQ(found["as_claimed"], true);
  EXPECT_FALSE(found.contains("model"));
  EXPECT_FALSE(found.contains("cost"));
  EXPECT_EQ(LayerJson(layer + target + " --expect output_avx2.npy", 0)[0]["differing"], 0);
  ExpectBadInput("verify layer " + layer + target + " --isa avx2", "--isa chooses among our own kernels");
}

TEST_F(Cli, AnExpectedOutputThatNothingMakesIsSaidToBe) {
  std::ifstream golden(kLayers + "u8_ramp_64x10/output_avx2.npy", std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(golden), std::istreambuf_iterator<char>()};
  bytes.back() = static_cast<char>(bytes.back() ^ 0x40);
  const std::string file = folder_ + "/spoilt.npy";
  std::ofstream(file, std::ios::binary) << bytes;
  const Outcome outcome = Run("verify layer " + kLayers + "u8_ramp_64x10 --expect " + file);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(outcome.out.starts_with(
      file +
      ": no model reproduces it: 1 of 8000 outputs is unexplained, the first at m 799 n 9: "
      "implementation error; closest: pairs of adjacent depths clamped to int16 (maddubs)\n"))
      << outcome.out;
  EXPECT_THAT(outcome.out, testing::HasSubstr("2973 int16 saturation, 1 implementation error"));
}

TEST_F(Cli, DifferencesOfAConvolutionHaveTheirTapsAndChannels) {
  if (intact_isa_available(INTACT_ISA_AVX2) == 0) INTACT_SKIP_ISA("avx2");
  const std::string choice = "u8_0_0 --expect output_avx2.npy --mode saturating --isa avx2";
  const json layer = LayerJson(kLayers + choice, 0)[0];
  EXPECT_EQ(layer["operator"], "conv2d");
  EXPECT_EQ(layer["differing"], 0);
  EXPECT_EQ(layer["saturated_pairs"], 2914);
  EXPECT_EQ(layer["explained"], 1599);
  EXPECT_EQ(layer["unexplained"], 0);
  ASSERT_EQ(layer["differences"].size(), 1599u);
  for (const json& difference : layer["differences"]) {
    ASSERT_EQ(difference["output"].size(), 2u);
    EXPECT_EQ((difference["batch"].get<int>() * 16 + difference["output"][0].get<int>()) * 16 +
                  difference["output"][1].get<int>(),
              difference["m"]);
    ASSERT_FALSE(difference["pairs"].empty());
    for (const json& pair : difference["pairs"]) {
      EXPECT_EQ(pair["channels"], json::array({0, 1}));
      ASSERT_EQ(pair["tap"].size(), 2u);
      EXPECT_EQ(pair["k"], (pair["tap"][0].get<int>() * 5 + pair["tap"][1].get<int>()) * 4);
    }
  }
  EXPECT_EQ(layer["reduce_range"][0]["verdict"], "violated");
  EXPECT_EQ(layer["reduce_range"][0]["stated"]["witness"]["channels"], json::array({0, 1}));
  const Outcome text = Run("verify layer " + kLayers + choice);
  EXPECT_THAT(text.out, testing::ContainsRegex(R"(\[n [0-3] oh [0-9]+ ow [0-9]+ oc [0-9]+\] )"));
  EXPECT_THAT(text.out, testing::ContainsRegex("oc [0-9]+ tap kh [0-4] kw [0-4], channels 0 1: [0-9]+\\*"));
}

TEST_F(Cli, Ramp) {
  if (intact_isa_available(INTACT_ISA_AVX2) == 0) INTACT_SKIP_ISA("avx2");
  const Outcome saturating = Run("verify ramp " + kLayers + "u8_ramp_64x10 --mode saturating --isa avx2");
  EXPECT_EQ(saturating.status, 0);
  EXPECT_THAT(saturating.out, HasSubstr("non-monotonic outputs"));
  EXPECT_THAT(Run("verify ramp " + kLayers + "u8_ramp_64x10 --isa avx2").out,
              HasSubstr("every column is monotonic"));
  EXPECT_THAT(Run("verify ramp --isa avx2").out, HasSubstr("every column is monotonic"));
}

TEST_F(Cli, Certify) {
  if (intact_isa_available(INTACT_ISA_AVX2) == 0) INTACT_SKIP_ISA("avx2");
  const std::string weights = kLayers + "u8_ramp_64x10/weights.npy";
  const std::string path = folder_ + "/certificate.json";
  const Outcome outcome = Run("verify certify " + weights + " --json '" + path + "'");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("93 of 320 pairs (29.06 %) can saturate"));
  const json certificate = json::parse(Contents(path))["files"][0];
  EXPECT_EQ(certificate["columns"], 10);
  EXPECT_EQ(certificate["depth"], 64);
  EXPECT_EQ(certificate["proven"], false);
  ASSERT_EQ(certificate["pairings"].size(), 1u);  // engines pair the depths of a matrix in one way
  const json& pairing = certificate["pairings"][0];
  EXPECT_EQ(pairing["pairs"], 320);
  EXPECT_EQ(pairing["failing_pairs"], 93);
  EXPECT_EQ(pairing["engines"], (std::vector<std::string>{"fbgemm", "onnxruntime", "onednn", "openvino"}));
  EXPECT_EQ(certificate["panels"].size(), 1u);
  EXPECT_EQ(certificate["panels"][0]["failing_pairs"], 93);
  EXPECT_EQ(certificate["safe_depth_quads"], 0);
  ASSERT_EQ(pairing["witnesses"].size(), 8u);
  for (const json& w : pairing["witnesses"]) {
    const int sum = w["a0"].get<int>() * w["w0"].get<int>() + w["a1"].get<int>() * w["w1"].get<int>();
    EXPECT_EQ(w["sum"], sum);
    EXPECT_TRUE(sum > 32767 || sum < -32768);
  }
  EXPECT_EQ(certificate["schedules"][0]["isa"], "avx2");
  EXPECT_GT(certificate["schedules"][0]["groups"], 0);
  EXPECT_THAT(Run("verify certify " + weights + " --amax 127").out,
              HasSubstr("proven: none of 320 pairs can saturate"));
}

// Engines pair the depths of a window of three channels in two ways: within a tap, where the last channel is
// alone; and flattened, where pairs cross taps. Proven means proven for both.
TEST_F(Cli, CertifyConvolution) {
  std::string weights(size_t{2} * 2 * 3 * 3, '\0');
  const auto at = [&](size_t o, size_t kh, size_t kw, size_t c) -> char& {
    return weights[((o * 2 + kh) * 3 + kw) * 3 + c];
  };
  at(0, 0, 1, 2) = at(0, 0, 2, 0) = 127;  // depths 5 and 6: not a pair in either way
  at(0, 1, 0, 2) = at(0, 1, 1, 0) = 127;  // depths 11 and 12
  at(1, 0, 0, 2) = at(1, 0, 1, 0) = 127;  // depths 2 and 3: a pair across taps
  at(1, 1, 2, 1) = at(1, 1, 2, 2) = 127;  // depths 16 and 17
  at(0, 1, 2, 0) = at(0, 1, 2, 1) = 127;  // depths 15 and 16: a pair within a tap
  const std::string file = folder_ + "/weights.npy";
  std::ofstream(file, std::ios::binary)
      << intact::tests::Npy(intact::tests::Dict("|i1", "(2, 2, 3, 3)"), weights);
  const std::string path = folder_ + "/certificate.json";
  const Outcome outcome = Run("verify certify '" + file + "' --json '" + path + "'");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("2 columns × 2×3 taps × 3 channels"));
  EXPECT_THAT(outcome.out, HasSubstr("adjacent channels of a tap (oneDNN, OpenVINO): 1 of 24 pairs"));
  EXPECT_THAT(outcome.out, HasSubstr("column 0 tap kh 1 kw 2, channels 0 1: 255·(127) + 255·(127) = 64770"));
  EXPECT_THAT(outcome.out,
              HasSubstr("adjacent depths of the flattened window (FBGEMM, ONNX Runtime): 2 of 18 pairs"));
  EXPECT_THAT(outcome.out, HasSubstr("column 1 tap kh 0 kw 0, channel 2 and tap kh 0 kw 1, channel 0: "
                                     "255·(127) + 255·(127) = 64770"));
  const json certificate = json::parse(Contents(path))["files"][0];
  EXPECT_EQ(certificate["kernel"], (std::vector<int>{2, 3}));
  EXPECT_EQ(certificate["channels"], 3);
  EXPECT_EQ(certificate["proven"], false);
  const json& within = certificate["pairings"][0];
  EXPECT_EQ(within["pairing"], "within_tap");
  EXPECT_EQ(within["failing_pairs"], 1);
  EXPECT_EQ(within["witnesses"][0]["tap"], (std::vector<int>{1, 2}));
  EXPECT_EQ(within["witnesses"][0]["channel"], 0);
  const json& flattened = certificate["pairings"][1];
  EXPECT_EQ(flattened["pairing"], "flattened");
  EXPECT_EQ(flattened["engines"], (std::vector<std::string>{"fbgemm", "onnxruntime"}));
  EXPECT_EQ(flattened["failing_pairs"], 2);
  EXPECT_EQ(flattened["witnesses"][0]["tap1"], (std::vector<int>{0, 1}));
  const Outcome safe = Run("verify certify '" + file + "' --amax 128");
  EXPECT_THAT(safe.out, HasSubstr("proven: none of 24 pairs"));
  EXPECT_THAT(safe.out, HasSubstr("proven: none of 18 pairs"));
  const Outcome onednn = Run("verify certify '" + file + "' --engine onednn");
  EXPECT_THAT(onednn.out, HasSubstr("adjacent channels of a tap (oneDNN, 3.12.0, 3.13.3, PyTorch 2.13.0, "
                                    "PyTorch 2.15.0): 1 of 24 pairs"));
  EXPECT_THAT(onednn.out, Not(HasSubstr("flattened")));
  ExpectBadInput("verify certify '" + file + "' --groups 3",
                 "--groups is 3; expected a divisor of the 2 output channels");
  ExpectBadInput("verify certify '" + file + "' --operator linear --groups 2", "--groups is 2; expected 1");
  // Plans with one output channel have no schedule.
  std::ofstream(file, std::ios::binary)
      << intact::tests::Npy(intact::tests::Dict("|i1", "(1, 3, 3, 40)"), std::string(360, '\1'));
  EXPECT_THAT(Run("verify certify '" + file + "'").out, Not(HasSubstr("nan")));
}

// The Python package has the commands that read models.
TEST_F(Cli, AuditRunsPython) {
  ExpectBadInput("audit model.onnx",
                 "needs Python and the Python package of intact; /no/python cannot be run",
                 "INTACT_PYTHON=/no/python");
  const std::string python = folder_ + "/python";
  std::ofstream(python) << "#!/bin/sh\nshift 2\necho \"$@\"\nexit 1\n";
  std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  for (const std::string command : {"audit", "compare", "digest", "operators", "repair"}) {
    const Outcome outcome =
        Run(command + " --engine all 'my model.onnx' --help", "INTACT_PYTHON='" + python + "'");
    EXPECT_EQ(outcome.status, 1);
    EXPECT_EQ(outcome.out, command + " --engine all my model.onnx --help\n");
  }
}

// The first layer of a network, with one channel: pairs consist of taps. In a depthwise convolution some
// engines do not pair taps.
TEST_F(Cli, CertifyPairsOfTaps) {
  const std::string file = folder_ + "/taps.npy";
  std::ofstream(file, std::ios::binary)
      << intact::tests::Npy(intact::tests::Dict("|i1", "(1, 1, 2, 1)"), std::string(2, '\x7f'));
  const std::string certify = "verify certify '" + file + "'";
  EXPECT_THAT(Run(certify).out, HasSubstr("flattened window (FBGEMM): 1 of 1 pair (100.00 %)"));
  EXPECT_THAT(Run(certify).out, HasSubstr("adjacent channels of a tap (no known engine): proven"));
  EXPECT_THAT(
      Run(certify + " --engine onednn").out,
      HasSubstr(
          "oneDNN (3.12.0, 3.13.3, PyTorch 2.13.0, PyTorch 2.15.0) adds no products in int16 here: proven"));
  EXPECT_THAT(Run(certify + " --engine fbgemm").out,
              HasSubstr("(FBGEMM, PyTorch 2.13.0, PyTorch 2.15.0): 1 of 1 pair"));
  EXPECT_THAT(Run(certify + " --operator linear").out,
              HasSubstr("adjacent depths (FBGEMM, ONNX Runtime, oneDNN, OpenVINO): 1 of 1 pair"));
  std::ofstream(file, std::ios::binary)
      << intact::tests::Npy(intact::tests::Dict("|i1", "(2, 1, 2, 1)"), std::string(4, '\x7f'));
  EXPECT_THAT(Run(certify + " --groups 2").out, HasSubstr("flattened window (FBGEMM): 2 of 2 pairs"));
  EXPECT_THAT(Run(certify + " '" + file + "'").out,
              HasSubstr("\n  adjacent taps of a kernel row: 4 of 4 pairs"));
  EXPECT_THAT(Run(certify + " --groups 2 --engine onnxruntime").out,
              HasSubstr("adds no products in int16 here: proven"));
  std::ofstream(file, std::ios::binary)
      << intact::tests::Npy(intact::tests::Dict("|i1", "(4, 1, 2, 1)"), std::string(8, '\x7f'));
  EXPECT_THAT(Run(certify + " --groups 2").out,
              HasSubstr("flattened window (FBGEMM, ONNX Runtime, OpenVINO): 4 of 4 pairs"));
  std::ofstream(file, std::ios::binary)
      << intact::tests::Npy(intact::tests::Dict("|i1", "(8, 1, 1, 2)"), std::string(16, '\x7f'));
  EXPECT_THAT(
      Run(certify + " --groups 2").out,
      HasSubstr("adjacent channels of a tap (FBGEMM, ONNX Runtime, oneDNN with AVX-512, OpenVINO): 8 of 8"));
  std::ofstream(file, std::ios::binary)
      << intact::tests::Npy(intact::tests::Dict("|i1", "(8, 1, 1, 4)"), std::string(32, '\x7f'));
  EXPECT_THAT(Run(certify + " --groups 2").out,
              HasSubstr("(FBGEMM, ONNX Runtime, oneDNN, OpenVINO): 16 of 16"));
}

// One convolution in each order of dimensions: 2 output channels, 3×3 taps, 5 input channels.
TEST_F(Cli, CertifyInEveryOrder) {
  const auto value = [](size_t o, size_t tap, size_t i) {
    return static_cast<char>((o * 131 + tap * 37 + i * 59) % 255 - 127);
  };
  const auto write = [&](const std::string& name, const std::string& shape, auto place) {
    std::string weights(size_t{2} * 9 * 5, '\0');
    for (size_t o = 0; o < 2; ++o) {
      for (size_t tap = 0; tap < 9; ++tap) {
        for (size_t i = 0; i < 5; ++i) weights[place(o, tap, i)] = value(o, tap, i);
      }
    }
    const std::string file = folder_ + "/" + name + ".npy";
    std::ofstream(file, std::ios::binary) << intact::tests::Npy(intact::tests::Dict("|i1", shape), weights);
    return " '" + file + "'";
  };
  const std::string ohwi =
      write("ohwi", "(2, 3, 3, 5)", [](size_t o, size_t tap, size_t i) { return (o * 9 + tap) * 5 + i; });
  const std::string oihw =
      write("oihw", "(2, 5, 3, 3)", [](size_t o, size_t tap, size_t i) { return (o * 5 + i) * 9 + tap; });
  const std::string hwio =
      write("hwio", "(3, 3, 5, 2)", [](size_t o, size_t tap, size_t i) { return (tap * 5 + i) * 2 + o; });
  const auto pairings = [this](const std::string& arguments) {
    const std::string path = folder_ + "/certificate.json";
    const Outcome outcome = Run("verify certify" + arguments + " --json '" + path + "'");
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return json::parse(Contents(path))["files"][0];
  };
  const json right = pairings(ohwi);
  EXPECT_EQ(right["layout"], "ohwi");
  EXPECT_FALSE(right.contains("warning"));
  EXPECT_GT(right["pairings"][1]["failing_pairs"], 0);
  for (const auto& [order, file] :
       {std::pair("oihw", oihw), std::pair("hwio", hwio), std::pair("ohwi", ohwi)}) {
    const json certificate = pairings(std::string(" --layout ") + order + file);
    EXPECT_EQ(certificate["layout"], order);
    EXPECT_EQ(certificate["pairings"], right["pairings"]) << order;
    EXPECT_EQ(certificate["kernel"], right["kernel"]);
    EXPECT_FALSE(certificate.contains("warning"));
  }
  EXPECT_NE(pairings(oihw)["pairings"], right["pairings"]);
  EXPECT_THAT(Run("verify certify" + oihw).out,
              HasSubstr("oihw.npy: 2 columns × 5×3 taps × 3 channels, read as ohwi"));
  EXPECT_THAT(
      Run("verify certify" + oihw).out,
      HasSubstr("warning: the shape (2, 5, 3, 3) looks like oihw, and is read as ohwi; --layout names "
                "the order"));
  EXPECT_THAT(Run("verify certify" + hwio).out,
              HasSubstr("(3, 3, 5, 2) looks like hwio, and is read as ohwi"));
  const std::string cube =
      write("cube", "(10, 3, 3, 1)", [](size_t o, size_t tap, size_t i) { return (o * 9 + tap) * 5 + i; });
  EXPECT_THAT(Run("verify certify" + cube).out, Not(HasSubstr("warning")));
}

TEST_F(Cli, CertifyWarnsWhereTheOrderIsNotPlain) {
  const auto out_of = [this](const std::string& shape, size_t elements, const std::string& option = "") {
    const std::string file = folder_ + "/weights.npy";
    std::ofstream(file, std::ios::binary)
        << intact::tests::Npy(intact::tests::Dict("|i1", shape), std::string(elements, '\1'));
    return Run("verify certify '" + file + "'" + option).out;
  };
  EXPECT_THAT(out_of("(32, 3, 3, 3)", 864), HasSubstr("(32, 3, 3, 3) also fits oihw, and is read as ohwi"));
  EXPECT_THAT(out_of("(32, 16, 1, 1)", 512), HasSubstr("looks like oihw"));
  EXPECT_THAT(out_of("(32, 16, 3)", 1536), HasSubstr("(32, 16, 3) looks like oiw, and is read as owi"));
  EXPECT_THAT(out_of("(32, 16, 3, 3, 3)", 13824), HasSubstr("looks like oidhw, and is read as odhwi"));
  for (const char* option : {"", " --layout ohwi"}) {
    EXPECT_THAT(out_of("(1, 3, 3, 40)", 360, option),
                HasSubstr("warning: the shape (1, 3, 3, 40) looks like a depthwise kernel; expected "
                          "(C, KH, KW, 1) and --groups C\n"));
  }
  EXPECT_THAT(out_of("(1, 1, 1, 16)", 16), Not(HasSubstr("depthwise")));
  EXPECT_THAT(out_of("(3, 3, 40, 1)", 360, " --layout hwio"), Not(HasSubstr("depthwise")));
  for (const auto& [shape, elements] :
       {std::pair("(32, 7, 7, 3)", 4704), std::pair("(32, 1, 1, 16)", 512), std::pair("(32, 3, 3, 1)", 288),
        std::pair("(1, 3, 3, 1)", 9), std::pair("(32, 1, 7, 16)", 3584), std::pair("(32, 1, 1, 1)", 32),
        std::pair("(32, 3, 16)", 1536), std::pair("(16, 3)", 48)}) {
    EXPECT_THAT(out_of(shape, static_cast<size_t>(elements)), Not(HasSubstr("warning"))) << shape;
  }
}

TEST_F(Cli, CertifySeveralFiles) {
  const std::string ramp = kLayers + "u8_ramp_64x10/weights.npy", conv = kLayers + "u8_0_0/weights.npy";
  const std::string safe = folder_ + "/safe.npy", path = folder_ + "/certificates.json";
  std::ofstream(safe, std::ios::binary)
      << intact::tests::Npy(intact::tests::Dict("|i1", "(2, 4)"), std::string(8, '\1'));
  const Outcome outcome =
      Run("verify certify " + ramp + " '" + safe + "' " + conv + " --json '" + path + "'");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              HasSubstr("u8_ramp_64x10/weights.npy: 10 columns × 64 depths, read as nk; adjacent "
                        "depths: 93 of 320 pairs (29.06 %)\n"));
  EXPECT_THAT(outcome.out,
              HasSubstr("safe.npy: 2 columns × 4 depths, read as nk; adjacent depths: proven\n"));
  EXPECT_THAT(outcome.out, HasSubstr("3 files: 1 proven, 2 with pairs that can saturate VPMADDUBSW\n"));
  const json report = json::parse(Contents(path));
  ASSERT_EQ(report["files"].size(), 3u);
  const json& summary = report["summary"];
  EXPECT_EQ(summary["files"], 3);
  EXPECT_EQ(summary["proven"], 1);
  ASSERT_EQ(summary["totals"].size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const json& of_conv = report["files"][2]["pairings"][i];
    const json& total = summary["totals"][i];
    EXPECT_EQ(total["pairing"], of_conv["pairing"]);
    EXPECT_EQ(total["pairs"], 320 + 4 + of_conv["pairs"].get<int>());
    EXPECT_EQ(total["failing_pairs"], 93 + of_conv["failing_pairs"].get<int>());
    EXPECT_EQ(total["worst_file"], of_conv["failing_pairs"] > 93 ? conv : ramp);
    EXPECT_EQ(total["worst_file_failing_pairs"], std::max(93, of_conv["failing_pairs"].get<int>()));
  }
  EXPECT_THAT(outcome.out, HasSubstr(fmt::format("adjacent channels of a tap: {} of {} pairs",
                                                 summary["totals"][0]["failing_pairs"].get<int>(),
                                                 summary["totals"][0]["pairs"].get<int>())));
  const Outcome onednn = Run("verify certify " + ramp + " " + conv + " --engine onednn");
  EXPECT_THAT(onednn.out,
              HasSubstr(fmt::format("\n  oneDNN: {} of", summary["totals"][0]["failing_pairs"].get<int>())));
  EXPECT_THAT(onednn.out, Not(HasSubstr("flattened")));
  // An unreadable file is an error; the other files are still processed.
  const Outcome mixed = Run("verify certify /nowhere.npy " + ramp + " --json '" + path + "'");
  EXPECT_EQ(mixed.status, 2);
  EXPECT_EQ(mixed.err, "intact: /nowhere.npy: no such file\n");
  EXPECT_THAT(mixed.out, HasSubstr("1 file: 0 proven"));
  EXPECT_EQ(json::parse(Contents(path))["files"].size(), 1u);
}

// A zero point shifts the accumulators of u8 weights. Pairs use weights minus 128.
TEST_F(Cli, CertifyZeroPoints) {
  const std::string file = folder_ + "/weights.npy", zero_points = folder_ + "/zero_points.npy";
  std::ofstream(file, std::ios::binary) << intact::tests::Npy(
      intact::tests::Dict("|u1", "(2, 4)"), std::string("\xff\xff\x80\x80\x8a\x80\x80\x80", 8));
  std::ofstream(zero_points, std::ios::binary)
      << intact::tests::Npy(intact::tests::Dict("|u1", "(2,)"), std::string("\xff\x80", 2));
  const std::string certify = "verify certify '" + file + "'";
  const auto out_of = [&](const std::string& more) { return Run(certify + more).out; };
  for (const std::string& more :
       {std::string(), std::string(" --zero-point 128"), " --zero-point '" + zero_points + "'"}) {
    EXPECT_THAT(out_of(more), HasSubstr("1 of 4 pairs (25.00 %)")) << more;
  }
  EXPECT_THAT(out_of(""), HasSubstr(fmt::format("accumulators from 0 to {}", 255 * (255 + 255 + 128 + 128))));
  EXPECT_THAT(out_of(" --zero-point 128"),
              HasSubstr(fmt::format("accumulators from 0 to {}", 255 * (127 + 127))));
  EXPECT_THAT(out_of(" --zero-point '" + zero_points + "'"),
              HasSubstr(fmt::format("accumulators from {} to {}", -255 * (127 + 127), 255 * 10)));
  EXPECT_THAT(out_of(" --zero-point 128"), HasSubstr("zero point of weights 128"));
  EXPECT_THAT(out_of(" --zero-point '" + zero_points + "'"), HasSubstr("zero points of weights 128 to 255"));
  ExpectBadInput(certify + " --zero-point 256", "--zero-point: 256 is beyond the u8 weights of ");
  for (const std::string wrong : {"none.npy", "1.5"}) {
    ExpectBadInput(certify + " --zero-point " + wrong,
                   "--zero-point: " + wrong + ": no such file; expected an integer or a .npy file");
  }
  ExpectBadInput(certify + " --zero-point '" + kLayers + "u8_11/layer.json'", "--zero-point: " + kLayers);
  ExpectBadInput("verify certify " + kLayers + "u8_11/weights.npy --zero-point '" + zero_points + "'",
                 "has 2 values; expected 1, or 10, the output channels of");
  ExpectBadInput("verify certify " + kLayers + "u8_11/weights.npy --zero-point 128",
                 "--zero-point: 128 is beyond the s8 weights of ");
  ExpectBadInput(certify + " --zero-point '" + kLayers + "u8_11/bias.npy'",
                 "bias.npy: is f4 (10,); expected u1, i1 or i4");
}

#if !defined(__SANITIZE_ADDRESS__)
// A single column, which a panel of sixteen columns would store in sixteen times its bytes. Only one plan
// lives at a time.
TEST_F(Cli, CertifyHoldsAFewTimesTheWeights) {
  constexpr size_t kBytes = size_t{9} << 19;
  rusage own{};
  getrusage(RUSAGE_SELF, &own);
  if (size_t{1024} * static_cast<size_t>(own.ru_maxrss) > 5 * kBytes) {
    GTEST_SKIP() << "a child counts what this process held: run this test alone";
  }
  for (const std::string& shape :
       {fmt::format("(1, {})", kBytes), fmt::format("(1, 3, 3, {})", kBytes / 9)}) {
    const std::string file = folder_ + "/column.npy";
    std::ofstream(file, std::ios::binary)
        << intact::tests::Npy(intact::tests::Dict("|i1", shape), std::string(kBytes, '\1'));
    const pid_t child = fork();
    if (child == 0) {
      execl(INTACT_BINARY, INTACT_BINARY, "verify", "certify", file.c_str(), nullptr);
      _exit(127);
    }
    int status = -1;
    rusage usage{};
    ASSERT_EQ(wait4(child, &status, 0, &usage), child);
    EXPECT_EQ(status, 0);
    EXPECT_LT(size_t{1024} * static_cast<size_t>(usage.ru_maxrss), 9 * kBytes) << shape;
  }
}
#endif

TEST_F(Cli, CertifyRefusesBadInput) {
  const std::string layer = kLayers + "u8_ramp_64x10/";
  const std::string write = " --json '" + folder_ + "/x.json'";
  ExpectBadInput("verify certify", "WEIGHTS");
  ExpectBadInput("verify certify /nowhere.npy" + write, "/nowhere.npy");
  ExpectBadInput("verify certify " + layer + "layer.json" + write, "layer.json");
  ExpectBadInput("verify certify " + kLayers + "u8_11/bias.npy" + write, "elements are not int8");
  const std::string deep = folder_ + "/deep.npy";
  std::ofstream(deep, std::ios::binary)
      << intact::tests::Npy(intact::tests::Dict("|i1", "(1, 1, 1, 1, 1, 1)"), "a");
  ExpectBadInput("verify certify '" + deep + "'" + write, "expected a kernel of at most 3 dimensions");
  ExpectBadInput("verify certify " + layer + "weights.npy --amax 256" + write,
                 "--amax: Value 256 not in range");
  ExpectBadInput("verify certify " + layer + "weights.npy --amax 0" + write, "--amax: Value 0 not in range");
  ExpectBadInput("verify certify " + layer + "weights.npy --amax many" + write,
                 "--amax: Value many not in range");
  ExpectBadInput("verify certify " + layer + "weights.npy --amax 99999999999999999999" + write,
                 "not in range");
  ExpectBadInput("verify certify " + layer + "weights.npy --json '" + folder_ + "/out/x.json'",
                 "cannot be written");
  ExpectBadInput("verify certify " + layer + "weights.npy --layout ihwo" + write,
                 "--layout: ihwo not in {nk,kn,ohwi");
  ExpectBadInput("verify certify " + layer + "weights.npy --layout oihw" + write,
                 "weights.npy: has weights of linear layers, but --layout oihw has no order for them; "
                 "expected nk or kn too");
  ExpectBadInput("verify certify " + layer + "weights.npy --layout nk,kn" + write,
                 "--layout: nk and kn are both for linear layers; expected one");
  ExpectBadInput("verify certify " + layer + "weights.npy --layout nk,nk,kn" + write,
                 "--layout: nk and kn are both for linear layers; expected one");
  EXPECT_THAT(Run("verify certify " + layer + "weights.npy --layout nk,oihw,nk,oihw").out,
              HasSubstr("read as nk"));
}

// Pairs are certified for weights even if sums exceed int32.
TEST_F(Cli, CertifySumsBeyondInt32) {
  const std::string file = folder_ + "/weights.npy";
  for (const auto& [shape, columns, depth] :
       {std::tuple("(2, 70000)", 2, 70000), std::tuple("(2, 1, 1, 70000)", 2, 70000),
        std::tuple("(1, 66312)", 1, 66312)}) {
    std::ofstream(file, std::ios::binary) << intact::tests::Npy(
        intact::tests::Dict("|i1", shape), std::string(static_cast<size_t>(columns) * depth, '\x7f'));
    const Outcome outcome = Run("verify certify '" + file + "'");
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr(fmt::format("accumulators from 0 to {} (leaves int32)\n",
                                                   int64_t{255} * 127 * depth)));
  }
  // The greatest depth with sums within int32.
  std::ofstream(file, std::ios::binary)
      << intact::tests::Npy(intact::tests::Dict("|i1", "(1, 66311)"), std::string(66311, '\x7f'));
  EXPECT_THAT(Run("verify certify '" + file + "'").out,
              HasSubstr(fmt::format("accumulators from 0 to {}\n", 255 * 127 * 66311)));
}

// A matrix in ONNX is K×N.
TEST_F(Cli, CertifyTransposedMatrix) {
  const std::string file = folder_ + "/weights.npy";
  std::ofstream(file, std::ios::binary)
      << intact::tests::Npy(intact::tests::Dict("|i1", "(2, 3)"), std::string("\x7f\1\1\x7f\1\1", 6));
  const Outcome nk = Run("verify certify '" + file + "'");
  EXPECT_THAT(nk.out, HasSubstr("2 columns × 3 depths, read as nk"));
  EXPECT_THAT(nk.out, HasSubstr("proven: none of 4 pairs"));
  const Outcome kn = Run("verify certify --layout kn '" + file + "'");
  EXPECT_THAT(kn.out, HasSubstr("3 columns × 2 depths, read as kn"));
  EXPECT_THAT(kn.out, HasSubstr("1 of 3 pairs (33.33 %)"));
  EXPECT_THAT(kn.out, HasSubstr("column 0 depths 0, 1: 255·(127) + 255·(127) = 64770"));
  EXPECT_THAT(Run("verify certify --operator conv --layout hwio '" + file + "'").out,
              HasSubstr("3 columns × 1 taps × 2 channels, read as io"));
}

TEST_F(Cli, Replay) {
  EXPECT_EQ(Run("verify replay 'gemm u8s8s32 m=5 n=16 k=64 fill=bait seed=7'").status, 0);
  EXPECT_EQ(Run("verify replay 'conv u8s8u8 in=5x5 c=6 o=4 kernel=3x3 pad=1x1 groups=2 za=7'").status, 0);
  ExpectBadInput("verify replay 'conv u8s8u8 in=5x5 c=6 o=4 kernel=3'", "kernel: '3' has 1 extents");
  ExpectBadInput("verify replay 'gemm u8s8s32 m=-1 n=16 k=64'", "m: -1 is out of range");
  ExpectBadInput("verify replay 'gemm u8s8s32 m=5 n=16 k=64 fill=sand'", "sand");
  ExpectBadInput("verify replay ''", "replay");
  const std::string good = "gemm u8s8s32 m=5 n=16 k=64", other = "gemm u8s8s32 m=1 n=1 k=4";
  const Outcome mixed = Run("verify replay '" + good + "' 'gemm u8s8' '" + other + "' sand");
  EXPECT_EQ(mixed.status, 2);
  EXPECT_THAT(mixed.out, testing::AllOf(HasSubstr(good), HasSubstr(other)));
  EXPECT_EQ(std::ranges::count(mixed.err, '\n'), 2) << mixed.err;
  EXPECT_THAT(mixed.err, HasSubstr("sand"));
}

// Words are the shell's: with and without quotes.
TEST_F(Cli, ConvertsLinesOfBenchdnn) {
  const Outcome read = Run("verify benchdnn --matmul --dt=u8:s8:s32,f32 '--stag=ab 2x3:3x4'");
  EXPECT_EQ(read.status, 2);
  EXPECT_EQ(read.out, "gemm u8s8s32 m=2 n=4 k=3\n");
  EXPECT_THAT(read.err, testing::AllOf(HasSubstr("(1 of 2 lines, the first: --matmul --stag=ab 2x3:3x4)"),
                                       HasSubstr("2 lines: 1 converted, 1 refused")));
  const Outcome written = Run("verify benchdnn 'gemm u8s8s32 m=2 n=4 k=3 seed=7'");
  EXPECT_EQ(written.status, 0);
  EXPECT_EQ(written.out, "--matmul --dt=u8:s8:s32 --stag=ab --wtag=ab --dtag=ab 2x3:3x4\n");
  EXPECT_THAT(written.err, HasSubstr("left out: seed=7"));
  ExpectBadInput("verify benchdnn", "LINE is missing");
  ExpectBadInput("verify benchdnn gemm u8s8s32 m=2 n=4", "k is missing");
  ExpectBadInput("verify benchdnn --matmul --dt=u8:s8:s32 --dtag=ba 2x3:3x4",
                 "--dtag=ba: expected dense rows");
}

// Lines and layers on an ISA that the CPU lacks, and on one that it has.
TEST_F(Cli, ReplaysAndLayersInTheEmulator) {
  if (intact_isa_available(INTACT_ISA_AVX2) == 0) INTACT_SKIP_ISA("avx2");
  const std::string layer = "verify layer " + kLayers + "u8_11 --expect output_onednn.npy --isa ";
  for (const intact_isa isa : intact::core::kIsaLadder) {
    const std::string name = intact_isa_name(isa);
    const std::string lines = "verify replay 'gemm u8s8s32 m=5 n=16 k=64 fill=bait isa=" + name +
                              "' 'conv s8s8u8 in=5x5 c=6 o=4 kernel=3x3 za=7 isa=" + name + "'";
    if (intact_isa_available(isa) == 0) {
      ExpectBadInput("verify replay 'gemm u8s8s32 m=5 n=16 k=64 isa=" + name + "'",
                     "replay: isa=" + name + ": not available here: ");
      EXPECT_THAT(Run(lines).err, HasSubstr("; --emulate runs it in software\n"));
      EXPECT_THAT(Run(layer + name).err, HasSubstr("; --emulate runs it in software\n"));
    } else {
      EXPECT_EQ(Run(lines).status, 0) << name;
    }
    const Outcome replayed = Run(lines + " --emulate");
    EXPECT_EQ(replayed.status, 0) << name << replayed.out << replayed.err;
    const json results = LayerJson(kLayers + "u8_11 --expect output_onednn.npy --emulate --isa " + name, 0);
    ASSERT_EQ(results.size(), 1u);
    EXPECT_EQ(results[0]["isa"], name);
    EXPECT_EQ(results[0]["differing"], 0);
    EXPECT_FALSE(results[0].contains("cost")) << "times of the emulator mean nothing";
  }
  const std::string capped = "verify replay 'gemm u8s8s32 m=5 n=16 k=64 isa=avx512' --emulate";
  ExpectBadInput(capped, "replay: isa=avx512: not available here: removed by INTACT_MAX_ISA=avx2",
                 "INTACT_MAX_ISA=avx2");
  const std::string plugin = "verify replay 'gemm u8s8s32 m=5 n=16 k=64' --target " INTACT_AMX_TARGET;
  EXPECT_EQ(Run(plugin + " --emulate").status, 0);
  EXPECT_EQ(Run(plugin + ":unknown --emulate").status, 2);
  if (intact_isa_available(INTACT_ISA_AMX_INT8) != 0) return;
  const Outcome crashed = Run(plugin);
  EXPECT_EQ(crashed.status, 1);
  EXPECT_THAT(crashed.out, HasSubstr("crashed (SIGILL)"));
}

TEST_F(Cli, DumpsOfTheCode) {
  if (intact_isa_available(INTACT_ISA_AVX2) == 0) INTACT_SKIP_ISA("avx2");
  const auto dump_to = [this](const std::string& folder) {
    const Outcome outcome =
        Run("verify replay 'gemm u8s8s32 m=5 n=16 k=64'", "INTACT_JIT_DUMP='" + folder + "'");
    EXPECT_EQ(outcome.status, 0);
    return outcome.err;
  };
  EXPECT_EQ(dump_to(folder_ + "/missing"), "intact: INTACT_JIT_DUMP=" + folder_ +
                                               "/missing: No such file or directory; expected a folder to "
                                               "write to; nothing is dumped\n");
  std::ofstream(folder_ + "/file") << "x";
  EXPECT_THAT(dump_to(folder_ + "/file"), HasSubstr("/file: Not a directory;"));
  EXPECT_THAT(dump_to(""), HasSubstr("intact: INTACT_JIT_DUMP=: No such file or directory;"));
  std::filesystem::create_directories(folder_ + "/dump");
  EXPECT_EQ(dump_to(folder_ + "/dump"), "");
  EXPECT_FALSE(std::filesystem::is_empty(folder_ + "/dump"));
}

TEST_F(Cli, CompareReports) {
  const auto write = [this](const std::string& name, const std::string& digest) {
    const json report = {{"schema", "intact-report"},
                         {"schema_version", 3},
                         {"sweep", {{"digests", {{"gemm u8s8s32 m=1 n=1 k=4 isa=avx2", digest}}}}}};
    std::ofstream(folder_ + "/" + name) << report;
    return " '" + folder_ + "/" + name + "'";
  };
  const std::string a = write("a.json", "1");
  const Outcome same = Run("verify compare" + a + write("b.json", "1"));
  EXPECT_EQ(same.status, 0);
  EXPECT_THAT(same.out, HasSubstr("SAME BYTES"));
  const Outcome different = Run("verify compare" + a + write("c.json", "2"));
  EXPECT_EQ(different.status, 1);
  EXPECT_THAT(different.out, HasSubstr("intact verify replay 'gemm u8s8s32 m=1 n=1 k=4 isa=avx2'"));
  ExpectBadInput("verify compare" + a, "B is required");
  ExpectBadInput("verify compare" + a + " /nonexistent", "/nonexistent: no such file");
}

TEST_F(Cli, QuickSweepOfOneIsa) {
  if (intact_isa_available(INTACT_ISA_AVX2) == 0) INTACT_SKIP_ISA("avx2");
  const std::string path = folder_ + "/sweep.json";
  const Outcome outcome = Run("verify sweep --quick --isa avx2 --json '" + path + "'");
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  const json sweep = json::parse(Contents(path));
  ASSERT_EQ(sweep["cells"].size(), 1u);
  EXPECT_GT(sweep["cells"][0]["problems"], 100);
  EXPECT_EQ(sweep["cells"][0]["problems"], sweep["digests"].size());
  EXPECT_THAT(outcome.err, HasSubstr("sweep:"));
  const Outcome compared = Run("verify compare '" + path + "' '" + path + "'");
  EXPECT_EQ(compared.status, 0) << compared.err;
  EXPECT_THAT(compared.out, HasSubstr("SAME BYTES"));
}

TEST_F(Cli, SweepsIsasThatTheCpuLacks) {
  if (intact_isa_available(INTACT_ISA_AVX2) == 0) INTACT_SKIP_ISA("avx2");
  const std::string path = folder_ + "/sweep.json";
  const std::string sweep = "verify sweep --quick --isa avx_vnni_int8 --json '" + path + "'";
  const bool is_here = intact_isa_available(INTACT_ISA_AVX_VNNI_INT8) != 0;
  const Outcome native = Run(sweep);
  EXPECT_EQ(native.status, is_here ? 0 : 2);
  EXPECT_EQ(native.err.find("; --emulate runs it in software\n") == std::string::npos, is_here);
  const Outcome outcome = Run(sweep + " --emulate");
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  const json cells = json::parse(Contents(path))["cells"];
  ASSERT_EQ(cells.size(), 1u);
  EXPECT_EQ(cells[0]["isa"], "avx_vnni_int8");
  EXPECT_EQ(Run(sweep + " --emulate", "INTACT_MAX_ISA=avx2").status, 2) << "the cap holds";
}

#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)  // minutes otherwise, for the pair map
TEST_F(Cli, StandardRunWritesItsReport) {
  ExpectAStandardReport("avx2");
  ExpectBadInput("verify --quick --report '" + folder_ + "/out/x'", "cannot be written");
}

// The pair map takes longer.
TEST_F(Cli, AStandardRunEndsWithItsTime) {
  const Outcome outcome = Run("verify --quick --time 0.1 --report '" + folder_ + "/report'");
  EXPECT_EQ(outcome.status, 4) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out,
              HasSubstr("UNFINISHED: the time of --time was over; missing: saturation map, ramp, "));
  const json report = json::parse(Contents(folder_ + "/report/report.json"));
  EXPECT_EQ(report["parity"], false);
  EXPECT_EQ(report["pair_map"]["inputs"], 4294967296);
  EXPECT_TRUE(report["saturation_map"].is_null());
  EXPECT_EQ(report["missing"].size(), 4u);
  const std::string page = Contents(folder_ + "/report/report.html");
  EXPECT_THAT(page, HasSubstr("Unfinished: the time of --time was over; missing: saturation map, "));
  EXPECT_THAT(page, testing::Not(HasSubstr("<h2>Saturation map</h2>")));
}

TEST_F(LongCli, StandardRunWritesItsReport) { ExpectAStandardReport(""); }
#endif

// A few standard problems, then random ones until a signal comes.
TEST_F(Cli, SweepGoesOnForATime) {
  const std::string file = folder_ + "/time.json";
  const Outcome sweep = RunUntilRandom(
      "verify sweep --quick --isa portable --shard 2/400 --time 1h --seed 7 --json '" + file + "'", "INT");
  EXPECT_EQ(sweep.status, 0) << sweep.out << sweep.err;
  EXPECT_THAT(sweep.out, HasSubstr("random problems: "));
  const json report = json::parse(Contents(file));
  const json& random = report["random"];
  EXPECT_EQ(random["seed"], 7);
  EXPECT_EQ(random["stream"], 2);
  EXPECT_GT(random["problems"], 0);
  EXPECT_EQ(random["cells"][0]["problems"], random["problems"]);
  EXPECT_EQ(report["cells"][0]["problems"], report["digests"].size());  // of the standard ones
  ExpectBadInput("verify sweep --time 0", "--time: 0 is not a number from 0.1 to 1e+09");
  ExpectBadInput("verify sweep --time 50ms", "--time: 0.05");
  ExpectBadInput("verify sweep --time 3days",
                 "--time: 3days; expected seconds, or a number with ms, s, min or h");
  ExpectBadInput("verify sweep --seed 3", "--time");
  for (const char* seed : {"-1", "18446744073709551616", "7x"}) {
    ExpectBadInput(std::string("verify sweep --time 1 --seed ") + seed,
                   std::string("--seed: ") + seed + "; expected 0 to 18446744073709551615");
  }
}

// A time that suffices for the first unit of work, but not for the second.
TEST_F(Cli, CommandsEndWithTheirTime) {
  const auto expect = [&](const std::string& arguments, const std::string& said) {
    const Outcome outcome = Run(arguments + " --time 0.1");
    EXPECT_EQ(outcome.status, 4) << arguments << outcome.out << outcome.err;
    EXPECT_THAT(outcome.out + outcome.err, HasSubstr(said)) << arguments;
    EXPECT_THAT(outcome.out + outcome.err, HasSubstr("the time of --time was over")) << arguments;
    return outcome;
  };
  const std::string file = folder_ + "/part.json";
  const std::string junit = folder_ + "/part.xml";
  for (const std::string sweep : {"sweep", "grouped"}) {
    expect("verify " + sweep + " --json '" + file + "' --junit '" + junit + "'", "UNFINISHED: ");
    const json report = json::parse(Contents(file));
    EXPECT_GT(report["not_run"]["problems"], 0);
    EXPECT_THAT(Contents(junit), HasSubstr("errors=\"1\""));
    ExpectBadInput("verify merge '" + folder_ + "/whole.json' '" + file + "'",
                   "problems of shard 1/1 not run");
  }
  EXPECT_THAT(expect("verify digests", "the digest of sweep --quick").out,
              testing::Not(testing::ContainsRegex("[0-9a-f]{16}")));
  const Outcome lines = expect("verify replay 'gemm u8s8s32 m=300 n=3000 k=3000' 'gemm u8s8s32 m=1 n=2 k=3'",
                               "missing: gemm u8s8s32 m=1 n=2 k=3: ");
  EXPECT_THAT(lines.out, HasSubstr("as exact mode promises")) << "the first line ran";
  std::string layers = "verify layer --json '" + file + "'";
  for (int i = 0; i < 100; ++i) layers += " " + kLayers + "u8_11";
  EXPECT_THAT(expect(layers, "u8_11: the time of --time was over").out, HasSubstr("\nmissing: "));
  const json checked = json::parse(Contents(file));
  EXPECT_EQ(checked.size(), 100u);
  EXPECT_FALSE(checked.front().contains("missing"));
  EXPECT_EQ(checked.back()["missing"], "the time of --time was over");
  const std::string weights = kLayers + "u8_11/weights.npy", pipe = folder_ + "/pipe";
  const Outcome certified =
      Run("verify certify '" + pipe + "' '" + weights + "' --time 0.1 --json '" + file + "'",
          "mkfifo '" + pipe + "'; (sleep 0.3; cat '" + weights + "' >'" + pipe + "') & ");
  EXPECT_EQ(certified.status, 4) << certified.err;
  EXPECT_THAT(certified.out, HasSubstr("\nmissing: " + weights + ": the time of --time was over\n"));
  EXPECT_EQ(json::parse(Contents(file))["missing"], json::array({weights}));
  EXPECT_THAT(certified.out, HasSubstr("1 file: ")) << "the first one is certified";
}

TEST_F(Cli, SweepEndsByASignal) {
  for (const std::string signal : {"INT", "TERM"}) {
    const Outcome stopped =
        RunUntilRandom("verify sweep --quick --isa portable --shard 1/400 --time 1h", signal);
    EXPECT_EQ(stopped.status, 0) << stopped.err;
    EXPECT_THAT(stopped.out, HasSubstr("random problems: ")) << signal;
  }
}

}  // namespace
