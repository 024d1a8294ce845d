#include "kernels/codegen/scheduled_kernel.h"

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "core/isas.h"
#include "jit/assembler.h"
#include "jit/code_cache.h"
#include "jit/emitters/dot.h"
#include "jit/emitters/emitter.h"
#include "kernels/weights/schedule.h"

namespace intact::kernels {
namespace {

namespace x86 = asmjit::x86;
using jit::Gp;
using jit::Mem;
using jit::Vec;

// Permutations from lanes that alternate between two columns to one column after the other, and back.
alignas(64) constexpr std::array<std::array<int32_t, 8>, 2> kYmmPairs = {
    {{0, 2, 4, 6, 1, 3, 5, 7}, {0, 4, 1, 5, 2, 6, 3, 7}}};
alignas(64) constexpr std::array<std::array<int32_t, 16>, 2> kZmmPairs = {
    {{0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15},
     {0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15}}};

// For blocks that leave no register for ones.
alignas(64) constexpr std::array<int16_t, 32> kOnes = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                                       1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

// Items are prefetched at this distance, in bytes: strips larger than L1 or L2 come from L2, L3 or memory.
// Measured on a Xeon with AMX, with 12 layers of 768×3072 in turns, where L2 holds less than one layer: 128 rows
// take 0.74 times as long, 16 rows 0.58.
constexpr int kItemsAhead = 2048;
constexpr int kLineBytes = 64;

class ScheduledKernel {
 public:
  explicit ScheduledKernel(const ScheduledKernelSpec& spec)
      : spec_(spec),
        session_([this] { return spec_.Name(); }),
        registers_(jit::MakeRegisterFile(spec.isa)),
        emitter_(jit::MakeEmitter(spec.isa, session_.code(), registers_)) {}

  Result<jit::Code> Generate() {
    TakeRegisters();
    session_.Begin(registers_);
    code().mov(items_, Argument(offsetof(ScheduledKernelArgs, strips)));
    code().mov(strips_, Argument(offsetof(ScheduledKernelArgs, strip_count)));
    code().mov(compensation_, Argument(offsetof(ScheduledKernelArgs, compensation)));
    code().mov(strip_result_, Argument(offsetof(ScheduledKernelArgs, accumulators)));
    if (!spec_.IsVnni() && !has_ones_register_)
      code().mov(ones_pointer_, reinterpret_cast<uint64_t>(kOnes.data()));
    const asmjit::Label strip = code().newLabel();
    code().bind(strip);
    Strip();
    code().dec(strips_);
    code().jnz(strip);
    session_.End();
    return session_.Finish(registers_);
  }

 private:
  x86::Assembler& code() { return session_.code(); }
  Mem Argument(size_t member) const { return x86::ptr(registers_.Argument(), static_cast<int>(member)); }
  // Bytes of a register block in a quad of A, which equal those in a column of accumulators.
  int BlockBytes() const { return spec_.vectors * registers_.vector_bytes(); }
  bool IsPlanar() const { return spec_.rows == ScheduledKernelSpec::Rows::kPlanar; }
  bool IsPaired() const { return spec_.rows == ScheduledKernelSpec::Rows::kPaired; }
  int OffsetBytes() const { return IsPlanar() ? 4 : 2; }
  int ItemBytes() const { return OffsetBytes() + kQuad * spec_.strip_columns; }
  size_t Index(int vector, int column) const { return static_cast<size_t>(column) * spec_.vectors + vector; }
  // An item's vectors of weights, and of sums, for each vector of A.
  int Columns() const { return IsPaired() ? 1 : spec_.strip_columns; }

  void TakeRegisters() {
    blocks_ = registers_.NewGeneral("blocks");
    strip_result_ = registers_.NewGeneral("the strip's result");
    a_ = registers_.NewGeneral("a");
    items_ = registers_.NewGeneral("items");
    strips_ = registers_.NewGeneral("strips");
    result_ = registers_.NewGeneral("result");
    compensation_ = registers_.NewGeneral("compensation");
    counts_ = registers_.NewGeneral("counts");
    count_ = registers_.NewGeneral("count");
    quad_ = registers_.NewGeneral("quad");
    for (int i = 0; i < spec_.vectors * Columns(); ++i) {
      accumulators_.push_back(registers_.NewVector("accumulator"));
      if (!spec_.IsVnni()) sums_.push_back(registers_.NewVector("sum"));
    }
    if (spec_.IsVnni()) {
      dot_ = jit::MakeDotVariant(jit::DotKind::kVnni, spec_.isa, *emitter_);
      for (int i = 0; i < spec_.vectors; ++i) vectors_.push_back(registers_.NewVector("activations"));
      weights_.push_back(registers_.NewVector("weights"));
      return;
    }
    for (int j = 0; j < Columns(); ++j) weights_.push_back(registers_.NewVector("weights"));
    activations_ = registers_.NewVector("activations");
    product_ = registers_.NewVector("product");
    has_ones_register_ = registers_.FreeVectors() > 0;
    if (has_ones_register_) {
      ones_ = jit::NewOnes(*emitter_);
    } else {
      ones_pointer_ = registers_.NewGeneral("ones");
    }
  }

