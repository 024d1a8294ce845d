// Executes in software the instructions that the CPU lacks, so that kernels for all ISAs can be tested on any
// machine with AVX2. The CPU raises SIGILL at such an instruction. The handler executes it on the registers
// that the operating system saved, and executes the following instructions until the function returns:
//
//   emitted function ──SIGILL──► State::Load() ► Interpret() ► State::Store() ──► its caller
//
// An instruction that the interpreter does not know is left to the CPU, unless registers that the CPU lacks
// hold values. The emulator is slow (some 10 ns for an instruction, microseconds for a call). It is for tests
// and the verifier only.
//
// Emulated: dot products of bytes, EVEX-encoded instructions and opmasks, as far as vector_operations.cc and
// mask_operations.cc list them; LDTILECFG, STTILECFG, TILERELEASE, TILEZERO, TILELOADD, TILELOADDT1,
// TILESTORED, TDPBSSD, TDPBSUD, TDPBUSD, TDPBUUD. The CPU executes every instruction that it has, except
// between a SIGILL and the return of the function.
#ifndef INTACT_EMULATOR_EMULATOR_H_
#define INTACT_EMULATOR_EMULATOR_H_

#include <cstdint>
#include <string>

#include "core/isas.h"

namespace intact::emulator {

/// While an object lives, the process has the instructions above. Objects may nest, and many threads may use
/// the instructions; each thread has its own tiles, as on the CPU. A SIGILL of any other origin goes to the
/// handler that was installed before.
///
/// If the CPU would raise #UD or #GP (say, for tiles whose shapes do not match), the thread continues, and
/// TakeFault() describes the fault. An instruction that the emulator does not know is a fault too, if
/// registers that the CPU lacks hold values. Otherwise the CPU executes the instruction. If the CPU does not
/// know it either, the process ends.
class ScopedEmulator {
 public:
  ScopedEmulator();
  ~ScopedEmulator();
  ScopedEmulator(const ScopedEmulator&) = delete;
  ScopedEmulator& operator=(const ScopedEmulator&) = delete;

  /// How many instructions of the extensions above the emulator has executed, in all threads of this process.
  /// Other instructions between them do not count.
  static uint64_t Count();

  /// How many threads of this process have configured tiles now, including threads that have ended. A kernel
  /// releases its tiles before it returns.
  static int64_t ConfiguredThreads();

  /// Sets what is called, in the signal handler, at an instruction that neither the emulator nor the CPU can
  /// execute: to end the process with `why`. UD2, which programs trap with, is none. null: as described above.
  static void SetLimit(void (*at_limit)(const std::string& why));

  /// The first fault since the last call, e.g. "TDPBUSD: #UD: no tiles are configured"; "" if there was none.
  static std::string TakeFault();
};

/// The ISAs that this machine lacks and the emulator has; none without AVX2.
core::IsaSet MissingIsas();
/// Lets plans choose MissingIsas() for the rest of the process, and returns them. Their kernels run only
/// while a ScopedEmulator lives.
core::IsaSet AddMissingIsas();

}  // namespace intact::emulator
#endif  // INTACT_EMULATOR_EMULATOR_H_
