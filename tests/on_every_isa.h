// The fixtures of the differential tests: an ISA, native or emulated, a mode and a fill.
#ifndef INTACT_TESTS_ON_EVERY_ISA_H_
#define INTACT_TESTS_ON_EVERY_ISA_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string_view>
#include <tuple>

#include "emulator/emulator.h"
#include "tests/emulated_isas.h"
#include "tests/expect_model.h"
#include "tests/require_isas.h"
#include "tests/tiles_target.h"
#include "verify/problem.h"

namespace intact::tests {

inline const auto* const kEmulatedIsas = ::testing::AddGlobalTestEnvironment(new EmulatedIsas);

/// Skips what is not here; what is emulated must be, and nothing else.
template <class... Others>
class OnEachIsa : public ::testing::TestWithParam<std::tuple<intact_isa, Others...>> {
 protected:
  static intact_isa ThisIsa() { return std::get<0>(OnEachIsa::GetParam()); }

  void SetUp() override {
    if (intact_isa_available(ThisIsa()) == 0) INTACT_SKIP_ISA(intact_isa_name(ThisIsa()));
    emulated_before_ = emulator::ScopedEmulator::Count();
  }

  void TearDown() override {
    if (::testing::Test::IsSkipped()) return;
    const uint64_t emulated = emulator::ScopedEmulator::Count() - emulated_before_;
    if (!EmulatedIsas::Has(ThisIsa()) || EmulatedIsas::IsWhollyEmulated(ThisIsa())) {
      EXPECT_EQ(emulated > 0, EmulatedIsas::Has(ThisIsa())) << emulated << " instructions";
    }
    EXPECT_EQ(emulator::ScopedEmulator::ConfiguredThreads(), 0) << "a kernel left its tiles configured";
  }

 private:
  uint64_t emulated_before_ = 0;
};

class OnEveryIsa : public OnEachIsa<intact_mode, verify::Fill> {
 protected:
  // The asked ISA, mode and fill on a problem given by its line.
  static verify::Problem OnThis(std::string_view line) {
    verify::Problem problem = Parsed(line);
    std::tie(problem.isa, problem.mode, problem.fill) = GetParam();
    return problem;
  }

  // By the plan's choice of kernels, and by tiles wherever there are any.
  static void ExpectItsModel(const verify::Problem& problem) {
    tests::ExpectItsModel(problem);
    if (problem.isa == INTACT_ISA_AMX_INT8) tests::ExpectItsModel(problem, TilesTarget());
  }
};

}  // namespace intact::tests
#endif  // INTACT_TESTS_ON_EVERY_ISA_H_
