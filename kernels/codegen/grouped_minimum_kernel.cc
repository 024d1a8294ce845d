#include "kernels/codegen/grouped_minimum_kernel.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/types.h"
#include "jit/assembler.h"
#include "jit/code_cache.h"
#include "jit/emitters/emitter.h"
#include "kernels/weights/grouped_weights.h"

namespace intact::kernels {
namespace {

namespace x86 = asmjit::x86;
using jit::Gp;
using jit::Vec;

constexpr int kVectors = GroupedLayout::kVectors;

Result<jit::Code> Generate(const GroupedMinimumSpec& spec) {
  jit::Assembler session(spec.Name());
  jit::RegisterFile registers = jit::MakeRegisterFile(spec.isa);
  const auto emitter = jit::MakeEmitter(spec.isa, session.code(), registers);
  x86::Assembler& code = session.code();
  const auto argument = [&](size_t member) {
    return x86::ptr(registers.Argument(), static_cast<int>(member));
  };
  const Gp factors = registers.NewGeneral("factors"), stride = registers.NewGeneral("factors' stride");
  const Gp minimums = registers.NewGeneral("minimums"), f = registers.NewGeneral("f");
  const Gp groups = registers.NewGeneral("groups");
  std::vector<Vec> sums, values;
  for (int i = 0; i < spec.mr * kVectors; ++i) sums.push_back(registers.NewVector("f"));
  for (int j = 0; j < kVectors; ++j) values.push_back(registers.NewVector("minimums"));
  const Vec factor = registers.NewVector("factor");
  session.Begin(registers);
  code.mov(factors, argument(offsetof(GroupedMinimumArgs, factors)));
  code.mov(stride, argument(offsetof(GroupedMinimumArgs, factors_stride_bytes)));
  code.mov(minimums, argument(offsetof(GroupedMinimumArgs, minimums)));
  code.mov(f, argument(offsetof(GroupedMinimumArgs, f)));
  code.mov(groups, argument(offsetof(GroupedMinimumArgs, groups)));
  for (const Vec& sum : sums) emitter->Zero(sum);
  const int vector_bytes = registers.vector_bytes() / 4 * core::BytesOf(spec.type);
  const asmjit::Label group = code.newLabel();
  code.bind(group);
  for (int j = 0; j < kVectors; ++j) {
    const Vec& value = values[static_cast<size_t>(j)];
    const jit::Mem from = x86::ptr(minimums, j * vector_bytes);
    if (spec.type == INTACT_F16) {
      code.vcvtph2ps(value, from);
    } else {
      emitter->Load(value, from);
    }
  }
  for (int i = 0; i < spec.mr; ++i) {
    code.vbroadcastss(factor, x86::ptr(factors, i * static_cast<int>(sizeof(float))));
    for (int j = 0; j < kVectors; ++j) {
      code.vfmadd231ps(sums[static_cast<size_t>(i * kVectors + j)], factor, values[static_cast<size_t>(j)]);
    }
  }
  code.add(factors, stride);
  code.add(minimums, kVectors * vector_bytes);
  code.dec(groups);
  code.jnz(group);
  for (size_t i = 0; i < sums.size(); ++i) {
    emitter->Store(x86::ptr(f, static_cast<int>(i) * registers.vector_bytes()), sums[i]);
  }
  session.End();
  return session.Finish(registers);
}

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
  return jit::GetFunction<GroupedMinimumFunction>(spec, Generate);
}

}  // namespace intact::kernels
