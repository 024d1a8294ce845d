#include "kernels/codegen/grouped_kernel.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/types.h"
#include "jit/assembler.h"
#include "jit/code_cache.h"
#include "jit/emitters/dot.h"
#include "jit/emitters/emitter.h"
#include "kernels/codegen/grouped_generator.h"

namespace intact::kernels {
namespace {

namespace x86 = asmjit::x86;
using jit::Gp;
using jit::Mem;
using jit::Vec;

constexpr int kVectors = GroupedLayout::kVectors;
constexpr int kStepQuads = GroupedLayout::kStepQuads;
constexpr int kLine = 64;
// How far ahead kernels of few rows fetch their weights.
constexpr int kAhead = 2048;

bool HasVnni(core::Isa isa) { return core::TraitsOf(isa).dot_products != core::DotProducts::kNone; }

// ----- Products

class KernelGenerator : GroupedGenerator {
 public:
  explicit KernelGenerator(const GroupedKernelSpec& spec)
      : GroupedGenerator(spec.isa, spec.layout, [&spec] { return spec.Name(); }),
        spec_(spec),
        has_vnni_(HasVnni(spec.isa)) {}

  Result<jit::Code> Generate() {
    TakeRegisters();
    session_.Begin(registers_);
    Prologue();
    const asmjit::Label group = code().newLabel();
    code().bind(group);
    code().lea(weights_, x86::ptr(header_, static_cast<int>(layout_.HeaderBytes(columns()))));
    code().mov(steps_, Argument(offsetof(GroupedKernelArgs, steps)));
    StartSums();
    Steps();
    AddToFloats();
    code().mov(header_, weights_);
    code().add(values_, values_stride_);
    code().dec(groups_);
    code().jnz(group);
    session_.End();
    return session_.Finish(registers_);
  }

 private:
  static constexpr int kRowsOfPointer = 3;
  bool unpacks() const { return layout_.NeedsExpansion(); }
  // Whether the nibbles of a byte are the halves of one weight.
  bool has_halves() const {
    return layout_.step == GroupedStep::kSplitBytes || layout_.step == GroupedStep::kHalves;
  }
  bool has_signs() const { return layout_.step == GroupedStep::kSignBytes; }
  // The vector of columns j among the vectors of rows, or of halves.
  static const Vec& At(const std::vector<Vec>& vectors, int i, int j) {
    const int place = i * kVectors + j;
    return vectors[static_cast<size_t>(place)];
  }
  const Vec& Sum(int i, int j) const { return At(sums_, i, j); }
  const Vec& Pairs(int i, int j) const { return At(pairs_, i, j); }
  const Vec& Weights(int half, int j) const { return At(operands_, half, j); }

  void TakeRegisters() {
    constants_ = registers_.NewGeneral("constants");
    header_ = registers_.NewGeneral("header");
    weights_ = registers_.NewGeneral("weights");
    values_ = registers_.NewGeneral("values");
    values_stride_ = registers_.NewGeneral("values' stride");
    a_stride_ = registers_.NewGeneral("A's stride");
    f_ = registers_.NewGeneral("f");
    groups_ = registers_.NewGeneral("groups");
    steps_ = registers_.NewGeneral("steps");
    for (int i = 0; i < spec_.mr; i += kRowsOfPointer) rows_.push_back(registers_.NewGeneral("rows of A"));
    for (int i = 0; i < spec_.mr * kVectors; ++i) sums_.push_back(registers_.NewVector("sum"));
    if (!has_vnni_ && !has_signs()) {
      for (int i = 0; i < spec_.mr * kVectors; ++i) pairs_.push_back(registers_.NewVector("sum of pairs"));
    }
    const int operands = kVectors * (layout_.step == GroupedStep::kNibbles ? 2 : 1);
    for (int i = 0; i < operands; ++i) operands_.push_back(registers_.NewVector("weights"));
    a_ = registers_.NewVector("a");
    if (has_signs()) magnitude_ = registers_.NewVector("|a|");
    product_ = registers_.NewVector("product");
  }

