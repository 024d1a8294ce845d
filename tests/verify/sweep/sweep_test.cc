#include "verify/sweep/sweep.h"
#include "core/isas.h"
#include "core/types.h"
#include "verify/explain/audit.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "tests/support/sanitized.h"
#include "tests/verify/mutants/mutants.h"
#include "verify/report/report_terminal.h"
#include "verify/sweep/grouped_sweep.h"
#include "verify/sweep/minimise.h"
#include "verify/targets/intact_target.h"

namespace intact::verify {
namespace {

constexpr intact_isa kAvx2[] = {INTACT_ISA_AVX2};
constexpr intact_mode kExact[] = {INTACT_EXACT};
constexpr intact_mode kBothModes[] = {INTACT_EXACT, INTACT_SATURATING};

void NoProgress(int64_t /*done*/, int64_t /*total*/) {}

TEST(SweepProblems, AreValidAndDistinct) {
  std::set<std::string> lines;
  const std::vector<Problem> problems = SweepProblems(kAvx2, kBothModes, Effort::kStandard);
  for (const Problem& problem : problems) {
    const std::optional<Error> error = problem.Check();
    EXPECT_FALSE(error) << problem.ToString() << ": " << error->message;
    lines.insert(problem.ToString());
  }
  EXPECT_EQ(lines.size(), problems.size());
}

// What the quick run finds, the standard run finds too.
TEST(SweepProblems, OfTheQuickRunAreOfTheStandardRun) {
  constexpr std::array kIsas = {INTACT_ISA_ANY};
  constexpr std::array kModes = {INTACT_EXACT, INTACT_SATURATING};
  const auto lines = [](const auto& problems) {
    std::set<std::string> all;
    for (const auto& problem : problems) all.insert(problem.ToString());
    return all;
  };
  EXPECT_TRUE(std::ranges::includes(lines(SweepProblems(kIsas, kModes, Effort::kStandard)),
                                    lines(SweepProblems(kIsas, kModes, Effort::kQuick))));
  EXPECT_TRUE(std::ranges::includes(lines(GroupedSweepProblems({{INTACT_ISA_ANY}}, Effort::kStandard, 1)),
                                    lines(GroupedSweepProblems({{INTACT_ISA_ANY}}, Effort::kQuick, 1))));
}

TEST(SweepProblems, MeetEveryFillTypeAndEpilogue) {
  std::set<std::string> met, declared;
  for (const Problem& p : SweepProblems(kAvx2, kBothModes, Effort::kStandard)) {
    met.insert("fill " + std::string(ToString(p.fill)));
    met.insert("a " + std::string(ToString(p.a_type)) + " c " + std::string(ToString(p.c_type)));
    met.insert("bias " + std::to_string(static_cast<int>(p.bias)));
    met.insert("scale " + std::to_string(static_cast<int>(p.scale)));
    met.insert("activation " + std::to_string(p.activation));
    met.insert("threads " + std::to_string(p.threads));
    met.insert("fixed " + std::to_string(static_cast<int>(p.fixed)));
    met.insert("table " + std::to_string(p.has_table));
    met.insert("overflow " + std::to_string(p.overflow));
    met.insert("nothing " + std::to_string(p.m * p.batch == 0));
    if (p.range_min == 0) declared.insert(std::to_string(p.range_max) + " " + std::to_string(p.range_check));
  }
  EXPECT_EQ(met.size(), AllFills().size() + 2 * core::kOutputTypes.size() + 3 + 8 + 3 + 17 + 5 + 2 + 2 + 2)
      << ::testing::PrintToString(met);
  EXPECT_GE(declared.size(), 2u * 7);
}

TEST(SweepProblems, MeetEveryQuantizationAndBatch) {
  std::set<std::string> met;
  for (const Problem& p : SweepProblems(kAvx2, kBothModes, Effort::kStandard)) {
    const std::string quantization = "quantization " + std::to_string(p.quantization);
    const std::string types = std::string(ToString(p.a_type)) + std::string(ToString(p.c_type));
    if (p.quantization != INTACT_QUANTIZATION_STATIC) met.insert(quantization + " " + types);
    if (p.IsDynamic()) met.insert(quantization + " " + std::string(ToString(p.numbers)));
    if (p.IsDynamic()) met.insert("source " + std::string(ToString(p.source)));
    if (p.batch == 1) continue;
    met.insert(fmt::format("batch, pointers {} runtime B {}", p.item_pointers, p.runtime_b));
    met.insert("batch, by columns " + std::to_string(p.b_by_columns) + " " + types);
    met.insert("batch, A by columns " + std::to_string(p.a_by_columns) + " " + types);
    if (p.runtime_b) met.insert("runtime B, scale " + std::to_string(static_cast<int>(p.scale)));
    if (p.runtime_b) met.insert("runtime B, zero points " + std::to_string(static_cast<int>(p.zb_kind)));
  }
  constexpr size_t kOutputs = core::kOutputTypes.size(), kSources = core::kSourceTypes.size();
  EXPECT_EQ(met.size(), (4 * kOutputs - 2) * 2 + 8 * 2 + kSources + 4 + 2 * 2 * 2 * kOutputs + 8 + 4)
      << ::testing::PrintToString(met);
}

TEST(SweepProblems, MeetEveryResidualEvenIfQuick) {
  std::set<std::string> met;
  for (const Problem& p : SweepProblems(kAvx2, kBothModes, Effort::kQuick)) {
    if (p.residual == INTACT_TYPE_NONE || core::IsHalfFloat(p.c_type)) continue;
    met.insert("c " + std::string(ToString(p.c_type)) + " res " + std::string(ToString(p.residual)));
    met.insert("bias " + std::to_string(static_cast<int>(p.bias)));
    met.insert("activation " + std::to_string(p.activation));
    met.insert("in place " + std::to_string(p.in_place));
    met.insert("pad " + std::to_string(p.res_pad > 0));
    met.insert("edge " + std::to_string(p.n % 16 != 0));
    const bool has_zero_point = p.zb != (p.b_type == INTACT_U8 ? 128 : 0);
    met.insert("weight zero point " + std::to_string(has_zero_point));
    met.insert("rows " + std::to_string(p.m > 16));
  }
  EXPECT_EQ(met.size(), 9u + 3 + 3 + 2 + 2 + 2 + 2 + 2) << ::testing::PrintToString(met);
}

void AddEdgesOfTransposed(const reference::ConvGeometry& g, std::set<std::string>* met) {
  met->insert("transposed dims " + std::to_string(g.dims));
  if (g.groups > 1) met->insert("transposed groups");
  if (g.groups > 1 && g.groups == g.input_channels) met->insert("transposed depthwise");
  for (const reference::Axis& axis : g.axes) {
    if (axis.stride > axis.kernel) met->insert("transposed, stride beyond the kernel");
    if (axis.kernel > axis.input) met->insert("transposed, kernel beyond the input");
    if (axis.dilation > 1 && axis.stride > 1) met->insert("transposed, dilation and stride");
    if (axis.output_pad > 0) met->insert("transposed, output padding");
    if (axis.pad_begin != axis.pad_end) met->insert("transposed, asymmetric padding");
  }
}

// Adds the edge cases that a geometry has.
void AddEdges(const reference::ConvGeometry& g, std::set<std::string>* met) {
  met->insert("dims " + std::to_string(g.dims));
  met->insert("batch " + std::to_string(g.batch));
  const auto note = [met](bool is_met, const char* name) {
    if (is_met) met->insert(name);
  };
  note(g.OutputPixels() == g.batch, "one output pixel");
  note(g.groups == 1 && g.input_channels == 3 && g.axes[2].kernel == 7 && g.axes[2].stride == 2, "7x7 of 3");
  note(g.groups > 1 && g.groups == g.input_channels, "depthwise");
  note(g.groups > 1 && g.groups == g.input_channels && g.GroupOutputs() == 2, "multiplier 2");
  for (const int64_t groups : {2, 3, 32}) {
    note(g.groups == groups && g.GroupInputs() > 1, ("groups " + std::to_string(groups)).c_str());
  }
  for (const int64_t channels : {4, 8}) {
    note(g.groups > 1 && g.GroupInputs() == channels, ("channels " + std::to_string(channels)).c_str());
  }
  note(g.groups == 1 && g.Taps() > 1 && g.input_channels % 2 == 1, "odd channels");
  if (g.IsTransposed()) return AddEdgesOfTransposed(g, met);
  for (const reference::Axis& axis : g.axes) {
    note(g.Taps() == 1 && axis.stride > 1, "1x1 with a stride");
    note(axis.kernel > axis.input, "kernel beyond the input");
    note(axis.stride > axis.kernel && axis.kernel > 1, "stride beyond the kernel");
    note(std::max(axis.pad_begin, axis.pad_end) >= axis.kernel, "padding of a kernel");
    note(axis.kernel > 1 && axis.dilation >= axis.input, "dilation beyond the input");
    note(axis.pad_begin != axis.pad_end, "asymmetric padding");
  }
}

TEST(SweepProblems, MeetTheEdgesOfConvolutions) {
  for (const Effort effort : {Effort::kQuick, Effort::kStandard}) {
    int64_t count = 0;
    std::set<std::string> met;
    for (const Problem& p : SweepProblems(kAvx2, std::span(kBothModes).first(1), effort)) {
      if (!p.conv) continue;
      ++count;
      AddEdges(*p.conv, &met);
      met.insert("a " + std::string(ToString(p.a_type)) + " b " + std::string(ToString(p.b_type)));
      met.insert("c " + std::string(ToString(p.c_type)));
      met.insert("fill " + std::string(ToString(p.fill)));
      met.insert("threads " + std::to_string(p.threads));
      met.insert("residual " + std::string(p.residual == INTACT_TYPE_NONE ? "none" : ToString(p.residual)));
      if (p.a_pad > 0) met.insert("a pad");
      if (p.c_pad > 0) met.insert("c pad");
    }
    const size_t all = 3 + 3 + 16 + 10 + 4 + 4 + AllFills().size() + 3 + 4 + 2;
    EXPECT_GE(met.size(), effort == Effort::kQuick ? all - 5 : all) << ::testing::PrintToString(met);
    EXPECT_GE(count, effort == Effort::kQuick ? 80 : 500);
  }
}

TEST(SweepProblems, HaveLargeOutputsOfFewRowsAndOfMany) {
  bool few = false;
  bool many = false;
  const std::vector<Problem> problems = SweepProblems(kAvx2, kBothModes, Effort::kQuick);
  for (const Problem& p : problems) {
    const int64_t row_bytes = (p.n + p.c_pad) * core::BytesOf(p.c_type);
    const bool streams = row_bytes % 64 == 0 && p.n % 16 == 0 && p.m * row_bytes > 5 << 19;
    few = few || (streams && p.m >= 3 && p.m <= 8);
    many = many || (streams && p.m > 64);
  }
  EXPECT_TRUE(few);
  EXPECT_TRUE(many);
}

TEST(SweepProblems, MeetEveryCombinationOfTypesAndZeroPointsInEveryFill) {
  std::set<std::string> met;
  for (const Problem& p : SweepProblems(kAvx2, kBothModes, Effort::kStandard)) {
    if (IsOfItems(p.zb_kind)) continue;
    const bool has_zero_point = p.zb != 0 || p.zb_kind == ZeroPointKind::kChannel;
    met.insert(std::string(ToString(p.a_type)) + std::string(ToString(p.b_type)) + " " +
               std::to_string(has_zero_point) + " " + std::to_string(static_cast<int>(p.zb_kind)) + " " +
               std::string(ToString(p.fill)) + " " + std::string(ToString(p.mode)));
  }
  EXPECT_EQ(met.size(), 2 * 2 * 3 * AllFills().size() * 2);
}

TEST(SweepProblems, DeclareRangesThatBeginAboveTheTypesMinimum) {
  std::set<std::pair<intact_type, intact_range_check>> met;
  for (const Problem& p : SweepProblems(kAvx2, kBothModes, Effort::kStandard)) {
    if (p.range_min > 0) met.insert({p.a_type, p.range_check});
  }
  EXPECT_EQ(met.size(), 4u);
}

TEST(DeclaredMinimum, KeepsFillsAndZeroPointsAboveIt) {
  for (const Fill fill : AllFills()) {
    Problem problem = *Problem::Parse("gemm u8s8s32 m=20 n=5 k=40 za=120 arangemin=100 arange=200");
    problem.fill = fill;
    EXPECT_EQ(problem, *Problem::Parse(problem.ToString()));
    const std::vector<uint8_t> a = MaterializeGemm(problem).a;
    const auto [low, high] = std::ranges::minmax(a);
    EXPECT_EQ(low < 100, fill == Fill::kStray) << ToString(fill);
    EXPECT_EQ(high > 200, fill == Fill::kStray) << ToString(fill);
  }
  EXPECT_THAT(Problem::Parse("gemm s8s8s32 m=1 n=1 k=1 za=-29 arangemin=100").error().message,
              ::testing::HasSubstr("za: -29 is beyond the activation range, which begins at -28"));
  EXPECT_THAT(Problem::Parse("gemm u8s8s32 m=1 n=1 k=1 za=9 arangemin=9 arange=8").error().message,
              ::testing::HasSubstr("arangemin: 9 is out of range; expected 0 to 8"));
}

// One in `step` of the problems of a quick sweep.
std::vector<Problem> QuickProblems(std::span<const intact_isa> isas, size_t step) {
  const std::vector<Problem> all = SweepProblems(isas, kBothModes, Effort::kQuick);
  std::vector<Problem> some;
  for (size_t i = 0; i < all.size(); i += step) some.push_back(all[i]);
  return some;
}

TEST(RunSweep, TheReferencePassesInBothModes) {
  const SweepResult result =
      RunSweep(QuickProblems(kAvx2, tests::kSanitized ? 9 : 3), ReferenceTarget(), NoProgress);
  EXPECT_TRUE(result.Passed());
  ASSERT_EQ(result.cells.size(), 2u);
  EXPECT_EQ(result.cells[0].differing, 0);
  EXPECT_GT(result.cells[1].differing, 0);
  EXPECT_EQ(result.cells[1].by_cause[static_cast<size_t>(Cause::kInt16Saturation)],
            result.cells[1].differing);
  EXPECT_EQ(std::ssize(result.digests), result.cells[0].problems + result.cells[1].problems);
}

void ExpectThatTheLibraryPasses(size_t step) {
  const SweepResult result = RunSweep(QuickProblems(core::kIsaLadder, step), IntactTarget(), NoProgress);
  for (const SweepFailure& failure : result.failures) {
    ADD_FAILURE() << failure.problem << ": " << failure.reason << "; smallest: " << failure.minimised;
  }
  for (const SweepCell& cell : result.cells) {
    EXPECT_EQ(cell.problems > 0, intact_isa_available(cell.isa) == 1) << intact_isa_name(cell.isa);
    EXPECT_EQ(cell.Unexplained(), 0) << intact_isa_name(cell.isa);
  }
}

TEST(RunSweep, TheLibraryPassesOnEveryIsaOfThisMachine) {
  ExpectThatTheLibraryPasses(tests::kSanitized ? 37 : 7);
}

TEST(LongRunSweep, TheLibraryPassesOnEveryIsaOfThisMachine) { ExpectThatTheLibraryPasses(1); }

// The number of products that the problem adds.
int64_t Products(const Problem& p) {
  if (!p.conv) return p.m * p.n * p.k;
  return p.conv->OutputPixels() * p.conv->Taps() * p.conv->GroupInputs() * p.conv->output_channels;
}

TEST(RunSweep, FindsEveryMutantAndMinimisesIt) {
  for (const Mutant& mutant : Mutants()) {
    SCOPED_TRACE(mutant.target->Name());
    const std::vector<Problem> problems = SweepProblems(kAvx2, kBothModes, Effort::kStandard);
    std::vector<Problem> some;
    for (size_t i = 0; i < problems.size(); ++i) {
      if (problems[i].conv.has_value() != mutant.problem.conv.has_value()) continue;
      if (mutant.problem.batch == 1 && problems[i].batch != 1) continue;  // most mutants compute one item
      const bool small = Products(problems[i]) < 200000;
      const bool is_rare = problems[i].fixed != FixedKind::kNone || problems[i].has_table ||
                           problems[i].overflow != INTACT_OVERFLOW_REFUSED ||
                           problems[i].scale == ScaleKind::kPruned;
      const size_t step = is_rare ? 1 : problems[i].conv ? 3 : 2;
      if ((i % step == 0 && small) || problems[i].k > 60000) some.push_back(problems[i]);
    }
    // A few at a time, until one fails: explaining others would take long.
    SweepResult result;
    for (std::span<const Problem> rest = some; result.failures.empty() && !rest.empty();) {
      const std::span<const Problem> part = rest.first(std::min<size_t>(16, rest.size()));
      result = RunSweep(part, *mutant.target, NoProgress);
      rest = rest.subspan(part.size());
    }
    ASSERT_FALSE(result.failures.empty());
    const Result<Problem> minimised = Problem::Parse(result.failures[0].minimised);
    ASSERT_TRUE(minimised) << minimised.error().message;
    const Result<Judgement> judgement = Judge(*mutant.target, *minimised);
    ASSERT_TRUE(judgement) << minimised->ToString() << ": " << judgement.error().message;
    EXPECT_FALSE(judgement->Passed()) << minimised->ToString();
    const Result<Problem> original = Problem::Parse(result.failures[0].problem);
    EXPECT_LE(Products(*minimised), Products(*original));
  }
}

// A target that is never available.
class NoTarget : public Target {
 public:
  explicit NoTarget(intact_status status) : status_(status) {}
  std::string Name() const override { return "none"; }
  Result<std::vector<uint8_t>> Run(const reference::Operation&, const RunOptions&) const override {
    return Error{status_, "there is no such thing"};
  }

