// Plug-ins as targets: loading, skipping, and planted faults. Each fault must be found, named and minimised,
// and the sweep must continue.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "jit/isa.h"
#include "support/c_text.h"
#include "tests/support/long.h"
#include "tests/verify/mutants/mutants.h"
#include "verify/explain/judge.h"
#include "verify/report/report_json.h"
#include "verify/report/report_terminal.h"
#include "verify/report/target_report.h"
#include "verify/sweep/grouped_sweep.h"
#include "verify/sweep/mixture.h"
#include "verify/sweep/random_sweep.h"
#include "verify/sweep/reproducer.h"
#include "verify/sweep/sweep.h"
#include "verify/targets/emulated_target.h"
#include "verify/targets/fit.h"
#include "verify/targets/intact_target.h"
#include "verify/targets/isolated_target.h"
#include "verify/targets/plugin_target.h"
#include "verify/targets/worker.h"

namespace intact::verify {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

// Whether each run takes until the deadline or longer.
bool Hangs(const std::string& fault) { return fault == "hang" || fault == "closes" || fault == "flood"; }

Result<std::unique_ptr<Target>> Faulty(const std::string& fault) {
  const std::chrono::milliseconds deadline(Hangs(fault) && fault != "flood" ? 500 : 60000);
  return IsolatedTarget::Start([fault] { return PluginTarget::Open(INTACT_FAULTY_TARGET, fault); }, deadline);
}

// Part of the standard list. It has all shapes, fills, strides and thread counts of GEMMs u8×s8, and the
// faulty target's outputs.
std::vector<Problem> SomeProblems() {
  constexpr std::array kIsa = {INTACT_ISA_ANY};
  constexpr std::array kMode = {INTACT_EXACT};
  std::vector<Problem> some;
  for (const Problem& problem : SweepProblems(kIsa, kMode, Effort::kStandard)) {
    const bool fits = !problem.conv && problem.a_type == INTACT_U8 && problem.b_type == INTACT_S8 &&
                      problem.c_type != INTACT_S8 && problem.c_type != INTACT_BF16 && problem.batch == 1 &&
                      problem.m * problem.n * problem.k < 300000 && problem.calls == 1;
    if (fits) some.push_back(problem);
  }
  return some;
}

TEST(Plugin, WithoutAFaultPasses) {
  const Result<std::unique_ptr<Target>> target = Faulty("");
  ASSERT_TRUE(target) << target.error().message;
  EXPECT_EQ((*target)->Name(), "faulty");
  const SweepResult sweep = RunSweep(SomeProblems(), **target, [](int64_t, int64_t) {});
  EXPECT_TRUE(sweep.Passed());
  ASSERT_EQ(sweep.cells.size(), 1u);
  EXPECT_GT(sweep.cells[0].problems, 100);
  for (const SweepFailure& failure : sweep.failures)
    ADD_FAILURE() << failure.problem << ": " << failure.reason;
}

TEST(Plugin, IsSweptAtRandom) {
  const Result<std::unique_ptr<Target>> target = Faulty("edge_column");
  ASSERT_TRUE(target) << target.error().message;
  const RandomSweepResult random = RunRandomSweep(
      {}, **target, TakesOf(**target),
      [](const RandomSweepResult& now) { return now.sweep.failures.empty() && now.problems < 600; });
  ASSERT_EQ(random.sweep.failures.size(), 1u);
  EXPECT_THAT(random.sweep.failures[0].minimised, HasSubstr("gemm u8s8s32 m=1 n=1 k=1"));
  EXPECT_THAT(ToText(random, "./faulty.so"), HasSubstr("' --target ./faulty.so\n"));
}

TEST(Plugin, IsNotGivenWhatItDoesNotDeclare) {
  const Result<std::unique_ptr<Target>> target = Faulty("");
  ASSERT_TRUE(target);
  const auto refusal = [&](const char* line) {
    const Result<Problem> problem = Problem::Parse(line);
    EXPECT_TRUE(problem) << line;
    const Result<Judgement> judgement = Judge(**target, *problem);
    EXPECT_FALSE(judgement);
    EXPECT_EQ(judgement.error().status, INTACT_UNSUPPORTED);
    return judgement.error().message;
  };
  EXPECT_THAT(refusal("gemm s8s8s32 m=2 n=3 k=4"), HasSubstr("does not declare s8 activations"));
  EXPECT_THAT(refusal("gemm u8s8u8 m=2 n=3 k=4 bias=f32 act=relu"), HasSubstr("an f32 bias, ReLU"));
  EXPECT_THAT(refusal("conv u8s8s32 in=5x5 c=3 o=3 kernel=3x3"), HasSubstr("2-D convolutions"));
}

Result<std::unique_ptr<Target>> OnAmx(const std::string& fault) {
  return IsolatedTarget::Start(Emulated([fault] { return PluginTarget::Open(INTACT_AMX_TARGET, fault); }));
}

// Also runs on a CPU with AMX, without the emulator. Then it cannot show the emulator's limits.
TEST(Plugin, IsEmulated) {
  if (jit::HardwareIsas() == core::IsaSet{core::Isa::kPortable}) GTEST_SKIP() << "needs AVX2";
  const Result<std::unique_ptr<Target>> target = OnAmx("");
  ASSERT_TRUE(target) << target.error().message;
  const FittedProblems fitted = Fit(SomeProblems(), TakesOf(**target));
  const SweepResult sweep = RunSweep(fitted.problems, **target, [](int64_t, int64_t) {});
  EXPECT_TRUE(sweep.Passed()) << ToText(sweep);
  ASSERT_EQ(sweep.cells.size(), 1u);
  EXPECT_GT(sweep.cells[0].problems, 100);
  EXPECT_EQ(sweep.cells[0].skipped, 0);

  const Result<Problem> problem = Problem::Parse("gemm u8s8s32 m=17 n=20 k=65");
  ASSERT_TRUE(problem);
  const Result<Judgement> wrong = Judge(**OnAmx("unsigned"), *problem);
  ASSERT_TRUE(wrong) << wrong.error().message;
  EXPECT_THAT(wrong->failure, HasSubstr("B read as u8"));
  const Result<Judgement> trap = Judge(**OnAmx("trap"), *problem);
  ASSERT_FALSE(trap);
  EXPECT_EQ(trap.error().status, INTACT_CODEGEN_FAILED);
  EXPECT_THAT(trap.error().message, HasSubstr("crashed (SIGILL)"));
  const Result<Judgement> unknown = Judge(**OnAmx("unknown"), *problem);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().status, INTACT_UNSUPPORTED);
  EXPECT_EQ(unknown.error().message,
            "the instruction c4 e2 78 5f c0 is known neither to the CPU nor to the emulator");
  if (jit::HardwareIsas().Has(core::Isa::kAmxInt8)) return;
  const Result<Judgement> unconfigured = Judge(**OnAmx("unconfigured"), *problem);
  ASSERT_FALSE(unconfigured);
  EXPECT_EQ(unconfigured.error().status, INTACT_CODEGEN_FAILED);
  EXPECT_THAT(unconfigured.error().message, HasSubstr("TILEZERO: #UD: no tiles are configured"));
}

// Products with grouped weights.
TEST(Plugin, WithGroupedWeightsPasses) {
  const Result<std::unique_ptr<Target>> target = Faulty("grouped");
  ASSERT_TRUE(target) << target.error().message;
  ASSERT_NE((*target)->Features().grouped, 0);
  const std::vector<Problem> all = GroupedSweepProblems({{INTACT_ISA_ANY}}, Effort::kQuick, 1);
  const FittedProblems fitted = Fit(all, TakesOf(**target));
  EXPECT_GT(fitted.problems.size(), 1000u);
  const SweepResult sweep = RunSweep(fitted.problems, **target, [](int64_t, int64_t) {});
  EXPECT_TRUE(sweep.Passed()) << ToText(sweep);
  const SweepCell& cell = sweep.cells.at(0);
  EXPECT_EQ(cell.problems, std::ssize(fitted.problems));
  EXPECT_EQ(GroupedArithmetics(sweep), (std::map<std::string, int64_t>{{"exact", cell.problems}}));
  EXPECT_EQ(cell.skipped, 0);
  EXPECT_EQ((*Faulty(""))->Features().grouped, 0);
}

