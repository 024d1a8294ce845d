// Executes in software what the CPU at hand lacks, so that kernels for all ISAs can be tested on any machine
// with AVX2. The CPU refuses such an instruction by SIGILL; the handler
// carries it out on the registers that the kernel saved, and goes on with the instructions behind it until
// the function returns:
//
//   emitted function ──SIGILL──► State::Load() ► Interpret() ► State::Store() ──► its caller
//
// What is not known to the interpreter is left to the CPU, where registers hold nothing that it lacks. It is
// slow (some 10 ns an instruction, microseconds a call), and for tests and the verifier only.
//
// Emulated: dot products of bytes, EVEX-encoded instructions and opmasks, as far as vector_operations.cc and
// mask_operations.cc list them; LDTILECFG, STTILECFG, TILERELEASE, TILEZERO,
// TILELOADD, TILELOADDT1, TILESTORED, TDPBSSD, TDPBSUD, TDPBUSD, TDPBUUD. A CPU that has an instruction
// executes it itself, and nothing here runs, but for those that follow a refused one.
#ifndef INTACT_EMULATOR_EMULATOR_H_
#define INTACT_EMULATOR_EMULATOR_H_

#include <cstdint>
#include <string>

#include "core/isas.h"

namespace intact::emulator {

/// While one of these lives, the process has the instructions above. They may nest and be used from many
/// threads; each thread has tiles of its own, as on the CPU. A SIGILL of any other origin goes to the handler
/// that was installed before.
///
/// Where the CPU would raise #UD or #GP (say, for tiles whose shapes do not match), the thread goes on, and
/// TakeFault() tells of it. So it does of an unknown instruction among those of AVX-512 on a CPU that lacks
/// their registers; one that the CPU does not know either ends the process.
class ScopedEmulator {
 public:
  ScopedEmulator();
  ~ScopedEmulator();
  ScopedEmulator(const ScopedEmulator&) = delete;
  ScopedEmulator& operator=(const ScopedEmulator&) = delete;

  /// Instructions of the extensions above that were carried out in this process so far, by all threads; the
  /// others between them do not count.
  static uint64_t Count();

  /// Threads of this process whose tiles are configured now, those that ended so included. A kernel that
  /// returns leaves none behind.
  static int64_t ConfiguredThreads();

  /// The first fault since the last call, e.g. "TDPBUSD: #UD: no tiles are configured"; "" if there was none.
  static std::string TakeFault();
};

/// The ISAs that this machine lacks and the emulator has: none without AVX2.
core::IsaSet MissingIsas();
/// Lets plans choose MissingIsas() for the rest of the process. They run only while a ScopedEmulator lives.
/// Returns them.
core::IsaSet AddMissingIsas();

}  // namespace intact::emulator
#endif  // INTACT_EMULATOR_EMULATOR_H_
