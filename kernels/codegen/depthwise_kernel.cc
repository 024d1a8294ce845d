#include "kernels/codegen/depthwise_kernel.h"

#include <algorithm>
#include <cstddef>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "core/isas.h"
#include "jit/assembler.h"
#include "jit/code_cache.h"
#include "jit/emitters/emitter.h"

namespace intact::kernels {
namespace {

namespace x86 = asmjit::x86;
using jit::Gp;
using jit::Mem;
using jit::Vec;

constexpr int kVectors = 4;  // accumulators of a pixel
constexpr int kLoopRegisters = 4;

EpilogueSpec KernelEpilogue(const DepthwiseKernelSpec& spec) {
  EpilogueSpec epilogue = spec.epilogue;
  epilogue.variant.is_quartered = spec.is_quartered();
  return epilogue;
}

class DepthwiseKernel {
 public:
  explicit DepthwiseKernel(const DepthwiseKernelSpec& spec)
      : spec_(spec),
        interleaving_(spec.Interleaving()),
        column_count_(spec.taps.columns.column_count()),
        group_taps_(TapsPerGroup(spec.dot)),
        session_([this] { return spec_.Name(); }),
        registers_(jit::MakeRegisterFile(spec.isa)),
        emitter_(jit::MakeEmitter(spec.isa, session_.code(), registers_)),
        dot_(jit::MakeDotVariant(spec.dot, spec.isa, *emitter_)),
        epilogue_(KernelEpilogue(spec), *emitter_) {}

  Result<jit::Code> Generate() {
    TakeGeneralRegisters();
    session_.Begin(registers_);
    code().mov(input_, Argument(offsetof(DepthwiseKernelArgs, input)));
    code().mov(pixels_, Argument(offsetof(DepthwiseKernelArgs, pixels)));
    code().mov(record_, Argument(offsetof(DepthwiseKernelArgs, record)));
    LoadPlaces();
    code().mov(c_, Argument(offsetof(DepthwiseKernelArgs, c)));
    epilogue_.Prepare(registers_.Argument(), offsetof(DepthwiseKernelArgs, epilogue));
    if (spec_.tail == 0) {
      PixelLoop();
    } else {
      code().setOffset(0);  // over the prologue, which the kernel has run
      Pixels(spec_.tail);
    }
    session_.End();
    return session_.Finish(registers_);
  }

 private:
  /// Two places' bytes, interleaved: the low and the high halves of the quarters.
  struct Pair {
    std::pair<int, int> places;
    Vec low, high;
  };

  x86::Assembler& code() { return session_.code(); }
  Mem Argument(size_t member) const { return x86::ptr(registers_.Argument(), static_cast<int>(member)); }
  Mem Record(int64_t vector) const {
    return x86::ptr(record_, static_cast<int>(vector) * registers_.vector_bytes());
  }

  void TakeGeneralRegisters() {
    input_ = registers_.NewGeneral("input");
    pixels_ = registers_.NewGeneral("pixels");
    record_ = registers_.NewGeneral("record");
    c_ = registers_.NewGeneral("c");
    // The epilogue takes registers when it is prepared, after Begin(). Taken and freed here, they are saved.
    constexpr int kEpilogueRegisters = 3;
    std::vector<Gp> epilogue;
    epilogue.reserve(kEpilogueRegisters);
    for (int i = 0; i < kEpilogueRegisters; ++i) epilogue.push_back(registers_.NewGeneral("epilogue"));
    TakePlaceRegisters();
    if (spec_.loops) {
      for (Gp* general : {&tap_, &taps_, &groups_, &weights_}) *general = registers_.NewGeneral("tap loop");
    }
    for (const Gp& general : epilogue) registers_.Free(general);
  }

  // Registers for the rows and columns after the first. If they are too few, rows come first, and all other
  // rows share one register, as do all other columns.
  void TakePlaceRegisters() {
    const int rows = spec_.taps.rows - 1;
    const int columns = column_count() - 1;
    int left = registers_.FreeGenerals() - (spec_.loops ? kLoopRegisters : 0);
    if (rows + columns > left) {
      places_ = registers_.NewGeneral("places");
      other_row_.offset = registers_.NewGeneral("another row");
      other_column_.offset = registers_.NewGeneral("another column");
      left -= 3;
    }
    for (int i = 0; i < std::min(rows, left); ++i) rows_.push_back(registers_.NewGeneral("row"));
    left -= std::min(rows, left);
    for (int i = 0; i < std::min(columns, left); ++i) columns_.push_back(registers_.NewGeneral("column"));
  }

