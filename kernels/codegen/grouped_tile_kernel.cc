#include "kernels/codegen/grouped_tile_kernel.h"

#include <algorithm>
#include <cstddef>
#include <functional>
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
      : GroupedGenerator(core::Isa::kAmxInt8, spec.layout, [&spec] { return spec.Name(); }), spec_(spec) {}

  Result<jit::Code> Generate() {
    TakeRegisters();
    session_.Begin(registers_);
    if (spec_.multiplies) PrepareProducts();
    if (spec_.adds) PrepareAdditions();
    const asmjit::Label loop = code().newLabel(), end = code().newLabel();
    code().bind(loop);
    EmitStep();
    if (spec_.multiplies && spec_.adds) {
      code().sub(x86::qword_ptr(registers_.Argument(), offsetof(GroupedTileKernelArgs, steps)), 1);
      code().jz(end);
      MoveToNextStep();
      code().jmp(loop);
    }
    code().bind(end);
    session_.End();
    return session_.Finish(registers_);
  }

 private:
  using Emission = std::function<void()>;  // emits some instructions
  static constexpr int kInFlight = 4;      // rows with own registers

  // The products of a step, with the additions of the step before spread among them.
  void EmitStep() {
    std::vector<Emission> products, additions;
    if (spec_.multiplies) products = Products();
    if (spec_.adds) additions = Additions();
    size_t added = 0;
    for (size_t i = 0; i < products.size(); ++i) {
      products[i]();
      const size_t end = additions.size() * (i + 1) / products.size();
      while (added < end) additions[added++]();
    }
    while (added < additions.size()) additions[added++]();
    if (!spec_.multiplies) return;
    for (int unit = 0; unit < spec_.units(); ++unit) {
      for (int j = 0; j < kVectors; ++j) {
        code().tilestored(x86::ptr(sums_, stride_, 0, SumOffset(unit, j)), SumTile(unit, j));
      }
    }
  }

  // What has been multiplied is added next.
  void MoveToNextStep() {
    const Mem values = Argument(offsetof(GroupedTileKernelArgs, values));
    code().mov(header_, weights_);
    code().mov(values_, values);
    code().mov(f_address_, Argument(offsetof(GroupedTileKernelArgs, f)));
    code().xchg(finished_, sums_);
    for (const Gp& a : a_) code().add(a, spec_.groups * spec_.group);
    code().add(weights_, spec_.groups * group_bytes());
    for (int g = 0; g < spec_.groups; ++g) code().add(values, values_stride_);
  }

  int depth() const { return std::min(spec_.group, kTileDepth); }
  int tiles() const { return spec_.group / depth(); }
  int group_bytes() const {
    return static_cast<int>(layout_.GroupBytes(columns(), spec_.group / GroupedLayout::kStepDepths));
  }
  bool has_zero_points() const { return layout_.zero_point_bytes != 0; }
  bool has_sums() const { return layout_.sum_bytes != 0; }

  void TakeRegisters() {
    if (spec_.multiplies) {
      for (int t = 0; t < spec_.row_tiles; ++t) a_.push_back(registers_.NewGeneral("A"));
      a_stride_ = registers_.NewGeneral("A's stride");
      weights_ = registers_.NewGeneral("weights");
      stride_ = registers_.NewGeneral("a vector's bytes");
      sums_ = registers_.NewGeneral("sums");
      for (int t = 0; t < kSumTiles; ++t) sum_tiles_.push_back(registers_.NewTile("sums"));
      for (int t = 0; t < kOperandTiles; ++t) a_tiles_.push_back(registers_.NewTile("A"));
      for (int t = 0; t < kOperandTiles; ++t) b_tiles_.push_back(registers_.NewTile("B"));
    }
    if (!spec_.adds) return;
    header_ = registers_.NewGeneral("header");
    values_ = registers_.NewGeneral("values");
    values_stride_ = registers_.NewGeneral("values' stride");
    finished_ = registers_.NewGeneral("finished sums");
    f_address_ = registers_.NewGeneral("f");
    for (int g = 0; g < spec_.groups; ++g) {
      scales_.push_back(registers_.NewVector("scales"));
      if (has_zero_points()) zero_points_.push_back(registers_.NewVector("zero points"));
      if (has_sums()) weight_sums_.push_back(registers_.NewVector("sums of weights"));
    }
    for (int i = 0; i < kInFlight; ++i) {
      f_.push_back(registers_.NewVector("f"));
      sum_.push_back(registers_.NewVector("sum"));
      factor_.push_back(registers_.NewVector("factor"));
    }
  }

  // ----- Products

  void PrepareProducts() {
    for (const Gp& a : a_) code().mov(a, Argument(offsetof(GroupedTileKernelArgs, a)));
    code().mov(a_stride_, Argument(offsetof(GroupedTileKernelArgs, a_stride_bytes)));
    if (spec_.row_tiles > 1) {
      code().imul(sums_, a_stride_, kTileRows);
      code().add(a_.back(), sums_);
    }
    code().mov(weights_, Argument(offsetof(GroupedTileKernelArgs, weights)));
    code().mov(sums_, Argument(offsetof(GroupedTileKernelArgs, sums)));
    code().mov(stride_, vector_bytes());
  }

  std::vector<Emission> Products() {
    std::vector<Emission> products;
    products.emplace_back([this] {
      for (int unit = 0; unit < spec_.units(); ++unit) LoadA(0, unit);
      for (int j = 0; j < kVectors; ++j) LoadB(0, 0, j);
    });
    for (int k = 0; k < tiles(); ++k) {
      for (int unit = 0; unit < spec_.units(); ++unit) {
        for (int j = 0; j < kVectors; ++j)
          products.emplace_back([this, k, unit, j] { Multiply(k, unit, j); });
      }
    }
    return products;
  }

  // Multiplies, and then loads the operands of the next products that fit in the free tiles. A unit is a row tile or a group.
  void Multiply(int k, int unit, int j) {
    const Tile &sums = SumTile(unit, j), &a = a_tiles_[static_cast<size_t>(unit)],
               &b = b_tiles_[static_cast<size_t>(j)];
    if (k == 0) code().tilezero(sums);
    if (!spec_.a_signed) {
      code().tdpbusd(sums, a, b);
    } else if (spec_.is_centered) {
      code().tdpbssd(sums, a, b);
    } else {  // weights of 8 bits have the sign that A does not have
      code().tdpbsud(sums, a, b);
    }
    if (spec_.groups > 1 && unit + 1 < spec_.groups) return LoadB(k, unit + 1, j);
    if (k + 1 == tiles()) return;
    if (unit + 1 == spec_.units()) LoadB(k + 1, 0, j);
    if (j + 1 == kVectors) LoadA(k + 1, unit);
  }

  const Tile& SumTile(int unit, int j) const { return sum_tiles_[static_cast<size_t>(unit * kVectors + j)]; }
  void LoadA(int k, int unit) {
    const auto i = static_cast<size_t>(unit);
    const int group = spec_.groups > 1 ? unit : 0;
    code().tileloadd(a_tiles_[i],
                     x86::ptr(a_[i % a_.size()], a_stride_, 0, group * spec_.group + k * depth()));
  }
  void LoadB(int k, int group, int j) {
    const int quads =
        group * group_bytes() + static_cast<int>(layout_.HeaderBytes(columns())) + j * vector_bytes();
    const int tile_bytes = depth() / 4 * kVectors * vector_bytes();
    static_assert(kVectors == 2);
    code().tileloadd(b_tiles_[static_cast<size_t>(j)],
                     x86::ptr(weights_, stride_, 1, quads + k * tile_bytes));
  }

  static int SumOffset(int unit, int j) { return (unit * kVectors + j) * static_cast<int>(kTileBytes); }

  // ----- Additions

  static size_t OfFinished(size_t member) { return offsetof(GroupedTileKernelArgs, finished) + member; }

  void PrepareAdditions() {
    using Finished = GroupedTileKernelArgs::Finished;
    code().mov(header_, Argument(OfFinished(offsetof(Finished, weights))));
    code().mov(values_stride_, Argument(offsetof(GroupedTileKernelArgs, values_stride_bytes)));
    code().mov(finished_, Argument(OfFinished(offsetof(Finished, sums))));
    code().mov(f_address_, Argument(OfFinished(offsetof(Finished, f))));
    code().mov(values_, Argument(OfFinished(offsetof(Finished, values))));
  }

  std::vector<Emission> Additions() {
    std::vector<Emission> additions;
    for (int row = 0; row < spec_.row_tiles; ++row) {
      for (int j = 0; j < kVectors; ++j) {
        additions.emplace_back([this, j] { LoadColumns(j); });
        for (int i = 0; i < kTileRows; ++i) additions.emplace_back([this, row, i, j] { AddRow(row, i, j); });
      }
    }
    return additions;
  }

  void LoadColumns(int j) {
    for (int g = 0; g < spec_.groups; ++g) {
      const auto i = static_cast<size_t>(g);
      const int offset = g * group_bytes();
      LoadScales(scales_[i], header_, j, offset);
      if (has_zero_points()) LoadZeroPoints(zero_points_[i], header_, j, offset);
      if (has_sums()) LoadSums(weight_sums_[i], header_, j, offset);
    }
  }

  // f of row i of a row tile += each group's sum, with zero points, times its scale.
  void AddRow(int row, int i, int j) {
    const Vec& f = f_[static_cast<size_t>(i % kInFlight)];
    const Mem place = x86::ptr(f_address_, ((row * kTileRows + i) * kVectors + j) * vector_bytes());
    emitter_->Load(f, place);
    for (int g = 0; g < spec_.groups; ++g) AddSum(f, g, row, i, j);
    emitter_->Store(place, f);
  }

  void AddSum(const Vec& f, int group, int row, int i, int j) {
    const auto g = static_cast<size_t>(group);
    const Vec& sum = sum_[static_cast<size_t>(i % kInFlight)];
    const Vec& factor = factor_[static_cast<size_t>(i % kInFlight)];
    const Mem products =
        x86::ptr(finished_, SumOffset(spec_.groups > 1 ? group : row, j) + i * vector_bytes());
    const auto value = [&](size_t member) {
      const int offset =
          (row * kTileRows + i) * static_cast<int>(sizeof(GroupedRowValues)) + static_cast<int>(member);
      return group == 0 ? x86::ptr(values_, offset) : x86::ptr(values_, values_stride_, 0, offset);
    };
    if (!spec_.is_centered) {
      code().vpbroadcastd(sum, value(offsetof(GroupedRowValues, start)));
      if (has_zero_points()) code().vpmulld(sum, sum, zero_points_[g]);
      code().vpaddd(sum, sum, products);
    } else if (has_sums()) {
      emitter_->Load(sum, products);
    }
    if (has_sums()) {
      code().vpbroadcastd(factor, value(offsetof(GroupedRowValues, zero_point)));
      code().vpmulld(factor, factor, weight_sums_[g]);
      code().vpsubd(sum, sum, factor);
    }
    if (spec_.is_centered && !has_sums()) {
      code().vcvtdq2ps(sum, products);
    } else {
      code().vcvtdq2ps(sum, sum);
    }
    if (spec_.has_group_scales) {
      code().vbroadcastss(factor, value(offsetof(GroupedRowValues, scale)));
      code().vmulps(factor, factor, scales_[g]);
    }
    code().vfmadd231ps(f, sum, spec_.has_group_scales ? factor : scales_[g]);
  }

  const GroupedTileKernelSpec& spec_;
  std::vector<Gp> a_;  // of each row tile
  Gp a_stride_, weights_, stride_, sums_;
  Gp header_, values_, values_stride_, finished_, f_address_;
  std::vector<Vec> f_, sum_, factor_;
  std::vector<Vec> scales_, zero_points_, weight_sums_;  // of each group
  std::vector<Tile> sum_tiles_, a_tiles_, b_tiles_;
};

}  // namespace

std::string GroupedTileKernelSpec::Name() const {
  return "grouped_" + std::string(a_signed ? "s8" : "u8") + NameOf(layout) +
         (is_centered ? "_centered" : "") + (has_group_scales ? "_groups" : "_depths") +
         std::to_string(group) + (groups == 1 ? "" : "x2") + "_" + std::to_string(row_tiles * kTileRows) +
         "rows" + (multiplies ? "_multiply" : "") + (adds ? "_add" : "") + "_tiles_" +
         core::CompactName(core::Isa::kAmxInt8);
}

Result<GroupedTileKernelFunction> GetGroupedTileKernel(const GroupedTileKernelSpec& spec) {
  return jit::GetFunction<GroupedTileKernelFunction>(
      spec, [](const GroupedTileKernelSpec& key) { return TileKernelGenerator(key).Generate(); });
}

}  // namespace intact::kernels
