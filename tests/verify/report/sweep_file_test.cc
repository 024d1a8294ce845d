#include "verify/report/sweep_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "support/fnv1a.h"
#include "tests/support/temp_path.h"
#include "tests/verify/mutants/mutants.h"
#include "verify/report/report_terminal.h"

namespace intact::verify {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Depending on the number of columns: right, wrong with a simple explanation, failing, or refusing.
class MoodyTarget : public ReferenceTarget {
 public:
  Result<std::vector<uint8_t>> Run(const reference::Operation& operation,
                                   const RunOptions& options) const override {
    if (!std::holds_alternative<reference::Gemm>(operation)) return ReferenceTarget::Run(operation, options);
    const auto& gemm = std::get<reference::Gemm>(operation);
    ++runs;
    if (gemm.n % 7 == 3) return Error{INTACT_UNSUPPORTED, "no \"kernel\"\nof seven"};
    if (gemm.n % 11 == 5 && gemm.m * gemm.n < 200) return Error{INTACT_CODEGEN_FAILED, "broken"};
    Result<std::vector<uint8_t>> output = ReferenceTarget::Run(operation, options);
    const bool is_wrong = gemm.n % 5 == 2 && output && output->size() < 200;
    if (is_wrong) output->at(output->size() / 2) ^= 1;
    return output;
  }
  mutable int64_t runs = 0;
};

void NoProgress(int64_t /*done*/, int64_t /*total*/) {}

SweepRun QuickRun() {
  SweepRun run;
  run.version = "0.1.0";
  run.build = "0123456789abcdef";
  run.machine.cpu = "a \"CPU\"";
  run.machine.family = 6;
  run.machine.model = 7;
  run.target.name = "moody";
  run.target.takes = {
      {kAllFeatures, kAllFeatures & ~INTACT_TARGET_BIT(INTACT_TARGET_THREADS)},
      {Taken{{INTACT_U8, INTACT_S8, INTACT_S32}, {1, 1, 4}}, Taken{{INTACT_S8, INTACT_S8, INTACT_U8}}},
      {Taken{{INTACT_S8, INTACT_S8, INTACT_U8}}}};
  run.isas = {INTACT_ISA_AVX2};
  run.mode = INTACT_SATURATING;
  run.effort = Effort::kQuick;
  run.Describe(run.AllProblems());
  return run;
}

std::string Text(const SweepRun& run, const SweepResult& result) {
  return ToJson(run, result).dump(1, ' ', false, Json::error_handler_t::replace);
}

class SweepFile : public testing::Test {
 public:
  ~SweepFile() override { std::filesystem::remove_all(folder_); }

 protected:
  SweepFile() { std::filesystem::create_directories(folder_); }

