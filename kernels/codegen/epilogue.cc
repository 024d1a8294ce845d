#include "kernels/codegen/epilogue.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string_view>

#include "core/isas.h"
#include "core/types.h"

namespace intact::kernels {

namespace x86 = asmjit::x86;

namespace {

constexpr x86::KReg kLastColumns = x86::k3;  // of the last vector
constexpr x86::KReg kLastBytes = x86::k4;    // of the last packed vectors

}  // namespace

std::string EpilogueSpec::Name() const {
  std::string name(core::NameOf(c_type));
  const auto add = [&](bool has, std::string_view part) {
    if (has) name += part;
  };
  if (is_fixed()) {
    name += scaling.fixed_point == INTACT_FIXED_POINT_HALF_UP ? "_up" : "_away";
    add(!scaling.has_multipliers, "_shift");
    add(scaling.has_left_shifts, "_left");
  } else {
    add(scaling.has_addends, "_bias");
  }
  add(has_b_zero_points, "_zb");
  add(has_one_b_zero_point, "1");
  add(has_row_zero_points, "_za");
  add(has_row_scales, "_rows");
  add(has_run_scale, "_run");
  if (has_residual()) name.append("_plus_").append(core::NameOf(residual));
  if (variant.last_columns != 0) name.append("_masked").append(std::to_string(variant.last_columns));
  add(variant.streams, "_streamed");
  add(variant.is_quartered, "_quartered");
  if (!variant.is_bounded_above) name += variant.is_bounded_below ? "_floored" : "_plain";
  if (variant.known != KnownOutput::kNothing) {
    name += variant.known == KnownOutput::kFitsInt32 ? "_int32" : "_plain";
  }
  return name;
}

namespace {

// Independent of the caller's rounding mode. For bounds of 8-bit outputs, which are small.
int32_t RoundToNearestEven(float value) {
  constexpr float kLimit = 512.0f;
  const float clamped = std::clamp(value, -kLimit, kLimit);
  const auto truncated = static_cast<int32_t>(clamped);
  const float fraction = clamped - static_cast<float>(truncated);
  const bool away =
      fraction > 0.5f || fraction < -0.5f || ((fraction == 0.5f || fraction == -0.5f) && truncated % 2 != 0);
  if (!away) return truncated;
  return fraction > 0 ? truncated + 1 : truncated - 1;
}

}  // namespace

KnownOutput KnowOutput(intact_type type, const OutputBounds& bounds, double largest) {
  constexpr double kSafe = 2147000000.0;  // leaves room for roundings
  if (core::BytesOf(type) != 1 || largest > kSafe) return KnownOutput::kNothing;
  const auto least = static_cast<float>(core::LowestOf(type));
  const bool changes = bounds.zero_point != 0 || bounds.lo != least || bounds.hi != least + 255.0f;
  return changes ? KnownOutput::kFitsInt32 : KnownOutput::kSaturates;
}

EpilogueConstants MakeEpilogueConstants(const OutputBounds& bounds, const ResidualScale& residual,
                                        core::Isa isa) {
  EpilogueConstants constants;
  constants.lo.fill(bounds.lo);
  constants.hi.fill(bounds.hi);
  constants.zero_point.fill(static_cast<int16_t>(bounds.zero_point));
  // Meaningful for 8-bit outputs, whose bounds lie within the type.
  constants.lowest.fill(static_cast<uint8_t>(RoundToNearestEven(bounds.lo) + bounds.zero_point));
  constants.highest.fill(static_cast<uint8_t>(RoundToNearestEven(bounds.hi) + bounds.zero_point));
  const std::vector<int32_t> order = jit::PackOrder(jit::VectorBytes(isa) / 4);
  constants.pack_order.fill(0);
  std::copy(order.begin(), order.end(), constants.pack_order.begin());
  constants.residual_scale.fill(residual.scale);
  constants.residual_zero_point.fill(residual.zero_point);
  constants.half_order.fill(0);
  for (int i = 0; i < 8; ++i) constants.half_order[static_cast<size_t>(i)] = i / 2 * 4 + i % 2;
  constants.bfloat16_middle.fill(0x7FFF);
  constants.half_product.fill(int64_t{1} << 30);
  constants.least.fill(std::numeric_limits<int32_t>::min());
  constants.most.fill(std::numeric_limits<int32_t>::max());
  constants.one.fill(1);
  constants.minus_one.fill(-1);
  return constants;
}

void Epilogue::Prepare(const jit::Gp& args, int offset) {
  args_ = args;
  offset_ = offset;
  const auto load = [&](const char* name, size_t member) {
    const jit::Gp pointer = emitter_.registers().NewGeneral(name);
    emitter_.code().mov(pointer, Argument(member));
    return pointer;
  };
  if (spec_.variant.masked_vectors != 0) LoadMasks();
  if (spec_.has_row_values()) row_ = load("row", offsetof(EpilogueArgs, row_values));
  if (spec_.c_type != INTACT_S32 || SharesRegister()) {
    scales_ = load("scales", offsetof(EpilogueArgs, factors));
  }
  if (spec_.c_type == INTACT_S32) return;
  if (SharesRegister()) {
    bias_ = scales_;
  } else if (spec_.scaling.has_addends) {
    bias_ = load("bias", offsetof(EpilogueArgs, addends));
  }
  constants_ = load("constants", offsetof(EpilogueArgs, constants));
  if (spec_.has_residual()) residual_ = load("residual", offsetof(EpilogueArgs, residual));
}

void Epilogue::LoadMasks() {
  const jit::Gp bits = emitter_.registers().NewGeneral("mask");
  const auto load = [&](const x86::KReg& mask, int columns) {
    emitter_.code().mov(bits, ~uint64_t{0} >> (64 - columns));
    emitter_.code().kmovq(mask, bits);
  };
  // Bytes are packed from four, two or one vectors.
  const int packed = spec_.variant.masked_vectors == 3 ? 1 : spec_.variant.masked_vectors;
  load(kLastColumns, spec_.variant.last_columns);
  load(kLastBytes, (packed - 1) * emitter_.lanes() + spec_.variant.last_columns);
  emitter_.registers().Free(bits);
}

void Epilogue::Advance() {
  x86::Assembler& code = emitter_.code();
  if (spec_.has_row_values()) code.mov(Argument(offsetof(EpilogueArgs, row_values)), row_);
  if (spec_.has_residual()) code.mov(Argument(offsetof(EpilogueArgs, residual)), residual_);
}

void Epilogue::AdvanceColumns(int vectors) {
  const auto advance = [&](size_t member, int bytes) {
    emitter_.code().add(x86::qword_ptr(args_, offset_ + static_cast<int>(member)), bytes);
  };
  const int columns = vectors * emitter_.vector_bytes();
  if (spec_.c_type != INTACT_S32) {
    advance(offsetof(EpilogueArgs, factors), columns);
    advance(offsetof(EpilogueArgs, addends), columns);
  }
  if (spec_.has_b_zero_points) advance(offsetof(EpilogueArgs, b_zero_points), columns);
  if (spec_.has_row_zero_points) advance(offsetof(EpilogueArgs, column_sums), columns);
  if (spec_.has_residual()) {
    advance(offsetof(EpilogueArgs, residual), vectors * emitter_.lanes() * core::BytesOf(spec_.residual));
  }
}

void Epilogue::LoadColumns(size_t member) {
  if (SharesRegister()) emitter_.code().mov(scales_, Argument(member));
}

void Epilogue::StoreRow(const std::vector<jit::Vec>& accumulators, const jit::Mem& c) {
  Requantize(accumulators);
  Store(accumulators, c);
}

void Epilogue::StoreRows(const std::vector<std::vector<jit::Vec>>& rows, const jit::Gp& c,
                         const jit::Mem& c_stride_bytes, bool are_adjacent) {
  const size_t width = rows[0].size();
  HoldColumns(rows.size(), width);
  size_t first = 0;
  for (size_t packed = PackedRows(width); first < rows.size(); first += packed) {
    while (rows.size() - first < packed) packed /= 2;
    std::vector<jit::Vec> vectors;
    vectors.reserve(packed * width);
    for (size_t row = first; row < first + packed; ++row) {
      Requantize(rows[row]);
      vectors.insert(vectors.end(), rows[row].begin(), rows[row].end());
    }
    if (packed == 1) {
      Store(vectors, x86::ptr(c));
      emitter_.code().add(c, c_stride_bytes);
      continue;
    }
    PackBytes(vectors);
    const int bytes = static_cast<int>(width) * emitter_.lanes();
    if (are_adjacent) {
      const int all = static_cast<int>(packed) * bytes;
      emitter_.StorePart(x86::ptr(c), vectors[0], all, 0);
      emitter_.code().add(c, all);
      continue;
    }
    for (size_t row = 0; row < packed; ++row) {
      if (spec_.variant.masked_vectors == 0) {
        emitter_.StorePart(x86::ptr(c), vectors[0], bytes, static_cast<int>(row));
      } else {
        StoreMaskedPart(x86::ptr(c), vectors, bytes, static_cast<int>(row));
      }
      emitter_.code().add(c, c_stride_bytes);
    }
  }
  for (std::vector<jit::Vec>* const held : {&factors_, &addends_}) {
    for (const jit::Vec& vector : *held) emitter_.registers().Free(vector);
    held->clear();
  }
}

// Loads are the bottleneck of kernels of one vector of columns.
void Epilogue::HoldColumns(size_t rows, size_t width) {
  constexpr size_t kLeastRows = 4;
  constexpr int kSpare = 3;  // registers that other steps take
  jit::RegisterFile& registers = emitter_.registers();
  const auto hold = [&](const jit::Gp& columns, std::vector<jit::Vec>* held) {
    if (registers.FreeVectors() < static_cast<int>(width) + kSpare) return;
    for (size_t j = 0; j < width; ++j) {
      held->push_back(registers.NewVector("columns"));
      emitter_.Load(held->back(), x86::ptr(columns, static_cast<int>(j) * emitter_.vector_bytes()));
    }
  };
  if (rows < kLeastRows || SharesRegister() || spec_.c_type == INTACT_S32 || spec_.is_fixed()) return;
  hold(scales_, &factors_);
  if (spec_.scaling.has_addends) hold(bias_, &addends_);
}

asmjit::Operand Epilogue::Columns(const jit::Gp& columns, const std::vector<jit::Vec>& held,
                                  size_t vector) const {
  if (!held.empty()) return held[vector];
  return x86::ptr(columns, static_cast<int>(vector) * emitter_.vector_bytes());
}

void Epilogue::StoreMaskedPart(const jit::Mem& to, const std::vector<jit::Vec>& packed, int bytes, int part) {
  x86::Assembler& code = emitter_.code();
  if (part == 0) {
    code.k(kLastBytes).vmovdqu8(to, packed[0]);
  } else if (bytes == 16) {
    code.vextracti32x4(packed[1].xmm(), packed[0], part);
    code.k(kLastBytes).vmovdqu8(to, packed[1].xmm());
  } else {
    code.vextracti32x8(packed[1].ymm(), packed[0], part);
    code.k(kLastBytes).vmovdqu8(to, packed[1].ymm());
  }
}

size_t Epilogue::PackedRows(size_t width) const {
  return core::BytesOf(spec_.c_type) == 1 && (width == 1 || width == 2) ? 4 / width : 1;
}

void Epilogue::Requantize(const std::vector<jit::Vec>& accumulators) {
  SubtractZeroPoints(accumulators);
  if (spec_.is_fixed()) {
    MultiplyFixed(accumulators);
  } else if (spec_.c_type != INTACT_S32) {
    Scale(accumulators);
    AddBiasAndBound(accumulators);
  }
  if (spec_.has_row_values()) emitter_.code().add(row_, spec_.row_value_bytes());
  if (spec_.has_residual()) AddResidual(accumulators);
}

void Epilogue::StoreFloats(const std::vector<jit::Vec>& values, const jit::Mem& c) {
  AddBiasAndBound(values);
  Store(values, c);
}

void Epilogue::AddBiasAndBound(const std::vector<jit::Vec>& accumulators) {
  x86::Assembler& code = emitter_.code();
  if (spec_.scaling.has_addends) LoadColumns(offsetof(EpilogueArgs, addends));
  for (size_t j = 0; j < accumulators.size(); ++j) {
    if (spec_.scaling.has_addends) {
      code.emit(x86::Inst::kIdVaddps, accumulators[j], accumulators[j], Columns(bias_, addends_, j));
    }
    if (!spec_.has_residual()) Bound(accumulators[j]);
  }
}

void Epilogue::Store(const std::vector<jit::Vec>& accumulators, const jit::Mem& c) {
  const int vector_stride = emitter_.lanes() * core::BytesOf(spec_.c_type);
  const auto address = [&](size_t j) { return c.cloneAdjusted(static_cast<int64_t>(j) * vector_stride); };
  if (core::BytesOf(spec_.c_type) == 4) {
    for (size_t j = 0; j < accumulators.size(); ++j) {
      if (IsMasked(static_cast<int>(j))) {
        emitter_.code().k(kLastColumns).vmovdqu32(address(j), accumulators[j]);
      } else if (spec_.variant.streams) {
        emitter_.code().vmovntdq(address(j), accumulators[j]);
      } else {
        emitter_.Store(address(j), accumulators[j]);
      }
    }
    return;
  }
  if (core::IsHalfFloat(spec_.c_type)) {
    for (size_t j = 0; j < accumulators.size(); ++j) {
      StoreHalves(accumulators[j], static_cast<int>(j), address(j));
    }
    return;
  }
  size_t first = 0;
  for (const size_t count : {4, 2, 1}) {
    for (; accumulators.size() - first >= count; first += count) {
      StoreBytes(accumulators, first, count, address(first));
    }
  }
}

void Epilogue::PackColumns(const std::vector<jit::Mem>& accumulators, int column,
                           const std::vector<jit::Vec>& vectors) {
  x86::Assembler& code = emitter_.code();
  const jit::Vec factor = emitter_.registers().NewVector("scale or bias");
  for (size_t i = 0; i < vectors.size(); ++i) {
    const jit::Vec& vector = vectors[i];
    const int offset = column++ * 4;
    if (spec_.is_fixed()) {
      emitter_.Load(vector, accumulators[i]);
      code.vpbroadcastd(factor, x86::ptr(bias_, offset));
      if (spec_.scaling.has_left_shifts) ShiftLeft(vector, factor);
      if (spec_.scaling.has_multipliers) {
        code.vpbroadcastd(factor, x86::ptr(scales_, offset));
        MultiplyHigh(vector, factor);
        code.vpbroadcastd(factor, x86::ptr(bias_, offset));
      }
      ShiftRight(vector, factor);
      continue;
    }
    code.vcvtdq2ps(vector, accumulators[i]);
    code.vbroadcastss(factor, x86::ptr(scales_, offset));
    code.vmulps(vector, vector, factor);
    if (spec_.scaling.has_addends) {
      code.vbroadcastss(factor, x86::ptr(bias_, offset));
      code.vaddps(vector, vector, factor);
    }
    Bound(vector);
  }
  emitter_.registers().Free(factor);
  PackBytes(vectors);
}

void Epilogue::PackBytes(const std::vector<jit::Vec>& vectors) {
  x86::Assembler& code = emitter_.code();
  const bool is_signed = spec_.c_type == INTACT_S8;
  const jit::Mem zero_point = Constant(offsetof(EpilogueConstants, zero_point));
  const jit::Mem lowest = Constant(offsetof(EpilogueConstants, lowest));
  const jit::Mem highest = Constant(offsetof(EpilogueConstants, highest));
  const jit::Vec& packed = vectors[0];
  const bool is_bounded = spec_.variant.known != KnownOutput::kSaturates;
  if (spec_.variant.is_quartered) {
    emitter_.PackQuarteredBytes(vectors, is_bounded ? &zero_point : nullptr, is_signed);
  } else {
    emitter_.PackBytes(vectors, zero_point, is_signed, Constant(offsetof(EpilogueConstants, pack_order)));
  }
  if (!is_bounded) return;
  is_signed ? code.vpmaxsb(packed, packed, lowest) : code.vpmaxub(packed, packed, lowest);
  if (spec_.variant.known == KnownOutput::kNothing && !spec_.is_fixed()) return;  // Bound() did
  is_signed ? code.vpminsb(packed, packed, highest) : code.vpminub(packed, packed, highest);
}

void Epilogue::StoreBytes(const std::vector<jit::Vec>& accumulators, size_t first, size_t count,
                          const jit::Mem& to) {
  const auto begin = accumulators.begin() + static_cast<std::ptrdiff_t>(first);
  const std::vector<jit::Vec> vectors(begin, begin + static_cast<std::ptrdiff_t>(count));
  PackBytes(vectors);
  if (IsMasked(static_cast<int>(first + count) - 1)) {
    emitter_.code().k(kLastBytes).vmovdqu8(to, vectors[0]);
  } else {
    emitter_.StorePart(to, vectors[0], static_cast<int>(count) * emitter_.lanes(), 0);
  }
}

// Rounds to nearest even. For bfloat16, adding bfloat16_middle carries if the cut-off bits are more than half
// of the last bit; adding the last bit too makes exactly half carry, but only from odd to even. No value is
// NaN: Bound() has replaced NaNs by lo.
void Epilogue::StoreHalves(const jit::Vec& accumulator, int vector, const jit::Mem& to) {
  x86::Assembler& code = emitter_.code();
  if (spec_.c_type == INTACT_F16) {
    constexpr int kToNearestEven = 0;            // regardless of MXCSR; subnormal results are never flushed
    if (IsMasked(vector)) code.k(kLastColumns);  // of the next instruction
    code.vcvtps2ph(to, accumulator, kToNearestEven);
    return;
  }
  const jit::Vec odd = emitter_.registers().NewVector("last bit");
  code.vpslld(odd, accumulator, 15);
  code.vpsrld(odd, odd, 31);
  code.vpaddd(accumulator, accumulator, odd);
  code.vpaddd(accumulator, accumulator, Constant(offsetof(EpilogueConstants, bfloat16_middle)));
  code.vpsrld(accumulator, accumulator, 16);
  code.vpackusdw(accumulator, accumulator, accumulator);
  emitter_.Load(odd, Constant(offsetof(EpilogueConstants, half_order)));
  code.vpermd(accumulator, odd, accumulator);
  emitter_.registers().Free(odd);
  if (IsMasked(vector)) {
    code.k(kLastColumns).vmovdqu16(to, accumulator);
  } else {
    emitter_.StorePart(to, accumulator, emitter_.vector_bytes() / 2, 0);
  }
}

// Modulo 2³², as all accumulation. The plan has proven that the result fits, or it may wrap.
void Epilogue::SubtractZeroPoints(const std::vector<jit::Vec>& accumulators) {
  if (spec_.has_one_b_zero_point) {
    x86::Assembler& code = emitter_.code();
    const jit::Vec sum = emitter_.registers().NewVector("row's sum");
    code.vpbroadcastd(sum, x86::ptr(row_, static_cast<int>(offsetof(RowValues, sum))));
    for (const jit::Vec& accumulator : accumulators) code.vpsubd(accumulator, accumulator, sum);
    emitter_.registers().Free(sum);
  } else if (spec_.has_b_zero_points) {
    SubtractProducts(accumulators, offsetof(RowValues, sum), offsetof(EpilogueArgs, b_zero_points));
  }
  if (spec_.has_row_zero_points) {
    SubtractProducts(accumulators, offsetof(RowValues, zero_point), offsetof(EpilogueArgs, column_sums));
  }
}

void Epilogue::SubtractProducts(const std::vector<jit::Vec>& accumulators, size_t row_member, size_t member) {
  x86::Assembler& code = emitter_.code();
  LoadColumns(member);
  const auto multiply = [&](const jit::Vec& product, const jit::Vec& value, const jit::Mem& columns) {
    code.vpmulld(product, value, columns);
  };
  ForProducts(accumulators, row_member, multiply,
              [&](const jit::Vec& y, const jit::Vec& product) { code.vpsubd(y, y, product); });
}

void Epilogue::Scale(const std::vector<jit::Vec>& accumulators) {
  x86::Assembler& code = emitter_.code();
  LoadColumns(offsetof(EpilogueArgs, factors));
  for (const jit::Vec& accumulator : accumulators) code.vcvtdq2ps(accumulator, accumulator);
  if (!spec_.has_row_scales) {
    for (size_t j = 0; j < accumulators.size(); ++j) {
      code.emit(x86::Inst::kIdVmulps, accumulators[j], accumulators[j], Columns(scales_, factors_, j));
    }
    return;
  }
  const auto multiply = [&](const jit::Vec& product, const jit::Vec& value, const jit::Mem& columns) {
    code.vmulps(product, value, columns);
  };
  ForProducts(accumulators, offsetof(RowValues, scale), multiply,
              [&](const jit::Vec& f, const jit::Vec& scale) { code.vmulps(f, f, scale); });
}

// Loads the row's value only once if a register is free for it.
template <class Multiply, class Use>
void Epilogue::ForProducts(const std::vector<jit::Vec>& accumulators, size_t row_member, Multiply multiply,
                           Use use) {
  jit::RegisterFile& registers = emitter_.registers();
  const jit::Mem row = x86::ptr(row_, static_cast<int>(row_member));
  const jit::Vec product = registers.NewVector("row's value × columns'");
  const bool has_value = accumulators.size() > 1 && registers.FreeVectors() > 0;
  const jit::Vec value = has_value ? registers.NewVector("row's value") : product;
  for (size_t j = 0; j < accumulators.size(); ++j) {
    const int vector = static_cast<int>(j);
    if (j == 0 || !has_value) emitter_.code().vpbroadcastd(value, row);
    multiply(product, value, x86::ptr(scales_, vector * emitter_.vector_bytes()));
    use(accumulators[j], product);
  }
  if (has_value) registers.Free(value);
  registers.Free(product);
}

void Epilogue::MultiplyFixed(const std::vector<jit::Vec>& accumulators) {
  const auto for_each = [&](size_t member, const jit::Gp& columns, auto step) {
    LoadColumns(member);
    int offset = 0;
    for (const jit::Vec& y : accumulators) {
      step(y, x86::ptr(columns, offset));
      offset += emitter_.vector_bytes();
    }
  };
  constexpr size_t kFactors = offsetof(EpilogueArgs, factors), kAddends = offsetof(EpilogueArgs, addends);
  if (spec_.scaling.has_left_shifts) {
    for_each(kAddends, bias_, [&](const jit::Vec& y, const jit::Mem& shifts) { ShiftLeft(y, shifts); });
  }
  if (spec_.scaling.has_multipliers) {
    for_each(kFactors, scales_, [&](const jit::Vec& y, const jit::Mem& values) { MultiplyHigh(y, values); });
  }
  for_each(kAddends, bias_, [&](const jit::Vec& y, const jit::Mem& shifts) { ShiftRight(y, shifts); });
}

// Before a left shift by L, y is clamped to [−2^(31 − L), 2^(31 − L) − 1]. If that changes y, v is beyond all
// 8-bit outputs with and without the clamp, because multipliers are at least 2^30, or 0.
template <class Operand>
void Epilogue::ShiftLeft(const jit::Vec& y, const Operand& shifts) {
  x86::Assembler& code = emitter_.code();
  const jit::Vec left = emitter_.registers().NewVector("shift to the left");
  const jit::Vec bound = emitter_.registers().NewVector("bound");
  emitter_.Zero(left);
  code.vpmaxsd(left, left, shifts);
  emitter_.Load(bound, Constant(offsetof(EpilogueConstants, least)));
  code.vpsravd(bound, bound, left);
  code.vpmaxsd(y, y, bound);
  emitter_.Load(bound, Constant(offsetof(EpilogueConstants, most)));
  code.vpsravd(bound, bound, left);
  code.vpminsd(y, y, bound);
  code.vpsllvd(y, y, left);
  emitter_.registers().Free(bound);
  emitter_.registers().Free(left);
}

// Bits 31 to 62 of y·multiplier + 2^30, computed separately for even and odd lanes.
template <class Operand>
void Epilogue::MultiplyHigh(const jit::Vec& y, const Operand& multipliers) {
  x86::Assembler& code = emitter_.code();
  const jit::Mem half = Constant(offsetof(EpilogueConstants, half_product));
  const jit::Vec odd = emitter_.registers().NewVector("odd lanes");
  const jit::Vec odd_multipliers = emitter_.registers().NewVector("their multipliers");
  code.vpsrlq(odd, y, 32);
  code.vpshufd(odd_multipliers, multipliers, 0xF5);
  code.vpmuldq(odd, odd, odd_multipliers);
  code.vpmuldq(y, y, multipliers);
  code.vpaddq(odd, odd, half);
  code.vpaddq(y, y, half);
  code.vpsrlq(odd, odd, 31);
  code.vpsllq(odd, odd, 32);
  code.vpsllq(y, y, 1);
  code.vpsrlq(y, y, 32);
  code.vpaddd(y, y, odd);
  emitter_.registers().Free(odd_multipliers);
  emitter_.registers().Free(odd);
}

// r = max(−shift, 0). floor(y/2^r) + bit r − 1 of y rounds ties up; if r is 0, the count of −1 shifts all
// bits out. Subtracting 1 from negative y if r > 0 makes ties below 0 go down. For that INT32_MIN is replaced
// by −INT32_MAX. The result is equal unless r = 0, and then both are beyond all 8-bit outputs. After a
// multiplication y is never INT32_MIN.
template <class Operand>
void Epilogue::ShiftRight(const jit::Vec& y, const Operand& shifts) {
  x86::Assembler& code = emitter_.code();
  const jit::Mem minus_one = Constant(offsetof(EpilogueConstants, minus_one));
  const jit::Vec right = emitter_.registers().NewVector("shift to the right");
  const jit::Vec other = emitter_.registers().NewVector("rounding");
  emitter_.Zero(right);
  code.vpminsd(right, right, shifts);
  emitter_.Load(other, minus_one);
  code.vpsubd(right, other, right);  // r − 1
  if (spec_.scaling.fixed_point == INTACT_FIXED_POINT_HALF_AWAY) {
    if (!spec_.scaling.has_multipliers) {
      emitter_.Load(other, Constant(offsetof(EpilogueConstants, least)));
      code.vpsubd(other, other, minus_one);
      code.vpmaxsd(y, y, other);
    }
    code.vpsrad(other, y, 31);
    code.vpsrlvd(other, other, right);
    code.vpminud(other, other, Constant(offsetof(EpilogueConstants, one)));
    code.vpsubd(y, y, other);
  }
  code.vpsrlvd(other, y, right);
  code.vpslld(other, other, 31);
  code.vpsrld(other, other, 31);
  code.vpsubd(right, right, minus_one);
  code.vpsravd(y, y, right);
  code.vpaddd(y, y, other);
  emitter_.registers().Free(other);
  emitter_.registers().Free(right);
}

void Epilogue::AddResidual(const std::vector<jit::Vec>& accumulators) {
  x86::Assembler& code = emitter_.code();
  const jit::Vec residual = emitter_.registers().NewVector("residual");
  for (size_t j = 0; j < accumulators.size(); ++j) {
    LoadResidual(residual, static_cast<int>(j));
    code.vmulps(residual, residual, Constant(offsetof(EpilogueConstants, residual_scale)));
    code.vaddps(accumulators[j], accumulators[j], residual);
    Bound(accumulators[j]);
  }
  emitter_.registers().Free(residual);
  code.add(residual_, Argument(offsetof(EpilogueArgs, residual_stride_bytes)));
}

// Loads as float32, minus the zero point.
void Epilogue::LoadResidual(const jit::Vec& to, int vector) {
  x86::Assembler& code = emitter_.code();
  const jit::Mem from = x86::ptr(residual_, vector * emitter_.lanes() * core::BytesOf(spec_.residual));
  if (IsMasked(vector)) code.k(kLastColumns).z();  // of the next instruction
  if (spec_.residual == INTACT_F32) return emitter_.Load(to, from);
  if (spec_.residual == INTACT_U8) {
    code.vpmovzxbd(to, from);
  } else {
    code.vpmovsxbd(to, from);
  }
  code.vpsubd(to, to, Constant(offsetof(EpilogueConstants, residual_zero_point)));
  code.vcvtdq2ps(to, to);
}

void Epilogue::Bound(const jit::Vec& accumulator) {
  x86::Assembler& code = emitter_.code();
  // The bound is the second operand, so it replaces equal values (−0 becomes the bound's +0) and NaNs.
  const bool is_float = core::IsFloat(spec_.c_type);
  const bool is_known = spec_.variant.known != KnownOutput::kNothing;
  const bool may_be_nan = spec_.MayBeNan() && !is_known;
  if (is_float ? spec_.variant.is_bounded_below : may_be_nan) {
    code.vmaxps(accumulator, accumulator, Constant(offsetof(EpilogueConstants, lo)));
  }
  if (is_float ? spec_.variant.is_bounded_above : !is_known) {
    code.vminps(accumulator, accumulator, Constant(offsetof(EpilogueConstants, hi)));
  }
  if (is_float) return;
  code.vcvtps2dq(accumulator, accumulator);
}

}  // namespace intact::kernels