TEST(Plugin, FaultsOfGroupedWeightsAreFoundAndNamed) {
  const Problem problem = *Problem::Parse("grouped s8u4f32 m=3 n=20 k=150 src=none gscale=f32");
  const auto failure_of = [](const std::string& fault, const Problem& one) {
    const Result<std::unique_ptr<Target>> target = Faulty(fault);
    if (!target || (*target)->Features().grouped == 0) return std::string("no target");
    const Result<Judgement> judgement = Judge(**target, one);
    return judgement ? judgement->failure : judgement.error().message;
  };
  const auto failure = [&](const std::string& fault) { return failure_of(fault, problem); };
  EXPECT_EQ(failure("grouped"), "");
  EXPECT_EQ(failure("grouped=any"), "");
  EXPECT_THAT(failure("grouped_early"), HasSubstr("groups begin one depth too early"));
  EXPECT_THAT(failure("grouped_early=any"), HasSubstr("groups begin one depth too early"));
  EXPECT_THAT(failure("grouped_early=grouped: any | exact"), HasSubstr("groups begin one depth too early"));
  EXPECT_THAT(failure("grouped_separate"), HasSubstr("rounded separately, without FMA"));
  EXPECT_EQ(failure("grouped_separate=any"), "");
  EXPECT_EQ(failure("grouped_separate=grouped: any | exact"), "");
  EXPECT_THAT(failure("grouped_separate=gemm: any | exact"), HasSubstr("rounded separately, without FMA"));
  EXPECT_THAT(failure("grouped_overread"), HasSubstr("byte(s) beyond the end of scales of B"));
  EXPECT_THAT(failure("grouped_stray"), HasSubstr("wrote outside C"));
  const Problem experts = *Problem::Parse("grouped s8u4f32 m=9 n=20 k=150 experts=4 src=none gscale=f32");
  EXPECT_EQ(failure_of("grouped", experts), "");
  EXPECT_THAT(failure_of("grouped_expert", experts), HasSubstr("all rows are computed as rows of expert 0"));
  const Problem reused = *Problem::Parse("grouped s8u4f32 m=3 n=20 k=150 src=none gscale=f32 reused=yes");
  EXPECT_EQ(failure_of("grouped", reused), "");
  EXPECT_NE(failure_of("grouped_cached", reused), "");
  const Problem calls = *Problem::Parse("grouped s8u4f32 m=2 n=9 k=64 src=none gscale=f32 calls=1200");
  EXPECT_EQ(failure_of("grouped", calls), "");
  EXPECT_THAT(failure_of("grouped_call_1009", calls),
              HasSubstr("call 1009 of 1200 in the same memory wrote other outputs than call 1"));
  const Problem batch = *Problem::Parse("grouped s8u4f32 m=9 n=20 k=150 item=3 ipad=7 src=none gscale=f32");
  EXPECT_EQ(failure_of("grouped", batch), "");
  const Problem minimums = *Problem::Parse("grouped s8u4f32 m=3 n=20 k=150 src=none gscale=f32 min=yes");
  EXPECT_EQ(failure_of("grouped", minimums), "");
  EXPECT_THAT(failure_of("grouped_next_minimum", minimums),
              HasSubstr("a group uses the minimum of the next group"));
  EXPECT_THAT(failure_of("grouped_minimum_sign", minimums), HasSubstr("minimums are subtracted"));
  EXPECT_THAT(failure_of("grouped_other_half", minimums),
              HasSubstr("a group uses the scale of the other group of its pair"));
}

TEST(Plugin, AFailureOfGroupedWeightsIsMinimised) {
  const Result<std::unique_ptr<Target>> target = Faulty("grouped_early");
  ASSERT_TRUE(target) << target.error().message;
  const Problem problem =
      *Problem::Parse("grouped s8u4f32 m=7 n=20 k=150 src=none gscale=f32 zb=yes apad=3 seed=4");
  const Problem smallest =
      *Problem::Parse(RunSweep({{problem}}, **target, [](int64_t, int64_t) {}).failures.at(0).minimised);
  EXPECT_LE(smallest.k, 34);
  EXPECT_EQ(smallest.m, 1);
  EXPECT_EQ(smallest.n, 1);
  EXPECT_EQ(smallest.a_pad, 0);
}

TEST(Plugin, AFailureOfGroupedWeightsThatDependsOnEarlierCallsSaysSo) {
  const Result<std::unique_ptr<Target>> target = Faulty("grouped_remembers");
  ASSERT_TRUE(target) << target.error().message;
  const std::vector<Problem> problems = {
      *Problem::Parse("grouped s8u4f32 m=20 n=8 k=40 src=none gscale=f32"),
      *Problem::Parse("grouped s8u4f32 m=1 n=8 k=40 src=none gscale=f32"),
  };
  const SweepResult sweep = RunSweep(problems, **target, [](int64_t, int64_t) {});
  ASSERT_EQ(sweep.failures.size(), 1);
  EXPECT_THAT(sweep.failures[0].minimised_reason,
              testing::EndsWith("; right in a fresh process, wrong after '" + problems[0].ToString() +
                                "': it depends on earlier calls"));
}

TEST(Plugin, ThatCannotBeLoadedSaysWhy) {
  const auto error = [](const std::string& file, const std::string& options) {
    const auto target =
        IsolatedTarget::Start([&] { return PluginTarget::Open(file, options); }, std::chrono::seconds(10));
    EXPECT_FALSE(target);
    return target ? "" : target.error().message;
  };
  EXPECT_THAT(error("/nowhere/mine.so", ""), HasSubstr("/nowhere/mine.so: no such file"));
  EXPECT_THAT(error("/etc/passwd", ""), ContainsRegex("/etc/passwd: .*(invalid|short)"));
  EXPECT_THAT(error(INTACT_PLAIN_LIBRARY, ""), HasSubstr("exports no intact_target_open()"));
  EXPECT_THAT(error(INTACT_FAULTY_TARGET, "load_null"), HasSubstr("made for another ABI"));
  EXPECT_THAT(error(INTACT_FAULTY_TARGET, "no_outputs"), HasSubstr("`supports` has no type of outputs"));
  EXPECT_THAT(error(INTACT_FAULTY_TARGET, "no_operation"), HasSubstr("has none of INTACT_TARGET_GEMM, "));
  EXPECT_THAT(error(INTACT_FAULTY_TARGET, "no_conv"), HasSubstr("has convolutions, and conv is NULL"));
  EXPECT_THAT(error(INTACT_FAULTY_TARGET, "no_size"),
              HasSubstr("its struct_size is 0; expected sizeof(intact_target), 72"));
  EXPECT_THAT(error(INTACT_FAULTY_TARGET, "odd_size"),
              HasSubstr("its struct_size is 52; expected sizeof(intact_target), 72"));
  EXPECT_THAT(error(INTACT_FAULTY_TARGET, "shorter"), HasSubstr("has convolutions, and conv is NULL"));
  EXPECT_TRUE(Faulty("longer"));
  EXPECT_TRUE(Faulty("older"));
  EXPECT_TRUE(Faulty("masks_cut_off"));
  EXPECT_TRUE(Faulty("conv_mask_only"));
  EXPECT_THAT(error(INTACT_FAULTY_TARGET, "wrong_conv_mask"),
              HasSubstr("its `conv_supports` has none of INTACT_TARGET_CONV_1D, 2D and 3D"));
  EXPECT_THAT(error(INTACT_FAULTY_TARGET, "wrong_grouped_mask"),
              HasSubstr("its `grouped_supports` has no INTACT_TARGET_GROUPED"));
  EXPECT_THAT(error(INTACT_FAULTY_TARGET, "conv_mask_without_outputs"),
              HasSubstr("its `conv_supports` has no type of outputs"));
  EXPECT_THAT(error(INTACT_FAULTY_TARGET, "conv_mask_unknown"),
              HasSubstr(fmt::format("its `conv_supports` has bit {}, which", +INTACT_TARGET_FEATURES)));
  EXPECT_THAT(error(INTACT_FAULTY_TARGET, "no_grouped"),
              HasSubstr("has INTACT_TARGET_GROUPED, and grouped is NULL"));
  EXPECT_THAT(error(INTACT_FAULTY_TARGET, "longer_unknown"),
              HasSubstr("it has byte 80 set, beyond the 72 that this version knows"));
  EXPECT_THAT(error(INTACT_FAULTY_TARGET, "no_feature"),
              HasSubstr(fmt::format("`supports` has bit {}, which is no feature", +INTACT_TARGET_FEATURES)));
  EXPECT_THAT(error(INTACT_FAULTY_TARGET, "load_crash"),
              HasSubstr("while it was loaded, the target aborted"));
}

