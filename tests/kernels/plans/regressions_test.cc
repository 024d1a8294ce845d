// Faults of other libraries (tests/data/regressions.json): our kernels do not have them, and the verifier
// finds and names them in targets that have them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/isas.h"
#include "support/json_file.h"
#include "tests/support/on_every_isa.h"
#include "tests/verify/mutants/mutants.h"
#include "verify/explain/audit.h"
#include "verify/sweep/sweep.h"

namespace intact::verify {
namespace {

struct Regression {
  std::string library, link, failure, mutant, words;
  std::vector<std::string> problems;
};

std::vector<Regression> ReadRegressions() {
  const Result<nlohmann::json> file = support::ReadJson(INTACT_TEST_DATA "/regressions.json");
  if (!file) throw std::runtime_error(file.error().message);
  std::vector<Regression> regressions;
  for (const nlohmann::json& entry : file->at("regressions")) {
    regressions.push_back({entry.at("library"), entry.at("link"), entry.at("failure"), entry.at("mutant"),
                           entry.at("words"), entry.at("problems")});
  }
  return regressions;
}

const std::vector<Regression>& Regressions() {
  static const std::vector<Regression> kRegressions = ReadRegressions();
  return kRegressions;
}

const std::vector<Mutant>& AllMutants() {
  static const std::vector<Mutant> kMutants = Mutants();
  return kMutants;
}

const Mutant& MutantOf(const Regression& regression) {
  const auto found = std::ranges::find_if(
      AllMutants(), [&](const Mutant& mutant) { return mutant.target->Name() == regression.mutant; });
  if (found == AllMutants().end()) throw std::runtime_error("no mutant " + regression.mutant);
  return *found;
}

using tests::Parsed;

Judgement Judged(const Target& target, const Problem& problem) {
  const Result<Judgement> judgement = Judge(target, problem);
  EXPECT_TRUE(judgement) << judgement.error().message;
  return judgement ? *judgement : Judgement();
}

TEST(Regressions, AreFactsWithALink) {
  EXPECT_GE(Regressions().size(), 20u);
  std::set<std::string> links;
  for (const Regression& regression : Regressions()) {
    EXPECT_TRUE(links.insert(regression.link).second) << regression.link;
    EXPECT_THAT(regression.link,
                testing::MatchesRegex("https://github.com/[^/]+/[^/]+/(issues|pull)/[0-9]+"));
    EXPECT_FALSE(regression.problems.empty()) << regression.link;
    for (const std::string& line : regression.problems) EXPECT_EQ(Parsed(line).ToString(), line);
  }
}

TEST(Regressions, TheReferencePassesThem) {
  for (const Regression& regression : Regressions()) {
    for (const std::string& line : regression.problems) {
      EXPECT_TRUE(Judged(ReferenceTarget(), Parsed(line)).Passed()) << line;
    }
  }
}

// Every mutant made from a report has an entry.
TEST(Regressions, WhatWasReportedFailsThemAndIsNamed) {
  for (const Regression& regression : Regressions()) {
    const Mutant& mutant = MutantOf(regression);
    bool is_named = false;
    for (const std::string& line : regression.problems) {
      const Judgement judgement = Judged(*mutant.target, Parsed(line));
      EXPECT_FALSE(judgement.Passed()) << regression.link << ": " << line;
      EXPECT_GT(judgement.comparison.by_cause[static_cast<size_t>(mutant.cause)], 0) << line;
      is_named = is_named || std::ranges::any_of(judgement.comparison.listed, [&](const Difference& d) {
                   return d.cause == mutant.cause && d.detail.find(regression.words) != std::string::npos;
                 });
    }
    EXPECT_TRUE(is_named) << regression.link << ": no output is said to be '" << regression.words << "'";
  }
}

class RegressionsOn : public tests::OnEachIsa<> {};

TEST_P(RegressionsOn, OurKernelsPassThem) {
  for (const Regression& regression : Regressions()) {
    for (const std::string& line : regression.problems) {
      Problem problem = Parsed(line);
      problem.isa = ThisIsa();
      SCOPED_TRACE(problem.ToString());  // intact verify replay '<line>'
      tests::ExpectItsModel(problem);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, RegressionsOn, testing::Combine(testing::ValuesIn(core::kIsaLadder)),
                         [](const auto& isa) {
                           return std::string(intact_isa_name(std::get<0>(isa.param)));
                         });

}  // namespace
}  // namespace intact::verify
