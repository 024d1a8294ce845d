// --target, --deadline and --reproduce of the command line, with a plug-in of planted faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <intact/intact.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "tests/support/binary_test.h"

namespace {

namespace fs = std::filesystem;
using intact::tests::Outcome;
using testing::ContainsRegex;
using testing::HasSubstr;

const std::string kFaulty = INTACT_FAULTY_TARGET;
const std::string kProblem = "'gemm u8s8s32 m=2 n=3 k=4'";

class TargetCli : public intact::tests::BinaryTest {
 protected:
  Outcome Replay(const std::string& target, const std::string& more = "") {
    return Run("verify replay " + kProblem + " --target '" + target + "'" + more);
  }
};

TEST_F(TargetCli, BadUsage) {
  ExpectBadInput("verify --target ''", "--target: the value is empty");
  ExpectBadInput("verify sweep --target ''", "--target: the value is empty");
  ExpectBadInput("verify sweep --deadline 3", "--deadline requires --target");
  ExpectBadInput("verify sweep --target x --deadline 0", "--deadline: 0 is not a number from 0.01 to 1e+06");
  ExpectBadInput("verify sweep --target x --deadline nan", "--deadline: nan is not a number");
  ExpectBadInput("verify sweep --time nan", "--time: ");
  ExpectBadInput("verify sweep --target :options", "--target: no name before the ':'");
  ExpectBadInput("verify sweep --target ./no:where.so", "./no: no such file");
}

TEST_F(TargetCli, NamesThePeersThatThereAre) {
  fs::create_directories(folder_ + "/bin");
  fs::create_directories(folder_ + "/peers");
  fs::copy_file(INTACT_BINARY, folder_ + "/bin/intact");
  const auto say = [this] {
    const std::string err = folder_ + "/said";
    (void)std::system(
        ("'" + folder_ + "/bin/intact' verify sweep --target fbgem:x=./y.so 2>'" + err + "'").c_str());
    return Contents(err);
  };
  EXPECT_THAT(say(),
              HasSubstr("--target fbgem: no peer has that name: none was built in; a plug-in is a path"));
  ExpectBadInput("verify sweep --target python:x.py:X",
                 "runs Python classes; install intact's wheel with pip");
  for (const char* peer : {"one", "another"}) {
    std::ofstream(folder_ + "/peers/intact_peer_" + peer + ".so") << "";
  }
  EXPECT_THAT(say(), HasSubstr("there are another, one; a plug-in is a path, ./fbgem.so"));
}

TEST_F(TargetCli, FilesAndOptionsMayHaveColonsAndSlashes) {
  EXPECT_EQ(Replay(kFaulty).status, 0);
  EXPECT_EQ(Replay(kFaulty + ":edge_column").status, 0);
  const std::string folder = folder_ + "/a:b";
  fs::create_directories(folder);
  fs::copy_file(kFaulty, folder + "/c:d.so");
  EXPECT_EQ(Replay(folder + "/c:d.so").status, 0);
  EXPECT_THAT(Replay(folder + "/c:d.so:error").out, HasSubstr("FAILED: the target failed with status 4"));
  EXPECT_THAT(Replay(folder + "/c:d.so:=a:/b").err, HasSubstr("claims \"/b\""));
}

// Compiled as in docs/targets.md, but here warnings are errors.
TEST_F(TargetCli, TheTemplateIsCompiledAndPasses) {
  const std::string mine = folder_ + "/mine.so";
  const std::string compile = std::string("'") + INTACT_C_COMPILER +
                              "' -O2 -shared -fPIC -Wall -Wextra -Werror -I '" INTACT_SOURCE_DIR
                              "/include' -o '" +
                              mine + "' '" INTACT_SOURCE_DIR "/examples/target_template.c'";
  ASSERT_EQ(std::system(compile.c_str()), 0) << compile;
  const Outcome sweep = Run("verify sweep --quick --target '" + mine + "'");
  EXPECT_EQ(sweep.status, 0) << sweep.out << sweep.err;
  EXPECT_THAT(sweep.out, ContainsRegex("gemm u8s8 +[0-9]+ of [0-9]+ problems: exact"));
}

TEST_F(TargetCli, TheGroupedTemplateIsCompiledAndPasses) {
  const std::string mine = folder_ + "/mine.so";
  const std::string compile = std::string("'") + INTACT_C_COMPILER +
                              "' -O2 -shared -fPIC -Wall -Wextra -Werror -I '" INTACT_SOURCE_DIR
                              "/include' -o '" +
                              mine + "' '" INTACT_SOURCE_DIR "/examples/grouped_target.c' -lm";
  ASSERT_EQ(std::system(compile.c_str()), 0) << compile;
  const Outcome sweep = Run("verify grouped --quick --target '" + mine + "'");
  EXPECT_EQ(sweep.status, 0) << sweep.out << sweep.err;
  EXPECT_THAT(sweep.out,
              ContainsRegex("\n  grouped weights  [0-9]+ problems: exact\nPASSED: [0-9]+ problems\n"));
  const Outcome replay =
      Run("verify replay 'grouped s8u4f32 m=1 n=2 k=40 src=none gscale=f32' --target '" + mine + "'");
  EXPECT_EQ(replay.status, 0) << replay.out << replay.err;
  EXPECT_THAT(replay.out, HasSubstr("2 outputs: exact"));
  ExpectBadInput("verify grouped --quick --target '" + kFaulty + "'", "has no grouped weights");
  EXPECT_THAT(Run("verify replay 'grouped s8u4f32 m=1 n=2 k=40 src=none gscale=f32' --target '" + kFaulty +
                  ":grouped_early'")
                  .out,
              HasSubstr("groups begin one depth too early"));
}

TEST_F(TargetCli, DeadlineIsTheUsers) {
  EXPECT_THAT(
      Replay(kFaulty + ":hang", " --deadline 0.2").out,
      HasSubstr("FAILED: the target did not return within 0.2 s, after printing \"waiting for a lock\""));
}

TEST_F(TargetCli, HangsEndASweep) {
  const std::string json = folder_ + "/hangs.json";
  const Outcome outcome =
      Run("verify sweep --quick --target '" + kFaulty + ":hang' --deadline 0.05 --json '" + json + "'");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, ContainsRegex("NOT RUN: [0-9]+ problems: the target did not "
                                         "return within 0.05 s 5 times"));
  EXPECT_GT(nlohmann::json::parse(Contents(json))["not_run"]["problems"], 100);
  EXPECT_EQ(nlohmann::json::parse(Contents(json))["failures"].size(), 5);
  const std::string journal = folder_ + "/j";
  const std::string sweep = "verify sweep --quick --target '" + kFaulty + ":hang' --shard 1/1 --journal '" +
                            journal + "' --json '" + json + "' --deadline ";
  EXPECT_EQ(Run(sweep + "0.05").status, 1);
  ExpectBadInput("verify merge '" + folder_ + "/whole.json' '" + json + "'",
                 "problems of shard 1/1 not run: the target did not return");
  ExpectBadInput(sweep + "0.06", "is the journal of another run: target is ");
}

