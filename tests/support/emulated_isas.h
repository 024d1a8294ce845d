// Every ISA on machines that lack it: what the CPU does not execute, the emulator does. For the tests of a
// whole binary:
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
  /// Whether `isa` is there only because of this.
  static bool Has(intact_isa isa) { return Emulated().Has(static_cast<core::Isa>(isa)); }

  /// Whether `isa` is emulated and multiplies u8 by s8 as another ISA does, which the other tests of that ISA
  /// see: an ISA with dot products of all signs differs from it in s8 activations alone.
  static bool HasAllSigns(intact_isa isa) {
    return Has(isa) &&
           core::TraitsOf(static_cast<core::Isa>(isa)).dot_products == core::DotProducts::kAllSigns;
  }

  /// Whether all dot products of an `isa` that is emulated are: this CPU may have those of u8 by s8.
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
