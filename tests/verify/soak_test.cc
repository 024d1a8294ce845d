#include "verify/studies/soak.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "tests/support/in_child.h"

namespace intact::verify {
namespace {

constexpr int64_t kRuns = 40;

uint64_t DigestOf(int workers) {
  SoakOptions options;
  options.workers = workers;
  options.most_runs = kRuns;
  return RunSoak(options, [](const SoakState&) { return true; }).digest;
}

// Only none, one or a few of the requested workers can be made.
TEST(Soak, RunsOnTheThreadsThatThereAre) {
  const std::string expected = tests::InChild([] { return std::to_string(DigestOf(2)); });
  for (const int most : {0, 2, 4}) {
    EXPECT_EQ(tests::InChild([most]() -> std::string {
                if (const std::string why = tests::LimitProcesses(most); !why.empty()) return why;
                return std::to_string(DigestOf(8));
              }),
              expected)
        << most;
  }
}

TEST(Soak, LearnsWhenToStopWithoutThreads) {
  EXPECT_EQ(tests::InChild([]() -> std::string {
              if (const std::string why = tests::LimitProcesses(0); !why.empty()) return why;
              int64_t runs = 0;
              const SoakState state = RunSoak({}, [&runs](const SoakState& now) {
                runs = now.runs;
                return false;
              });
              return state.differences == 0 && runs > 0 && state.runs == runs ? "" : "not stopped";
            }),
            "");
}

}  // namespace
}  // namespace intact::verify
