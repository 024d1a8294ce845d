// The fixture of the differential tests: an ISA, native or emulated, a mode and a fill.
#ifndef INTACT_TESTS_ON_EVERY_ISA_H_
#define INTACT_TESTS_ON_EVERY_ISA_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string_view>
#include <tuple>

#include "tests/emulated_isas.h"
#include "tests/emulator/emulator.h"
#include "tests/expect_model.h"
#include "tests/require_isas.h"
#include "tests/tiles_target.h"
#include "verify/problem.h"

namespace intact::tests {

inline const auto* const kEmulatedIsas = ::testing::AddGlobalTestEnvironment(new EmulatedIsas);

class OnEveryIsa : public ::testing::TestWithParam<std::tuple<intact_isa, intact_mode, verify::Fill>> {
 protected:
  void SetUp() override {
    const intact_isa isa = std::get<0>(GetParam());
    if (intact_isa_available(isa) == 0) INTACT_SKIP_ISA(intact_isa_name(isa));
    emulated_before_ = emulator::ScopedEmulator::Count();
  }

  void TearDown() override {
    if (IsSkipped()) return;
    const intact_isa isa = std::get<0>(GetParam());
    const uint64_t emulated = emulator::ScopedEmulator::Count() - emulated_before_;
    EXPECT_EQ(emulated > 0, EmulatedIsas::Has(isa)) << emulated << " instructions";
    EXPECT_EQ(emulator::ScopedEmulator::ConfiguredThreads(), 0) << "a kernel left its tiles configured";
  }

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

 private:
  uint64_t emulated_before_ = 0;
};

}  // namespace intact::tests
#endif  // INTACT_TESTS_ON_EVERY_ISA_H_
