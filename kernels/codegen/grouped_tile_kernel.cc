#include "kernels/codegen/grouped_tile_kernel.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/isas.h"
#include "jit/code_cache.h"
#include "kernels/codegen/amx_kernel.h"
#include "kernels/codegen/grouped_generator.h"

namespace intact::kernels {
namespace {

namespace x86 = asmjit::x86;
using jit::Gp;
using jit::Mem;
using jit::Tile;
using jit::Vec;

constexpr int kVectors = GroupedLayout::kVectors;

class TileKernelGenerator : GroupedGenerator {
 public:
  explicit TileKernelGenerator(const GroupedTileKernelSpec& spec)
      : GroupedGenerator(core::Isa::kAmxInt8, spec.layout, spec.Name()), spec_(spec) {}

  Result<jit::Code> Generate() {
    TakeRegisters();
    session_.Begin(registers_);
    code().mov(a_stride_, Argument(offsetof(GroupedKernelArgs, a_stride_bytes)));
    code().mov(values_stride_, Argument(offsetof(GroupedKernelArgs, values_stride_bytes)));
    code().mov(sums_, Argument(offsetof(GroupedTileKernelArgs, sums)));
    code().mov(b_stride_, kVectors * vector_bytes());
    code().mov(sums_stride_, vector_bytes());
    for (int j = 0; j < kVectors; ++j) Columns(j);
    session_.End();
    return session_.Finish(registers_);
  }

 private:
  int depth() const { return std::min(spec_.group, kTileDepth); }
  int group_bytes() const {
    return static_cast<int>(layout_.GroupBytes(columns(), spec_.group / GroupedLayout::kStepDepths));
  }
  bool has_zero_points() const { return layout_.zero_point_bytes != 0; }
  bool has_sums() const { return layout_.sum_bytes != 0; }

  void TakeRegisters() {
    a_ = registers_.NewGeneral("A");
    a_stride_ = registers_.NewGeneral("A's stride");
    header_ = registers_.NewGeneral("header");
    next_ = registers_.NewGeneral("next header");
    last_a_ = registers_.NewGeneral("last group of A");
    last_header_ = registers_.NewGeneral("last header");
    b_stride_ = registers_.NewGeneral("stride of quads");
    values_ = registers_.NewGeneral("values");
    values_stride_ = registers_.NewGeneral("values' stride");
    groups_ = registers_.NewGeneral("groups");
    sums_ = registers_.NewGeneral("sums");
    sums_stride_ = registers_.NewGeneral("sums' stride");
    f_address_ = registers_.NewGeneral("f");
    for (int i = 0; i < kTileRows; ++i) f_.push_back(registers_.NewVector("f"));
    scales_ = registers_.NewVector("scales");
    if (has_zero_points()) zero_points_ = registers_.NewVector("zero points");
    if (has_sums()) weight_sums_ = registers_.NewVector("sums of weights");
    for (int i = 0; i < kInFlight; ++i) {
      sum_.push_back(registers_.NewVector("sum"));
      factor_.push_back(registers_.NewVector("factor"));
    }
    for (int t = 0; t < kSumTiles; ++t) sum_tiles_.push_back(registers_.NewTile("sums"));
    for (int t = 0; t < kOperandTiles; ++t) a_tiles_.push_back(registers_.NewTile("A"));
    for (int t = 0; t < kOperandTiles; ++t) b_tiles_.push_back(registers_.NewTile("B"));
  }

  // All groups of vector j of columns.
  void Columns(int j) {
    code().mov(a_, Argument(offsetof(GroupedKernelArgs, a)));
    code().mov(header_, Argument(offsetof(GroupedKernelArgs, weights)));
    code().mov(values_, Argument(offsetof(GroupedKernelArgs, values)));
    code().mov(groups_, Argument(offsetof(GroupedKernelArgs, groups)));
    code().mov(f_address_, Argument(offsetof(GroupedKernelArgs, f)));
    const auto f = [&](int i) { return x86::ptr(f_address_, (i * kVectors + j) * vector_bytes()); };
    for (int i = 0; i < kTileRows; ++i) emitter_->Load(f_[static_cast<size_t>(i)], f(i));
    FindLastGroup();
    LoadOperands(j);
    MultiplyGroup(j, 0);
    StoreSums(0);
    MultiplyGroup(j, 1);
    const asmjit::Label pair = code().newLabel(), end = code().newLabel();
    code().bind(pair);
    for (int buffer = 0; buffer < kBuffers; ++buffer) {
      StoreSums((buffer + 1) % kBuffers);
      MultiplyGroup(j, buffer);
      AddGroup(j, buffer);
      code().dec(groups_);
      buffer + 1 < kBuffers ? code().jz(end) : code().jnz(pair);
    }
    code().bind(end);
    for (int i = 0; i < kTileRows; ++i) emitter_->Store(f(i), f_[static_cast<size_t>(i)]);
  }

  // Sets the places of A and B to the first group, and the last places to the last group.
  void FindLastGroup() {
    const auto find = [&](const Gp& last, const Gp& first, int bytes) {
      code().imul(last, groups_, bytes);
      code().lea(last, x86::ptr(first, last, 0, -bytes));
    };
    find(last_a_, a_, spec_.group);
    find(last_header_, header_, group_bytes());
    code().mov(next_, header_);
  }

  int tiles() const { return spec_.group / depth(); }
  const Tile& OperandTile(const std::vector<Tile>& of, int k) const {
    return of[static_cast<size_t>(k % kOperandTiles)];
  }