  Mem ResultAt(int vector, int column) const {
    const int offset = (column * spec_.block_vectors + vector) * registers_.vector_bytes();
    return x86::ptr(result_, offset);
  }

  // The loops over a strip have equal counts for each block. Blocks run one after the other, so the CPU
  // predicts the loops' ends from the second block on.
  void Strip() {
    code().mov(counts_, items_);
    code().mov(blocks_, Argument(offsetof(ScheduledKernelArgs, blocks)));
    code().mov(a_, Argument(offsetof(ScheduledKernelArgs, a)));
    code().mov(result_, strip_result_);
    const asmjit::Label block = code().newLabel();
    code().bind(block);
    code().lea(items_, x86::ptr(counts_, kStripHeaderBytes));
    InitialiseAccumulators();
    for (int size = spec_.largest_group; size >= 1; --size) Groups(size);
    StoreAccumulators();
    code().add(a_, BlockBytes());
    code().add(result_, BlockBytes());
    code().dec(blocks_);
    code().jnz(block);
    code().add(strip_result_, spec_.strip_columns * spec_.block_vectors * registers_.vector_bytes());
    const asmjit::Label continues = code().newLabel();
    code().test(compensation_, compensation_);
    code().jz(continues);
    code().add(compensation_, spec_.strip_columns * 4);
    code().bind(continues);
  }

  // For paired columns: each column's half is stored where the column begins, the other column's half behind
  // it.
  void StoreAccumulators() {
    if (IsPaired()) {
      PermutePair(0);
      emitter_->Store(ResultAt(0, 0), accumulators_[0]);
      constexpr int kOtherHalf = 0x4e;
      if (registers_.vector_bytes() == 64) {
        code().vshufi64x2(accumulators_[0], accumulators_[0], accumulators_[0], kOtherHalf);
      } else {
        code().vpermq(accumulators_[0], accumulators_[0], kOtherHalf);
      }
      emitter_->Store(ResultAt(0, 1), accumulators_[0]);
      return;
    }
    for (int column = 0; column < spec_.strip_columns; ++column) {
      for (int vector = 0; vector < spec_.vectors; ++vector) {
        emitter_->Store(ResultAt(vector, column), accumulators_[Index(vector, column)]);
      }
    }
  }

  // `way`: index of kYmmPairs and kZmmPairs.
  void PermutePair(size_t way) {
    const bool is_zmm = registers_.vector_bytes() == 64;
    const int32_t* const lanes = is_zmm ? kZmmPairs[way].data() : kYmmPairs[way].data();
    code().mov(quad_, reinterpret_cast<uint64_t>(lanes));
    emitter_->Load(product_, x86::ptr(quad_));
    code().vpermd(accumulators_[0], product_, accumulators_[0]);
  }

  void InitialiseAccumulators() {
    if (IsPaired()) return InitialisePair();
    const asmjit::Label resume = code().newLabel();
    const asmjit::Label done = code().newLabel();
    code().test(compensation_, compensation_);
    code().jz(resume);
    for (int column = 0; column < spec_.strip_columns; ++column) {
      code().vpbroadcastd(accumulators_[Index(0, column)], x86::ptr(compensation_, column * 4));
      for (int vector = 1; vector < spec_.vectors; ++vector) {
        emitter_->Copy(accumulators_[Index(vector, column)], accumulators_[Index(0, column)]);
      }
    }
    code().jmp(done);
    code().bind(resume);
    for (int column = 0; column < spec_.strip_columns; ++column) {
      for (int vector = 0; vector < spec_.vectors; ++vector) {
        emitter_->Load(accumulators_[Index(vector, column)], ResultAt(vector, column));
      }
    }
    code().bind(done);
  }

  void InitialisePair() {
    const asmjit::Label resume = code().newLabel();
    const asmjit::Label done = code().newLabel();
    code().test(compensation_, compensation_);
    code().jz(resume);
    code().vpbroadcastq(accumulators_[0], x86::ptr(compensation_));
    code().jmp(done);
    code().bind(resume);
    emitter_->Load(accumulators_[0], ResultAt(0, 0));
    PermutePair(1);
    code().bind(done);
  }

