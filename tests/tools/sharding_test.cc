// Sweeps by the command line in shards, and processes that are killed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <intact/intact.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/journal.h"
#include "tests/support/binary_test.h"

namespace {

using intact::tests::Outcome;
using testing::HasSubstr;

/// An ISA that every machine has.
const std::string kIsa = intact_isa_available(INTACT_ISA_AVX2) != 0 ? "avx2" : "portable";
const std::string kSweep = fmt::format("verify sweep --quick --isa {} ", kIsa);

class Sharding : public intact::tests::BinaryTest {
 protected:
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::string Quoted(const std::string& name) const { return fmt::format("'{}'", Path(name)); }

  /// Runs the sweep with these arguments and `--json name`, and returns the JSON.
  std::string Sweep(const std::string& arguments, const std::string& name) const {
    const Outcome outcome = Run(Line() + arguments + " --json " + Quoted(name));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return Contents(Path(name));
  }
  virtual std::string Line() const { return kSweep; }
};

/// Both sweeps: `verify sweep` and `verify grouped`.
class ShardingOfEach : public Sharding, public testing::WithParamInterface<const char*> {
 protected:
  std::string Line() const override { return fmt::format("verify {} --quick --isa {} ", GetParam(), kIsa); }
};
INSTANTIATE_TEST_SUITE_P(Sweeps, ShardingOfEach, testing::Values("sweep", "grouped"),
                         [](const auto& test) { return std::string(test.param); });

// Plants a failure of random problems, because our kernels have none.
TEST_F(Sharding, RandomFindingsAreMerged) {
  const auto sweep = [this](const std::string& shard) {
    const std::string name = shard.substr(0, 1) + ".json";
    const Outcome outcome =
        RunUntilRandom(Line() + "--time 1h --shard " + shard + " --json " + Quoted(name), "INT");
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return nlohmann::json::parse(Contents(Path(name)));
  };
  const nlohmann::json first = sweep("1/2");
  nlohmann::json second = sweep("2/2");
  const std::string merge =
      fmt::format("verify merge {} {} {}", Quoted("m.json"), Quoted("1.json"), Quoted("2.json"));
  const int64_t problems =
      first["random"]["problems"].get<int64_t>() + second["random"]["problems"].get<int64_t>();
  const Outcome merged = Run(merge);
  EXPECT_EQ(merged.status, 0) << merged.err;
  EXPECT_THAT(merged.out, HasSubstr(fmt::format("random problems: {}, in 2 shards\n", problems)));
  EXPECT_EQ(nlohmann::json::parse(Contents(Path("m.json")))["random"]["problems"], problems);

  second["random"]["failures"].push_back({{"problem", "gemm u8s8s32 m=1 n=1 k=1"},
                                          {"reason", "planted"},
                                          {"kind", "wrong output"},
                                          {"minimised", ""},
                                          {"minimised_reason", ""}});
  std::ofstream(Path("2.json")) << second.dump(1);
  ExpectBadInput(merge, "random has more failures than its cells count");
  second["random"]["cells"][0]["failed"] = 1;
  std::ofstream(Path("2.json")) << second.dump(1);
  const Outcome failed = Run(merge);
  EXPECT_EQ(failed.status, 1) << failed.err;
  EXPECT_THAT(failed.out, HasSubstr("FAILED: planted"));
}

TEST_P(ShardingOfEach, MergedShardsAreTheSweepUnsharded) {
  const std::string whole = Sweep("", "whole.json");
  const std::string text = Run(Line()).out;
  EXPECT_NE(Sweep("--shard 1/3", "1.json"), whole);
  Sweep("--shard 2/3", "2.json");
  Sweep("--shard 3/3 --journal " + Quoted("3.journal"), "3.json");
  for (const char* third : {"3.json", "3.journal"}) {
    const Outcome merged = Run(fmt::format("verify merge {} {} {} {}", Quoted("m.json"), Quoted(third),
                                           Quoted("1.json"), Quoted("2.json")));
    EXPECT_EQ(merged.status, 0) << merged.err;
    EXPECT_EQ(merged.out, text);
    EXPECT_TRUE(Contents(Path("m.json")) == whole);
  }
  // Reports that do not belong together are an error, and nothing is written.
  const std::string merge = fmt::format("verify merge {} ", Quoted("x.json"));
  const std::string first = Quoted("1.json") + " ", second = Quoted("2.json") + " ";
  ExpectBadInput(merge + second, "intact: shard 1/3, 3/3 are missing");
  ExpectBadInput(merge + first + second + first, "1.json: is shard 1/3, as is ");
  ExpectBadInput(merge + first + second + "/nonexistent", "/nonexistent: no such file");
  const Outcome both = Run(merge + "/nonexistent " + first + "/neither");
  EXPECT_EQ(both.status, 2);
  EXPECT_THAT(both.err, testing::AllOf(HasSubstr("/nonexistent: no such"), HasSubstr("/neither: no such")));
  ExpectBadInput(merge, "SHARD");
  ExpectBadInput("verify merge '' " + first, "OUT: ");
  const std::string before = Contents(Path("1.json"));
  ExpectBadInput("verify merge " + first + first + second, "1.json");
  EXPECT_EQ(Contents(Path("1.json")), before);
}

TEST_F(Sharding, AShardSaysWhatItIs) {
  EXPECT_THAT(Run(kSweep + "--shard 2/3").out,
              testing::ContainsRegex("^shard 2/3: [0-9]+ of [0-9]+ problems\n"));
  ExpectBadInput(kSweep + "--shard 4/3", "--shard: '4/3' is no shard; expected i/n");
  ExpectBadInput(kSweep + "--shard ''", "--shard: '' is no shard");
  ExpectBadInput(kSweep + "--shard 1/100000", "expected no more shards than that");
  ExpectBadInput(kSweep + "--shard auto", "'auto' is no shard; expected i/n with i from 1 to n");
}

TEST_F(Sharding, AJournalIsOfOneSweep) {
  const std::string journal = fmt::format("--journal {} ", Quoted("journal"));
  const std::string once = Sweep(journal + "--shard 1/9", "a.json");
  const Outcome again = Run(kSweep + journal + "--shard 1/9");
  EXPECT_THAT(again.err, testing::ContainsRegex("journal: [0-9]+ of [0-9]+ problems? done\n"));
  EXPECT_THAT(again.err, testing::Not(HasSubstr("sweep:"))) << "nothing is run";
  EXPECT_EQ(Sweep(journal + "--shard 1/9", "b.json"), once);
  ExpectBadInput(kSweep + journal + "--shard 2/9",
                 "is the journal of another run: it is shard 1/9 there, 2/9 here");
  ExpectBadInput(kSweep + journal + "--shard 1/9 --mode saturating",
                 R"(mode is "exact" there, "saturating" here)");
  ExpectBadInput(fmt::format("verify grouped --quick --isa {} {} --shard 1/9", kIsa, journal),
                 "grouped_seed is null there, 1 here");
  ExpectBadInput(kSweep + "--journal " + Quoted("a.json"), "is no journal of a sweep");
  ExpectBadInput(kSweep + "--journal ''", "--journal");
  ExpectBadInput(kSweep + "--journal " + Quoted("c") + " --json " + Quoted("c"), "are one file");
  ExpectBadInput(kSweep + "--journal " + Quoted("c") + " --json " + Quoted("./c"), "are one file");
  ExpectBadInput(kSweep + "--journal /dev/full", "/dev/full: cannot be written");
}

/// Starts the sweep without output, and kills it after `delay`. Returns whether it had ended before.
bool RunAndKill(const std::vector<std::string>& arguments, std::chrono::microseconds delay) {
  const pid_t child = fork();
  if (child == 0) {
    std::vector<char*> argv;
    argv.reserve(arguments.size() + 1);
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    std::freopen("/dev/null", "w", stdout);
    std::freopen("/dev/null", "w", stderr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  std::this_thread::sleep_for(delay);
  kill(child, SIGKILL);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) return false;
  EXPECT_EQ(WEXITSTATUS(status), 0);
  return true;
}

// Killed repeatedly at random times. The journal keeps its contents, each kill loses only problems that were
// running, and in the end each problem is there once.
TEST_P(ShardingOfEach, KillsLoseOnlyWhatIsUnderWay) {
  const auto start = std::chrono::steady_clock::now();
  const std::string whole = Sweep("--journal " + Quoted("whole.journal"), "whole.json");
  const auto time =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start);
  std::mt19937 random(20);
  std::uniform_int_distribution<int64_t> draw(0, time.count() / 6);

  const std::string journal = Path("journal"), json = Path("killed.json");
  const std::vector<std::string> command = {INTACT_BINARY, "verify",    GetParam(), "--quick", "--isa",
                                            kIsa,          "--journal", journal,    "--json",  json};
  std::string before;
  int kills = 0, kills_with_progress = 0;
  while (!RunAndKill(command, std::chrono::microseconds(draw(random)))) {
    ++kills;
    const std::string now = Contents(journal);
    const std::string kept = before.substr(0, before.rfind('\n') + 1);
    ASSERT_TRUE(now.starts_with(kept)) << "what was recorded stays";
    if (now.size() > kept.size()) ++kills_with_progress;
    before = now;
    ASSERT_FALSE(std::filesystem::exists(json));
    if (kills == 25) {  // a slow or small machine: the kills must end
      EXPECT_TRUE(Sweep("--journal " + Quoted("journal"), "killed.json") == whole);
      break;
    }
  }
  EXPECT_GE(kills, 3);
  EXPECT_GE(kills_with_progress, 2);
  EXPECT_TRUE(Contents(json) == whole);
  RecordProperty("kills", kills);
  // No problem was recorded twice, so no recorded problem was run again.
  EXPECT_TRUE(Contents(journal) == Contents(Path("whole.journal")));
  const std::vector<std::string> lines = intact::support::SplitJournal(Contents(journal)).lines;
  EXPECT_EQ(std::set<std::string>(lines.begin(), lines.end()).size(), lines.size());
}

// Two processes would both run the missing problems.
TEST_F(Sharding, AJournalHasOneProcess) {
  const auto journal = intact::support::Journal::Open(Path("journal"));
  ASSERT_TRUE(journal);
  ExpectBadInput(kSweep + "--journal " + Quoted("journal"),
                 "journal: is in use: another process writes this journal");
}

}  // namespace