  // Loads tile k of the group at a_ and next_.
  void LoadOperands(int j, int k) {
    const int quads = static_cast<int>(layout_.HeaderBytes(columns())) + j * vector_bytes();
    const int tile_bytes = depth() / 4 * kVectors * vector_bytes();
    code().tileloadd(OperandTile(a_tiles_, k), x86::ptr(a_, a_stride_, 0, k * depth()));
    code().tileloadd(OperandTile(b_tiles_, k), x86::ptr(next_, b_stride_, 0, quads + k * tile_bytes));
  }
  void LoadOperands(int j) {
    for (int k = 0; k < std::min(tiles(), kOperandTiles); ++k) LoadOperands(j, k);
  }
  // Moves to the next group, unless this is the last one: the groups behind the last are the last one again, and nobody
  // reads their sums.
  void MoveToNextOperands() {
    const auto move = [&](const Gp& place, const Gp& last, int bytes) {
      code().add(place, bytes);
      code().cmp(place, last);
      code().cmova(place, last);
    };
    move(a_, last_a_, spec_.group);
    move(next_, last_header_, group_bytes());
  }

  // Multiplies one group into a tile of sums. Its first operands are loaded before; loads the first operands of the next group.
  void MultiplyGroup(int j, int buffer) {
    const Tile& sums = sum_tiles_[static_cast<size_t>(buffer)];
    code().tilezero(sums);
    for (int k = 0; k < tiles(); ++k) {
      const Tile &a = OperandTile(a_tiles_, k), &b = OperandTile(b_tiles_, k);
      if (!spec_.a_signed) {
        code().tdpbusd(sums, a, b);
      } else if (spec_.is_centered) {
        code().tdpbssd(sums, a, b);
      } else {  // weights of 8 bits have the sign that A does not have
        code().tdpbsud(sums, a, b);
      }
      if (k + kOperandTiles < tiles()) {
        LoadOperands(j, k + kOperandTiles);
        continue;
      }
      const int first = std::max(tiles() - kOperandTiles, 0);
      if (k == first) MoveToNextOperands();
      LoadOperands(j, k - first);
    }
  }

  void StoreSums(int buffer) {
    code().tilestored(x86::ptr(sums_, sums_stride_, 0, buffer * static_cast<int>(kTileBytes)),
                      sum_tiles_[static_cast<size_t>(buffer)]);
  }

  // Adds the sums in a buffer to f, and moves to the next group.
  void AddGroup(int j, int buffer) {
    LoadScales(scales_, header_, j);
    if (has_zero_points()) LoadZeroPoints(zero_points_, header_, j);
    if (has_sums()) LoadSums(weight_sums_, header_, j);
    for (int i = 0; i < kTileRows; ++i) AddRow(i, buffer);
    code().add(header_, group_bytes());
    code().add(values_, values_stride_);
  }

  Mem RowValue(int i, size_t member) const {
    return x86::ptr(values_, i * static_cast<int>(sizeof(GroupedRowValues)) + static_cast<int>(member));
  }

  // f of row i += the group's sum, with zero points, times its scale.
  void AddRow(int i, int buffer) {
    const Vec& sum = sum_[static_cast<size_t>(i % kInFlight)];
    const Vec& factor = factor_[static_cast<size_t>(i % kInFlight)];
    const Mem products = x86::ptr(sums_, buffer * static_cast<int>(kTileBytes) + i * vector_bytes());
    if (!spec_.is_centered) {
      code().vpbroadcastd(sum, RowValue(i, offsetof(GroupedRowValues, start)));
      if (has_zero_points()) code().vpmulld(sum, sum, zero_points_);
      code().vpaddd(sum, sum, products);
    } else if (has_sums()) {
      emitter_->Load(sum, products);
    }
    if (has_sums()) {
      code().vpbroadcastd(factor, RowValue(i, offsetof(GroupedRowValues, zero_point)));
      code().vpmulld(factor, factor, weight_sums_);
      code().vpsubd(sum, sum, factor);
    }
    if (spec_.is_centered && !has_sums()) {
      code().vcvtdq2ps(sum, products);
    } else {
      code().vcvtdq2ps(sum, sum);
    }
    if (spec_.has_group_scales) {
      code().vbroadcastss(factor, RowValue(i, offsetof(GroupedRowValues, scale)));
      code().vmulps(factor, factor, scales_);
    }
    code().vfmadd231ps(f_[static_cast<size_t>(i)], sum, spec_.has_group_scales ? factor : scales_);
  }

  static constexpr int kInFlight = 4;  // rows with own registers
  static constexpr int kBuffers = 2;

  const GroupedTileKernelSpec& spec_;
  Gp a_, a_stride_, header_, next_, last_a_, last_header_, b_stride_, values_, values_stride_, groups_, sums_,
      sums_stride_, f_address_;
  std::vector<Vec> f_, sum_, factor_;
  Vec scales_, zero_points_, weight_sums_;
  std::vector<Tile> sum_tiles_, a_tiles_, b_tiles_;
};

}  // namespace

std::string GroupedTileKernelSpec::Name() const {
  return "grouped_" + std::string(a_signed ? "s8" : "u8") + NameOf(layout) +
         (is_centered ? "_centered" : "") + (has_group_scales ? "_groups" : "_depths") +
         std::to_string(group) + "_tiles_" + core::CompactName(core::Isa::kAmxInt8);
}

Result<GroupedTileKernelFunction> GetGroupedTileKernel(const GroupedTileKernelSpec& spec) {
  return jit::GetFunction<GroupedTileKernelFunction>(
      spec, [](const GroupedTileKernelSpec& key) { return TileKernelGenerator(key).Generate(); });
}

}  // namespace intact::kernels