  // All groups of `size` items.
  void Groups(int size) {
    const asmjit::Label loop = code().newLabel();
    const asmjit::Label done = code().newLabel();
    code().movzx(count_.r32(), x86::word_ptr(counts_, (kMaxGroup - size) * 2));
    code().test(count_.r32(), count_.r32());
    code().jz(done);
    code().bind(loop);
    const int bytes = size * ItemBytes();
    for (int line = 0; line < bytes; line += kLineBytes)
      code().prefetcht0(x86::ptr(items_, kItemsAhead + line));
    for (int item = 0; item < size; ++item) spec_.IsVnni() ? ItemVnni(item) : Item(item);
    for (size_t i = 0; i < sums_.size(); ++i) {
      if (has_ones_register_) {
        code().vpmaddwd(sums_[i], sums_[i], ones_);
      } else {
        code().vpmaddwd(sums_[i], sums_[i], x86::ptr(ones_pointer_));
      }
      code().vpaddd(accumulators_[i], accumulators_[i], sums_[i]);
    }
    code().add(items_, bytes);
    code().dec(count_.r32());
    code().jnz(loop);
    code().bind(done);
  }

  void LoadOffset(int item) {
    const int at = item * ItemBytes();
    if (IsPlanar()) {
      code().mov(quad_.r32(), x86::ptr(items_, at));
    } else {
      code().movzx(quad_.r32(), x86::word_ptr(items_, at));
    }
  }

  // Activations of the quad that LoadOffset() chose.
  Mem Activations(int vector) const {
    return x86::ptr(a_, quad_, IsPlanar() ? 0 : 2, vector * registers_.vector_bytes());
  }

  Mem Weights(int item, int column) const {
    return x86::ptr(items_, item * ItemBytes() + OffsetBytes() + column * kQuad);
  }

  void ItemVnni(int item) {
    LoadOffset(item);
    for (int vector = 0; vector < spec_.vectors; ++vector) {
      emitter_->Load(vectors_[static_cast<size_t>(vector)], Activations(vector));
    }
    for (int column = 0; column < spec_.strip_columns; ++column) {
      code().vpbroadcastd(weights_[0], Weights(item, column));
      for (int vector = 0; vector < spec_.vectors; ++vector) {
        dot_->Dot(accumulators_[Index(vector, column)], vectors_[static_cast<size_t>(vector)], {weights_[0]});
      }
    }
  }

  void Item(int item) {
    LoadOffset(item);
    if (IsPaired()) code().vpbroadcastq(weights_[0], Weights(item, 0));
    for (int column = 0; column < Columns() && !IsPaired(); ++column) {
      code().vpbroadcastd(weights_[static_cast<size_t>(column)], Weights(item, column));
    }
    for (int vector = 0; vector < spec_.vectors; ++vector) {
      emitter_->Load(activations_, Activations(vector));
      for (int column = 0; column < Columns(); ++column) {
        const Vec& sum = sums_[Index(vector, column)];
        const Vec& weights = weights_[static_cast<size_t>(column)];
        if (item == 0) {
          code().vpmaddubsw(sum, activations_, weights);
        } else {
          code().vpmaddubsw(product_, activations_, weights);
          code().vpaddw(sum, sum, product_);
        }
      }
    }
  }

  ScheduledKernelSpec spec_;
  jit::Assembler session_;
  jit::RegisterFile registers_;
  std::unique_ptr<jit::Emitter> emitter_;
  std::unique_ptr<jit::DotVariant> dot_;  // VPDPBUSD

  Gp blocks_, strip_result_, a_, items_, strips_, result_, compensation_, counts_, count_, quad_,
      ones_pointer_;
  std::vector<Vec> accumulators_, sums_, weights_, vectors_;
  Vec activations_, product_, ones_;
  bool has_ones_register_ = false;
};

}  // namespace

std::string ScheduledKernelSpec::Name() const {
  const int lanes = jit::VectorBytes(isa) / 4;
  return "u8s8_scheduled_" + std::to_string(vectors * lanes) + "of" + std::to_string(block_vectors * lanes) +
         "x" + std::to_string(strip_columns) + "c4_" + (rows == Rows::kPlanar ? "planar_" : "") +
         (rows == Rows::kPaired ? "paired_" : "") + "by" + std::to_string(largest_group) +
         (IsVnni() ? "_vnni_" : "_") + core::CompactName(isa);
}

Result<ScheduledKernelFunction> GetScheduledKernel(const ScheduledKernelSpec& spec) {
  return jit::GetFunction<ScheduledKernelFunction>(
      spec, [](const ScheduledKernelSpec& key) { return ScheduledKernel(key).Generate(); });
}

}  // namespace intact::kernels