  std::string Write(const std::string& name, const std::string& text) const {
    std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  static std::string Contents(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }

  /// Runs the problems that the journal `path` lacks, and ends with an error after `most` problems.
  static Result<SweepResult> RunJournaled(const std::string& path, const SweepRun& run,
                                          std::span<const Problem> problems, const Target& target,
                                          int64_t most = INT64_MAX) {
    Result<support::Journal> journal = support::Journal::Open(path);
    if (!journal) return journal.error();
    const Result<SweepOutcomes> known = Resume(path, run, &*journal);
    if (!known) return known.error();
    return RunSweep(
        problems, target, *known,
        [&](const SweepOutcome& outcome) -> std::optional<Error> {
          if (most-- == 0) return Error{INTACT_INVALID_ARGUMENT, "enough"};
          return Append(outcome, &*journal);
        },
        NoProgress);
  }

  const std::string folder_ = tests::TempPath();
};

/// A made-up result of a sweep over a moody target.
SweepResult MadeUp(std::span<const Problem> problems, support::Journal* journal) {
  SweepResult result;
  MinimisedChoice choice;
  for (const Problem& problem : problems) {
    SweepOutcome outcome;
    outcome.problem = problem.ToString();
    outcome.isa = problem.isa;
    outcome.mode = problem.mode;
    const std::string& line = outcome.problem;
    const uint64_t hash = support::Fnv1a(line);
    if (hash % 11 == 0) {
      outcome.skipped = fmt::format("no \"kernel\"\n\xff {}", hash);
    } else {
      if (hash % 7 != 0) outcome.outputs = {100, 6, {1, 2, 3, static_cast<int64_t>(hash % 10)}, hash, {}};
      if (outcome.outputs) {
        outcome.outputs->naming = {hash % 2 == 0, {}, hash % 4 == 0 ? fmt::format("{}: exact", hash) : ""};
        constexpr std::array kTexts = {"maddubs", "maddubs, flattened depth; half up", "dpbusds"};
        for (size_t i = 0; i < hash % 4; ++i) {
          outcome.outputs->naming->reproduced_by.emplace_back(kTexts.at((hash / 4 + i) % kTexts.size()));
        }
      }
      if (hash % 3 == 0 || !outcome.outputs) {
        const char kind = static_cast<char>('a' + hash % 23 % 19);  // some kinds are more frequent
        outcome.failure = fmt::format("output {} differs \xff{}", hash, kind);
        outcome.kind = std::string(1, kind);
      }
      const bool minimise = !outcome.failure.empty() && choice.Take(outcome.kind);
      if (minimise) outcome.minimised = fmt::format("smaller than {}", hash);
      if (minimise) outcome.minimised_reason = fmt::format("less than {}", hash);
    }
    EXPECT_EQ(Append(outcome, journal), std::nullopt);
    result.Add(outcome);
  }
  return result;
}

TEST_F(SweepFile, MergedShardsAreTheWholeByteForByte) {
  SweepRun whole = QuickRun();
  whole.isas = {INTACT_ISA_AVX2, INTACT_ISA_AVX512_VNNI};
  const std::vector<Problem> problems = whole.AllProblems();
  whole.Describe(problems);
  const auto journal_of = [&](const SweepRun& run) {
    std::string name = run.shard.ToString();
    std::ranges::replace(name, '/', '-');
    return folder_ + "/" + name;
  };
  const auto run_shard = [&](const SweepRun& run) {
    Result<support::Journal> journal = support::Journal::Open(journal_of(run));
    EXPECT_TRUE(Resume(journal_of(run), run, &*journal));
    return MadeUp(ProblemsOf(problems, run.shard), &*journal);
  };
  const SweepResult result = run_shard(whole);
  ASSERT_GT(result.failures.size(), 2 * kMaxMinimised);
  ASSERT_FALSE(result.skips.empty());
  EXPECT_EQ(std::ranges::count(result.failures, false, [](const auto& f) { return f.minimised.empty(); }),
            static_cast<int64_t>(kMaxMinimised));
  EXPECT_TRUE(std::ranges::any_of(std::span(result.failures).first(kMaxMinimised), [](const auto& f) {
    return f.minimised.empty();
  })) << "but not the first ones";
  const std::string expected = Text(whole, result);
  for (const int64_t count : {1, 2, 5, 97}) {
    std::vector<SweepPart> from_json, from_journals;
    for (int64_t index = count; index >= 1; --index) {
      SweepRun run = whole;
      run.shard = {index, count};
      if (count > 1) {
        const std::string json = Write("shard.json", Text(run, run_shard(run)));
        const Result<SweepPart> part = ReadSweepPart(json);
        ASSERT_TRUE(part) << part.error().message;
        from_json.push_back(*part);
      }
      const Result<SweepPart> part = ReadSweepPart(journal_of(run));
      ASSERT_TRUE(part) << part.error().message;
      from_journals.push_back(*part);
    }
    if (count == 1) from_json = {*ReadSweepPart(Write("whole.json", expected))};
    for (const std::vector<SweepPart>& parts : {from_json, from_journals}) {
      const Result<SweepPart> merged = MergeSweeps(parts);
      ASSERT_TRUE(merged) << merged.error().message;
      EXPECT_EQ(Text(merged->run, merged->result), expected) << count;
    }
  }
}

// Wherever the journal is cut, exactly the other problems run: from the first problem whose newline is
// missing.
TEST_F(SweepFile, AJournalIsResumedWhereverItIsCut) {
  const SweepRun run = QuickRun();
  const std::vector<Problem> all = run.AllProblems();
  std::vector<Problem> problems;
  int64_t found = 0;
  for (const int64_t remainder : {2, 3, 5, 2, 1}) {  // of 7, 5 and 11: each kind
    const auto is_next = [&](const Problem& p) {
      return !p.conv && p.m * p.n * p.k < 5000 && p.batch == 1 && p.n % 7 == remainder;
    };
    const auto next = std::find_if(all.begin() + found, all.end(), is_next);
    ASSERT_NE(next, all.end());
    found = next - all.begin() + 1;
    problems.push_back(*next);
  }
  const std::string path = folder_ + "/whole";
  const MoodyTarget target;
  const Result<SweepResult> result = RunJournaled(path, run, problems, target);
  ASSERT_TRUE(result);
  const std::string expected = Text(run, *result), journal = Contents(path);
  const support::JournalText lines = support::SplitJournal(journal);
  ASSERT_EQ(lines.lines.size(), 1 + problems.size());
  ASSERT_FALSE(result->failures.empty() || result->skips.empty());
  ASSERT_LE(result->failures.size(), kMaxMinimised) << "for `known` below has none of them";
  std::vector<int64_t> runs_from;  // problem i and later ones
  for (size_t i = 0; i <= problems.size(); ++i) {
    target.runs = 0;
    SweepOutcomes known;
    for (size_t j = 0; j < i; ++j) known[problems[j].ToString()] = {};
    ASSERT_TRUE(RunSweep(
        problems, target, known, [](const SweepOutcome&) { return std::nullopt; }, NoProgress));
    runs_from.push_back(target.runs);
  }
  std::vector<size_t> cuts;
  for (size_t cut = 0; cut <= journal.size(); ++cut) {
    const bool is_near_an_end = journal.substr(cut < 2 ? 0 : cut - 2, 4).find('\n') != std::string::npos;
    if (is_near_an_end || cut < 3 || cut % 17 == 0) cuts.push_back(cut);
  }
  for (const size_t cut : cuts) {
    const std::string half = Write("half", journal.substr(0, cut));
    const size_t whole_lines = support::SplitJournal(journal.substr(0, cut)).lines.size();
    target.runs = 0;
    const Result<SweepResult> resumed = RunJournaled(half, run, problems, target);
    ASSERT_TRUE(resumed) << cut << ": " << resumed.error().message;
    ASSERT_EQ(Text(run, *resumed), expected) << cut;
    ASSERT_EQ(Contents(half), journal) << cut;
    ASSERT_EQ(target.runs, runs_from[whole_lines == 0 ? 0 : whole_lines - 1]) << cut;
  }
}

TEST_F(SweepFile, WhatWasRecordedIsNotRunAgain) {
  const SweepRun run = QuickRun();
  const std::vector<Problem> all = run.AllProblems();
  const std::span<const Problem> problems = std::span(all).first(40);
  const std::string path = folder_ + "/journal";
  const ReferenceTarget target;
  EXPECT_EQ(RunJournaled(path, run, problems, target, 15).error().message, "enough");
  EXPECT_EQ(support::SplitJournal(Contents(path)).lines.size(), 16u);
  EXPECT_EQ(RunJournaled(path, run, problems, target, 5).error().message, "enough");
  EXPECT_EQ(support::SplitJournal(Contents(path)).lines.size(), 21u);
  EXPECT_TRUE(RunJournaled(path, run, problems, target, 20));
  EXPECT_TRUE(RunJournaled(path, run, problems, target, 0));
  EXPECT_EQ(support::SplitJournal(Contents(path)).lines.size(), 41u);
}

TEST_F(SweepFile, AJournalIsOfOneRun) {
  const SweepRun run = QuickRun();
  const std::vector<Problem> problems = run.AllProblems();
  const std::string path = folder_ + "/journal";
  ASSERT_TRUE(RunJournaled(path, run, std::span(problems).first(1), ReferenceTarget()));
  const std::string before = Contents(path);
  const auto refusal = [&](const std::function<void(SweepRun*)>& change) {
    SweepRun other = run;
    change(&other);
    return RunJournaled(path, other, problems, ReferenceTarget()).error().message;
  };
  EXPECT_EQ(refusal([](SweepRun* r) { r->version = "0.2.0"; }),
            path + R"(: is the journal of another run: version is "0.1.0" there, "0.2.0" here)");
  EXPECT_THAT(refusal([](SweepRun* r) { r->build = "00"; }), HasSubstr("build is "));
  EXPECT_THAT(refusal([](SweepRun* r) { r->machine.cpu = "another"; }), HasSubstr("machine is {"));
  EXPECT_THAT(refusal([](SweepRun* r) { r->machine.model = 8; }), HasSubstr(R"("model":8} here)"));
  EXPECT_THAT(refusal([](SweepRun* r) { r->target.name = "intact"; }),
              HasSubstr("target is {\"name\":\"moody\","));
  EXPECT_THAT(refusal([](SweepRun* r) { r->target.build = "12"; }), HasSubstr("\"build\":\"12\","));
  EXPECT_THAT(refusal([](SweepRun* r) { r->isas.pop_back(); }),
              HasSubstr(R"(isas is ["avx2"] there, [] here)"));
  EXPECT_THAT(refusal([](SweepRun* r) { r->mode = INTACT_EXACT; }),
              HasSubstr("mode is \"saturating\" there"));
  EXPECT_THAT(refusal([](SweepRun* r) { r->effort = Effort::kThorough; }),
              HasSubstr("effort is \"quick\" there"));
  EXPECT_THAT(refusal([](SweepRun* r) { r->emulated = true; }),
              HasSubstr("emulated is false there, true here"));
  EXPECT_THAT(refusal([](SweepRun* r) { r->problems_digest ^= 1; }), HasSubstr("problems_digest is "));
  EXPECT_THAT(refusal([](SweepRun* r) { r->shard = {2, 3}; }), HasSubstr("it is shard 1/1 there, 2/3 here"));
  EXPECT_EQ(Contents(path), before);
}

TEST_F(SweepFile, AJournalIsResumedWhateverBytesOptionsHave) {
  SweepRun run = QuickRun();
  run.target.options = "path=\xff";
  const std::vector<Problem> problems = run.AllProblems();
  const std::string path = folder_ + "/journal";
  for (int i = 0; i < 2; ++i) {
    const auto result = RunJournaled(path, run, std::span(problems).first(1), ReferenceTarget());
    EXPECT_TRUE(result) << result.error().message;
  }
}

// `line`, an object, with a journal's checksum.
std::string Checked(std::string line) {
  const std::string check = fmt::format("{:016x}", support::Fnv1a(line));
  line.pop_back();
  return line + ",\"check\":\"" + check + "\"}";
}

TEST_F(SweepFile, FilesThatAreNoJournalsStayAsTheyAre) {
  const SweepRun run = QuickRun();
  const auto refusal = [&](const std::string& text) {
    const std::string path = Write("journal", text);
    std::string message = RunJournaled(path, run, {}, ReferenceTarget()).error().message;
    EXPECT_EQ(Contents(path), text);
    EXPECT_THAT(message, testing::StartsWith(path + ": "));
    return message;
  };
  for (const char* text : {"notes", "notes\n", "{}\n", "{\"schema\":\"intact-sweep\"}\n", "\n"}) {
    EXPECT_THAT(refusal(text), HasSubstr("is no journal of a sweep")) << text;
  }
  const std::string path = folder_ + "/good";
  const std::vector<Problem> problems = run.AllProblems();
  ASSERT_TRUE(RunJournaled(path, run, std::span(problems).first(2), ReferenceTarget()));
  const std::string good = Contents(path);
  const std::string header = good.substr(0, good.find('\n') + 1);
  EXPECT_THAT(refusal(header + Checked("{\"problem\": 3}") + "\n"),
              HasSubstr("line 2: is not as a sweep writes it: type must"));
  EXPECT_THAT(refusal(header + Checked("{\"problem\": \"gemm\"}") + "\n"),
              HasSubstr("line 2: is not as a sweep writes it: "));
  EXPECT_THAT(refusal(header + Checked("{\"problem\": \"gemm u8s8s32 m=1 n=1 k=1\"}") + "\n"),
              HasSubstr("line 2: is not as a sweep writes it: a problem has no outcome"));
  EXPECT_THAT(refusal(header + Checked("}{}") + "\n"), HasSubstr("line 2: malformed JSON"));
  EXPECT_THAT(refusal(good + good.substr(header.size())), HasSubstr("' twice"));
  // One changed digit, in a line or in the first line: nothing is resumed.
  for (const std::string& key : {std::string("\"digest\":\""), std::string("\"problems_digest\":\"")}) {
    std::string changed = good;
    char& digit = changed[changed.find(key) + key.size()];
    digit = digit == '0' ? '1' : '0';
    EXPECT_THAT(refusal(changed), HasSubstr("does not match its checksum: it was changed or damaged")) << key;
  }
  EXPECT_THAT(refusal(header + "{\"problem\": 3}\n"), HasSubstr("line 2: does not match its checksum"));
}

class Merge : public SweepFile {
 protected:
  Merge() {
    const std::vector<Problem> problems = whole_.AllProblems();
    for (int64_t index = 1; index <= 4; ++index) {
      SweepRun run = whole_;
      run.shard = {index, 4};
      SweepResult result;
      for (const Problem& problem : ProblemsOf(problems, run.shard)) {
        result.Add({problem.ToString(), problem.isa, problem.mode, "", "", "", "", "",
                    SweepOutcome::Outputs{1, 0, {}, 7, {}}});
      }
      parts_.push_back({"file" + std::to_string(index), run, result, {}});
    }
  }
  std::string Refusal() const { return MergeSweeps(parts_).error().message; }