  void LoadPlaces() {
    const Gp places = c_;  // c_ is not loaded yet
    code().mov(places, Argument(offsetof(DepthwiseKernelArgs, places)));
    if (places_.isValid()) code().mov(places_, places);
    for (size_t i = 0; i < rows_.size(); ++i) {
      code().mov(rows_[i], input_);
      code().add(rows_[i], FirstPlace(places, static_cast<int>(i) + 1));
    }
    for (size_t i = 0; i < columns_.size(); ++i) {
      code().mov(columns_[i], PlaceOffset(places, static_cast<int>(i) + 1));
    }
  }

  // Blocks of spec_.pixels() pixels, then a tail, or single pixels.
  void PixelLoop() {
    const int most = spec_.pixels();
    const asmjit::Label main = code().newLabel();
    const asmjit::Label last = code().newLabel();
    const asmjit::Label single = code().newLabel();
    const asmjit::Label done = code().newLabel();
    code().cmp(pixels_, most);
    code().jl(last);
    code().align(asmjit::AlignMode::kCode, 32);
    code().bind(main);
    Pixels(most);
    Advance(offsetof(DepthwiseKernelArgs, block_stride_bytes));
    code().sub(pixels_, most);
    code().cmp(pixels_, most);
    code().jge(main);
    code().bind(last);
    if (most == 1) return;
    code().test(pixels_, pixels_);
    code().jz(done);
    code().cmp(x86::qword_ptr(registers_.Argument(), offsetof(DepthwiseKernelArgs, tail)), 0);
    code().jz(single);
    code().jmp(x86::qword_ptr(registers_.Argument(), offsetof(DepthwiseKernelArgs, tail)));
    code().bind(single);
    Pixels(1);
    Advance(offsetof(DepthwiseKernelArgs, pixel_stride_bytes));
    code().dec(pixels_);
    code().jnz(single);
    code().bind(done);
  }

  void Advance(size_t stride) {
    for (const Gp& row : rows_) code().add(row, Argument(stride));
    code().add(input_, Argument(stride));
  }

  void Pixels(int count) {
    TakeVectors(count);
    other_row_.number = 0;
    other_column_.number = 0;
    for (std::vector<Vec>& pixel : accumulators_) {
      for (int i = 0; i < kVectors; ++i) emitter_->Load(pixel[static_cast<size_t>(i)], Record(i));
    }
    if (spec_.loops) {
      TapLoop(count);
    } else {
      for (const TapGroup& group : interleaving_->Groups(count)) Group(group);
    }
    ReleaseOperands();
    for (std::vector<Vec>& pixel : accumulators_) {
      if (!spec_.is_quartered()) emitter_->OrderQuarters(&pixel);
      epilogue_.StoreRow(pixel, x86::ptr(c_));
      code().add(c_, Argument(offsetof(DepthwiseKernelArgs, c_stride_bytes)));
      for (const Vec& vector : pixel) registers_.Free(vector);
    }
  }

  void TakeVectors(int count) {
    accumulators_.assign(static_cast<size_t>(count), {});
    for (std::vector<Vec>& pixel : accumulators_) {
      pixel.reserve(kVectors);
      for (int i = 0; i < kVectors; ++i) pixel.push_back(registers_.NewVector("accumulator"));
    }
    operand_ = registers_.NewVector("interleaved taps");
    if (spec_.dot == jit::DotKind::kWide) {
      product_ = registers_.NewVector("product");
      zero_ = registers_.NewVector("zero");
      emitter_->Zero(zero_);
    } else {
      dot_->TakeRegisters();
      dot_->Prepare();
    }
    max_pairs_ = static_cast<size_t>(registers_.FreeVectors()) / 2;
  }

  void ReleaseOperands() {
    for (const Pair& pair : pairs_) {
      registers_.Free(pair.low);
      registers_.Free(pair.high);
    }
    pairs_.clear();
    registers_.Free(operand_);
    if (spec_.dot != jit::DotKind::kWide) return dot_->Release();
    registers_.Free(product_);
    registers_.Free(zero_);
  }

