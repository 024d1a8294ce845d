#include "emulator/emulator.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/ucontext.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "core/isas.h"
#include "emulator/interpreter.h"
#include "emulator/state.h"
#include "emulator/tile_operations.h"
#include "jit/isa.h"

// The handler interrupts generated code at an instruction, never the C library. So it may allocate and lock
// like any function.

namespace intact::emulator {
namespace {

std::atomic<uint64_t> emulated_count = 0;
std::atomic<int64_t> configured_threads = 0;
std::mutex mutex;         // guards what follows
int emulators = 0;        // objects that are alive
std::string first_fault;  // not yet taken
std::atomic<void (*)(const std::string&)> at_limit = nullptr;
struct sigaction previous_action;  // written before our handler is installed, constant while it is

void Record(const std::string& fault) {
  const std::lock_guard lock(mutex);
  if (first_fault.empty()) first_fault = fault;
}

void ReachLimit(uint64_t rip, const char* why) {
  constexpr std::array<uint8_t, 2> kUd2 = {0x0f, 0x0b};
  if (std::memcmp(reinterpret_cast<const uint8_t*>(rip), kUd2.data(), kUd2.size()) == 0) return;
  if (const auto call = at_limit.load()) call(fmt::format("the instruction {} {}", BytesAt(rip), why));
}

/// Handles the signal as without the emulator.
void CallPrevious(int signal, siginfo_t* info, ucontext_t* context) {
  ReachLimit(static_cast<uint64_t>(context->uc_mcontext.gregs[REG_RIP]),
             "is known neither to the CPU nor to the emulator");
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
    previous_action.sa_sigaction(signal, info, context);
  } else if (previous_action.sa_handler == SIG_DFL || previous_action.sa_handler == SIG_IGN) {
    const auto rip = static_cast<uint64_t>(context->uc_mcontext.gregs[REG_RIP]);
    fmt::print(stderr, "neither the CPU nor the emulator knows the instruction {}\n", BytesAt(rip));
    // After the return, the instruction raises the signal again and ends the process. It cannot be ignored.
    struct sigaction by_default = {};
    by_default.sa_handler = SIG_DFL;
    sigaction(signal, &by_default, nullptr);
  } else {
    previous_action.sa_handler(signal);
  }
}

void Handle(int signal, siginfo_t* info, void* opaque_context) {
  auto* context = static_cast<ucontext_t*>(opaque_context);
  std::optional<State> state = State::Load(context);
  const uint64_t begin = static_cast<uint64_t>(context->uc_mcontext.gregs[REG_RIP]);
  const bool was_configured = AreTilesConfigured();
  if (state) Interpret(&*state);
  if (!state || state->rip == begin) {
    CallPrevious(signal, info, context);
    return;
  }
  if (!state->has_returned && state->HoldsMoreThan(context)) {
    ReachLimit(state->rip, "is not known to the emulator, and the CPU lacks registers that hold values");
    state->Fault(BytesAt(state->rip), "not known to the emulator; the CPU lacks registers that hold values");
  }
  state->Store(context);
  configured_threads += int64_t{AreTilesConfigured()} - int64_t{was_configured};
  emulated_count += state->emulated;
  if (!state->fault.empty()) Record(state->fault);
}

}  // namespace

ScopedEmulator::ScopedEmulator() {
  const std::lock_guard lock(mutex);
  if (emulators++ > 0) return;
  struct sigaction action = {};
  action.sa_sigaction = Handle;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGILL, nullptr, &previous_action);
  sigaction(SIGILL, &action, nullptr);
}

ScopedEmulator::~ScopedEmulator() {
  const std::lock_guard lock(mutex);
  if (--emulators == 0) sigaction(SIGILL, &previous_action, nullptr);
}

void ScopedEmulator::SetLimit(void (*limit)(const std::string& why)) { at_limit = limit; }

uint64_t ScopedEmulator::Count() { return emulated_count; }

int64_t ScopedEmulator::ConfiguredThreads() { return configured_threads; }

std::string ScopedEmulator::TakeFault() {
  const std::lock_guard lock(mutex);
  return std::exchange(first_fault, "");
}

core::IsaSet MissingIsas() {
  core::IsaSet missing;
  const core::IsaSet here = jit::HardwareIsas();
  for (const core::Isa isa : core::kAllIsas) {
    if (!here.Has(isa) && here.Has(core::Isa::kAvx2)) missing.Add(isa);
  }
  return missing;
}

core::IsaSet AddMissingIsas() {
  const core::IsaSet missing = MissingIsas();
  for (const core::Isa isa : core::kAllIsas) {
    if (missing.Has(isa)) jit::AddEmulatedIsa(isa);
  }
  return missing;
}

}  // namespace intact::emulator