 private:
  intact_status status_;
};

TEST(RunSweep, CountsSkipsAndReportsErrors) {
  const std::vector<Problem> problems(3);
  const SweepResult skipped = RunSweep(problems, NoTarget(INTACT_UNSUPPORTED), NoProgress);
  EXPECT_EQ(skipped.Verdict(), SweepVerdict::kNothingCompared);
  EXPECT_EQ(VerdictText(skipped), "NOTHING WAS COMPARED: 3 problems skipped\n");
  EXPECT_EQ(RunSweep({}, ReferenceTarget(), NoProgress).Verdict(), SweepVerdict::kNothingCompared);
  EXPECT_TRUE(RunSweep(problems, ReferenceTarget(), NoProgress).Passed());
  ASSERT_EQ(skipped.skips.size(), 3u);
  EXPECT_EQ(skipped.skips[0].reason, "there is no such thing");
  EXPECT_EQ(skipped.cells[0].problems, 0);
  const SweepResult failed = RunSweep(problems, NoTarget(INTACT_CODEGEN_FAILED), NoProgress);
  EXPECT_EQ(failed.failures.size(), 3u);
  EXPECT_EQ(failed.cells[0].failed, 3);
  EXPECT_THAT(VerdictText(failed), testing::StartsWith("FAILED: 3 of 3 problems\nnot tried: beyond m "));
}

// Wrong in its last output if m, n or k have a tail modulo 16, with A of one type.
class WrongAtATail : public ReferenceTarget {
 public:
  WrongAtATail(int64_t reference::Gemm::*size, int64_t rest, intact_type a_type)
      : size_(size), rest_(rest), a_type_(a_type) {}
  Result<std::vector<uint8_t>> Run(const reference::Operation& operation,
                                   const RunOptions& options) const override {
    Result<std::vector<uint8_t>> output = ReferenceTarget::Run(operation, options);
    const auto* gemm = std::get_if<reference::Gemm>(&operation);
    const bool is_wrong = gemm != nullptr && gemm->*size_ % 16 == rest_ && gemm->a_type == a_type_;
    if (output && is_wrong) output->back() ^= 1;
    return output;
  }