  const SweepRun whole_ = QuickRun();
  std::vector<SweepPart> parts_;
};

TEST_F(Merge, TakesAllShardsInAnyOrder) {
  EXPECT_TRUE(MergeSweeps(parts_));
  std::swap(parts_[0], parts_[2]);
  EXPECT_TRUE(MergeSweeps(parts_));
}

TEST_F(Merge, KnowsTheLargestSizesOfAllShards) {
  parts_[0].result.tried.m = 5000001;  // of a problem without outputs
  for (const size_t i : {size_t{1}, size_t{3}}) {
    RandomFindings& random = parts_[i].random.emplace();
    random.shards = random.problems = 1;
    random.sweep.tried = {static_cast<int64_t>(i), 2, 3, 4, 5, 99 - static_cast<int64_t>(i)};
  }
  for (SweepPart& part : parts_) {
    Json json = ToJson(part.run, part.result);
    if (part.random) json["random"] = ToJson(*part.random);
    const Result<SweepPart> read = ReadSweepPart(Write("shard.json", json.dump(1)));
    ASSERT_TRUE(read) << read.error().message;
    part = *read;
  }
  const Result<SweepPart> merged = MergeSweeps(parts_);
  ASSERT_TRUE(merged) << merged.error().message;
  ASSERT_TRUE(merged->random);
  EXPECT_EQ(merged->random->sweep.tried, (Tried{3, 2, 3, 4, 5, 98}));
  EXPECT_THAT(TriedText(merged->result.tried), HasSubstr("beyond m 5000001, "));
}

TEST_F(Merge, NamesShardsThatAreMissing) {
  parts_.erase(parts_.begin() + 2);
  EXPECT_EQ(Refusal(), "shard 3/4 is missing");
  parts_.erase(parts_.begin());
  EXPECT_EQ(Refusal(), "shard 1/4, 3/4 are missing");
}

TEST_F(Merge, NamesShardsThatAreThereTwice) {
  parts_[3].run.shard.index = 2;
  EXPECT_EQ(Refusal(), "file4: is shard 2/4, as is file2");
}

TEST_F(Merge, RefusesShardsOfOtherSweeps) {
  parts_[1].run.shard.count = 5;
  EXPECT_EQ(Refusal(), "file2: is shard 2/5, but file1 is shard 1/4");
  parts_[1].run.shard.count = 4;
  parts_[2].run.mode = INTACT_EXACT;
  EXPECT_EQ(Refusal(), R"(file3: is of another sweep than file1: mode is "saturating" there, "exact" here)");
  parts_[2].run.mode = INTACT_SATURATING;
  parts_[3].run.machine.cpu = "another";
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("file4: is of another sweep than file1: machine is"),
                               HasSubstr("machines are compared by `intact verify compare`")));
}