// GEMMs have other features than convolutions and grouped weights.
TEST(Plugin, WithAMaskForEachOperationGetsWhatEachSupports) {
  const Result<std::unique_ptr<Target>> target = Faulty("masks");
  ASSERT_TRUE(target) << target.error().message;
  constexpr std::array kIsa = {INTACT_ISA_ANY};
  constexpr std::array kMode = {INTACT_EXACT};
  const std::vector<Problem> all = SweepProblems(kIsa, kMode, Effort::kQuick);
  const Takes takes = TakesOf(**target);
  const FittedProblems fitted = Fit(all, takes);
  const SweepResult sweep = RunSweep(fitted.problems, **target, [](int64_t, int64_t) {});
  EXPECT_THAT(sweep.failures, testing::IsEmpty());
  EXPECT_THAT(sweep.skips, testing::IsEmpty());
  const auto convs =
      std::ranges::count_if(fitted.problems, [](const Problem& p) { return p.conv.has_value(); });
  EXPECT_GT(convs, 30);
  EXPECT_GT(sweep.Problems() - convs, 300);
  const std::string text = ToText(fitted, "");
  EXPECT_THAT(text, HasSubstr("u8 activations in convolutions ("));
  EXPECT_THAT(text, HasSubstr("s8 activations in GEMMs ("));
  EXPECT_THAT(text, ContainsRegex("[^s] a residual \\("));  // neither has it
  const RandomSweepResult random =
      RunRandomSweep({}, **target, takes, [](const RandomSweepResult& now) { return now.problems < 60; });
  EXPECT_THAT(random.sweep.failures, testing::IsEmpty());
  const std::vector<Problem> drawn = GroupedSweepProblems({{INTACT_ISA_ANY}}, Effort::kQuick);
  for (size_t i = 0; i < 60; ++i) {
    Problem problem = FittedGrouped(drawn.at(i), takes.features.grouped);
    problem.grouped->scale_type = INTACT_F32;
    const auto judgement = Judge(**target, problem);
    ASSERT_TRUE(judgement) << problem.ToString() << ": " << judgement.error().message;
    EXPECT_TRUE(judgement->Passed()) << problem.ToString();
  }

  const Result<std::unique_ptr<Target>> merged = Faulty("masks_merged");
  ASSERT_TRUE(merged) << merged.error().message;
  const std::vector<Problem> of_merged = Fit(all, TakesOf(**merged)).problems;
  EXPECT_TRUE(std::ranges::any_of(of_merged, [&](const Problem& problem) {
    const auto judgement = Judge(**merged, Oracle(problem), RunOptionsOf(problem));
    return judgement && !judgement->failure.empty();
  }));
}

// The processes that the faulty target leaves behind.
class Children {
 public:
  Children() : path_(testing::TempDir() + fmt::format("intact_target_test_children_{}", getpid())) {
    std::ofstream(path_).flush();
    (void)setenv("INTACT_TEST_CHILDREN", path_.c_str(), 1);
  }
  ~Children() {
    (void)unsetenv("INTACT_TEST_CHILDREN");
    (void)std::remove(path_.c_str());
  }
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  std::vector<pid_t> All() const {
    std::vector<pid_t> all;
    std::ifstream file(path_);
    for (pid_t child = 0; file >> child;) all.push_back(child);
    return all;
  }
  // The processes that are left after at most two seconds.
  std::vector<pid_t> Left() const {
    std::vector<pid_t> left = All();
    for (int i = 0; i < 200 && !left.empty(); ++i) {
      std::erase_if(left, [](pid_t child) { return kill(child, 0) != 0 && errno == ESRCH; });
      if (!left.empty()) usleep(10000);
    }
    return left;
  }

 private:
  const std::string path_;
};

RunOptions Named(const std::string& line) {
  RunOptions options;
  options.line = line;
  return options;
}

reference::Gemm SmallGemm() { return MaterializeGemm(*Problem::Parse("gemm u8s8s32 m=2 n=3 k=4")); }

// Leaves a process in its own session or in another.
class Leaving : public testing::TestWithParam<const char*> {};

TEST_P(Leaving, EndsWithAllThatItStarted) {
  const Children children;
  {
    const Result<std::unique_ptr<Target>> target = Faulty(GetParam());
    ASSERT_TRUE(target) << target.error().message;
    EXPECT_TRUE((*target)->Run(SmallGemm(), {}));
    EXPECT_EQ(children.All().size(), 2u) << "one of each run of the two";
    for (const pid_t child : children.All()) EXPECT_EQ(kill(child, 0), 0) << "it waits";
  }
  EXPECT_THAT(children.Left(), testing::IsEmpty());
}

TEST_P(Leaving, EndsWithAllThatItStartedWhenTheVerifierIsKilled) {
  const Children children;
  const pid_t verifier = fork();
  if (verifier == 0) {
    const Result<std::unique_ptr<Target>> target = Faulty(GetParam());
    const bool ran = target && (*target)->Run(SmallGemm(), {});
    (void)raise(ran ? SIGKILL : SIGTERM);
  }
  int status = 0;
  ASSERT_EQ(waitpid(verifier, &status, 0), verifier);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_EQ(children.All().size(), 2u);
  EXPECT_THAT(children.Left(), testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(, Leaving, testing::Values("leaves_children", "leaves_daemons"),
                         [](const auto& test) { return std::string(test.param); });

// The call leaves copies of the worker, which would continue in its place.
TEST(Isolated, GetsOneAnswerOfACallThatReturnsTwice) {
  const Result<std::unique_ptr<Target>> target = Faulty("returns_twice");
  ASSERT_TRUE(target) << target.error().message;
  const std::vector<Problem> problems = SomeProblems();
  const SweepResult sweep = RunSweep(std::span(problems).first(100), **target, [](int64_t, int64_t) {});
  EXPECT_TRUE(sweep.Passed());
  for (const SweepFailure& failure : sweep.failures)
    ADD_FAILURE() << failure.problem << ": " << failure.reason;
}

TEST(Isolated, HasOpenWhatIsItsOwn) {
  const std::string path = testing::TempDir() + "intact_target_test_open";
  const int file = open(path.c_str(), O_CREAT | O_RDWR, 0600);
  ASSERT_GE(file, 0);
  const auto target = IsolatedTarget::Start([file]() -> Result<std::unique_ptr<Target>> {
    if (fcntl(file, F_GETFD) >= 0) return Error{INTACT_INVALID_ARGUMENT, "it is open"};
    return std::unique_ptr<Target>(new ReferenceTarget());
  });
  EXPECT_TRUE(target) << target.error().message;
  (void)close(file);
  std::remove(path.c_str());
}

TEST(Isolated, ReportsACrashBetweenCallsByTheOneBefore) {
  const Result<std::unique_ptr<Target>> target = Faulty("crashes_later");
  ASSERT_TRUE(target) << target.error().message;
  ASSERT_TRUE((*target)->Run(SmallGemm(), Named("the first")));
  usleep(600000);
  const Result<std::vector<uint8_t>> second = (*target)->Run(SmallGemm(), Named("the second"));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().message,
            "the target crashed (SIGSEGV): a write at address 0x0, between calls, after 'the first'");
  EXPECT_TRUE((*target)->Run(SmallGemm(), Named("the third")));
}

TEST(Isolated, ReportsACrashBeforeTheFirstCall) {
  const Result<std::unique_ptr<Target>> target = Faulty("crashes_unused");
  ASSERT_TRUE(target) << target.error().message;
  usleep(600000);
  const Result<std::vector<uint8_t>> first = (*target)->Run(SmallGemm(), Named("the first"));
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().message,
            "the target crashed (SIGSEGV): a write at address 0x0, between calls, after its creation");
}

TEST(Isolated, IsGivenUpAfterHangs) {
  const auto target = IsolatedTarget::Start([] { return PluginTarget::Open(INTACT_FAULTY_TARGET, "hang"); },
                                            std::chrono::milliseconds(100));
  ASSERT_TRUE(target) << target.error().message;
  const SweepResult sweep = RunSweep(SomeProblems(), **target, [](int64_t, int64_t) {});
  EXPECT_EQ(std::ssize(sweep.failures), IsolatedTarget::kMostHangs);
  EXPECT_EQ(sweep.not_run + sweep.cells.at(0).problems + sweep.cells.at(0).skipped,
            std::ssize(SomeProblems()));
  EXPECT_FALSE(sweep.Passed());
  EXPECT_THAT(ToText(sweep), HasSubstr(fmt::format("NOT RUN: {} problems: the target did "
                                                   "not return within 0.1 s 5 times",
                                                   sweep.not_run)));
  EXPECT_EQ(ToJson(sweep)["not_run"]["problems"], sweep.not_run);
}