TEST_F(TargetCli, ASweepThatComparedNothingDoesNotPass) {
  const Outcome outcome = Run("verify sweep --quick --target '" + kFaulty + ":refuses_all'");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.out, ContainsRegex("skipped [0-9]+: not that; e.g. 'gemm "));
  EXPECT_THAT(outcome.out, ContainsRegex("\nNOTHING WAS COMPARED: [0-9]+ problems skipped\n$"));
  const std::string report = folder_ + "/report";
  const Outcome examined = Run("verify --quick --target '" + kFaulty + ":refuses_all' --target '" + kFaulty +
                               "' --report '" + report + "'");
  EXPECT_EQ(examined.status, 2);
  EXPECT_THAT(examined.out, HasSubstr("\nNOTHING WAS COMPARED on some target: see above\n"));
  EXPECT_THAT(examined.out, ContainsRegex("  PASSED: [0-9]+ problems\n"));
  const std::string file = " '" + report + "/report.json'";
  const Outcome compared = Run("verify compare" + file + file);
  EXPECT_EQ(compared.status, 0) << compared.err;
  EXPECT_THAT(compared.out, HasSubstr("SAME BYTES"));
}

TEST_F(TargetCli, SizesAreRoundedUpToWhatTheTargetTakes) {
  const Outcome outcome = Run("verify sweep --quick --target '" + kFaulty + ":depths_by_4'");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, HasSubstr("of GEMMs u8s8s32 (k by 4)"));
  EXPECT_THAT(outcome.out, testing::Not(HasSubstr("not that")));
  EXPECT_THAT(outcome.out, ContainsRegex("\nPASSED: [0-9]+ problems\nnot tried: .*\n$"));
}

