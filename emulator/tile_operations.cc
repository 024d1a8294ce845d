#include "emulator/tile_operations.h"

#include <array>
#include <iterator>
#include <string>
#include <utility>

#include "emulator/tiles.h"
#include "reference/models/operands.h"

namespace intact::emulator {
namespace {

thread_local Tiles tiles;

/// `Run` returns why the CPU would refuse the instruction, "" if it would not.
struct TileOperation {
  const char* name;
  Prefix prefix;
  uint8_t opcode;
  enum class Operands : uint8_t {
    kNone,           // ModRM is 11 000 000
    kTile,           // reg; ModRM.rm is 000
    kConfiguration,  // memory; ModRM.reg is 000
    kTileAndMemory,  // reg, and memory; the SIB byte's index is the stride
    kThreeTiles,     // reg, rm, vvvv
  } operands;
  std::string (*run)(State&, const Instruction&);
};

template <bool kFirstSigned, bool kSecondSigned>
std::string Dot(State& /*state*/, const Instruction& in) {
  return tiles.DotProduct(in.reg, in.rm, in.vvvv, kFirstSigned, kSecondSigned);
}

std::string Load(State& state, const Instruction& in) {
  return tiles.Load(in.reg, reinterpret_cast<const uint8_t*>(in.BaseAddress(state)), in.ScaledIndex(state));
}

std::string Store(State& state, const Instruction& in) {
  return tiles.Store(in.reg, reinterpret_cast<uint8_t*>(in.BaseAddress(state)), in.ScaledIndex(state));
}

std::string Zero(State& /*state*/, const Instruction& in) { return tiles.Zero(in.reg); }
std::string Release(State& /*state*/, const Instruction& /*in*/) { return tiles.Release(); }
std::string LoadConfig(State& state, const Instruction& in) { return tiles.LoadConfig(in.Memory(state)); }
std::string StoreConfig(State& state, const Instruction& in) { return tiles.StoreConfig(in.Memory(state)); }

using enum TileOperation::Operands;

constexpr TileOperation kOperations[] = {
    {"LDTILECFG", Prefix::kNone, 0x49, kConfiguration, LoadConfig},
    {"STTILECFG", Prefix::k66, 0x49, kConfiguration, StoreConfig},
    {"TILERELEASE", Prefix::kNone, 0x49, kNone, Release},
    {"TILEZERO", Prefix::kF2, 0x49, kTile, Zero},
    {"TILELOADD", Prefix::kF2, 0x4B, kTileAndMemory, Load},
    {"TILELOADDT1", Prefix::k66, 0x4B, kTileAndMemory, Load},
    {"TILESTORED", Prefix::kF3, 0x4B, kTileAndMemory, Store},
    {"TDPBSSD", Prefix::kF2, 0x5E, kThreeTiles, Dot<true, true>},
    {"TDPBSUD", Prefix::kF3, 0x5E, kThreeTiles, Dot<true, false>},
    {"TDPBUSD", Prefix::k66, 0x5E, kThreeTiles, Dot<false, true>},
    {"TDPBUUD", Prefix::kNone, 0x5E, kThreeTiles, Dot<false, false>},
};

bool HasOperands(const Instruction& in, TileOperation::Operands operands) {
  switch (operands) {
    case kNone:
      return !in.is_memory && in.reg == 0 && in.rm == 0 && in.vvvv == 0;
    case kTile:
      return !in.is_memory && in.rm == 0 && in.vvvv == 0;
    case kConfiguration:
      return in.is_memory && in.reg == 0 && in.vvvv == 0;
    case kTileAndMemory:
      return in.has_sib && in.vvvv == 0;
    case kThreeTiles:
      return !in.is_memory;
  }
  return false;
}

template <size_t kNumber>
void Execute(State& state, const Instruction& in) {
  constexpr const TileOperation& kOperation = kOperations[kNumber];
  const std::string why = kOperation.run(state, in);
  if (!why.empty()) state.Fault(kOperation.name, why);
}

/// One for each operation.
constexpr auto kExecute = []<size_t... kNumbers>(std::index_sequence<kNumbers...>) {
  return std::to_array<void (*)(State&, const Instruction&)>({Execute<kNumbers>...});
}
(std::make_index_sequence<std::size(kOperations)>());

}  // namespace

bool FindTileOperation(Instruction* instruction) {
  Instruction& in = *instruction;
  if (in.encoding != Encoding::kVex || in.map != Map::k0F38 || in.w || in.vector_bytes != 16) return false;
  for (size_t i = 0; i < std::size(kOperations); ++i) {
    const TileOperation& operation = kOperations[i];
    if (operation.opcode != in.opcode || operation.prefix != in.prefix) continue;
    if (!HasOperands(in, operation.operands)) continue;
    in.execute = kExecute[i];
    in.is_emulated = true;
    return true;
  }
  return false;
}

bool AreTilesConfigured() { return tiles.IsConfigured(); }

}  // namespace intact::emulator
