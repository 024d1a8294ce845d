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

  /// Whether all dot products of an `isa` that is emulated are: AVX-VNNI-INT8 has AVX-VNNI's too, which the
  /// CPU may execute.
  static bool IsWhollyEmulated(intact_isa isa) {
    return isa != INTACT_ISA_AVX_VNNI_INT8 || Has(INTACT_ISA_AVX_VNNI);
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
