#include "kernels/codegen/epilogue.h"

#include <algorithm>
#include <cstddef>

#include "core/isas.h"
#include "core/types.h"

namespace intact::kernels {

namespace x86 = asmjit::x86;

namespace {

std::string TypeName(intact_type type) { return std::string(core::NameOf(type)); }

}  // namespace

std::string EpilogueSpec::Name() const {
  return TypeName(c_type) + (scaling.has_addends ? "_bias" : "") + (has_b_zero_points ? "_zb" : "") +
         (has_row_zero_points ? "_za" : "") + (has_row_scales ? "_rows" : "") +
         (has_residual() ? "_plus_" + TypeName(residual) : "") + (form.streams ? "_streamed" : "") +
         (form.is_dealt ? "_dealt" : "") +
         (form.is_bounded_above   ? ""
          : form.is_bounded_below ? "_floored"
                                  : "_plain") +
         (form.known == KnownOutput::kNothing     ? ""
          : form.known == KnownOutput::kFitsInt32 ? "_int32"
                                                  : "_plain");
}

namespace {

// Whatever the caller's rounding mode; of 8-bit outputs' bounds, which are small.
int32_t RoundToNearestEven(float value) {
  constexpr float kLimit = 512.0f;
  const float clamped = std::clamp(value, -kLimit, kLimit);
  const auto truncated = static_cast<int32_t>(clamped);
  const float rest = clamped - static_cast<float>(truncated);
  const bool away = rest > 0.5f || rest < -0.5f || ((rest == 0.5f || rest == -0.5f) && truncated % 2 != 0);
  if (!away) return truncated;
  return rest > 0 ? truncated + 1 : truncated - 1;
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

void Epilogue::Advance() {
  x86::Assembler& code = emitter_.code();
  if (spec_.has_row_values()) code.mov(Argument(offsetof(EpilogueArgs, row_values)), row_);
  if (spec_.has_residual()) code.mov(Argument(offsetof(EpilogueArgs, residual)), residual_);
}

void Epilogue::LoadColumns(size_t member) {
  if (SharesRegister()) emitter_.code().mov(scales_, Argument(member));
}

void Epilogue::StoreRow(const std::vector<jit::Vec>& accumulators, const jit::Gp& c, int first_vector) {
  SubtractZeroPoints(accumulators, first_vector);
  if (spec_.c_type != INTACT_S32) {
    Scale(accumulators, first_vector);
    if (spec_.scaling.has_addends) LoadColumns(offsetof(EpilogueArgs, addends));
    for (size_t j = 0; j < accumulators.size(); ++j) {
      if (spec_.scaling.has_addends) AddBias(accumulators[j], first_vector + static_cast<int>(j));
      if (!spec_.has_residual()) Bound(accumulators[j]);
    }
  }
  if (spec_.has_row_values()) emitter_.code().add(row_, 4);
  if (spec_.has_residual()) AddResidual(accumulators);
  const int vector_stride = emitter_.lanes() * core::BytesOf(spec_.c_type);
  const auto address = [&](size_t j) {
    return x86::ptr(c, (first_vector + static_cast<int>(j)) * vector_stride);
  };
  if (core::BytesOf(spec_.c_type) == 4) {
    for (size_t j = 0; j < accumulators.size(); ++j) {
      if (spec_.form.streams) {
        emitter_.code().vmovntdq(address(j), accumulators[j]);
      } else {
        emitter_.Store(address(j), accumulators[j]);
      }
    }
    return;
  }
  if (spec_.c_type == INTACT_BF16) {
    for (size_t j = 0; j < accumulators.size(); ++j) StoreHalves(accumulators[j], address(j));
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
  const bool is_bounded = spec_.form.known != KnownOutput::kSaturates;
  if (spec_.form.is_dealt) {
    emitter_.PackDealtBytes(vectors, is_bounded ? &zero_point : nullptr, is_signed);
  } else {
    emitter_.PackBytes(vectors, zero_point, is_signed, Constant(offsetof(EpilogueConstants, pack_order)));
  }
  if (!is_bounded) return;
  is_signed ? code.vpmaxsb(packed, packed, lowest) : code.vpmaxub(packed, packed, lowest);
  if (spec_.form.known == KnownOutput::kNothing) return;
  is_signed ? code.vpminsb(packed, packed, highest) : code.vpminub(packed, packed, highest);
}

void Epilogue::StoreBytes(const std::vector<jit::Vec>& accumulators, size_t first, size_t count,
                          const jit::Mem& to) {
  const auto begin = accumulators.begin() + static_cast<std::ptrdiff_t>(first);
  const std::vector<jit::Vec> vectors(begin, begin + static_cast<std::ptrdiff_t>(count));
  PackBytes(vectors);
  emitter_.StoreLow(to, vectors[0], static_cast<int>(count) * emitter_.lanes());
}

// To nearest even: what is cut off is half of the last bit or more where the addition carries, and half
// itself only carries from odd to even. A NaN is none: Bound() has made −∞ of it.
void Epilogue::StoreHalves(const jit::Vec& accumulator, const jit::Mem& to) {
  x86::Assembler& code = emitter_.code();
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
  emitter_.StoreLow(to, accumulator, emitter_.vector_bytes() / 2);
}

// Modulo 2³², as all accumulation; the plan has proven that the result fits.
void Epilogue::SubtractZeroPoints(const std::vector<jit::Vec>& accumulators, int first_vector) {
  if (spec_.has_b_zero_points) {
    SubtractProducts(accumulators, first_vector, offsetof(RowValues, sums),
                     offsetof(EpilogueArgs, b_zero_points));
  }
  if (spec_.has_row_zero_points) {
    SubtractProducts(accumulators, first_vector, offsetof(RowValues, zero_points),
                     offsetof(EpilogueArgs, column_sums));
  }
}

void Epilogue::SubtractProducts(const std::vector<jit::Vec>& accumulators, int first_vector,
                                size_t row_member, size_t member) {
  x86::Assembler& code = emitter_.code();
  LoadColumns(member);
  const auto multiply = [&](const jit::Vec& product, const jit::Vec& value, const jit::Mem& columns) {
    code.vpmulld(product, value, columns);
  };
  ForProducts(accumulators, first_vector, row_member, multiply,
              [&](const jit::Vec& y, const jit::Vec& product) { code.vpsubd(y, y, product); });
}

void Epilogue::Scale(const std::vector<jit::Vec>& accumulators, int first_vector) {
  x86::Assembler& code = emitter_.code();
  LoadColumns(offsetof(EpilogueArgs, factors));
  for (const jit::Vec& accumulator : accumulators) code.vcvtdq2ps(accumulator, accumulator);
  if (!spec_.has_row_scales) {
    for (const jit::Vec& accumulator : accumulators) {
      code.vmulps(accumulator, accumulator, x86::ptr(scales_, first_vector++ * emitter_.vector_bytes()));
    }
    return;
  }
  const auto multiply = [&](const jit::Vec& product, const jit::Vec& value, const jit::Mem& columns) {
    code.vmulps(product, value, columns);
  };
  ForProducts(accumulators, first_vector, offsetof(RowValues, scales), multiply,
              [&](const jit::Vec& f, const jit::Vec& scale) { code.vmulps(f, f, scale); });
}

// The row's value is loaded once if a register is free for it.
template <class Multiply, class Use>
void Epilogue::ForProducts(const std::vector<jit::Vec>& accumulators, int first_vector, size_t row_member,
                           Multiply multiply, Use use) {
  jit::RegisterFile& registers = emitter_.registers();
  const jit::Mem row = x86::ptr(row_, static_cast<int>(row_member));
  const jit::Vec product = registers.NewVector("row's value × columns'");
  const bool has_value = accumulators.size() > 1 && registers.FreeVectors() > 0;
  const jit::Vec value = has_value ? registers.NewVector("row's value") : product;
  for (size_t j = 0; j < accumulators.size(); ++j) {
    const int vector = first_vector + static_cast<int>(j);
    if (j == 0 || !has_value) emitter_.code().vpbroadcastd(value, row);
    multiply(product, value, x86::ptr(scales_, vector * emitter_.vector_bytes()));
    use(accumulators[j], product);
  }
  if (has_value) registers.Free(value);
  registers.Free(product);
}

void Epilogue::AddBias(const jit::Vec& accumulator, int vector) {
  emitter_.code().vaddps(accumulator, accumulator, x86::ptr(bias_, vector * emitter_.vector_bytes()));
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

// As float32, the zero point subtracted.
void Epilogue::LoadResidual(const jit::Vec& to, int vector) {
  x86::Assembler& code = emitter_.code();
  const jit::Mem from = x86::ptr(residual_, vector * emitter_.lanes() * core::BytesOf(spec_.residual));
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
  // With the bound as second operand, equal values take the bound: −0 becomes the bound's +0; and so do NaNs.
  const bool is_float = core::IsFloat(spec_.c_type);
  const bool is_known = spec_.form.known != KnownOutput::kNothing;
  const bool may_be_nan = (spec_.has_residual() || spec_.has_row_scales) && !is_known;
  if (is_float ? spec_.form.is_bounded_below : may_be_nan) {
    code.vmaxps(accumulator, accumulator, Constant(offsetof(EpilogueConstants, lo)));
  }
  if (is_float ? spec_.form.is_bounded_above : !is_known) {
    code.vminps(accumulator, accumulator, Constant(offsetof(EpilogueConstants, hi)));
  }
  if (is_float) return;
  code.vcvtps2dq(accumulator, accumulator);
}

}  // namespace intact::kernels
