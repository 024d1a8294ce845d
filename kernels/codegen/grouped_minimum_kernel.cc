#include "kernels/codegen/grouped_minimum_kernel.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/types.h"
#include "jit/code_cache.h"
#include "kernels/codegen/grouped_generator.h"

namespace intact::kernels {
namespace {

namespace x86 = asmjit::x86;
using jit::Gp;
using jit::Vec;

constexpr int kVectors = GroupedLayout::kVectors;

// The minimums are laid out as the scales of a group.
class MinimumGenerator : GroupedGenerator {
 public:
  explicit MinimumGenerator(const GroupedMinimumSpec& spec)
      : GroupedGenerator(spec.isa, {.scale_type = spec.type}, [&spec] { return spec.Name(); }),
        rows_(spec.mr) {}

  Result<jit::Code> Generate() {
    const Gp factors = registers_.NewGeneral("factors"), stride = registers_.NewGeneral("factors' stride");
    const Gp minimums = registers_.NewGeneral("minimums"), f = registers_.NewGeneral("f");
    const Gp groups = registers_.NewGeneral("groups");
    std::vector<Vec> sums, values;
    for (int i = 0; i < rows_ * kVectors; ++i) sums.push_back(registers_.NewVector("f"));
    for (int j = 0; j < kVectors; ++j) values.push_back(registers_.NewVector("minimums"));
    const Vec factor = registers_.NewVector("factor");
    session_.Begin(registers_);
    code().mov(factors, Argument(offsetof(GroupedMinimumArgs, factors)));
    code().mov(stride, Argument(offsetof(GroupedMinimumArgs, factors_stride_bytes)));
    code().mov(minimums, Argument(offsetof(GroupedMinimumArgs, minimums)));
    code().mov(f, Argument(offsetof(GroupedMinimumArgs, f)));
    code().mov(groups, Argument(offsetof(GroupedMinimumArgs, groups)));
    for (const Vec& sum : sums) emitter_->Zero(sum);
    const asmjit::Label group = code().newLabel();
    code().bind(group);
    for (int j = 0; j < kVectors; ++j) LoadScales(values[static_cast<size_t>(j)], minimums, j);
    for (int i = 0; i < rows_; ++i) {
      code().vbroadcastss(factor, x86::ptr(factors, i * static_cast<int>(sizeof(float))));
      for (int j = 0; j < kVectors; ++j) {
        code().vfmadd231ps(sums[static_cast<size_t>(i * kVectors + j)], factor,
                           values[static_cast<size_t>(j)]);
      }
    }
    code().add(factors, stride);
    code().add(minimums, columns() * core::BytesOf(layout_.scale_type));
    code().dec(groups);
    code().jnz(group);
    for (size_t i = 0; i < sums.size(); ++i) {
      emitter_->Store(x86::ptr(f, static_cast<int>(i) * vector_bytes()), sums[i]);
    }
    session_.End();
    return session_.Finish(registers_);
  }

 private:
  int rows_;
};

}  // namespace

std::string GroupedMinimumSpec::Name() const {
  return "grouped_minimums_" + std::string(core::NameOf(type)) + "_" + std::to_string(mr) + "x" +
         std::to_string(kVectors) + "_" + core::CompactName(isa);
}

// Besides f: the minimums and a factor.
int LargestGroupedMinimumRows(core::Isa isa) {
  constexpr int kMostRows = 12;
  return std::min((jit::VectorCount(isa) - kVectors - 1) / kVectors, kMostRows);
}

Result<GroupedMinimumFunction> GetGroupedMinimumKernel(const GroupedMinimumSpec& spec) {
  return jit::GetFunction<GroupedMinimumFunction>(
      spec, [](const GroupedMinimumSpec& key) { return MinimumGenerator(key).Generate(); });
}

}  // namespace intact::kernels