TEST_F(Merge, RefusesSweepsOfOtherProblems) {
  for (SweepPart& part : parts_) part.run.problems_digest ^= 1;
  EXPECT_EQ(
      Refusal(),
      "file1: is of version 0.1.0, whose sweeps have other problems; merge with the program that made it");
}

TEST_F(Merge, EachShardHasJustItsProblems) {
  const std::vector<SweepPart> right = parts_;
  SweepResult& second = parts_[1].result;
  const std::string line = second.digests.back().problem;
  second.digests.pop_back();
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("file2: 1 of the "), HasSubstr(" problems of shard 2/4 are missing"),
                               HasSubstr("such as '" + line + "'")));
  second.digests.push_back(right[0].result.digests[0]);
  EXPECT_EQ(Refusal(), "file2: '" + right[0].result.digests[0].problem + "' is no problem of shard 2/4");
  second.digests.back() = second.digests.front();
  EXPECT_EQ(Refusal(), "file2: has '" + second.digests.front().problem + "' twice");
  second = right[1].result;
  second.skips.push_back({line, "and yet it ran"});
  EXPECT_EQ(Refusal(), "file2: has '" + line + "' twice");
  second = right[1].result;
  ++second.cells[0].problems;
  EXPECT_THAT(Refusal(), HasSubstr("file2: its cells count "));
  second = right[1].result;
  second.failures.push_back({line, "which no cell counts", "", "", ""});
  EXPECT_THAT(Refusal(), HasSubstr("file2: its cells count "));
}