  void Group(const TapGroup& group) {
    const Pair first = PairAt(group.places[0], group.places[1]);
    const Pair second =
        spec_.dot == jit::DotKind::kWide ? Pair{{}, zero_, zero_} : PairAt(group.places[2], group.places[3]);
    for (int i = 0; i < kVectors; ++i) {
      const bool is_high = i / 2 == 1;
      Unpack(i % 2 == 1, is_high ? first.high : first.low, is_high ? second.high : second.low);
      for (const TapGroup::Use& use : group.uses) {
        const Vec& accumulator = accumulators_[static_cast<size_t>(use.pixel)][static_cast<size_t>(i)];
        Dot(accumulator, Record(int64_t{kVectors} * (1 + use.weights) + i));
      }
    }
  }

  void TapLoop(int count) {
    code().mov(taps_, Argument(offsetof(DepthwiseKernelArgs, taps)));
    code().mov(groups_, Argument(offsetof(DepthwiseKernelArgs, groups)));
    code().lea(weights_, Record(kVectors));
    const asmjit::Label loop = code().newLabel();
    code().align(asmjit::AlignMode::kCode, 32);
    code().bind(loop);
    for (int pixel = 0; pixel < count; ++pixel) GroupOfPixel(pixel);
    code().add(taps_, group_taps_ * static_cast<int>(sizeof(int64_t)));
    code().add(weights_, kVectors * registers_.vector_bytes());
    code().dec(groups_);
    code().jnz(loop);
  }

  // The columns are the columns of the first tap. All other taps have the same distances between pixels.
  void GroupOfPixel(int pixel) {
    std::vector<Vec> taps;
    for (int i = 0; i < group_taps_; ++i) {
      taps.push_back(registers_.NewVector("tap"));
      code().mov(tap_, PlaceOffset(taps_, i));
      if (pixel != 0) code().add(tap_, Column(pixel));
      emitter_->Load(taps.back(), x86::ptr(input_, tap_));
    }
    for (int i = 0; i < group_taps_; i += 2) {
      const Vec& low = taps[static_cast<size_t>(i)];
      const Vec& high = taps[static_cast<size_t>(i) + 1];
      code().vpunpckhbw(operand_, low, high);
      code().vpunpcklbw(low, low, high);
      emitter_->Copy(high, operand_);
    }
    for (int i = 0; i < kVectors; ++i) {
      const size_t half = static_cast<size_t>(i / 2);
      Unpack(i % 2 == 1, taps[half], spec_.dot == jit::DotKind::kWide ? zero_ : taps[2 + half]);
      Dot(accumulators_[static_cast<size_t>(pixel)][static_cast<size_t>(i)],
          x86::ptr(weights_, i * registers_.vector_bytes()));
    }
    for (const Vec& tap : taps) registers_.Free(tap);
  }

  void Unpack(bool high, const Vec& first, const Vec& second) {
    if (spec_.dot == jit::DotKind::kWide) {
      high ? code().vpunpckhbw(operand_, first, second) : code().vpunpcklbw(operand_, first, second);
    } else {
      high ? code().vpunpckhwd(operand_, first, second) : code().vpunpcklwd(operand_, first, second);
    }
  }

  void Dot(const Vec& accumulator, const Mem& weights) {
    if (spec_.dot == jit::DotKind::kWide) {
      code().vpmaddwd(product_, operand_, weights);
      code().vpaddd(accumulator, accumulator, product_);
    } else {
      dot_->Dot(accumulator, operand_, weights);
    }
  }

  // Keeps the pairs used last, as registers allow.
  Pair PairAt(int first, int second) {
    const std::pair<int, int> places = {first, second};
    const auto known =
        std::find_if(pairs_.begin(), pairs_.end(), [&](const Pair& pair) { return pair.places == places; });
    if (known != pairs_.end()) {
      pairs_.splice(pairs_.begin(), pairs_, known);
      return pairs_.front();
    }
    if (pairs_.size() < max_pairs_) {
      pairs_.push_front({places, registers_.NewVector("low pairs"), registers_.NewVector("high pairs")});
    } else {
      pairs_.splice(pairs_.begin(), pairs_, std::prev(pairs_.end()));
      pairs_.front().places = places;
    }
    const Pair& pair = pairs_.front();
    LoadPlace(pair.high, first);
    LoadPlace(operand_, second);
    code().vpunpcklbw(pair.low, pair.high, operand_);
    code().vpunpckhbw(pair.high, pair.high, operand_);
    return pair;
  }

