#include "tests/emulator/interpreter.h"

#include <fmt/format.h>
#include <immintrin.h>

#include <cstring>
#include <iterator>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tests/emulator/decoder.h"
#include "tests/emulator/general_operations.h"
#include "tests/emulator/instruction.h"
#include "tests/emulator/mask_operations.h"
#include "tests/emulator/tile_operations.h"
#include "tests/emulator/vector_operations.h"

namespace intact::emulator {
namespace {

constexpr size_t kMostInstructions = 256;  // of a block
constexpr size_t kMostBlocks = 1 << 14;

const uint8_t* CodeAt(uint64_t address) { return reinterpret_cast<const uint8_t*>(address); }

/// Nothing if it is not known.
std::optional<Instruction> Find(uint64_t address) {
  std::optional<Instruction> in = Decode(CodeAt(address));
  if (!in) return std::nullopt;
  for (const auto find : {FindGeneralOperation, FindTileOperation, FindMaskOperation, FindVectorOperation}) {
    if (find(&*in)) return in;
  }
  return std::nullopt;
}

/// Instructions that follow each other, up to a branch, or one that is not known.
struct Block {
  std::vector<Instruction> instructions;
  std::vector<uint8_t> bytes;
  uint64_t end = 0;       // address
  uint64_t emulated = 0;  // instructions of the emulated extensions
  uint64_t call = 0;      // in which its bytes were last compared

  explicit Block(uint64_t address) : end(address) {
    while (instructions.size() < kMostInstructions) {
      const std::optional<Instruction> in = Find(end);
      if (!in) break;
      instructions.push_back(*in);
      emulated += in->is_emulated ? 1 : 0;
      end = in->next;
      if (in->is_branch) break;
    }
    bytes.assign(CodeAt(address), CodeAt(end));
  }
  bool IsStillAt(uint64_t address) const {
    return std::memcmp(bytes.data(), CodeAt(address), bytes.size()) == 0;
  }
};

class Blocks {
 public:
  /// Code does not change within a call.
  void BeginCall() {
    ++call_;
    if (blocks_.size() > kMostBlocks) blocks_.clear();
  }

  const Block& At(uint64_t address) {
    const auto [found, is_new] = blocks_.try_emplace(address, address);
    Block& block = found->second;
    if (block.call == call_) return block;
    // One that was empty may have been followed by other bytes.
    if (!is_new && (block.instructions.empty() || !block.IsStillAt(address))) block = Block(address);
    block.call = call_;
    return block;
  }

 private:
  std::unordered_map<uint64_t, Block> blocks_;
  uint64_t call_ = 0;
};

thread_local Blocks blocks;

/// While it lives, float operations round as those of the interrupted function do.
class ScopedMxcsr {
 public:
  explicit ScopedMxcsr(State* state) : state_(state), saved_(_mm_getcsr()) { _mm_setcsr(state->mxcsr); }
  ~ScopedMxcsr() {
    state_->mxcsr = _mm_getcsr();
    _mm_setcsr(saved_);
  }
  ScopedMxcsr(const ScopedMxcsr&) = delete;
  ScopedMxcsr& operator=(const ScopedMxcsr&) = delete;

 private:
  State* state_;
  uint32_t saved_;
};

}  // namespace

void Interpret(State* state) {
  const ScopedMxcsr mxcsr(state);
  blocks.BeginCall();
  while (!state->must_stop) {
    const Block& block = blocks.At(state->rip);
    if (block.instructions.empty()) return;
    state->rip = block.end;  // unless a branch is taken
    for (const Instruction& in : block.instructions) in.execute(*state, in);
    state->emulated += block.emulated;
  }
}

std::string BytesAt(uint64_t address) {
  constexpr int kFirst = 6;  // of an unknown encoding
  const std::optional<Instruction> in = Decode(CodeAt(address));
  const int count = in ? in->length : kFirst;
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += fmt::format("{}{:02x}", i == 0 ? "" : " ", CodeAt(address)[i]);
  }
  return text;
}

}  // namespace intact::emulator