TEST_F(TargetCli, PartsOfASweepAreMergedToItsText) {
  const std::string sweep = "verify sweep --quick --target '" + kFaulty + ":cvtps2dq' ";
  const auto json = [this](const char* name) { return " '" + folder_ + "/" + name + "' "; };
  const Outcome whole = Run(sweep + "--json" + json("whole"));
  EXPECT_EQ(Run(sweep + "--shard 1/2 --json" + json("1")).status, 1);
  EXPECT_EQ(Run(sweep + "--shard 2/2 --json" + json("2")).status, 1);
  const Outcome merged = Run("verify merge" + json("merged") + json("1") + json("2"));
  EXPECT_EQ(merged.status, 1);
  EXPECT_EQ(merged.out, whole.out);
  EXPECT_THAT(merged.out, HasSubstr("' --target " + kFaulty + ":cvtps2dq\n"));
  EXPECT_THAT(Run("verify compare" + json("whole") + json("merged")).out, HasSubstr("SAME BYTES"));
}

TEST_F(TargetCli, ReplayPassesOnWhatTheTargetPrints) {
  const Outcome outcome = Replay(kFaulty + ":sanitizer");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("faulty.c:7:3: runtime error: load of misaligned address\n  12 34\n"));
}

TEST_F(TargetCli, ReplayTakesSeveralLines) {
  const std::string lines = "verify replay 'gemm u8s8s32 m=1 n=1 k=1' 'gemm u8s8s32 m=2 n=17 k=3'";
  const Outcome outcome = Run(lines + " --target '" + kFaulty + ":edge_column'");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, HasSubstr("\ngemm u8s8s32 m=2 n=17 k=3"));
  ExpectBadInput(lines + " 'gemm'", "replay: ");
  ExpectBadInput(lines + " 'gemm u8s8s32 m=1 n=1 k=1 isa=avx2' --target '" + kFaulty + "'",
                 "isa=avx2': isa= and mode= choose among our own kernels");
  ExpectBadInput(lines + " --target '" + kFaulty + "' --reproduce x.c", "--reproduce: takes one LINE");
}

TEST_F(TargetCli, TheOtherTargetsAreExamined) {
  const std::string report = folder_ + "/report";
  const Outcome outcome = Run("verify --quick --target /nope.so --target '" + kFaulty +
                              "' --target /nor.so --report '" + report + "'");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, testing::AllOf(HasSubstr("--target /nope.so: "), HasSubstr("--target /nor.so: ")));
  EXPECT_EQ(nlohmann::json::parse(Contents(report + "/report.json"))["targets"].size(), 1u);
  const std::string none = folder_ + "/none";
  ExpectBadInput("verify --quick --target /nope.so --report '" + none + "'", "/nope.so");
  EXPECT_FALSE(std::filesystem::exists(none));
}

TEST_F(TargetCli, RampsAreHeldToTheClaim) {
  const auto ramp = [this](const char* fault) {
    return Run("verify ramp --target '" + kFaulty + fault + "'");
  };
  EXPECT_EQ(ramp("").status, 0);
  EXPECT_EQ(ramp(":maddubs").status, 1);
  const Outcome claimed = ramp(":maddubs=maddubs");
  EXPECT_EQ(claimed.status, 0);
  EXPECT_THAT(claimed.out, HasSubstr("\nas the target claims: maddubs\n"));
  EXPECT_THAT(ramp(":=maddubs").out, HasSubstr("\nnot as the target claims: maddubs\n"));
}