 private:
  int64_t reference::Gemm::*size_;
  int64_t rest_;
  intact_type a_type_;
};

TEST(SweepProblems, ShowAFaultAtAnyTailEvenIfQuick) {
  constexpr std::array kAny = {INTACT_ISA_ANY};
  const std::vector<Problem> problems = SweepProblems(kAny, kExact, Effort::kQuick);
  for (const auto size : {&reference::Gemm::m, &reference::Gemm::n, &reference::Gemm::k}) {
    for (int64_t tail = 0; tail < 16; tail += tests::kSanitized ? 5 : 1) {
      for (const intact_type a : {INTACT_U8, INTACT_S8}) {
        const WrongAtATail target(size, tail, a);
        EXPECT_TRUE(std::ranges::any_of(problems, [&](const Problem& p) { return Fails(target, p); }))
            << tail << " of " << ToString(a);
      }
    }
  }
}

TEST(SweepProblems, HaveEveryTailOfChannelsAndOfWidths) {
  constexpr std::array kAny = {INTACT_ISA_ANY};
  std::map<bool, std::array<std::set<std::pair<intact_type, int64_t>>, 3>> met;  // depthwise ones or others
  for (const Problem& p : SweepProblems(kAny, kExact, Effort::kQuick)) {
    if (!p.conv || p.b_type != INTACT_S8 || p.c_type != INTACT_S32) continue;
    auto& [inputs, outputs, widths] = met[p.conv->groups > 1 && p.conv->GroupInputs() == 1];
    inputs.insert({p.a_type, p.conv->input_channels % 16});
    outputs.insert({p.a_type, p.conv->output_channels % 16});
    widths.insert({p.a_type, p.conv->axes[2].input % 16});
  }
  ASSERT_EQ(met.size(), 2u);
  for (const auto& [is_depthwise, all] : met) {
    for (const auto& tails : all) EXPECT_EQ(tails.size(), 2u * 16) << is_depthwise;
  }
}

// A fault may need two tails at once.
TEST(SweepProblems, HaveAllPairsOfTailsByEight) {
  constexpr std::array kAny = {INTACT_ISA_ANY};
  std::set<std::pair<int64_t, int64_t>> mn, mk, nk;
  std::set<std::array<int64_t, 3>> mnk;
  size_t gemms = 0;
  for (const Problem& p : SweepProblems(kAny, kExact, Effort::kQuick)) {
    if (p.conv) continue;
    if (++gemms > 64) break;  // larger ones may have some by chance
    mn.insert({p.m % 8, p.n % 8});
    mk.insert({p.m % 8, p.k % 8});
    nk.insert({p.n % 8, p.k % 8});
    mnk.insert({p.m % 4, p.n % 4, p.k % 4});
  }
  for (const auto& pairs : {mn, mk, nk}) EXPECT_EQ(pairs.size(), 64u);
  EXPECT_EQ(mnk.size(), 64u);
}

TEST(VerdictText, SaysWhatTheSweepComesTo) {
  SweepResult sweep, random;
  EXPECT_EQ(VerdictText(sweep), "NOTHING WAS COMPARED: there are no problems\n");
  sweep.CellOf(INTACT_ISA_AVX2, INTACT_EXACT).problems = 5;
  EXPECT_EQ(VerdictText(sweep), "PASSED: 5 problems\n");
  sweep.CellOf(INTACT_ISA_AVX512, INTACT_EXACT).skipped = 7;
  EXPECT_EQ(VerdictText(sweep), "NOTHING WAS COMPARED on avx512 in exact mode: 7 problems skipped\n");
  sweep.cells.pop_back();
  EXPECT_EQ(VerdictText(sweep, &random), "PASSED: 5 problems\n");
  sweep.computed = {{"gemm u8s8s32 m=1 n=1 k=1", 1, true, {}, "1: exact"}};
  EXPECT_THAT(VerdictText(sweep),
              testing::HasSubstr("PASSED, MIXED: 5 problems; in 1 of them, no single arithmetic"));
  random.CellOf(INTACT_ISA_AVX2, INTACT_EXACT) = {INTACT_ISA_AVX2, INTACT_EXACT, 9, 0, 2, 0, 0, {}};
  random.failures.resize(1);
  EXPECT_EQ(VerdictText(sweep, &random), "FAILED: 2 of 14 problems\n");
  EXPECT_EQ(sweep.VerdictWith(&random), SweepVerdict::kFailed);
  EXPECT_TRUE(sweep.Passed());
  sweep.not_run = 1;
  EXPECT_EQ(VerdictText(sweep), "FAILED: not all problems were run\n");
}

TEST(RunSweep, EndsWithItsTime) {
  const std::vector<Problem> problems(3);
  const support::Deadline over(1e-9);
  const SweepResult none = RunSweep(problems, ReferenceTarget(), NoProgress, over);
  EXPECT_EQ(none.Verdict(), SweepVerdict::kUnfinished);
  EXPECT_EQ(VerdictText(none), "UNFINISHED: 0 problems passed, 3 not run: the time of --time was over\n");
  SweepResult expected = none;  // after ExpectedFailures::Apply()
  expected.cells.resize(1);
  expected.cells.front().problems = 5;
  expected.expected_failures = 4;
  EXPECT_EQ(VerdictText(expected),
            "UNFINISHED: 1 problem passed, 4 failed as expected, 3 not run: the time of --time was over\n");
  EXPECT_EQ(RunSweep(problems, NoTarget(INTACT_CODEGEN_FAILED), NoProgress, over).Failed(), 0);
  SweepResult failed = none;
  failed.failures.resize(1);
  EXPECT_EQ(failed.Verdict(), SweepVerdict::kFailed) << "a failure counts more than what is missing";
  EXPECT_TRUE(RunSweep(problems, ReferenceTarget(), NoProgress, support::Deadline(1e9)).Passed());
}

TEST(RunSweep, ReportsProgress) {
  int64_t calls = 0;
  const std::vector<Problem> problems(3);
  (void)RunSweep(problems, ReferenceTarget(), [&](int64_t done, int64_t total) {
    EXPECT_EQ(done, ++calls);
    EXPECT_EQ(total, 3);
  });
  EXPECT_EQ(calls, 3);
}

TEST(Judge, ASaturatingTargetMustSaturate) {
  // Exact although it should clamp: no output differs from the exact reference, but it is wrong.
  const auto problem = Problem::Parse("gemm u8s8s32 m=4 n=8 k=16 fill=bait mode=saturating isa=avx2");
  class ExactTarget : public ReferenceTarget {
    Result<std::vector<uint8_t>> Run(const reference::Operation& operation,
                                     const RunOptions&) const override {
      return reference::Predict(operation, {});
    }
  };
  const Result<Judgement> judgement = Judge(ExactTarget(), *problem);
  ASSERT_TRUE(judgement);
  EXPECT_TRUE(judgement->comparison.Parity());
  EXPECT_THAT(judgement->failure, ::testing::HasSubstr("the outputs with pairs clamped to int16"));
  Problem any = *problem;
  any.isa = INTACT_ISA_ANY;
  EXPECT_TRUE(Judge(ExactTarget(), any)->Passed());
}

TEST(MinimisedChoice, IsOfTheFirstOfEachKind) {
  MinimisedChoice choice;
  size_t taken = 0;
  for (int i = 0; i < 100; ++i) taken += choice.Take("wrong output") ? 1 : 0;
  EXPECT_EQ(taken, kMinimisedOfAKind);
  EXPECT_TRUE(choice.Take("no return"));
  for (char kind = 'a'; kind <= 'z'; ++kind) {
    for (int i = 0; i < 3; ++i) taken += choice.Take(std::string(1, kind)) ? 1 : 0;
  }
  EXPECT_EQ(taken + 1, kMaxMinimised);
}

TEST(Minimise, FindsTheSmallestThatFails) {
  Problem start = *Problem::Parse(
      "gemm s8u8u8 m=65 n=97 k=130 za=5 zb=9 zbper=channel zc=3 bias=f32 scale=channel act=relu res=u8 "
      "zres=3 respad=2 amax=200 wmax=128 fill=bait seed=9 apad=1 cpad=2 threads=3 mode=saturating isa=avx2");
  const Problem smallest =
      Minimise(start, [](const Problem& p) { return p.n >= 17 && p.k % 4 == 2 && p.za != 0; });
  EXPECT_EQ(smallest.ToString(), "gemm s8u8s32 m=1 n=17 k=2 za=5 mode=saturating isa=avx2");
}

TEST(Minimise, FindsTheSmallestConvolutionThatFails) {
  const Problem start = *Problem::Parse(
      "conv s8u8u8 in=4x12x13 c=24 o=36 kernel=2x3x5 stride=1x2x2 dilation=1x2x1 pad=1x2x3:0x2x4 groups=4 "
      "batch=3 "
      "za=5 zb=9 zbper=channel zc=3 bias=f32 scale=channel act=relu fill=bait seed=9 apad=1 cpad=2 threads=3 "
      "mode=saturating isa=avx2");
  const Problem smallest = Minimise(start, [](const Problem& p) {
    const auto& axes = p.conv->axes;
    return axes[1].kernel == 3 && axes[2].pad_begin >= 1 && p.conv->groups >= 2 &&
           p.conv->GroupInputs() % 2 == 0;
  });
  EXPECT_EQ(smallest.ToString(),
            "conv s8u8s32 in=1x1 c=4 o=2 kernel=3x1 pad=0x1:2x0 groups=2 mode=saturating isa=avx2");
}

TEST(Minimise, KeepsWhatItCannotShrink) {
  const Problem start = *Problem::Parse("gemm u8s8s32 m=7 n=3 k=5 za=1");
  EXPECT_EQ(Minimise(start, [](const Problem&) { return false; }), start);
}

}  // namespace
}  // namespace intact::verify
