#include "emulator/interpreter.h"

#include <fmt/format.h>
#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory_resource>
#include <new>
#include <optional>
#include <unordered_map>
#include <vector>

#include "emulator/decoder.h"
#include "emulator/general_operations.h"
#include "emulator/instruction.h"
#include "emulator/mask_operations.h"
#include "emulator/tile_operations.h"
#include "emulator/vector_operations.h"

namespace intact::emulator {
namespace {

constexpr size_t kMostInstructions = 256;  // longest block
constexpr size_t kMostBlocks = 1 << 14;

const uint8_t* CodeAt(uint64_t address) { return reinterpret_cast<const uint8_t*>(address); }

/// nullopt if the instruction is not known.
std::optional<Instruction> Find(uint64_t address) {
  std::optional<Instruction> in = emulator::Decode(CodeAt(address));
  if (!in) return std::nullopt;
  for (const auto find : {FindGeneralOperation, FindTileOperation, FindMaskOperation, FindVectorOperation}) {
    if (find(&*in)) return in;
  }
  return std::nullopt;
}

/// Memory from the operating system, because tests count the allocations of emulated functions.
class Pages final : public std::pmr::memory_resource {
 private:
  void* do_allocate(size_t bytes, size_t /*alignment*/) override {
    void* const pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    return pages;
  }
  void do_deallocate(void* pages, size_t bytes, size_t /*alignment*/) override { munmap(pages, bytes); }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }
};

/// Consecutive instructions, up to a branch or an unknown instruction.
struct Block {
  using allocator_type = std::pmr::polymorphic_allocator<>;

  std::pmr::vector<Instruction> instructions;
  std::pmr::vector<uint8_t> bytes;
  uint64_t end = 0;       // address
  uint64_t emulated = 0;  // instructions of the emulated extensions
  uint64_t call = 0;      // the last call that compared the block's bytes

  Block(uint64_t address, allocator_type allocator) : instructions(allocator), bytes(allocator) {
    Decode(address);
  }
  void Decode(uint64_t address) {
    instructions.clear();
    emulated = 0;
    end = address;
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
  /// Reads a page only if all bytes before it are unchanged. Otherwise the code may end before that page.
  bool IsStillAt(uint64_t address) const {
    constexpr size_t kPage = 4096;
    for (size_t i = 0; i < bytes.size();) {
      const size_t count = std::min(bytes.size() - i, kPage - (address + i) % kPage);
      if (std::memcmp(&bytes[i], CodeAt(address + i), count) != 0) return false;
      i += count;
    }
    return true;
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
    // An empty block has no bytes to compare.
    if (!is_new && (block.instructions.empty() || !block.IsStillAt(address))) block.Decode(address);
    block.call = call_;
    return block;
  }

 private:
  Pages pages_;
  std::pmr::unsynchronized_pool_resource memory_{&pages_};
  std::pmr::unordered_map<uint64_t, Block> blocks_{&memory_};
  uint64_t call_ = 0;
};

/// The blocks that this thread decoded. They are never freed: to register a destructor would allocate memory,
/// see Pages.
Blocks& ThreadBlocks() {
  thread_local Blocks* blocks = nullptr;
  if (blocks == nullptr) blocks = new (Pages().allocate(sizeof(Blocks))) Blocks;
  return *blocks;
}

/// While an object lives, float operations round as in the interrupted function.
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
  Blocks& blocks = ThreadBlocks();
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
  constexpr int kFirst = 6;  // bytes to show of an unknown encoding
  const std::optional<Instruction> in = emulator::Decode(CodeAt(address));
  const int count = in ? in->length : kFirst;
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += fmt::format("{}{:02x}", i == 0 ? "" : " ", CodeAt(address)[i]);
  }
  return text;
}

}  // namespace intact::emulator