TEST_F(TargetCli, PairingIsProbed) {
  const std::string json = folder_ + "/pairing.json";
  const Outcome outcome = Run("verify pairing --target '" + kFaulty + "' --json '" + json + "'");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, ContainsRegex("product, 1 row  .*u8s8.*: none\n"));
  const nlohmann::json report = nlohmann::json::parse(Contents(json));
  EXPECT_EQ(report["schema"], "intact-pairing");
  EXPECT_EQ(report["rows"][0]["pairing"], "none");
  EXPECT_EQ(Run("verify pairing --target '" + kFaulty + ":error'").status, 1);
  EXPECT_THAT(Run("verify pairing --mode saturating --isa avx2").out,
              HasSubstr(": adjacent depths: 0-1, 2-3, "));
  const std::string flattened = "verify pairing --mode saturating --pairing flattened --isa avx2";
  EXPECT_THAT(Run(flattened).out,
              ContainsRegex("depthwise 3x3 .*: adjacent taps: .0,0.-.0,1., .0,2.-.1,0.,"));
  EXPECT_THAT(Run("verify pairing --pairing flattened").err,
              HasSubstr("--pairing: is flattened in exact mode; expected --mode saturating with it"));
}

TEST_F(TargetCli, SweepGoesOnForATime) {
  const std::string file = folder_ + "/time.json";
  const Outcome good = RunUntilRandom(
      "verify sweep --quick --time 1h --target '" + kFaulty + "' --json '" + file + "'", "INT", 1);
  EXPECT_EQ(good.status, 0) << good.out << good.err;
  EXPECT_THAT(good.out,
              ContainsRegex("random problems: (.*\n)*  gemm u8s8 +[0-9]+ of [0-9]+ problems: exact"));
  EXPECT_THAT(good.out, ContainsRegex("\nPASSED: [0-9]+ problems\nnot tried: .*\n$")) << "of both";
  const nlohmann::json random = nlohmann::json::parse(Contents(file))["random"];
  EXPECT_GT(random["problems"], 0);
  EXPECT_EQ(random["cells"][0]["problems"], random["problems"]);
  EXPECT_TRUE(random["failures"].empty());
  const Outcome hangs = Run("verify sweep --quick --time 1h --target '" + kFaulty + ":hang' --deadline 0.05");
  EXPECT_EQ(hangs.status, 1) << "and ends before the hour";
  EXPECT_THAT(hangs.out, HasSubstr("FAILED: the target did not return within 0.05 s"));
  EXPECT_THAT(hangs.out, ContainsRegex("\nFAILED: [0-9]+ of [0-9]+ problems\nnot tried: .*\n$"));
}

TEST_F(TargetCli, AReportNamesThePartsThatItsTimePrevented) {
  const Outcome outcome =
      Run("verify --quick --time 0.1 --target '" + kFaulty + "' --report '" + folder_ + "'");
  EXPECT_EQ(outcome.status, 4) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("  NOT RUN: saturation map, ramp: the time of --time was over\n"));
  EXPECT_THAT(outcome.out, testing::EndsWith("\nUNFINISHED: the time of --time was over; see above\nwrote " +
                                             folder_ + "/report.json and " + folder_ + "/report.html\n"));
}

TEST_F(TargetCli, ExitStatusesOfAllCommandsAreDocumented) {
  const std::string page = Contents(INTACT_SOURCE_DIR "/docs/verification.md");
  const std::string table =
      page.substr(page.find("## Exit statuses"), page.find("## Commands") - page.find("## Exit statuses"));
  std::set<std::string> commands_of_table;  // in the first cells of its rows
  const std::regex name_of_command("`([a-z ]+)`");
  std::istringstream rows(table);
  for (std::string row; std::getline(rows, row);) {
    const std::string cell = row.substr(0, row.find('|', 1));
    for (std::sregex_iterator match(cell.begin(), cell.end(), name_of_command), end; match != end; ++match) {
      commands_of_table.insert((*match)[1]);
    }
  }
  std::set<std::string> commands_of_help;
  for (const std::string parent : {"", "verify "}) {
    const std::string help = Run(parent + "--help").out;
    std::istringstream lines(help.substr(help.find("ubcommands:")));
    std::string line, name;
    for (std::getline(lines, line); std::getline(lines, line) && line.starts_with("  ");) {
      if (line[2] == ' ') continue;  // a description goes on
      std::istringstream(line) >> name;
      commands_of_help.insert(parent + name);
    }
  }
  EXPECT_EQ(commands_of_table, commands_of_help);
}

