#include "emulator/state.h"

#include <algorithm>
#include <span>

namespace intact::emulator {
namespace {

constexpr std::array kGeneralOrder = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                      REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

}  // namespace

void State::Fault(std::string_view instruction, std::string_view why) {
  if (fault.empty()) fault.append(instruction).append(": ").append(why);
}

std::optional<State> State::Load(ucontext_t* context) {
  const std::optional<VectorState> saved = VectorState::Of(context);
  if (!saved) return std::nullopt;
  std::optional<State> state(std::in_place);
  const gregset_t& registers = context->uc_mcontext.gregs;
  for (size_t i = 0; i < kGeneralOrder.size(); ++i) {
    state->general[i] = static_cast<uint64_t>(registers[kGeneralOrder[i]]);
  }
  constexpr uint64_t kRedZone = 128;
  state->stack_limit = state->general[kStackPointer] - kRedZone;
  state->rip = static_cast<uint64_t>(registers[REG_RIP]);
  state->flags = static_cast<uint64_t>(registers[REG_EFL]);
  state->mxcsr = context->uc_mcontext.fpregs->mxcsr;
  const int count = saved->HasAvx512() ? 32 : 16;
  for (int i = 0; i < count; ++i) state->vectors[static_cast<size_t>(i)] = saved->Read(i);
  if (!saved->HasAvx512()) return state;
  for (int i = 0; i < 8; ++i) state->masks[static_cast<size_t>(i)] = saved->ReadMask(i);
  return state;
}

void State::Store(ucontext_t* context) const {
  gregset_t& registers = context->uc_mcontext.gregs;
  for (size_t i = 0; i < kGeneralOrder.size(); ++i) {
    registers[kGeneralOrder[i]] = static_cast<greg_t>(general[i]);
  }
  registers[REG_RIP] = static_cast<greg_t>(rip);
  registers[REG_EFL] = static_cast<greg_t>(flags);
  context->uc_mcontext.fpregs->mxcsr = mxcsr;
  std::optional<VectorState> saved = VectorState::Of(context);
  const int count = saved->HasAvx512() ? 32 : 16;
  for (int i = 0; i < count; ++i) saved->Write(i, vectors[static_cast<size_t>(i)]);
  if (!saved->HasAvx512()) return;
  for (int i = 0; i < 8; ++i) saved->WriteMask(i, masks[static_cast<size_t>(i)]);
}

bool State::HoldsMoreThan(ucontext_t* context) const {
  if (VectorState::Of(context)->HasAvx512()) return false;
  const auto is_zero = [](std::span<const uint8_t> bytes) {
    return std::ranges::all_of(bytes, [](uint8_t byte) { return byte == 0; });
  };
  for (size_t i = 0; i < vectors.size(); ++i) {
    const std::span<const uint8_t> bytes = vectors[i].bytes;
    if (!is_zero(i < 16 ? bytes.last<32>() : bytes)) return true;
  }
  return std::ranges::any_of(masks, [](uint64_t mask) { return mask != 0; });
}

}  // namespace intact::emulator
