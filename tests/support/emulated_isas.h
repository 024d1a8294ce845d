// Makes every ISA available: the emulator executes instructions that the CPU lacks. For the tests of a whole
// binary:
//
//   const auto* const kEmulatedIsas = ::testing::AddGlobalTestEnvironment(new tests::EmulatedIsas);
#ifndef INTACT_TESTS_SUPPORT_EMULATED_ISAS_H_
#define INTACT_TESTS_SUPPORT_EMULATED_ISAS_H_

#include <gtest/gtest.h>

#include <iostream>
#include <optional>

#include "core/isas.h"
#include "tests/support/checked_emulator.h"
#include "tests/support/printers.h"

namespace intact::tests {

class EmulatedIsas : public ::testing::Environment {
 public:
  /// Whether `isa` is available only by emulation.
  static bool Has(intact_isa isa) { return Emulated().Has(static_cast<core::Isa>(isa)); }

  /// Whether `isa` is emulated and multiplies u8 by s8 like another ISA, which other tests cover: an ISA with
  /// dot products of all signs differs from it for s8 activations only.
  static bool HasAllSigns(intact_isa isa) {
    return Has(isa) &&
           core::TraitsOf(static_cast<core::Isa>(isa)).dot_products == core::DotProducts::kAllSigns;
  }

  /// Whether `isa` is emulated with all its dot products. The CPU may have the dot products of u8 by s8.
  static bool IsWhollyEmulated(intact_isa isa) {
    return !HasAllSigns(isa) || (Has(INTACT_ISA_AVX_VNNI) && Has(INTACT_ISA_AVX512_VNNI));
  }

  void SetUp() override {
    Emulated() = emulator::AddMissingIsas();
    if (!Emulated().Empty()) std::cout << "emulated here: " << Emulated().ToString() << "\n";
    emulator_.emplace();
  }

  void TearDown() override {
    emulator_.reset();
    EXPECT_EQ(emulator::ScopedEmulator::ConfiguredThreads(), 0) << "a kernel left its tiles configured";
  }

 private:
  static core::IsaSet& Emulated() {
    static core::IsaSet isas;
    return isas;
  }

  std::optional<CheckedEmulator> emulator_;
};

}  // namespace intact::tests
#endif  // INTACT_TESTS_SUPPORT_EMULATED_ISAS_H_
