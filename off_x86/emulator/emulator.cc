// The emulator executes x86 instructions on the registers of an x86-64 CPU, so it has no ISAs here.
#include "emulator/emulator.h"

namespace intact::emulator {

ScopedEmulator::ScopedEmulator() = default;
ScopedEmulator::~ScopedEmulator() = default;
uint64_t ScopedEmulator::Count() { return 0; }
int64_t ScopedEmulator::ConfiguredThreads() { return 0; }
void ScopedEmulator::SetLimit(void (* /*limit*/)(const std::string& why)) {}
std::string ScopedEmulator::TakeFault() { return {}; }

core::IsaSet MissingIsas() { return {}; }
core::IsaSet AddMissingIsas() { return {}; }

}  // namespace intact::emulator
