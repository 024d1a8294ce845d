// Fixtures of the differential tests: an ISA, native or emulated, a mode and a fill.
#ifndef INTACT_TESTS_SUPPORT_ON_EVERY_ISA_H_
#define INTACT_TESTS_SUPPORT_ON_EVERY_ISA_H_

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/isas.h"
#include "emulator/emulator.h"
#include "tests/support/emulated_isas.h"
#include "tests/support/expect_model.h"
#include "tests/support/long.h"
#include "tests/support/require_isas.h"
#include "tests/support/sanitized.h"
#include "tests/support/scoped_costs.h"
#include "tests/support/tiles_target.h"
#include "verify/explain/audit.h"
#include "verify/problem/problem.h"

namespace intact::tests {

inline const auto* const kEmulatedIsas = ::testing::AddGlobalTestEnvironment(new EmulatedIsas);

/// Skips ISAs that are not available. An ISA must be emulated if and only if the CPU lacks it. Emulated tiles
/// cost nothing, or small problems would not run on them.
template <class... Others>
class OnEachIsa : public ::testing::TestWithParam<std::tuple<intact_isa, Others...>> {
 protected:
  static intact_isa ThisIsa() { return std::get<0>(OnEachIsa::GetParam()); }

  void SetUp() override {
    if (intact_isa_available(ThisIsa()) == 0) INTACT_SKIP_ISA(intact_isa_name(ThisIsa()));
    if (EmulatedIsas::Has(ThisIsa()) && kernels::UsesTiles(static_cast<core::Isa>(ThisIsa()))) {
      costs_.emplace(CostsOfFreeTiles());
    }
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
  std::optional<ScopedCosts> costs_;
  uint64_t emulated_before_ = 0;
};

class OnEveryIsa : public OnEachIsa<intact_mode, verify::Fill> {
 protected:
  // The problem of a line, on this ISA, mode and fill.
  static verify::Problem OnThis(std::string_view line) {
    verify::Problem problem = Parsed(line);
    std::tie(problem.isa, problem.mode, problem.fill) = GetParam();
    return problem;
  }

  // Whether case `number` of a product belongs to the share of this ISA, mode and fill. Quick tests leave the
  // other cases to other fills; long tests take all. Emulation takes microseconds per instruction, so it gets
  // one seventh of that. Both divisors have no common factor with the factors of the products.
  static bool IsInShare(int number) {
    const auto& [isa, mode, fill] = GetParam();
    const int step = (tests::IsLong() ? 1 : 11) * (EmulatedIsas::Has(isa) ? 7 : 1);
    return (number + static_cast<int>(fill)) % step == 0;
  }

  // Runs the plan's choice of kernels, and tiles if the ISA has them.
  static void ExpectItsModel(const verify::Problem& problem) {
    tests::ExpectItsModel(problem);
    if (problem.isa == INTACT_ISA_AMX_INT8) tests::ExpectItsModel(problem, TilesTarget());
  }
};

/// ISAs × modes × fills for quick tests: each ISA with each fill and with each mode, each fill with each
/// mode. Under sanitizers, which check memory and not values: each ISA with each mode.
inline std::vector<std::tuple<intact_isa, intact_mode, verify::Fill>> QuickCases() {
  constexpr std::array kModes = {INTACT_EXACT, INTACT_SATURATING};
  const std::span<const verify::Fill> fills = verify::AllFills();
  std::vector<std::tuple<intact_isa, intact_mode, verify::Fill>> cases;
  size_t i = 0;
  for (const intact_isa isa : core::kIsaLadder) {
    if (kSanitized) {
      for (const intact_mode mode : kModes) cases.emplace_back(isa, mode, fills[i++ % fills.size()]);
      continue;
    }
    for (const verify::Fill fill : fills) cases.emplace_back(isa, kModes[i++ % 2], fill);
    i += 1 + fills.size() % 2;  // the next ISA gets each fill in the other mode
  }
  return cases;
}

/// "avx2_exact_uniform"
inline std::string NameOfCase(const ::testing::TestParamInfo<OnEveryIsa::ParamType>& test) {
  const auto& [isa, mode, fill] = test.param;
  return std::string(intact_isa_name(isa)) + "_" + std::string(verify::ToString(mode)) + "_" +
         std::string(verify::ToString(fill));
}

}  // namespace intact::tests

/// Instantiates a suite of OnEveryIsa: some cases as quick tests, all as long ones.
#define INTACT_INSTANTIATE_ON_EVERY_ISA(Suite)                                                          \
  INSTANTIATE_TEST_SUITE_P(All, Suite, ::testing::ValuesIn(::intact::tests::QuickCases()),              \
                           ::intact::tests::NameOfCase);                                                \
  INSTANTIATE_TEST_SUITE_P(Long, Suite,                                                                 \
                           ::testing::Combine(::testing::ValuesIn(::intact::core::kIsaLadder),          \
                                              ::testing::Values(INTACT_EXACT, INTACT_SATURATING),       \
                                              ::testing::ValuesIn(::intact::verify::AllFills().begin(), \
                                                                  ::intact::verify::AllFills().end())), \
                           ::intact::tests::NameOfCase)

#endif  // INTACT_TESTS_SUPPORT_ON_EVERY_ISA_H_