TEST(Isolated, KnowsTheKindOfItsLastFailure) {
  struct Kind {
    const char *fault, *text;
  };
  for (const Kind& kind :
       {Kind{"crash", "crash: SIGSEGV, a write"}, Kind{"abort", "crash: SIGABRT"},
        Kind{"closed_pipe", "crash: SIGPIPE"}, Kind{"reads_beyond", "crash: SIGSEGV, a read beyond A"},
        Kind{"reads_before", "crash: SIGSEGV, a read before A"},
        Kind{"writes_input", "crash: SIGSEGV, a write to A"}, Kind{"writes_before", "write outside C"},
        Kind{"flush_denormals", "floating-point control changed"}, Kind{"exit", "exit"},
        Kind{"exit_0", "exit with status 0"}, Kind{"hang", "no return"},
        Kind{"error", "error: code generation failed"}, Kind{"refuses_again", "refusal in a second run"},
        Kind{"clock", "change from run to run"}, Kind{"forgets", "change with the contents of memory"},
        Kind{"misaligned_output", "change with the alignment"}}) {
    const Result<std::unique_ptr<Target>> target = Faulty(kind.fault);
    ASSERT_TRUE(target) << target.error().message;
    RunOptions options;
    options.in_all_places = true;
    const Result<std::vector<uint8_t>> output = (*target)->Run(SmallGemm(), options);
    ASSERT_FALSE(output) << kind.fault;
    EXPECT_EQ((*target)->LastFailure().Text(), kind.text) << kind.fault << ": " << output.error().message;
  }
}

TEST(ErrorOrLastLine, IsTheFirstErrorOrTheLastLine) {
  EXPECT_EQ(ErrorOrLastLine(""), "");
  EXPECT_EQ(ErrorOrLastLine(" \n\n"), "");
  EXPECT_EQ(ErrorOrLastLine("one\n two \n \n"), "two");
  EXPECT_EQ(ErrorOrLastLine("a.c:7:3: runtime error: shift\n  1 2\n    ^\n"),
            "a.c:7:3: runtime error: shift");
  EXPECT_EQ(ErrorOrLastLine("=====\n==7==ERROR: AddressSanitizer: heap\n    #0 f\nABORTING\n"),
            "==7==ERROR: AddressSanitizer: heap");
}

// Isolation changes no results, for any kind of operation.
TEST(Isolated, ComputesWhatTheTargetDoes) {
  const auto isolated = IsolatedTarget::Start(
      []() -> Result<std::unique_ptr<Target>> { return std::unique_ptr<Target>(new ReferenceTarget()); });
  ASSERT_TRUE(isolated) << isolated.error().message;
  constexpr std::array kIsa = {INTACT_ISA_ANY};
  constexpr std::array kMode = {INTACT_EXACT};
  const SweepResult sweep =
      RunSweep(SweepProblems(kIsa, kMode, Effort::kQuick), **isolated, [](int64_t, int64_t) {});
  EXPECT_TRUE(sweep.Passed());
  for (const SweepFailure& failure : sweep.failures)
    ADD_FAILURE() << failure.problem << ": " << failure.reason;
}

SweepResult SweepClaiming(const std::string& fault_and_claim) {
  const Result<std::unique_ptr<Target>> target = Faulty(fault_and_claim);
  EXPECT_TRUE(target) << target.error().message;
  const std::vector<Problem> problems = Fit(SomeProblems(), TakesOf(**target)).problems;
  return RunSweep(std::span(problems).first(200), **target, [](int64_t, int64_t) {});
}

TEST(Claim, IsWhatATargetIsHeldTo) {
  EXPECT_TRUE(SweepClaiming("maddubs=maddubs").Passed());
  EXPECT_TRUE(SweepClaiming("maddubs=any").Passed());
  EXPECT_TRUE(SweepClaiming("=any").Passed());
  const SweepResult few = SweepClaiming("swapped_pair_u8=any");  // for some problems few outputs differ
  EXPECT_TRUE(few.Passed()) << ToText(few);
  EXPECT_GT(few.cells.at(0).differing, 0);
  EXPECT_EQ(few.cells.at(0).Unexplained(), 0);
  const SweepResult untrue = SweepClaiming("=maddubs");
  ASSERT_FALSE(untrue.failures.empty());
  EXPECT_THAT(untrue.failures[0].reason,
              ContainsRegex("output m [0-9]+ n [0-9]+ is -?[0-9]+ instead of -?[0-9]+; [0-9]+ of [0-9]+ "
                            "outputs are not as claimed: "
                            "pairs of adjacent depths"));
  const SweepResult mistaken = SweepClaiming("tail=any");
  ASSERT_FALSE(mistaken.failures.empty());
  EXPECT_THAT(mistaken.failures[0].reason, HasSubstr("implementation error"));
  const SweepResult unknown = SweepClaiming("=quadruple");
  ASSERT_FALSE(unknown.failures.empty());
  EXPECT_THAT(unknown.failures[0].reason, HasSubstr("the target claims \"quadruple\"; expected"));
}

TEST(Claim, ThatIsUntrueIsAnsweredByWhatIsComputed) {
  const SweepResult sweep = SweepClaiming("later_spill=acc16, widened every 8 pairs");
  ASSERT_FALSE(sweep.failures.empty());
  const auto says = [](const SweepFailure& failure) {
    return failure.reason.find(
               "not as claimed: pairs of adjacent depths summed in int16 (acc16, widened every 8 pairs); all "
               "are reproduced by: pairs of adjacent depths summed in int16 (acc16, widened every 9 "
               "pairs)") != std::string::npos;
  };
  EXPECT_TRUE(std::ranges::any_of(sweep.failures, says)) << ToText(sweep);
  EXPECT_TRUE(SweepClaiming("later_spill=acc16, widened every 9 pairs").Passed());
  EXPECT_TRUE(SweepClaiming("wrapped_sum=products16, widened every 8 products").Passed());
  EXPECT_FALSE(SweepClaiming("wrapped_sum=products16, widened every 16 products").Passed());
  EXPECT_THAT(SweepClaiming("=maddubs").failures.at(0).reason, HasSubstr("; all are exact"));
}

// Each hang would take until the deadline.
TEST(Minimised, IsAHangToo) {
  const auto target = IsolatedTarget::Start(
      [] { return PluginTarget::Open(INTACT_FAULTY_TARGET, "hang_of_rows"); }, std::chrono::seconds(4));
  ASSERT_TRUE(target) << target.error().message;
  const std::array problems = {*Problem::Parse("gemm u8s8s32 m=2 n=17 k=5"),
                               *Problem::Parse("gemm u8s8u8 m=33 n=49 k=100 za=3 zc=5")};
  const SweepResult sweep = RunSweep(problems, **target, [](int64_t, int64_t) {});
  ASSERT_EQ(sweep.failures.size(), 1u);
  EXPECT_EQ(sweep.failures[0].minimised, "gemm u8s8s32 m=3 n=1 k=1");
  EXPECT_EQ(sweep.failures[0].minimised_reason, "the target did not return within 4 s");
}

// Failures of one kind do not hide others, however many they are.
TEST(Minimised, AreSomeOfEachKind) {
  const SweepResult sweep = SweepClaiming("many_and_few");
  const auto few = std::ranges::find_if(sweep.failures, [](const SweepFailure& failure) {
    return failure.reason.find("beyond the end of A") != std::string::npos;
  });
  ASSERT_NE(few, sweep.failures.end()) << ToText(sweep);
  EXPECT_GT(few - sweep.failures.begin(), 3);
  EXPECT_FALSE(few->minimised.empty());
  EXPECT_THAT(ToText(sweep), HasSubstr("FAILED: " + few->minimised_reason));
}

TEST(Minimised, NamesThePathOfOneRowOnlyIfEqualRowsAreRight) {
  for (const std::string fault : {"one_row", "edge_column"}) {
    const Result<std::unique_ptr<Target>> target = Faulty(fault);
    ASSERT_TRUE(target) << target.error().message;
    const std::vector<Problem> problems = {*Problem::Parse("gemm u8s8s32 m=1 n=17 k=5")};
    const SweepResult sweep = RunSweep(problems, **target, [](int64_t, int64_t) {});
    ASSERT_EQ(sweep.failures.size(), 1u);
    const bool is_named = sweep.failures[0].Reason().find("the path of one row") != std::string::npos;
    EXPECT_EQ(is_named, fault == "one_row") << sweep.failures[0].Reason();
  }
}

