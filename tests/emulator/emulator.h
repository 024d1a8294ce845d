// Executes in software what the CPU at hand lacks, so that kernels for AVX-VNNI, AVX-VNNI-INT8 and AMX can be
// tested on any machine with AVX2: the CPU refuses such an instruction by SIGILL, the handler carries it out
// on the registers that the kernel saved, and lets the thread go on behind it. It is slow (microseconds per
// instruction), and for tests only.
//
// Emulated: VEX-encoded VPDPBUSD, VPDPBSSD, VPDPBSUD and VPDPBUUD; LDTILECFG, STTILECFG, TILERELEASE,
// TILEZERO, TILELOADD, TILELOADDT1, TILESTORED, TDPBSSD, TDPBSUD, TDPBUSD, TDPBUUD. A CPU that has an
// instruction executes it itself, and nothing here runs.
#ifndef INTACT_TESTS_EMULATOR_EMULATOR_H_
#define INTACT_TESTS_EMULATOR_EMULATOR_H_

#include <cstdint>
#include <string>

namespace intact::emulator {

/// While one of these lives, the process has the instructions above. They may nest and be used from many
/// threads; each thread has tiles of its own, as on the CPU. A SIGILL of any other origin goes to the handler
/// that was installed before.
///
/// Where the CPU would raise #UD or #GP on the state of the tiles (say, shapes that do not match), the
/// instruction does nothing, the thread goes on, and the fault becomes a GoogleTest failure when the last
/// emulator ends.
class ScopedEmulator {
 public:
  ScopedEmulator();
  ~ScopedEmulator();
  ScopedEmulator(const ScopedEmulator&) = delete;
  ScopedEmulator& operator=(const ScopedEmulator&) = delete;

  /// Instructions emulated in this process so far, by all threads.
  static uint64_t Count();

  /// Threads of this process whose tiles are configured now, those that ended so included. A kernel that
  /// returns leaves none behind.
  static int64_t ConfiguredThreads();

  /// The first fault since the last call, e.g. "TDPBUSD: #UD: no tiles are configured"; "" if there was none.
  static std::string TakeFault();
};

}  // namespace intact::emulator
#endif  // INTACT_TESTS_EMULATOR_EMULATOR_H_