  // A constant in a register if there is one, else in memory.
  asmjit::Operand Keep(const char* name, size_t member) {
    if (registers_.FreeVectors() == 0) return Constant(member);
    const Vec vector = registers_.NewVector(name);
    emitter_->Load(vector, Constant(member));
    return vector;
  }

  void Prologue() {
    code().mov(constants_, Argument(offsetof(GroupedKernelArgs, constants)));
    code().mov(header_, Argument(offsetof(GroupedKernelArgs, weights)));
    code().mov(values_, Argument(offsetof(GroupedKernelArgs, values)));
    code().mov(values_stride_, Argument(offsetof(GroupedKernelArgs, values_stride_bytes)));
    code().mov(a_stride_, Argument(offsetof(GroupedKernelArgs, a_stride_bytes)));
    code().mov(f_, Argument(offsetof(GroupedKernelArgs, f)));
    code().mov(groups_, Argument(offsetof(GroupedKernelArgs, groups)));
    code().mov(rows_[0], Argument(offsetof(GroupedKernelArgs, a)));
    for (size_t i = 1; i < rows_.size(); ++i) {
      code().lea(rows_[i], x86::ptr(rows_[i - 1], a_stride_, 1));
      code().add(rows_[i], a_stride_);
    }
    if (unpacks()) mask_ = Keep("nibble", offsetof(GroupedConstants, nibble));
    if (!has_vnni_) ones_ = Keep("ones", offsetof(GroupedConstants, ones));
    if (has_halves()) sixteens_ = Keep("sixteens", offsetof(GroupedConstants, sixteens));
  }

  Mem RowValue(int i, size_t member) const {
    return x86::ptr(values_, i * static_cast<int>(sizeof(GroupedRowValues)) + static_cast<int>(member));
  }

  // Sums start from −zb'·centered_sum.
  void StartSums() {
    if (layout_.zero_point_bytes != 0) {
      for (int j = 0; j < kVectors; ++j) LoadZeroPoints(Weights(0, j), header_, j);
    }
    for (int i = 0; i < spec_.mr; ++i) {
      const Mem start = RowValue(i, offsetof(GroupedRowValues, start));
      if (layout_.zero_point_bytes != 0) code().vpbroadcastd(a_, start);
      for (int j = 0; j < kVectors; ++j) {
        if (layout_.zero_point_bytes != 0) {
          code().vpmulld(Sum(i, j), Weights(0, j), a_);
        } else {
          code().vpbroadcastd(Sum(i, j), start);
        }
      }
    }
  }

  // Runs steps_ steps, unrolled_steps at a time, then singly.
  void Steps() {
    const asmjit::Label unrolled = code().newLabel();
    const asmjit::Label tail = code().newLabel();
    const asmjit::Label single = code().newLabel();
    const asmjit::Label done = code().newLabel();
    const int count = spec_.unrolled_steps;
    if (count > 1) {
      code().sub(steps_, count);
      code().jl(tail);
      code().bind(unrolled);
      RunSteps(count);
      code().sub(steps_, count);
      code().jge(unrolled);
      code().bind(tail);
      code().add(steps_, count);
      code().jz(done);
    }
    code().bind(single);
    RunSteps(1);
    code().dec(steps_);
    code().jnz(single);
    code().bind(done);
  }

  void RunSteps(int count) {
    for (step_ = 0; step_ < count; ++step_) Step();
    code().add(weights_, count * static_cast<int>(layout_.StepBytes(columns())));
    for (const Gp& rows : rows_) code().add(rows, count * GroupedLayout::kStepDepths);
  }

  // The offset of vector number `vector` of columns j in the current step.
  int WeightOffset(int vector, int j) const {
    return step_ * static_cast<int>(layout_.StepBytes(columns())) + (vector * kVectors + j) * vector_bytes();
  }
  Mem ActivationAddress(int i, int quad) const {
    const Gp& rows = rows_[static_cast<size_t>(i / kRowsOfPointer)];
    const int row = i % kRowsOfPointer, offset = step_ * GroupedLayout::kStepDepths + quad * 4;
    return row == 0 ? x86::ptr(rows, offset)
                    : x86::ptr(rows, a_stride_, static_cast<uint32_t>(row - 1), offset);
  }