// An output has many explanations. The minimised problem keeps the explanation of the original one.
TEST(Minimised, HasTheReasonOfWhatItIsMadeOf) {
  struct Kept {
    const char *fault, *words;
  };
  for (const Kept& kept :
       {Kept{"half_away", "requantization, half away from zero"},
        Kept{"truncation", "requantization, truncation"}, Kept{"maddubs", "int16 saturation, accumulator"},
        Kept{"swapped_pair", "(maddubs, depths 2 apart)"},
        Kept{"later_spill=acc16, widened every 8 pairs", "(acc16, widened every 9 pairs)"},
        Kept{"half_away=maddubs", "all are reproduced by: exact; half away from zero"}}) {
    const Result<std::unique_ptr<Target>> target = Faulty(kept.fault);
    ASSERT_TRUE(target) << target.error().message;
    const SweepResult sweep = RunSweep(SomeProblems(), **target, [](int64_t, int64_t) {});
    const auto found = std::ranges::find_if(sweep.failures, [&](const SweepFailure& failure) {
      return !failure.minimised.empty() && failure.reason.find(kept.words) != std::string::npos;
    });
    ASSERT_NE(found, sweep.failures.end()) << kept.fault << "\n" << ToText(sweep);
    EXPECT_THAT(found->minimised_reason, HasSubstr(kept.words)) << found->minimised;
  }
}

// Faults of what a target keeps between calls, of many threads, large batches, depths, and scales beyond float32: the
// quick run has a problem of each kind.
TEST(QuickRun, FindsStateThreadsBatchesAndDepths) {
  struct Kind {
    const char *fault, *reason;
  };
  constexpr std::array kIsa = {INTACT_ISA_ANY};
  constexpr std::array kMode = {INTACT_EXACT};
  std::vector<Problem> problems;
  for (const Problem& problem : SweepProblems(kIsa, kMode, Effort::kQuick)) {
    const bool is_of_them = problem.calls > 1 || problem.reused || problem.threads > 3 ||
                            problem.k == 20000 || problem.n == 5000 || problem.scale == ScaleKind::kHuge;
    if (is_of_them && !problem.conv) problems.push_back(problem);
  }
  for (const Kind& kind :
       {Kind{"", ""}, Kind{"cached_weights", "implementation error, accumulator"},
        Kind{"from_8_threads", "right with one thread"},
        Kind{"fourth_item", "A of item 2 taken for that of item 3"},
        Kind{"nan_is_0", "requantization, a NaN taken for 0, or "},
        Kind{"call_1009", "call [0-9]+ of [0-9]+ in the same memory wrote other outputs than call 1"},
        Kind{"race_of_one_store", "in the same memory wrote other outputs|change from run to run"},
        Kind{"deep", "implementation error, accumulator"}, Kind{"wide", "output m 0 n 4096"},
        Kind{"cvtps2dq", "a float beyond int32 converted to int32 before it is clamped"}}) {
    const Result<std::unique_ptr<Target>> target = Faulty(kind.fault);
    ASSERT_TRUE(target) << target.error().message;
    const FittedProblems fitted = Fit(problems, TakesOf(**target));
    const SweepResult sweep = RunSweep(fitted.problems, **target, [](int64_t, int64_t) {});
    EXPECT_EQ(sweep.Passed(), *kind.fault == 0) << kind.fault << "\n" << ToText(sweep);
    EXPECT_EQ(sweep.tried.calls, 1200);
    EXPECT_EQ(sweep.tried.threads, 16);
    EXPECT_THAT(VerdictText(sweep), HasSubstr("16 threads, 1200 calls of one plan\n"));
    if (sweep.failures.empty()) continue;
    EXPECT_TRUE(std::ranges::any_of(sweep.failures,
                                    [&](const SweepFailure& failure) {
                                      return testing::Matches(ContainsRegex(kind.reason))(failure.Reason());
                                    }))
        << kind.fault << "\n"
        << ToText(sweep);
  }
}

// A cause must explain every wrong output.
TEST(Causes, AreNotNamedForSomeOfTheWrongOutputs) {
  const auto judged = [](const std::string& fault, const char* line) {
    const Result<std::unique_ptr<Target>> target = Faulty(fault);
    const Result<Judgement> judgement = Judge(**target, *Problem::Parse(line));
    EXPECT_TRUE(judgement) << judgement.error().message;
    return *judgement;
  };
  for (const char* line : {"gemm u8s8s32 m=17 n=40 k=64 fill=bait",
                           "gemm u8s8s32 m=33 n=49 k=300 fill=extremes", "gemm u8s8s32 m=9 n=20 k=7 za=3"}) {
    const Judgement off_by_one = judged("off_by_one", line);
    EXPECT_EQ(off_by_one.comparison.Unexplained(), off_by_one.comparison.differing) << off_by_one.failure;
    EXPECT_THAT(off_by_one.kind.Text(), Not(HasSubstr("saturation")));
  }
  const auto says = [&](const std::string& fault, const char* line) { return judged(fault, line).failure; };
  EXPECT_THAT(says("truncation", "gemm u8s8u8 m=17 n=40 k=64 scale=channel"),
              HasSubstr("requantization, truncation"));
  EXPECT_THAT(says("int16_bias", "gemm u8s8s32 m=9 n=40 k=64 bias=s32 overflow=wraps"),
              HasSubstr("s32 bias cut to int16"));
  EXPECT_THAT(says("fused", "gemm u8s8f32 m=9 n=33 k=64 bias=f32"), HasSubstr("fused multiply-add"));
  EXPECT_THAT(says("tail_of_64", "gemm u8s8s32 m=9 n=33 k=65 za=3"), HasSubstr("depth tail k=64…64 missing"));
  for (const char* line :
       {"gemm u8s8s32 m=9 n=33 k=64 za=3", "gemm u8s8u8 m=9 n=33 k=66 za=3 zc=20 scale=channel",
        "gemm u8s8f32 m=3 n=5 k=2"}) {
    EXPECT_THAT(says("last_depth", line), testing::ContainsRegex("depth tail k=(63|65|1)…(63|65|1) missing"))
        << line;
  }
  EXPECT_THAT(says("signed_zero_point", "gemm u8s8s32 m=9 n=33 k=65 za=200"),
              HasSubstr("activation zero point read as s8"));
}

// The outputs of an FMA are those of double precision too.
TEST(Causes, AreAllNamedThatExplainTheSame) {
  const auto computed = [](const std::string& fault, const char* line) {
    const Result<std::unique_ptr<Target>> target = Faulty(fault);
    const std::vector<Problem> problems = {*Problem::Parse(line)};
    return ToText(RunSweep(problems, **target, [](int64_t, int64_t) {}));
  };
  EXPECT_THAT(computed("fused", "gemm u8s8f32 m=9 n=33 k=64 bias=f32"),
              HasSubstr("1 of 1 problem: exact; fused multiply-add, or double precision\n"));
  const std::string nan =
      computed("nan_is_0", "gemm u8s8u8 m=9 n=33 k=5 quant=rows scale=huge wmax=1 fill=one_hot zc=9");
  EXPECT_THAT(nan, HasSubstr("1 of 1 problem: exact; a NaN taken for 0, or "));
  EXPECT_THAT(nan,
              HasSubstr("FAILED: output m 0 n 0 is 9 instead of 0: requantization, a NaN taken for 0, or "));
}

TEST(Causes, AreNamedAtTheEdgesOfGroups) {
  for (const auto& [fault, cause] :
       {std::pair("group_edge_of_inputs", "the last channel of a group read from the next group"),
        std::pair("group_edge_of_outputs", "the channels of another group")}) {
    const Result<std::unique_ptr<Target>> target = Faulty(fault);
    ASSERT_TRUE(target) << target.error().message;
    const std::vector<Problem> problems = {
        *Problem::Parse("conv u8s8s32 in=6x7 c=12 o=15 kernel=3x3 groups=3 za=3")};
    const SweepResult sweep = RunSweep(problems, **target, [](int64_t, int64_t) {});
    ASSERT_EQ(sweep.failures.size(), 1u) << fault;
    EXPECT_THAT(sweep.failures[0].kind, HasSubstr(cause));
    EXPECT_THAT(
        sweep.failures[0].minimised_reason,
        HasSubstr(cause == std::string("the channels of another group") ? "read the channels of group 1"
                                                                        : cause));
  }
}

