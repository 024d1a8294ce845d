#include "tests/emulator/emulator.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ucontext.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "tests/emulator/tiles.h"
#include "tests/emulator/vex.h"
#include "tests/emulator/xstate.h"

// The handler runs where emitted code stands at an instruction, never inside the C library, so it may
// allocate and lock like any function.

namespace intact::emulator {
namespace {

constexpr uint8_t kOpcodeTileConfig = 0x49;
constexpr uint8_t kOpcodeTileMove = 0x4B;
constexpr uint8_t kOpcodeVectorDot = 0x50;
constexpr uint8_t kOpcodeTileDot = 0x5E;

std::atomic<uint64_t> emulated_count = 0;
std::atomic<int64_t> configured_threads = 0;
std::mutex mutex;                  // guards what follows
int emulators = 0;                 // alive
std::string first_fault;           // not yet taken
struct sigaction previous_action;  // written before our handler is installed, constant while it is

thread_local Tiles tiles;

/// An instruction's name, and why the CPU would refuse it in this state ("" if it would not).
struct Outcome {
  const char* name;
  std::string fault;
};

/// Whether the bytes that a dot product multiplies are signed. Vectors and tiles have the same prefixes for
/// the same signs.
struct Signs {
  bool first, second;
};

Signs SignsOf(Prefix prefix) {
  switch (prefix) {
    case Prefix::kF2:
      return {true, true};
    case Prefix::kF3:
      return {true, false};
    case Prefix::k66:
      return {false, true};
    default:
      return {false, false};
  }
}

int Value(uint8_t byte, bool is_signed) { return is_signed ? static_cast<int8_t>(byte) : int{byte}; }

/// dst += Σ of four products of bytes, in each int32 lane, wrapping.
Ymm DotBytes(Ymm dst, const Ymm& first, const Ymm& second, Signs signs, size_t bytes) {
  for (size_t lane = 0; lane < bytes; lane += 4) {
    uint32_t sum = 0;
    std::memcpy(&sum, &dst[lane], sizeof(sum));
    for (size_t i = lane; i < lane + 4; ++i) {
      sum += static_cast<uint32_t>(Value(first[i], signs.first) * Value(second[i], signs.second));
    }
    std::memcpy(&dst[lane], &sum, sizeof(sum));
  }
  return dst;
}

/// VPDPB{SS,SU,US,UU}D reg, vvvv, rm
std::optional<Outcome> VectorDot(const VexInstruction& instruction, ucontext_t* context) {
  std::optional<VectorState> registers = VectorState::Of(context);
  if (!registers) return std::nullopt;
  const size_t bytes = instruction.is_256 ? 32 : 16;
  const gregset_t& general = context->uc_mcontext.gregs;
  Ymm second = {};
  if (instruction.is_memory) {
    const uint64_t address = instruction.BaseAddress(general) + instruction.ScaledIndex(general);
    std::memcpy(second.data(), reinterpret_cast<const uint8_t*>(address), bytes);
  } else {
    second = registers->Read(instruction.rm);
  }
  Ymm result = DotBytes(registers->Read(instruction.reg), registers->Read(instruction.vvvv), second,
                        SignsOf(instruction.prefix), bytes);
  std::fill(result.begin() + static_cast<std::ptrdiff_t>(bytes), result.end(), uint8_t{0});
  registers->Write(instruction.reg, result);
  return Outcome{"VPDPB..D", ""};
}

/// LDTILECFG mem, STTILECFG mem, TILERELEASE, TILEZERO reg
std::optional<Outcome> TileConfig(const VexInstruction& instruction, const gregset_t& general) {
  if (!instruction.is_memory) {
    if (instruction.rm != 0) return std::nullopt;
    if (instruction.prefix == Prefix::kF2) return Outcome{"TILEZERO", tiles.Zero(instruction.reg)};
    if (instruction.prefix == Prefix::kNone && instruction.reg == 0)
      return Outcome{"TILERELEASE", tiles.Release()};
    return std::nullopt;
  }
  if (instruction.reg != 0) return std::nullopt;
  auto* memory =
      reinterpret_cast<uint8_t*>(instruction.BaseAddress(general) + instruction.ScaledIndex(general));
  if (instruction.prefix == Prefix::kNone) return Outcome{"LDTILECFG", tiles.LoadConfig(memory)};
  if (instruction.prefix == Prefix::k66) return Outcome{"STTILECFG", tiles.StoreConfig(memory)};
  return std::nullopt;
}

/// TILELOADD, TILELOADDT1, TILESTORED: reg and memory, where the SIB byte's index is the stride.
std::optional<Outcome> TileMove(const VexInstruction& instruction, const gregset_t& general) {
  if (!instruction.has_sib) return std::nullopt;
  auto* memory = reinterpret_cast<uint8_t*>(instruction.BaseAddress(general));
  const uint64_t stride = instruction.ScaledIndex(general);
  switch (instruction.prefix) {
    case Prefix::kF2:
      return Outcome{"TILELOADD", tiles.Load(instruction.reg, memory, stride)};
    case Prefix::k66:
      return Outcome{"TILELOADDT1", tiles.Load(instruction.reg, memory, stride)};
    case Prefix::kF3:
      return Outcome{"TILESTORED", tiles.Store(instruction.reg, memory, stride)};
    default:
      return std::nullopt;
  }
}

/// TDPB{SS,SU,US,UU}D reg, rm, vvvv
std::optional<Outcome> TileDot(const VexInstruction& instruction) {
  if (instruction.is_memory) return std::nullopt;
  const Signs signs = SignsOf(instruction.prefix);
  const char* const name =
      signs.first ? (signs.second ? "TDPBSSD" : "TDPBSUD") : (signs.second ? "TDPBUSD" : "TDPBUUD");
  return Outcome{
      name, tiles.DotProduct(instruction.reg, instruction.rm, instruction.vvvv, signs.first, signs.second)};
}

/// Carries out `instruction`, if it is one of ours.
std::optional<Outcome> Execute(const VexInstruction& instruction, ucontext_t* context) {
  if (instruction.w) return std::nullopt;
  if (instruction.opcode == kOpcodeVectorDot) return VectorDot(instruction, context);
  if (instruction.is_256) return std::nullopt;
  if (instruction.opcode == kOpcodeTileDot) return TileDot(instruction);
  if (instruction.vvvv != 0) return std::nullopt;
  if (instruction.opcode == kOpcodeTileConfig) return TileConfig(instruction, context->uc_mcontext.gregs);
  if (instruction.opcode == kOpcodeTileMove) return TileMove(instruction, context->uc_mcontext.gregs);
  return std::nullopt;
}

/// What would have happened without us.
void CallPrevious(int signal, siginfo_t* info, void* context) {
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
    previous_action.sa_sigaction(signal, info, context);
  } else if (previous_action.sa_handler == SIG_DFL || previous_action.sa_handler == SIG_IGN) {
    // The instruction is met again at return, and then it ends the process; a fault cannot be ignored.
    struct sigaction by_default = {};
    by_default.sa_handler = SIG_DFL;
    sigaction(signal, &by_default, nullptr);
  } else {
    previous_action.sa_handler(signal);
  }
}

void Handle(int signal, siginfo_t* info, void* opaque_context) {
  auto* context = static_cast<ucontext_t*>(opaque_context);
  greg_t& rip = context->uc_mcontext.gregs[REG_RIP];
  const auto instruction = DecodeVex0F38(reinterpret_cast<const uint8_t*>(rip));
  const bool was_configured = tiles.IsConfigured();
  const auto outcome = instruction ? Execute(*instruction, context) : std::nullopt;
  configured_threads += int64_t{tiles.IsConfigured()} - int64_t{was_configured};
  if (!outcome) {
    CallPrevious(signal, info, opaque_context);
    return;
  }
  rip += instruction->length;
  ++emulated_count;
  if (!outcome->fault.empty()) {
    const std::lock_guard lock(mutex);
    if (first_fault.empty()) first_fault = std::string(outcome->name) + ": " + outcome->fault;
  }
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
  {
    const std::lock_guard lock(mutex);
    if (--emulators > 0) return;
    sigaction(SIGILL, &previous_action, nullptr);
  }
  const std::string fault = TakeFault();
  EXPECT_EQ(fault, "") << "an emulated instruction faulted";
}

uint64_t ScopedEmulator::Count() { return emulated_count; }

int64_t ScopedEmulator::ConfiguredThreads() { return configured_threads; }

std::string ScopedEmulator::TakeFault() {
  const std::lock_guard lock(mutex);
  return std::exchange(first_fault, "");
}

}  // namespace intact::emulator