  // Loads the vector of columns j, and fetches its lines ahead.
  void LoadWeights(const Vec& to, int vector, int j) {
    const int offset = WeightOffset(vector, j);
    emitter_->Load(to, x86::ptr(weights_, offset));
    if (spec_.prefetches && offset % kLine == 0) code().prefetcht0(x86::ptr(weights_, offset + kAhead));
  }

  void Step() {
    if (!has_halves()) return StepHalf(0);
    for (const int half : {0, 1}) StepHalf(half);
  }

  // The products of a step's quads; with has_halves(), of one half of the weights.
  void StepHalf(int half) {
    for (int quad = 0; quad < kStepQuads; ++quad) {
      int place = 0;  // which operands have the quad
      if (layout_.step == GroupedStep::kNibbles) {
        place = quad % 2;
        if (place == 0) {
          for (int j = 0; j < kVectors; ++j) {
            LoadWeights(Weights(0, j), quad / 2, j);
            HighNibbles(Weights(1, j), Weights(0, j), mask_);
            LowNibbles(Weights(0, j), mask_);
          }
        }
      } else {
        for (int j = 0; j < kVectors; ++j) {
          const Vec& weights = Weights(0, j);
          LoadWeights(weights, layout_.step == GroupedStep::kHalves ? quad * 2 + half : quad, j);
          if (layout_.step != GroupedStep::kSplitBytes) continue;
          half == 0 ? LowNibbles(weights, mask_) : HighNibbles(weights, weights, mask_);
        }
      }
      for (int i = 0; i < spec_.mr; ++i) {
        code().vpbroadcastd(a_, ActivationAddress(i, quad));
        if (has_signs()) code().vpabsb(magnitude_, a_);
        for (int j = 0; j < kVectors; ++j) Dot(i, j, Weights(place, j), quad == 0);
      }
    }
    if (has_vnni_ || has_signs()) return;
    const asmjit::Operand& factor = half == 0 ? ones_ : sixteens_;
    for (size_t i = 0; i < sums_.size(); ++i) {
      code().emit(x86::Inst::kIdVpmaddwd, pairs_[i], pairs_[i], factor);
      code().vpaddd(sums_[i], sums_[i], pairs_[i]);
    }
  }

  void Dot(int i, int j, const Vec& weights, bool is_first) {
    if (has_signs()) {
      code().vpsignb(product_, weights, a_);
      code().vpmaddubsw(product_, magnitude_, product_);
      code().emit(x86::Inst::kIdVpmaddwd, product_, product_, ones_);
      return static_cast<void>(code().vpaddd(Sum(i, j), Sum(i, j), product_));
    }
    const Vec& u8 = spec_.a_signed ? weights : a_;
    const Vec& s8 = spec_.a_signed ? a_ : weights;
    if (has_vnni_) {
      return jit::EmitDot(code(), core::TraitsOf(isa_).vectors.encoding, {}, Sum(i, j), u8, s8);
    }
    if (is_first) return static_cast<void>(code().vpmaddubsw(Pairs(i, j), u8, s8));
    code().vpmaddubsw(product_, u8, s8);
    code().vpaddw(Pairs(i, j), Pairs(i, j), product_);
  }