// A target that is wrong everywhere: the first failures are explained, the others are counted.
TEST(Causes, AreSoughtForTheFirstFailuresOnly) {
  const Result<std::unique_ptr<Target>> target = Faulty("off_by_one");
  ASSERT_TRUE(target) << target.error().message;
  std::vector<Problem> problems;
  for (uint64_t seed = 1; seed <= kMostExplained + 5; ++seed) {
    problems.push_back(*Problem::Parse(fmt::format("gemm u8s8s32 m=2 n=3 k=4 seed={}", seed)));
  }
  const SweepResult sweep = RunSweep(problems, **target, [](int64_t, int64_t) {});
  ASSERT_EQ(sweep.failures.size(), problems.size());
  EXPECT_EQ(sweep.cells.at(0).differing, 2 * std::ssize(problems));
  EXPECT_EQ(sweep.cells[0].Unexplained(), sweep.cells[0].differing);
  EXPECT_EQ(std::ranges::count_if(sweep.failures,
                                  [](const SweepFailure& failure) {
                                    return failure.reason.ends_with(": not explained") &&
                                           failure.minimised.empty();
                                  }),
            5);
  EXPECT_THAT(sweep.failures[kMostExplained - 1].reason, HasSubstr("implementation error, accumulator"));
  EXPECT_THAT(ToText(sweep),
              HasSubstr("5: wrong, not analysed: 100 failures without an explanation are analysed"));
  EXPECT_EQ(Mixtures(sweep).at(0).not_explained, 5);
}

TEST(TargetReport, SaysWhatEachComputes) {
  const std::vector<Problem> problems = SomeProblems();
  TargetReport report;
  for (const std::string fault : {"=any", "maddubs=any", "half_away=any", "swapped_pair=any", "tail=any",
                                  "later_spill=any", "wrapped_sum=any"}) {
    const Result<std::unique_ptr<Target>> target = Faulty(fault);
    ASSERT_TRUE(target) << target.error().message;
    report.targets.push_back(Examine(**target, fault, problems, [](int64_t, int64_t) {}));
  }
  const auto computed = [&](size_t i) {
    EXPECT_EQ(report.targets[i].computes.size(), 1u);
    const Mixture& mixture = report.targets[i].computes[0];
    EXPECT_EQ(mixture.operation, "gemm u8s8");
    EXPECT_EQ(mixture.problems, report.targets[i].sweep.cells[0].problems);
    EXPECT_GT(mixture.exact, 0);
    std::string text = mixture.unexplained.problems > 0 ? "in part" : "";
    for (const Mixture::Part& part : mixture.parts) {
      text.append(text.empty() ? "" : " + ").append(ToString(part.arithmetic));
    }
    return text;
  };
  EXPECT_EQ(computed(0), "");
  EXPECT_EQ(computed(1), "maddubs");
  EXPECT_EQ(computed(2), "exact; half away from zero");
  EXPECT_EQ(computed(3), "maddubs, depths 2 apart");
  EXPECT_THAT(computed(4), testing::StartsWith("in part"));
  EXPECT_EQ(computed(5), "acc16, widened every 9 pairs");
  EXPECT_EQ(computed(6), "products16, widened every 8 products");
  EXPECT_FALSE(report.Passed());
  report.targets.resize(3);
  EXPECT_TRUE(report.Passed());
  const Json json = ToJson(report);
  EXPECT_EQ(json["targets"][1]["computes"][0]["parts"][0]["arithmetic"], "maddubs");
  EXPECT_GT(json["targets"][1]["ramp"]["non_monotonic"], 0);
  EXPECT_EQ(json["targets"][0]["ramp"]["non_monotonic"], 0);
  const auto is_exact = [](const Json& ramp) { return ramp["shown"]["outputs"] == ramp["shown"]["exact"]; };
  EXPECT_FALSE(is_exact(json["targets"][1]["ramp"]));
  EXPECT_TRUE(is_exact(json["targets"][0]["ramp"]));
  EXPECT_THAT(ToText(report), HasSubstr("pairs of adjacent depths clamped to int16 (maddubs)"));
}

// The message of a C file compiled with the plug-in, and its exit status.
struct Said {
  std::string text;
  int status = -1;
};
Said Shell(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> text = {};
  const size_t size = fread(text.data(), 1, text.size(), pipe);
  const int status = pclose(pipe);
  return {{text.data(), size}, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)};
}