  // Places 0 to column_count() − 1 are row 0, so their offsets are the columns' offsets.
  Mem PlaceOffset(const Gp& places, int place) const {
    return x86::ptr(places, place * static_cast<int>(sizeof(int64_t)));
  }
  Mem FirstPlace(const Gp& places, int row) const { return PlaceOffset(places, row * column_count()); }

  void LoadPlace(const Vec& to, int place) {
    const int column = place % column_count();
    const Gp row = Row(place / column_count());
    emitter_->Load(to, column == 0 ? x86::ptr(row) : x86::ptr(row, Column(column)));
  }

  // The address of the row's first place.
  Gp Row(int row) {
    if (row == 0) return input_;
    if (row <= std::ssize(rows_)) return rows_[static_cast<size_t>(row - 1)];
    if (other_row_.number != row) {
      code().mov(other_row_.offset, FirstPlace(places_, row));
      code().add(other_row_.offset, input_);
      other_row_.number = row;
    }
    return other_row_.offset;
  }

  Gp Column(int column) {
    if (column <= std::ssize(columns_)) return columns_[static_cast<size_t>(column - 1)];
    if (other_column_.number != column) {
      code().mov(other_column_.offset, PlaceOffset(places_, column));
      other_column_.number = column;
    }
    return other_column_.offset;
  }

  int column_count() const { return column_count_; }

  DepthwiseKernelSpec spec_;
  std::shared_ptr<const DepthwiseInterleaving> interleaving_;
  int column_count_;
  int group_taps_;
  jit::Assembler session_;
  jit::RegisterFile registers_;
  std::unique_ptr<jit::Emitter> emitter_;
  std::unique_ptr<jit::DotVariant> dot_;  // unless wide
  Epilogue epilogue_;

  Gp input_, pixels_, record_, c_;
  std::vector<Gp> rows_, columns_;  // after the first, as registers allow
  // A register that rows, or columns, without their own share.
  struct Other {
    Gp offset;
    int number = 0;  // the number of the row or column in it; 0: none
  };
  Other other_row_, other_column_;
  Gp tap_, taps_, groups_, weights_;            // if spec_.loops
  Gp places_;                                   // if other_row_ and other_column_ are used
  std::vector<std::vector<Vec>> accumulators_;  // [pixels][kVectors]
  Vec operand_, product_, zero_;
  std::list<Pair> pairs_;  // the last used first
  size_t max_pairs_ = 0;
};

}  // namespace

// Accumulators take half the registers.
int DepthwisePixels(core::Isa isa) { return jit::VectorCount(isa) / (2 * kVectors); }

std::string DepthwiseKernelSpec::Name() const {
  return "u8s8" + epilogue.Name() + "_depthwise_" + (loops ? "any" : taps.Name()) + "_" +
         std::to_string(pixels()) + "x" + std::to_string(channels()) + "_" + std::string(jit::ToString(dot)) +
         "_" + core::CompactName(isa) + (tail == 0 ? "" : "_tail" + std::to_string(tail));
}

namespace {

Result<jit::Code> GetCode(const DepthwiseKernelSpec& spec) {
  return jit::CodeCache<DepthwiseKernelSpec>::Instance().Get(
      spec, [](const DepthwiseKernelSpec& key) { return DepthwiseKernel(key).Generate(); });
}

}  // namespace

Result<DepthwiseKernelFunction> GetDepthwiseKernel(const DepthwiseKernelSpec& spec) {
  ASSIGN_OR_RETURN(jit::Code code, GetCode(spec));
  return DepthwiseKernelFunction(std::move(code));
}

Result<jit::Code> GetDepthwiseTail(DepthwiseKernelSpec spec, int pixels) {
  spec.tail = pixels;
  return GetCode(spec);
}

}  // namespace intact::kernels