TEST_F(TargetCli, DigestsAreThoseOfThePage) {
  const std::string isa = intact_isa_available(INTACT_ISA_AVX2) != 0 ? "avx2" : "portable";
  const Outcome outcome = Run("verify digests --isa " + isa);
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("EQUAL: the digests of intact arithmetic 1\n"));
  const std::string page = Contents(INTACT_SOURCE_DIR "/docs/arithmetic.md");
  std::istringstream lines(outcome.out);
  std::string line, command, quick, version, kernels, problems, outputs, digest;
  int sweeps = 0;
  for (std::getline(lines, line); std::getline(lines, line) && line.starts_with("  "); ++sweeps) {
    std::istringstream(line) >> command >> quick >> version >> kernels >> problems >> outputs >> digest;
    const std::string cells = " | " + version + " | " + problems + " | " + outputs + " | " + digest + " |";
    EXPECT_THAT(page, HasSubstr("| `" + command + ' ' + quick + '`' + cells));
  }
  EXPECT_EQ(sweeps, 2);
}

TEST_F(TargetCli, SweepsExpectTheFailuresOfAList) {
  const std::string list = folder_ + "/known.txt", xml = folder_ + "/sweep.xml",
                    file = folder_ + "/sweep.json";
  const std::string sweep = "verify sweep --quick --shard 1/40 --target '" + kFaulty + "' --junit '" + xml +
                            "' --json '" + file + "'";
  const Outcome quiet = Run(sweep + " --quiet");
  EXPECT_EQ(quiet.status, 0);
  EXPECT_EQ(quiet.out + quiet.err, "");
  const nlohmann::json digests = nlohmann::json::parse(Contents(file))["digests"];
  EXPECT_THAT(Contents(xml), HasSubstr("name=\"intact verify sweep: faulty\" tests=\"" +
                                       std::to_string(digests.size()) + "\" failures=\"0\""));
  std::ofstream known(list);
  known << "gemm u8s8s32 m=3 n=1234567 k=1  # not in the sweep\n" << std::flush;
  const std::string expecting = sweep + " --expected-failures '" + list + "'";
  const Outcome absent = Run(expecting);
  EXPECT_EQ(absent.status, 0) << absent.out << absent.err;
  EXPECT_THAT(absent.out,
              HasSubstr("expected failures: 0 of 1 listed problems failed; 1 did not run or were skipped\n"));
  known << digests.begin().key() << "\n" << std::flush;
  const Outcome passed = Run(expecting + " --quiet");
  EXPECT_EQ(passed.status, 1);
  EXPECT_THAT(passed.out, HasSubstr("passed; expected a failure: remove the line from the list"));
  EXPECT_THAT(Contents(xml), HasSubstr("failures=\"1\""));
  EXPECT_TRUE(nlohmann::json::parse(Contents(file))["failures"].empty()) << "the file holds what happened";
  known << "gemm u8s8s32 m=3\n" << std::flush;
  ExpectBadInput(expecting, "known.txt: line 3: n is missing");
}

TEST_F(TargetCli, ReproducersAreOfThisRunAndNumberedAsItsFailures) {
  const std::string folder = folder_ + "/failures";
  fs::create_directories(folder);
  for (const char* old : {"/failure_1.c", "/failure_77.c", "/failure_x.c"})
    std::ofstream(folder + old) << "old";
  const Outcome outcome =
      Run("verify sweep --quick --target '" + kFaulty + ":crash' --reproduce '" + folder + "'");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_FALSE(fs::exists(folder + "/failure_77.c"));
  EXPECT_EQ(Contents(folder + "/failure_x.c"), "old");
  const std::string file = folder + "/failure_1.c";
  EXPECT_THAT(Contents(file), HasSubstr("crashed (SIGSEGV): a write at address 0"));
  EXPECT_GT(outcome.out.find("wrote " + file), outcome.out.find("FAILED")) << "after the report";
  EXPECT_THAT(outcome.out, HasSubstr("no file " + folder + "/failure_2.c: it would equal " + file));
  EXPECT_FALSE(fs::exists(folder + "/failure_2.c"));
  EXPECT_FALSE(fs::exists(folder + "/failure_3.c")) << "which is like those";
}