// Compiles with `command` without "cc", which is in the code or is the command.
Said CompileAndRun(const std::string& code, const std::string& file, const std::string& command) {
  const std::string folder = fmt::format("{}intact_reproducer_{}", testing::TempDir(), getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/" + file) << code;
  const Said compiled = Shell(fmt::format("cd '{}' && {} -Wall -Wextra -Werror -I '{}' {}", folder,
                                          INTACT_C_COMPILER, INTACT_INCLUDE, command));
  EXPECT_EQ(compiled.status, 0) << compiled.text << code;
  Said said = Shell(fmt::format("cd '{}' && timeout 5 ./failure", folder));
  std::filesystem::remove_all(folder);
  return said;
}

Result<std::string> TryReproducer(const std::string& fault, const std::string& line) {
  const Result<std::unique_ptr<Target>> target = Faulty(fault);
  const Result<Problem> problem = Problem::Parse(line);
  EXPECT_TRUE(target && problem) << line;
  return Reproducer(**target, *problem, {"./faulty.so:" + fault, INTACT_FAULTY_TARGET, fault, "failure 1.c"});
}

std::optional<std::string> ReproducerOf(const std::string& fault, const std::string& line) {
  const Result<std::string> code = TryReproducer(fault, line);
  EXPECT_TRUE(code) << line << ": " << code.error().message;
  return code ? std::optional(*code) : std::nullopt;
}

// Compiled as the comment at the head of the file says.
Said RunReproducer(const std::string& code) {
  const std::string begin = "Without it: cc ", end = " && ./failure";
  const size_t from = code.find(begin) + begin.size();
  return CompileAndRun(code, "failure 1.c", code.substr(from, code.find(end) - from));
}

Said Reproduce(const std::string& fault, const std::string& line) {
  const std::optional<std::string> code = ReproducerOf(fault, line);
  return code ? RunReproducer(*code) : Said();
}

TEST(Reproducer, FailsWithoutIntact) {
  const Said maddubs = Reproduce("maddubs", "gemm u8s8s32 m=2 n=3 k=20 fill=bait apad=3 cpad=2");
  EXPECT_EQ(maddubs.status, 1);
  EXPECT_THAT(maddubs.text,
              ContainsRegex("row [01], column [0-2] is -?32767|row [01], column [0-2] is -32768"));
  const Said half = Reproduce("half_away", "gemm u8s8u8 m=9 n=17 k=5 fill=ties");
  EXPECT_EQ(half.status, 1);
  EXPECT_THAT(half.text, ContainsRegex("is [0-9]+ instead of [0-9]+"));
  const Said claiming = Reproduce("=maddubs", "gemm u8s8s32 m=2 n=3 k=20 fill=bait");
  EXPECT_EQ(claiming.status, 1);
  EXPECT_THAT(claiming.text, ContainsRegex("instead of -?32767|instead of -32768"));
  EXPECT_EQ(Reproduce("reads_beyond", "gemm u8s8s32 m=1 n=1 k=1").status,
            128 + SIGSEGV);  // as a shell reports it
  const Said error = Reproduce("error", "gemm u8s8s32 m=1 n=1 k=1");
  EXPECT_EQ(error.status, 1);
  EXPECT_THAT(error.text, HasSubstr("status 4: no kernel for 1 rows"));
}

TEST(Reproducer, IsOfEachKindOfOperation) {
  const Said conv = Reproduce("wrong_conv", "conv u8s8s32 in=5x4 c=3 o=2 kernel=3x2 za=3 apad=5 cpad=1");
  EXPECT_EQ(conv.status, 1);
  EXPECT_THAT(conv.text, HasSubstr("row 8, column 1 is 1 instead of 0"));
  for (const char* line :
       {"gemm u8s8f32 m=2 n=3 k=4 res=f32 respad=3", "gemm u8s8f32 m=2 n=3 k=4 res=f32 inplace=yes cpad=2",
        "gemm u8s8u8 m=2 n=3 k=4 res=u8 zres=7", "gemm u8s8f32 m=2 n=3 k=4 res=s8"}) {
    const Said residual = Reproduce("no_residual", line);
    EXPECT_EQ(residual.status, 1) << line;
    EXPECT_THAT(residual.text, ContainsRegex("row [01], column [0-2] is .* instead of ")) << line;
  }
  const Said f32 = Reproduce("wrong_f32", "gemm u8s8f32 m=2 n=3 k=4 scale=tiny");
  EXPECT_EQ(f32.status, 1);
  EXPECT_THAT(f32.text, ContainsRegex("column 2 is -?[0-9.]+e-[0-9]+ instead of "));
}

TEST(Reproducer, KeepsToAnActivationRange) {
  const std::optional<std::string> code =
      ReproducerOf("maddubs", "gemm u8s8s32 m=2 n=3 k=8 fill=bait za=64 arangemin=64");
  ASSERT_TRUE(code);
  std::istringstream values(code->substr(code->find("a[] = {") + 7));
  int smallest = 255;
  for (int value = 0; values >> value; values.ignore(1)) smallest = std::min(smallest, value);
  EXPECT_EQ(smallest, 64);
}

TEST(Reproducer, ReportsTheReasonOfItsOwnValues) {
  const std::optional<std::string> code = ReproducerOf("maddubs", "gemm u8s8s32 m=1 n=1 k=4 fill=bait");
  ASSERT_TRUE(code);
  const size_t value = code->find("expected[] = {");
  const std::string expected = code->substr(value + 19, code->find(',', value) - value - 19);
  EXPECT_THAT(*code, HasSubstr("instead of " + expected + ": int16 saturation"));
}

TEST(Reproducer, IsCOfAnyNameAndOption) {
  const std::string odd =
      "=any: \"\\ \n */ /* ?"
      "?/ ' \303\251";
  const Result<std::unique_ptr<Target>> target = Faulty("tail");
  ASSERT_TRUE(target);
  const Result<std::string> code =
      Reproducer(**target, *Problem::Parse("gemm u8s8s32 m=1 n=1 k=5"),
                 {"./faulty.so:tail" + odd, INTACT_FAULTY_TARGET, "tail" + odd, "failure.c"});
  ASSERT_TRUE(code);
  EXPECT_EQ(CompileAndRun(*code, "failure.c", "failure.c '" INTACT_FAULTY_TARGET "' -o failure").status, 1);
}

TEST(CText, IsTheValue) {
  const float payload = std::bit_cast<float>(0xffc12345);
  const std::array<float, 9> values = {1.5f,
                                       -0.0f,
                                       0x1p-149f,
                                       -0x1.8p-130f,
                                       3.4e38f,
                                       std::numeric_limits<float>::infinity(),
                                       -std::numeric_limits<float>::infinity(),
                                       std::numeric_limits<float>::quiet_NaN(),
                                       payload};
  std::string code = "#include <stdio.h>\n#include <string.h>\nint main(void) {\n  const float values[] = {";
  std::string expected;
  for (const float value : values) {
    code += support::c::Literal(value) + ", ";
    expected += fmt::format("{:x} ", std::bit_cast<uint32_t>(value));
  }
  const std::string text =
      "\"\\?"
      "?/1\n\x01"
      "2 %";
  code +=
      "};\n  for (int i = 0; i < 9; ++i) {\n    unsigned bits;\n    memcpy(&bits, &values[i], 4);\n"
      "    printf(\"%x \", bits);\n  }\n  fputs(" +
      support::c::String(text) + ", stdout);\n}\n";
  EXPECT_EQ(CompileAndRun("/* " + support::c::Comment("a */ /* \n b") + " */\n" + code, "values.c",
                          "values.c -o failure")
                .text,
            expected + text);
}

// A row of the table of findings in docs/targets_reference.md, checked with the file only.
struct Finding {
  const char* fault;
  const char* line;
  int status;        // of the program, as a shell reports it
  const char* says;  // its output, as a regular expression
};
std::ostream& operator<<(std::ostream& out, const Finding& finding) { return out << finding.fault; }

class Reproduced : public testing::TestWithParam<Finding> {};

TEST_P(Reproduced, FailsWithoutIntactUntilItIsMended) {
  const Finding& finding = GetParam();
  std::optional<std::string> code = ReproducerOf(finding.fault, finding.line);
  ASSERT_TRUE(code);
  const Said said = RunReproducer(*code);
  EXPECT_EQ(said.status, finding.status) << said.text;
  EXPECT_THAT(said.text, ContainsRegex(finding.says));
  const std::string options = fmt::format("INTACT_TARGET_ABI, \"{}\"", finding.fault);
  ASSERT_NE(code->find(options), std::string::npos);
  code->replace(code->find(options), options.size(), "INTACT_TARGET_ABI, \"\"");
  const Said mended = RunReproducer(*code);
  EXPECT_EQ(mended.status, 0) << mended.text;
  EXPECT_EQ(mended.text, "all outputs are right\n");
}

constexpr const char* kOne = "gemm u8s8s32 m=1 n=1 k=1";
constexpr const char* kWrong = "row 0, column 0 is ";
constexpr int kTimeout = 124;  // of timeout(1)

INSTANTIATE_TEST_SUITE_P(
    Findings, Reproduced,
    testing::Values(
        Finding{"maddubs", "gemm u8s8s32 m=1 n=1 k=2 fill=bait", 1, kWrong},
        Finding{"wrong_f32", "gemm u8s8f32 m=1 n=1 k=1", 1, kWrong},
        Finding{"truncated_bf16", "gemm u8s8bf16 m=2 n=5 k=4", 1,
                "is -?[0-9]+\\.[0-9]+ instead of -?[0-9]+\\.[0-9]+"},
        Finding{"wrong_a_layout", "gemm u8s8s32 m=3 n=5 k=4 alayout=km apad=1", 1, "row 0, column 4 is "},
        Finding{"wrong_b_layout", "gemm u8s8s32 m=3 n=5 k=4 bpad=3", 1, "row 0, column 4 is "},
        Finding{"wrong_b_layout", "gemm u8s8s32 m=3 n=5 k=4 blayout=nk bpad=3", 1, "row 0, column 4 is "},
        Finding{"crash", kOne, 128 + SIGSEGV, ""}, Finding{"illegal", kOne, 128 + SIGILL, ""},
        Finding{"abort", kOne, 128 + SIGABRT, "assertion"},
        Finding{"throws", kOne, 128 + SIGABRT, "faulty went wrong"}, Finding{"exit", kOne, 3, ""},
        Finding{"error", kOne, 1, "status 4: no kernel for 1 rows"}, Finding{"hang", kOne, kTimeout, ""},
        Finding{"reads_beyond", kOne, 128 + SIGSEGV, ""}, Finding{"reads_before", kOne, 128 + SIGSEGV, ""},
        Finding{"writes_beyond", kOne, 128 + SIGSEGV, ""},
        Finding{"reads_scales_beyond", "gemm u8s8u8 m=1 n=2 k=1 scale=channel", 128 + SIGSEGV, ""},
        Finding{"writes_input", kOne, 128 + SIGSEGV, ""},
        Finding{"writes_before", kOne, 1, "wrote outside C: -1 bytes behind its start"},
        Finding{"writes_between", "gemm u8s8s32 m=2 n=3 k=1 cpad=2", 1,
                "wrote outside C: 12 bytes behind its start"},
        Finding{"clock", kOne, 1, kWrong}, Finding{"alignment", "gemm u8s8s32 m=1 n=1 k=64", 1, kWrong},
        Finding{"misaligned_output", kOne, 1, "end 61 bytes before a page and unwritten bytes are 0x5a"},
        Finding{"accumulates", kOne, 1, kWrong}, Finding{"forgets", kOne, 1, kWrong},
        Finding{"uninitialised", kOne, 1, kWrong}, Finding{"uninitialised_heap", kOne, 1, kWrong},
        Finding{"uninitialised_stack", kOne, 1, kWrong},
        Finding{"refuses_again", kOne, 1, "status [0-9]+: no time"},
        Finding{"flush_denormals", kOne, 1, "\\(MXCSR\\) is changed"}),
    [](const testing::TestParamInfo<Finding>& finding) {
      return fmt::format("{}_{}", finding.param.fault, finding.index);
    });

// Two racing threads do not always lose an update.
TEST(Reproducer, FailsOfARaceNowAndThen) {
  for (int i = 0; i < 20; ++i) {
    const Result<std::string> code = TryReproducer("race", kOne);
    if (!code) continue;
    const Said said = RunReproducer(*code);
    if (said.status == 0) continue;
    EXPECT_EQ(said.status, 1);
    EXPECT_THAT(said.text, HasSubstr(kWrong));
    return;
  }
  FAIL() << "twenty files see nothing";
}

TEST(Reproducer, SaysThatATargetThatClaimsNothingMayDiffer) {
  const std::string words = "claims no arithmetic";
  const Result<std::string> any = TryReproducer("tail=any", "gemm u8s8s32 m=1 n=1 k=5");
  ASSERT_TRUE(any) << any.error().message;
  EXPECT_THAT(*any, HasSubstr(words));
  const Result<std::string> exact = TryReproducer("tail", "gemm u8s8s32 m=1 n=1 k=5");
  ASSERT_TRUE(exact) << exact.error().message;
  EXPECT_THAT(*exact, testing::Not(HasSubstr(words)));
}

TEST(Reproducer, IsSmall) {
  const Result<std::string> padded = TryReproducer("crash", "gemm u8s8s32 m=2 n=2 k=2 apad=60000 cpad=60000");
  ASSERT_TRUE(padded) << padded.error().message;
  EXPECT_LT(padded->size(), 10000u);
}

TEST(Reproducer, IsNotWrittenOfWhatItWouldNotShow) {
  const auto why = [](const char* fault, const char* line) {
    const Result<std::string> code = TryReproducer(fault, line);
    EXPECT_FALSE(code) << fault;
    EXPECT_EQ(code.error().status, INTACT_UNSUPPORTED);
    return code ? "" : code.error().message;
  };
  EXPECT_THAT(why("", kOne), HasSubstr("does not fail"));
  EXPECT_THAT(why("earlier_calls", kOne), HasSubstr("in a process that has run nothing else"));
  EXPECT_THAT(why("exit_0", kOne), HasSubstr("with status 0"));
  EXPECT_THAT(why("crash", "gemm u8s8s32 m=1 n=1 k=1 batch=2"), HasSubstr("a batch"));
  EXPECT_THAT(why("crash", "gemm u8s8s32 m=65 n=65 k=2"), HasSubstr("a tensor of 4225 elements"));
  EXPECT_THAT(why("crash", "gemm u8s8s32 m=1 n=2 k=4000"), HasSubstr("a tensor of 8000 elements"));
  EXPECT_THAT(why("crash", "gemm u8s8s32 m=2 n=1 k=4000"), HasSubstr("a tensor of 8000 elements"));
}

#if defined(__SANITIZE_ADDRESS__)
constexpr const char* kOwnMemory = "instead of";  // the sanitizer's malloc() fills memory itself
#else
constexpr const char* kOwnMemory =
    "change (with the contents of memory that nobody has written|from run to run)";
#endif

struct Fault {
  const char* name;
  const char* reason;   // must match the first failure's reason, as a regular expression
  int64_t largest = 1;  // m·n·k of the smallest problem, at most
};
std::ostream& operator<<(std::ostream& out, const Fault& fault) { return out << fault.name; }

class Planted : public testing::TestWithParam<Fault> {};

TEST_P(Planted, IsFoundNamedAndMinimised) {
  const Fault& fault = GetParam();
  const Result<std::unique_ptr<Target>> target = Faulty(fault.name);
  ASSERT_TRUE(target) << target.error().message;
  const std::vector<Problem> all = SomeProblems();
  const std::span<const Problem> problems = std::span(all).first(Hangs(fault.name) ? 2 : all.size());
  // Quick: a few problems at a time, until one fails. Later failures are explained and minimised like the
  // first one.
  SweepResult sweep;
  // Dependence on earlier calls can only be explained within one sweep.
  const bool is_whole = tests::IsLong() || std::string_view(fault.name) == "remembers";
  const size_t step = is_whole ? problems.size() : 32;
  for (std::span<const Problem> left = problems; sweep.failures.empty() && !left.empty();) {
    const std::span<const Problem> part = left.first(std::min(step, left.size()));
    sweep = RunSweep(part, **target, [](int64_t, int64_t) {});
    left = left.subspan(part.size());
  }
  ASSERT_FALSE(sweep.failures.empty());
  const std::string reasons = sweep.failures[0].reason + "\n" + sweep.failures[0].Reason();
  EXPECT_THAT(reasons, ContainsRegex(fault.reason)) << sweep.failures[0].Line();
  ASSERT_EQ(sweep.cells.size(), 1u);
  if (is_whole) {
    EXPECT_EQ(sweep.cells[0].problems + sweep.cells[0].skipped, std::ssize(problems));
  }
  const Result<Problem> small = Problem::Parse(sweep.failures[0].minimised);
  ASSERT_TRUE(small) << sweep.failures[0].minimised;
  EXPECT_LE(small->m * small->n * small->k, fault.largest) << sweep.failures[0].minimised;
}

const Fault kFaults[] = {
    Fault{"crash", "crashed \\(SIGSEGV\\): a write at address 0"},
    Fault{"illegal", "crashed \\(SIGILL\\)"},
    Fault{"abort", "aborted \\(SIGABRT\\), after printing .*assertion"},
    Fault{"throws", "aborted \\(SIGABRT\\), after printing .*faulty went wrong"},
    Fault{"sanitizer",
          "SIGABRT.*, after printing \"faulty.c:7:3: runtime error: load of misaligned address\"$"},
    Fault{"crash_with_child", "crashed \\(SIGSEGV\\): a write at address 0"},
    Fault{"refuses_again", "the target answers differently: it refuses, no time, in a second run"},
    Fault{"unmaps", "a (read|write) .* C, whose memory has been unmapped"},
    Fault{"kills_keeper", "was ended by SIGKILL"},
    Fault{"closed_pipe", "was ended by SIGPIPE: it wrote to a pipe or a socket that nobody reads"},
    Fault{"aligned_load", "aligned access|beyond the end of A", 64},
    Fault{"real_time_signal", "was ended by signal [0-9]+"},
    Fault{"closes", "closed its connection but did not end|did not return", 1 << 20},
    Fault{"exit", "ended its process with status 3"},
    Fault{"exit_0", "ended its process with status 0"},
    Fault{"hang", "did not return within 0.5 s, after printing \"waiting for a lock\""},
    Fault{"flood", "printed more than 64 MiB, after printing \"\\.\\.\\.", 1 << 20},
    Fault{"error", "status 4: no kernel for"},
    Fault{"refuses_nothing", "status 1: expected a row"},
    Fault{"writes_nothing", "a write 1 byte\\(s\\) beyond the end of C"},
    Fault{"reads_beyond", "a read 1 byte\\(s\\) beyond the end of A"},
    Fault{"reads_before", "a read 1 byte\\(s\\) before A, in a second run"},
    Fault{"writes_beyond", "a write 1 byte\\(s\\) beyond the end of C"},
    Fault{"writes_before", "wrote outside C: before its first row"},
    Fault{"writes_between", "wrote outside C: row 0", 2},
    Fault{"writes_input", "a write to byte 0 of A, which is an input"},
    Fault{"reads_scales_beyond",
          "a read 4 byte\\(s\\) beyond the end of scales|1 byte\\(s\\) beyond the end of scales", 2},
    Fault{"uninitialised", kOwnMemory},
    Fault{"uninitialised_heap", kOwnMemory},
    Fault{"accumulates", "change with the contents of memory that nobody has written"},
    Fault{"forgets", "change with the contents of memory that nobody has written"},
    Fault{"race", "the outputs change from run to run", 1 << 20},
    Fault{"clock", "the outputs change from run to run"},
    Fault{"alignment", "change with the alignment of its tensors", 200},
    Fault{"misaligned_output", "change with the alignment of its tensors", 4},
    Fault{"thread_count", "implementation error.*; right with one thread$"},
    Fault{"earlier_calls", "change from run to run", 1 << 20},
    Fault{"remembers", "right in a fresh process, wrong after 'gemm .*': it depends on earlier calls$"},
    Fault{"one_shape", "implementation error, accumulator", 33 * 49},
    Fault{"edge_column", "implementation error, accumulator"},
    Fault{"one_row", "the path of one row: right if the row is one of 2, 3 or 16 equal rows$", 2},
    Fault{"flush_denormals", "floating-point control"},
    Fault{"maddubs", "int16 saturation", 2},
    Fault{"swapped_pair", "int16 saturation|pairs \\(k, k\\+2\\)", 4},
    Fault{"late_spill", "int16 saturation|implementation error", 64},
    Fault{"later_spill", "int16 saturation|implementation error", 64},
    Fault{"no_zero_point", "activation zero point not subtracted"},
    Fault{"tail", "depth tail|as if nothing was added up", 5},
    Fault{"half_away", "requantization, half away from zero"},
    Fault{"denormal_scales", "requantization, denormals taken for 0"},
    Fault{"truncation", "requantization, truncation"},
    Fault{"wrong_scale", "the scale of column", 2},
    Fault{"float_sum", "float sums, float round trip", 4096}};

std::string NameOf(const testing::TestParamInfo<Fault>& fault) { return fault.param.name; }

INSTANTIATE_TEST_SUITE_P(Faults, Planted, testing::ValuesIn(kFaults), NameOf);
INSTANTIATE_TEST_SUITE_P(LongFaults, Planted, testing::ValuesIn(kFaults), NameOf);

}  // namespace
}  // namespace intact::verify