  void AddToFloats() {
    if (spec_.prefetches) {
      for (int64_t offset = 0; offset < layout_.HeaderBytes(columns()); offset += kLine) {
        code().prefetcht0(x86::ptr(weights_, static_cast<int>(offset) + kAhead));
      }
    }
    if (layout_.sum_bytes != 0) {
      for (int j = 0; j < kVectors; ++j) LoadSums(Weights(0, j), header_, j);
      for (int i = 0; i < spec_.mr; ++i) {
        code().vpbroadcastd(a_, RowValue(i, offsetof(GroupedRowValues, zero_point)));
        for (int j = 0; j < kVectors; ++j) {
          code().vpmulld(product_, Weights(0, j), a_);
          code().vpsubd(Sum(i, j), Sum(i, j), product_);
        }
      }
    }
    for (int j = 0; j < kVectors; ++j) LoadScales(Weights(0, j), header_, j);
    const auto add = [&](int i, int j, const Vec& scale) {
      const Vec& sum = Sum(i, j);
      const Mem f = x86::ptr(f_, (i * kVectors + j) * vector_bytes());
      code().vcvtdq2ps(sum, sum);
      code().vfmadd213ps(sum, scale, f);
      code().vmovups(f, sum);
    };
    for (int i = 0; i < spec_.mr; ++i) {
      if (spec_.has_group_scales) code().vbroadcastss(a_, RowValue(i, offsetof(GroupedRowValues, scale)));
      for (int j = 0; j < kVectors; ++j) {
        if (spec_.has_group_scales) code().vmulps(product_, Weights(0, j), a_);
        add(i, j, spec_.has_group_scales ? product_ : Weights(0, j));
      }
    }
  }

  const GroupedKernelSpec& spec_;
  bool has_vnni_;
  int step_ = 0;  // of the unrolled steps
  Gp header_, weights_, values_, values_stride_, a_stride_, f_, groups_, steps_;
  std::vector<Gp> rows_;
  std::vector<Vec> sums_, pairs_, operands_;
  Vec a_, magnitude_, product_;
  asmjit::Operand mask_, ones_, sixteens_;
};

// ----- Expansion

class ExpansionGenerator : GroupedGenerator {
 public:
  explicit ExpansionGenerator(const GroupedExpansionSpec& spec)
      : GroupedGenerator(spec.isa, spec.layout, [&spec] { return spec.Name(); }),
        expanded_(spec.Expanded()),
        is_centered_(spec.is_centered) {}

  Result<jit::Code> Generate() {
    constants_ = registers_.NewGeneral("constants");
    const Gp from = registers_.NewGeneral("from");
    const Gp to = registers_.NewGeneral("to");
    const Gp groups = registers_.NewGeneral("groups");
    const Gp steps = registers_.NewGeneral("steps");
    session_.Begin(registers_);
    code().mov(constants_, Argument(offsetof(GroupedExpansionArgs, constants)));
    code().mov(from, Argument(offsetof(GroupedExpansionArgs, from)));
    code().mov(to, Argument(offsetof(GroupedExpansionArgs, to)));
    code().mov(groups, Argument(offsetof(GroupedExpansionArgs, groups)));
    low_ = registers_.NewVector("low nibbles");
    high_ = registers_.NewVector("high nibbles");
    const Vec mask = registers_.NewVector("mask");
    emitter_->Load(mask, Constant(offsetof(GroupedConstants, nibble)));
    if (is_centered_) TakeZeroPoints();
    const asmjit::Label group = code().newLabel();
    const asmjit::Label step = code().newLabel();
    code().bind(group);
    for (int j = 0; j < kVectors; ++j) ExpandHeader(from, to, j);
    code().add(from, static_cast<int>(layout_.HeaderBytes(columns())));
    code().add(to, static_cast<int>(expanded_.HeaderBytes(columns())));
    code().mov(steps, Argument(offsetof(GroupedExpansionArgs, steps)));
    code().bind(step);
    for (int vector = 0; vector < layout_.StepVectors(); ++vector) {
      for (int j = 0; j < kVectors; ++j) {
        const auto address = [&](const Gp& base, int number) {
          return x86::ptr(base, (number * kVectors + j) * vector_bytes());
        };
        emitter_->Load(low_, address(from, vector));
        HighNibbles(high_, low_, mask);
        LowNibbles(low_, mask);
        if (is_centered_) {
          for (const Vec& nibbles : {low_, high_}) code().vpsubb(nibbles, nibbles, ZeroPoints(j));
        }
        emitter_->Store(address(to, 2 * vector), low_);
        emitter_->Store(address(to, 2 * vector + 1), high_);
      }
    }
    code().add(from, static_cast<int>(layout_.StepBytes(columns())));
    code().add(to, static_cast<int>(expanded_.StepBytes(columns())));
    code().dec(steps);
    code().jnz(step);
    code().dec(groups);
    code().jnz(group);
    session_.End();
    return session_.Finish(registers_);
  }