TEST_F(SweepFile, JsonThatIsNotASweeps) {
  const SweepRun run = QuickRun();
  const std::vector<Problem> problems = run.AllProblems();
  const Json good = ToJson(run, RunSweep(std::span(problems).first(3), MoodyTarget(), NoProgress));
  const auto refusal = [&](const std::function<void(Json*)>& change) {
    Json json = good;
    change(&json);
    return ReadSweepPart(Write("x.json", json.dump(1))).error().message;
  };
  EXPECT_EQ(refusal([](Json*) {}), "");
  EXPECT_THAT(refusal([](Json* j) { (*j)["schema"] = "intact-report"; }),
              HasSubstr("is neither a sweep's JSON nor its journal"));
  EXPECT_THAT(refusal([](Json* j) { (*j)["schema_version"] = 1; }), HasSubstr("is neither"));
  EXPECT_THAT(refusal([](Json* j) { *j = Json::array(); }), HasSubstr("is not a JSON object"));
  const std::string not_so = "x.json: is not as a sweep writes it: ";
  EXPECT_THAT(refusal([](Json* j) { j->erase("mode"); }), HasSubstr(not_so + "key 'mode' not found"));
  EXPECT_THAT(refusal([](Json* j) { (*j)["mode"] = 3; }), HasSubstr(not_so + "type must be string"));
  EXPECT_THAT(refusal([](Json* j) { (*j)["mode"] = "sloppy"; }),
              HasSubstr(not_so + "mode: 'sloppy' is unknown"));
  EXPECT_THAT(refusal([](Json* j) { (*j)["isas"] = {"sse9"}; }),
              HasSubstr(not_so + "isa: 'sse9' is unknown"));
  EXPECT_THAT(refusal([](Json* j) { (*j)["effort"] = "none"; }), HasSubstr(not_so + "'none' is no effort"));
  EXPECT_THAT(refusal([](Json* j) { (*j)["problems"] = -1; }), HasSubstr(not_so + "-1 is not a count"));
  EXPECT_THAT(refusal([](Json* j) { (*j)["problems"] = 1.5; }), HasSubstr(not_so + "1.5 is not a count"));
  EXPECT_THAT(refusal([](Json* j) { (*j)["shard"]["index"] = 2; }),
              HasSubstr(not_so + "there is no shard 2/1"));
  EXPECT_THAT(refusal([](Json* j) { (*j)["shard"]["count"] = 1000000; }),
              HasSubstr(not_so + "there is no shard 1/1000000"));
  EXPECT_THAT(refusal([](Json* j) { (*j)["digests"]["x"] = "12"; }),
              HasSubstr(not_so + "\"12\" is not a digest"));
  EXPECT_THAT(refusal([](Json* j) { (*j)["cells"][0]["causes"].erase("requantization"); }),
              HasSubstr(not_so + "key 'requantization' not found"));
}

}  // namespace
}  // namespace intact::verify