// The C file of a failure of grouped weights is compiled, and finds the failure without intact.
TEST_F(TargetCli, FailuresOfGroupedWeightsAreReproducedInC) {
  const std::string json = folder_ + "/sweep.json";
  const Outcome outcome = Run("verify grouped --quick --target '" + kFaulty +
                              ":grouped_early' --reproduce '" + folder_ + "' --json '" + json + "'");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, HasSubstr("groups begin one depth too early\n"));
  const nlohmann::json failure = nlohmann::json::parse(Contents(json))["failures"][0];
  EXPECT_NE(failure["minimised"], "");
  const std::string file = folder_ + "/failure_1.c";
  EXPECT_THAT(outcome.out, HasSubstr("wrote " + file + ": " + failure["minimised"].get<std::string>()));
  const std::string program = folder_ + "/failure";
  const auto run = [&](const std::string& plugin) {
    const std::string compile = std::string("'") + INTACT_C_COMPILER +
                                "' -Wall -Wextra -Werror -I '" INTACT_SOURCE_DIR "/include' '" + file +
                                "' '" + plugin + "' -lm -o '" + program + "'";
    EXPECT_EQ(std::system(compile.c_str()), 0) << compile;
    return std::system(("'" + program + "' >'" + folder_ + "/said'").c_str());
  };
  EXPECT_NE(run(kFaulty), 0);
  EXPECT_THAT(Contents(folder_ + "/said"), ContainsRegex("row [0-9]+, column [0-9]+ is .* instead of "));
  std::string right = Contents(file);
  const size_t options = right.find("\"grouped_early\"");
  ASSERT_NE(options, std::string::npos);
  std::ofstream(file) << right.replace(options, 15, "\"grouped\"");
  EXPECT_EQ(run(kFaulty), 0) << Contents(folder_ + "/said");
}

TEST_F(TargetCli, ReproducersOfShardsKeepApart) {
  const std::string folder = folder_ + "/failures";
  fs::create_directories(folder);
  for (const char* old : {"/failure_7.c", "/failure_1of2_7.c", "/failure_1of2_r7.c", "/failure_2of2_7.c"})
    std::ofstream(folder + old) << "old";
  const Outcome outcome = RunUntilRandom("verify sweep --quick --shard 1/2 --time 1h --target '" + kFaulty +
                                             ":crash' --reproduce '" + folder + "'",
                                         "INT", 1);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(Contents(folder + "/failure_7.c"), "old") << "of a whole sweep";
  EXPECT_EQ(Contents(folder + "/failure_2of2_7.c"), "old") << "of another shard";
  EXPECT_FALSE(fs::exists(folder + "/failure_1of2_7.c"));
  EXPECT_FALSE(fs::exists(folder + "/failure_1of2_r7.c"));
  EXPECT_THAT(Contents(folder + "/failure_1of2_1.c"), HasSubstr("cc failure_1of2_1.c "));
  EXPECT_THAT(outcome.out, HasSubstr("no file " + folder + "/failure_1of2_r1.c: it would equal " + folder +
                                     "/failure_1of2_1.c"));
}

TEST_F(TargetCli, ReproducersThatWouldShowNothingAreNotWritten) {
  const std::string file = folder_ + "/none.c";
  const Outcome outcome = Replay(kFaulty + ":exit_0", " --reproduce '" + file + "'");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--reproduce: a C file would not show it: it ends the process with"));
  EXPECT_FALSE(fs::exists(file));
}

TEST_F(TargetCli, ReproducersAreRefusedBeforeTheWork) {
  std::ofstream(folder_ + "/file") << "";
  const std::string sweep = "verify sweep --quick --target '" + kFaulty + ":crash' --reproduce '";
  const Outcome outcome = Run(sweep + folder_ + "/file/below'");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, testing::StartsWith("intact: --reproduce: "));
  EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
}

}  // namespace