 private:
  const Vec& ZeroPoints(int j) const { return zero_points_[static_cast<size_t>(j)]; }

  // Zero points that all groups have are loaded once.
  void TakeZeroPoints() {
    for (int j = 0; j < kVectors; ++j) zero_points_.push_back(registers_.NewVector("zero points"));
    in_each_byte_ = registers_.NewVector("in each byte");
    emitter_->Load(in_each_byte_, Constant(offsetof(GroupedConstants, in_each_byte)));
    if (layout_.zero_point_bytes != 0) return;
    for (int j = 0; j < kVectors; ++j) {
      code().vpbroadcastd(ZeroPoints(j), Argument(offsetof(GroupedExpansionArgs, zero_point)));
      code().vpmulld(ZeroPoints(j), ZeroPoints(j), in_each_byte_);
    }
  }

  // The values of vector j of columns.
  void ExpandHeader(const Gp& from, const Gp& to, int j) {
    const auto store = [&](int64_t offset) {
      emitter_->Store(x86::ptr(to, static_cast<int>(offset) + j * vector_bytes()), low_);
    };
    LoadScales(low_, from, j);
    store(0);
    if (layout_.zero_point_bytes != 0) {
      LoadZeroPoints(low_, from, j);
      if (is_centered_) {
        code().vpmulld(ZeroPoints(j), low_, in_each_byte_);
      } else {
        store(expanded_.ZeroPointOffset(columns()));
      }
    }
    if (layout_.sum_bytes == 0) return;
    LoadSums(low_, from, j);
    if (is_centered_) {  // less the zero point, the low byte, times the depths of the group
      code().vpslld(high_, ZeroPoints(j), 24);
      code().vpsrad(high_, high_, 24);
      code().vpmulld(
          high_, high_,
          Argument(offsetof(GroupedExpansionArgs, steps)).cloneBroadcasted(Mem::Broadcast::k1To16));
      code().vpslld(high_, high_, 4);
      static_assert(GroupedLayout::kStepDepths == 16);
      code().vpsubd(low_, low_, high_);
    }
    store(expanded_.SumOffset(columns()));
  }

  GroupedLayout expanded_;
  bool is_centered_;
  Vec low_, high_, in_each_byte_;
  std::vector<Vec> zero_points_;
};

// ----- Outputs

Result<jit::Code> GenerateOutput(const GroupedOutputSpec& spec) {
  jit::Assembler session([&] { return spec.Name(); });
  jit::RegisterFile registers = jit::MakeRegisterFile(spec.isa);
  const auto emitter = jit::MakeEmitter(spec.isa, session.code(), registers);
  x86::Assembler& code = session.code();
  const auto argument = [&](size_t member) {
    return x86::ptr(registers.Argument(), static_cast<int>(member));
  };
  const Gp f = registers.NewGeneral("f");
  const Gp scales = registers.NewGeneral("scales of rows");
  const Gp c = registers.NewGeneral("c");
  const Gp rows = registers.NewGeneral("rows");
  EpilogueSpec epilogue_spec;
  epilogue_spec.c_type = spec.c_type;
  epilogue_spec.scaling.has_addends = spec.has_bias;
  Epilogue epilogue(epilogue_spec, *emitter);
  std::vector<Gp> reserved;  // Prepare() takes its registers after Begin()
  reserved.reserve(Epilogue::kGeneralRegisters);
  for (int i = 0; i < Epilogue::kGeneralRegisters; ++i) reserved.push_back(registers.NewGeneral("epilogue"));
  session.Begin(registers);
  for (const Gp& general : reserved) registers.Free(general);
  code.mov(f, argument(offsetof(GroupedOutputArgs, f)));
  code.mov(scales, argument(offsetof(GroupedOutputArgs, scales)));
  code.mov(c, argument(offsetof(GroupedOutputArgs, c)));
  code.mov(rows, argument(offsetof(GroupedOutputArgs, rows)));
  epilogue.Prepare(registers.Argument(), offsetof(GroupedOutputArgs, epilogue));
  std::vector<Vec> values;
  values.reserve(kVectors);
  for (int j = 0; j < kVectors; ++j) values.push_back(registers.NewVector("f"));
  const Vec scale = registers.NewVector("scale");
  const asmjit::Label row = code.newLabel();
  code.bind(row);
  if (spec.has_row_scales) code.vbroadcastss(scale, x86::ptr(scales));
  for (int j = 0; j < kVectors; ++j) {
    const Vec& value = values[static_cast<size_t>(j)];
    const Mem from = x86::ptr(f, j * registers.vector_bytes());
    if (spec.has_row_scales) {
      code.vmulps(value, scale, from);
    } else {
      emitter->Load(value, from);
    }
  }
  epilogue.StoreFloats(values, x86::ptr(c));
  code.add(f, kVectors * registers.vector_bytes());
  code.add(scales, static_cast<int>(sizeof(float)));
  code.add(c, argument(offsetof(GroupedOutputArgs, c_stride_bytes)));
  code.dec(rows);
  code.jnz(row);
  session.End();
  return session.Finish(registers);
}

}  // namespace

GroupedConstants MakeGroupedConstants() {
  GroupedConstants constants;
  constants.nibble.fill(15);
  constants.ones.fill(1);
  constants.sixteens.fill(16);
  constants.in_each_byte.fill(0x01010101);
  return constants;
}

std::string GroupedKernelSpec::Name() const {
  return "grouped_" + std::string(a_signed ? "s8" : "u8") + NameOf(layout) +
         (has_group_scales ? "_groups_" : "_") + std::to_string(mr) + "x" + std::to_string(kVectors) + "_by" +
         std::to_string(unrolled_steps) + (prefetches ? "_ahead" : "") +
         (HasVnni(isa) ? "_vnni_" : "_maddubs_") + core::CompactName(isa);
}

std::string GroupedExpansionSpec::Name() const {
  return "grouped_expansion_" + NameOf(layout) + (is_centered ? "_centered_" : "_") + core::CompactName(isa);
}

std::string GroupedOutputSpec::Name() const {
  return "grouped_output_" + std::string(core::NameOf(c_type)) + (has_bias ? "_bias" : "") +
         (has_row_scales ? "_rows" : "") + "_" + core::CompactName(isa);
}

// Sums, without VNNI also sums of pairs; the weights' operands, a and product. kSignBytes has |a| instead of sums of pairs.
int LargestGroupedRows(core::Isa isa, GroupedStep step) {
  constexpr int kMostRows = 12;  // a fourth pointer addresses the last three
  const bool has_signs = step == GroupedStep::kSignBytes;
  const int operands = kVectors * (step == GroupedStep::kNibbles ? 2 : 1) + (has_signs ? 3 : 2);
  const int per_row = kVectors * (HasVnni(isa) || has_signs ? 1 : 2);
  return std::min((jit::VectorCount(isa) - operands) / per_row, kMostRows);
}

Result<GroupedKernelFunction> GetGroupedKernel(const GroupedKernelSpec& spec) {
  return jit::GetFunction<GroupedKernelFunction>(
      spec, [](const GroupedKernelSpec& key) { return KernelGenerator(key).Generate(); });
}

Result<GroupedExpansionFunction> GetGroupedExpansion(const GroupedExpansionSpec& spec) {
  return jit::GetFunction<GroupedExpansionFunction>(
      spec, [](const GroupedExpansionSpec& key) { return ExpansionGenerator(key).Generate(); });
}

Result<GroupedOutputFunction> GetGroupedOutput(const GroupedOutputSpec& spec) {
  return jit::GetFunction<GroupedOutputFunction>(spec, GenerateOutput);
}

}  // namespace intact::kernels
