#include "emulator/vector_operations.h"

#include "emulator/compute.h"

namespace intact::emulator {

/// Where the operands of an operation are. Operands that are not named do not exist.
enum class Form : uint8_t {
  kToRegister,  // reg ← vvvv, rm
  kUnary,       // reg ← rm
  kStore,       // rm ← reg
  kGroup,       // vvvv ← rm, ModRM.reg is part of the opcode
  kToMask,      // k reg ← vvvv, rm: the elements of the result that are ones
};

/// The size of an operand in memory; for stores and extractions, of the result. It scales a compressed
/// displacement.
enum class Tuple : uint8_t { kFull, kHalf, kQuarter, kEighth, kElement, k8, k16, k32 };

/// The vector lengths that an operation has.
enum class Lengths : uint8_t { kAll, kFrom256, kOnly512, kOnly128, kOnly256 };

/// W of an encoding: must be 0 or 1, may be either, or the operation does not have the encoding.
enum class W : uint8_t { k0, k1, kAny, kNone };

struct VectorOperation {
  const char* name;
  Map map;
  Prefix prefix;
  uint8_t opcode;
  W vex, evex;
  uint8_t element;    // bytes for each bit of a mask; 0: no masking
  uint8_t broadcast;  // bytes of an element broadcast from memory; 0: no broadcast
  Compute compute;
  Form form = Form::kToRegister;
  Tuple tuple = Tuple::kFull;
  Lengths lengths = Lengths::kAll;
  int8_t group = -1;         // ModRM.reg
  bool is_aligned = false;   // in memory
  bool is_emulated = false;  // in VEX encoding too
  bool crosses = false;      // result elements depend on other elements of the operands

  constexpr VectorOperation As(Form new_form) const {
    VectorOperation copy = *this;
    copy.form = new_form;
    return copy;
  }
  constexpr VectorOperation With(Tuple new_tuple) const {
    VectorOperation copy = *this;
    copy.tuple = new_tuple;
    return copy;
  }
  constexpr VectorOperation With(Lengths new_lengths) const {
    VectorOperation copy = *this;
    copy.lengths = new_lengths;
    return copy;
  }
  constexpr VectorOperation InGroup(int number) const {
    VectorOperation copy = As(Form::kGroup);
    copy.group = static_cast<int8_t>(number);
    return copy;
  }
  constexpr VectorOperation Aligned() const {
    VectorOperation copy = *this;
    copy.is_aligned = true;
    return copy;
  }
  constexpr VectorOperation Crossing() const {
    VectorOperation copy = *this;
    copy.crosses = true;
    return copy;
  }
  constexpr VectorOperation Emulated() const {
    VectorOperation copy = *this;
    copy.is_emulated = true;
    return copy;
  }
};

namespace {

// ----- operands -------------------------------------------------------------------------------------------

size_t TupleBytes(const VectorOperation& operation, size_t vector_bytes) {
  switch (operation.tuple) {
    case Tuple::kFull:
      return vector_bytes;
    case Tuple::kHalf:
      return vector_bytes / 2;
    case Tuple::kQuarter:
      return vector_bytes / 4;
    case Tuple::kEighth:
      return vector_bytes / 8;
    case Tuple::kElement:
      return operation.element;
    case Tuple::k8:
      return 8;
    case Tuple::k16:
      return 16;
    case Tuple::k32:
      return 32;
  }
  return 0;
}

void CopyBytes(const uint8_t* from, size_t count, uint8_t* to) {
  switch (count) {
    case 64:
      std::memcpy(to, from, 64);
      break;
    case 32:
      std::memcpy(to, from, 32);
      break;
    case 16:
      std::memcpy(to, from, 16);
      break;
    case 8:
      std::memcpy(to, from, 8);
      break;
    case 4:
      std::memcpy(to, from, 4);
      break;
    default:
      std::memcpy(to, from, count);
  }
}

/// A bit for each of `count` elements: whether the instruction changes it.
uint64_t MaskOf(const State& state, const Instruction& in, size_t count) {
  const uint64_t all = count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
  return in.mask == 0 ? all : state.masks[in.mask] & all;
}

void CheckAlignment(State& state, const Instruction& in, size_t bytes) {
  if (!in.operation->is_aligned || in.Address(state) % bytes == 0) return;
  state.Fault(in.operation->name, "#GP: the operand in memory is not aligned");
}

/// An operand in memory. Elements that the mask leaves out are not read, unless they affect other elements.
void LoadOperand(State& state, const Instruction& in, Vector* out) {
  const VectorOperation& operation = *in.operation;
  const uint8_t* const memory = in.Memory(state);
  const size_t elements = operation.element == 0 ? 0 : in.vector_bytes / operation.element;
  if (in.has_evex_b) {
    if (!operation.crosses && MaskOf(state, in, elements) == 0) return;
    for (size_t i = 0; i < in.vector_bytes; i += operation.broadcast) {
      CopyBytes(memory, operation.broadcast, out->bytes.data() + i);
    }
    return;
  }
  const size_t bytes = TupleBytes(operation, in.vector_bytes);
  CheckAlignment(state, in, bytes);
  if (in.mask == 0) {
    CopyBytes(memory, bytes, out->bytes.data());
    return;
  }
  const uint64_t mask = MaskOf(state, in, elements);
  if (operation.crosses) {
    CopyBytes(memory, bytes, out->bytes.data());
    return;
  }
  const bool is_by_elements = operation.tuple <= Tuple::kEighth;
  if (!is_by_elements) {  // one operand for all elements
    if (mask != 0) CopyBytes(memory, bytes, out->bytes.data());
    return;
  }
  const size_t part = bytes / elements;
  for (size_t i = 0; i < elements; ++i) {
    if ((mask >> i & 1) != 0) CopyBytes(memory + i * part, part, out->bytes.data() + i * part);
  }
}

/// The operand rm.
const Vector& Source(State& state, const Instruction& in, Vector* buffer) {
  if (!in.is_memory) return state.vectors[in.rm];
  LoadOperand(state, in, buffer);
  return *buffer;
}

/// Writes the low `bytes` of `result`, by the mask, and zeroes above them.
void Commit(const State& state, const Instruction& in, const Vector& result, size_t bytes, Vector* to) {
  if (in.mask == 0) {
    if (bytes == 64) {
      *to = result;
      return;
    }
    CopyBytes(result.bytes.data(), bytes, to->bytes.data());
  } else {
    const size_t element = in.operation->element;
    const uint64_t mask = MaskOf(state, in, bytes / element);
    for (size_t i = 0; i < bytes / element; ++i) {
      uint8_t* const at = to->bytes.data() + i * element;
      if ((mask >> i & 1) != 0) {
        CopyBytes(result.bytes.data() + i * element, element, at);
      } else if (in.zeroes) {
        std::memset(at, 0, element);
      }
    }
  }
  std::memset(to->bytes.data() + bytes, 0, to->bytes.size() - bytes);
}

// ----- forms ----------------------------------------------------------------------------------------------

void ToRegister(State& state, const Instruction& in) {
  Vector buffer, result;
  const Vector& second = Source(state, in, &buffer);
  Vector& destination = state.vectors[in.reg];
  in.operation->compute(
      {state.vectors[in.vvvv], second, destination, in.vector_bytes, static_cast<uint8_t>(in.immediate)},
      &result);
  Commit(state, in, result, in.vector_bytes, &destination);
}

void ToVvvv(State& state, const Instruction& in) {
  Vector buffer, result;
  const Vector& second = Source(state, in, &buffer);
  Vector& destination = state.vectors[in.vvvv];
  in.operation->compute(
      {destination, second, destination, in.vector_bytes, static_cast<uint8_t>(in.immediate)}, &result);
  Commit(state, in, result, in.vector_bytes, &destination);
}

void Store(State& state, const Instruction& in) {
  Vector result;
  const Vector& source = state.vectors[in.reg];
  in.operation->compute({source, source, source, in.vector_bytes, static_cast<uint8_t>(in.immediate)},
                        &result);
  const size_t bytes = TupleBytes(*in.operation, in.vector_bytes);
  if (!in.is_memory) {
    Commit(state, in, result, bytes, &state.vectors[in.rm]);
    return;
  }
  CheckAlignment(state, in, bytes);
  uint8_t* const memory = in.Memory(state);
  if (in.mask == 0) {
    CopyBytes(result.bytes.data(), bytes, memory);
    return;
  }
  const size_t element = in.operation->element;
  const uint64_t mask = MaskOf(state, in, bytes / element);
  for (size_t i = 0; i < bytes / element; ++i) {
    if ((mask >> i & 1) != 0) CopyBytes(result.bytes.data() + i * element, element, memory + i * element);
  }
}

void ToMask(State& state, const Instruction& in) {
  Vector buffer, result;
  const Vector& second = Source(state, in, &buffer);
  const Vector& first = state.vectors[in.vvvv];
  in.operation->compute({first, second, first, in.vector_bytes, static_cast<uint8_t>(in.immediate)}, &result);
  const size_t element = in.operation->element;
  uint64_t holds = 0;
  for (size_t i = 0; i < in.vector_bytes / element; ++i) {
    holds |= uint64_t{result.bytes[i * element] != 0} << i;
  }
  state.masks[in.reg] = holds & MaskOf(state, in, in.vector_bytes / element);
}

/// VZEROUPPER, and VZEROALL for 256 bits. Registers 16 to 31 do not change.
void ZeroUpper(State& state, const Instruction& in) {
  for (size_t i = 0; i < 16; ++i) {
    const size_t kept = in.vector_bytes == 32 ? 0 : 16;
    std::memset(state.vectors[i].bytes.data() + kept, 0, 64 - kept);
  }
}

// ----- the table ------------------------------------------------------------------------------------------

#define INTACT_TWIN(intrinsic) Halves<[](auto a, auto b) INTACT_AVX2 { return intrinsic(a, b); }>
#define INTACT_TWIN_OF_ONE(intrinsic) HalvesOfOne<[](auto a) INTACT_AVX2 { return intrinsic(a); }>
#define INTACT_FLOAT_TWIN(intrinsic)                                                       \
  Halves<[](auto a, auto b) INTACT_AVX2 {                                                  \
    return _mm256_castps_si256(intrinsic(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b))); \
  }>
// If both operands are NaNs, the first one is the result. So the compiler must not change their order.
#define INTACT_ORDERED_FLOAT_TWIN(instruction)                      \
  Halves<[](auto a, auto b) INTACT_AVX2 {                           \
    decltype(a) result;                                             \
    asm(instruction " %2, %1, %0" : "=x"(result) : "x"(a), "x"(b)); \
    return result;                                                  \
  }>
#define INTACT_SHIFT(way, intrinsic) way<[](auto a, auto count) INTACT_AVX2 { return intrinsic(a, count); }>

constexpr auto kBitwiseAnd = INTACT_TWIN(_mm256_and_si256);
constexpr auto kBitwiseAndNot = INTACT_TWIN(_mm256_andnot_si256);
constexpr auto kBitwiseOr = INTACT_TWIN(_mm256_or_si256);
constexpr auto kBitwiseXor = INTACT_TWIN(_mm256_xor_si256);

constexpr Map k0F = Map::k0F, k0F38 = Map::k0F38, k0F3A = Map::k0F3A;
constexpr Prefix kNoPrefix = Prefix::kNone, k66 = Prefix::k66, kF3 = Prefix::kF3, kF2 = Prefix::kF2;
constexpr W k0 = W::k0, k1 = W::k1, kAny = W::kAny, kNo = W::kNone;
constexpr Lengths kFrom256 = Lengths::kFrom256, kOnly512 = Lengths::kOnly512, kOnly256 = Lengths::kOnly256,
                  kOnly128 = Lengths::kOnly128;

using Op = VectorOperation;

// clang-format off
constexpr VectorOperation kOperations[] = {
    // moves: name, map, prefix, opcode, W of VEX and of EVEX, bytes per mask bit and of a broadcast element
    Op{"vmovdqu",    k0F, kF3, 0x6F, kAny, kNo, 0, 0, CopySecond}.As(Form::kUnary),
    Op{"vmovdqu",    k0F, kF3, 0x7F, kAny, kNo, 0, 0, CopySecond}.As(Form::kStore),
    Op{"vmovdqa",    k0F, k66, 0x6F, kAny, kNo, 0, 0, CopySecond}.As(Form::kUnary).Aligned(),
    Op{"vmovdqa",    k0F, k66, 0x7F, kAny, kNo, 0, 0, CopySecond}.As(Form::kStore).Aligned(),
    Op{"vmovdqu32",  k0F, kF3, 0x6F, kNo, k0, 4, 0, CopySecond}.As(Form::kUnary),
    Op{"vmovdqu32",  k0F, kF3, 0x7F, kNo, k0, 4, 0, CopySecond}.As(Form::kStore),
    Op{"vmovdqu64",  k0F, kF3, 0x6F, kNo, k1, 8, 0, CopySecond}.As(Form::kUnary),
    Op{"vmovdqu64",  k0F, kF3, 0x7F, kNo, k1, 8, 0, CopySecond}.As(Form::kStore),
    Op{"vmovdqu8",   k0F, kF2, 0x6F, kNo, k0, 1, 0, CopySecond}.As(Form::kUnary),
    Op{"vmovdqu8",   k0F, kF2, 0x7F, kNo, k0, 1, 0, CopySecond}.As(Form::kStore),
    Op{"vmovdqu16",  k0F, kF2, 0x6F, kNo, k1, 2, 0, CopySecond}.As(Form::kUnary),
    Op{"vmovdqu16",  k0F, kF2, 0x7F, kNo, k1, 2, 0, CopySecond}.As(Form::kStore),
    Op{"vmovdqa32",  k0F, k66, 0x6F, kNo, k0, 4, 0, CopySecond}.As(Form::kUnary).Aligned(),
    Op{"vmovdqa32",  k0F, k66, 0x7F, kNo, k0, 4, 0, CopySecond}.As(Form::kStore).Aligned(),
    Op{"vmovdqa64",  k0F, k66, 0x6F, kNo, k1, 8, 0, CopySecond}.As(Form::kUnary).Aligned(),
    Op{"vmovdqa64",  k0F, k66, 0x7F, kNo, k1, 8, 0, CopySecond}.As(Form::kStore).Aligned(),
    Op{"vmovups",    k0F, kNoPrefix, 0x10, kAny, k0, 4, 0, CopySecond}.As(Form::kUnary),
    Op{"vmovups",    k0F, kNoPrefix, 0x11, kAny, k0, 4, 0, CopySecond}.As(Form::kStore),
    Op{"vmovaps",    k0F, kNoPrefix, 0x28, kAny, k0, 4, 0, CopySecond}.As(Form::kUnary).Aligned(),
    Op{"vmovaps",    k0F, kNoPrefix, 0x29, kAny, k0, 4, 0, CopySecond}.As(Form::kStore).Aligned(),
    Op{"vmovntdq",   k0F, k66, 0xE7, kAny, k0, 0, 0, CopySecond}.As(Form::kStore).Aligned(),
    Op{"vmovntps",   k0F, kNoPrefix, 0x2B, kAny, k0, 0, 0, CopySecond}.As(Form::kStore).Aligned(),
    Op{"vmovq",      k0F, kF3, 0x7E, kAny, k1, 0, 0, CopyLow<8>}.As(Form::kUnary).With(Tuple::k8).With(kOnly128),
    Op{"vmovq",      k0F, k66, 0xD6, kAny, k1, 0, 0, CopyLow<8>}.As(Form::kStore).With(Tuple::k8).With(kOnly128),

    // integer arithmetic
    Op{"vpaddb",     k0F, k66, 0xFC, kAny, kAny, 1, 0, INTACT_TWIN(_mm256_add_epi8)},
    Op{"vpaddw",     k0F, k66, 0xFD, kAny, kAny, 2, 0, INTACT_TWIN(_mm256_add_epi16)},
    Op{"vpaddd",     k0F, k66, 0xFE, kAny, k0, 4, 4, INTACT_TWIN(_mm256_add_epi32)},
    Op{"vpaddq",     k0F, k66, 0xD4, kAny, k1, 8, 8, INTACT_TWIN(_mm256_add_epi64)},
    Op{"vpaddsb",    k0F, k66, 0xEC, kAny, kAny, 1, 0, INTACT_TWIN(_mm256_adds_epi8)},
    Op{"vpaddsw",    k0F, k66, 0xED, kAny, kAny, 2, 0, INTACT_TWIN(_mm256_adds_epi16)},
    Op{"vpaddusb",   k0F, k66, 0xDC, kAny, kAny, 1, 0, INTACT_TWIN(_mm256_adds_epu8)},
    Op{"vpaddusw",   k0F, k66, 0xDD, kAny, kAny, 2, 0, INTACT_TWIN(_mm256_adds_epu16)},
    Op{"vpsubb",     k0F, k66, 0xF8, kAny, kAny, 1, 0, INTACT_TWIN(_mm256_sub_epi8)},
    Op{"vpsubw",     k0F, k66, 0xF9, kAny, kAny, 2, 0, INTACT_TWIN(_mm256_sub_epi16)},
    Op{"vpsubd",     k0F, k66, 0xFA, kAny, k0, 4, 4, INTACT_TWIN(_mm256_sub_epi32)},
    Op{"vpsubq",     k0F, k66, 0xFB, kAny, k1, 8, 8, INTACT_TWIN(_mm256_sub_epi64)},
    Op{"vpsubsb",    k0F, k66, 0xE8, kAny, kAny, 1, 0, INTACT_TWIN(_mm256_subs_epi8)},
    Op{"vpsubsw",    k0F, k66, 0xE9, kAny, kAny, 2, 0, INTACT_TWIN(_mm256_subs_epi16)},
    Op{"vpsubusb",   k0F, k66, 0xD8, kAny, kAny, 1, 0, INTACT_TWIN(_mm256_subs_epu8)},
    Op{"vpsubusw",   k0F, k66, 0xD9, kAny, kAny, 2, 0, INTACT_TWIN(_mm256_subs_epu16)},
    Op{"vpmullw",    k0F, k66, 0xD5, kAny, kAny, 2, 0, INTACT_TWIN(_mm256_mullo_epi16)},
    Op{"vpmulhw",    k0F, k66, 0xE5, kAny, kAny, 2, 0, INTACT_TWIN(_mm256_mulhi_epi16)},
    Op{"vpmulhuw",   k0F, k66, 0xE4, kAny, kAny, 2, 0, INTACT_TWIN(_mm256_mulhi_epu16)},
    Op{"vpmulld",    k0F38, k66, 0x40, kAny, k0, 4, 4, INTACT_TWIN(_mm256_mullo_epi32)},
    Op{"vpmuludq",   k0F, k66, 0xF4, kAny, k1, 8, 8, INTACT_TWIN(_mm256_mul_epu32)},
    Op{"vpmuldq",    k0F38, k66, 0x28, kAny, k1, 8, 8, INTACT_TWIN(_mm256_mul_epi32)},
    Op{"vpmaddwd",   k0F, k66, 0xF5, kAny, kAny, 4, 0, INTACT_TWIN(_mm256_madd_epi16)},
    Op{"vpmaddubsw", k0F38, k66, 0x04, kAny, kAny, 2, 0, INTACT_TWIN(_mm256_maddubs_epi16)},
    Op{"vpsadbw",    k0F, k66, 0xF6, kAny, kAny, 0, 0, INTACT_TWIN(_mm256_sad_epu8)},
    Op{"vpavgb",     k0F, k66, 0xE0, kAny, kAny, 1, 0, INTACT_TWIN(_mm256_avg_epu8)},
    Op{"vpavgw",     k0F, k66, 0xE3, kAny, kAny, 2, 0, INTACT_TWIN(_mm256_avg_epu16)},
    Op{"vphaddw",    k0F38, k66, 0x01, kAny, kNo, 0, 0, INTACT_TWIN(_mm256_hadd_epi16)},
    Op{"vphaddd",    k0F38, k66, 0x02, kAny, kNo, 0, 0, INTACT_TWIN(_mm256_hadd_epi32)},
    Op{"vpsignb",    k0F38, k66, 0x08, kAny, kNo, 0, 0, INTACT_TWIN(_mm256_sign_epi8)},
    Op{"vpabsb",     k0F38, k66, 0x1C, kAny, kAny, 1, 0, INTACT_TWIN_OF_ONE(_mm256_abs_epi8)}.As(Form::kUnary),
    Op{"vpabsw",     k0F38, k66, 0x1D, kAny, kAny, 2, 0, INTACT_TWIN_OF_ONE(_mm256_abs_epi16)}.As(Form::kUnary),
    Op{"vpabsd",     k0F38, k66, 0x1E, kAny, k0, 4, 4, INTACT_TWIN_OF_ONE(_mm256_abs_epi32)}.As(Form::kUnary),
    Op{"vpminub",    k0F, k66, 0xDA, kAny, kAny, 1, 0, INTACT_TWIN(_mm256_min_epu8)},
    Op{"vpmaxub",    k0F, k66, 0xDE, kAny, kAny, 1, 0, INTACT_TWIN(_mm256_max_epu8)},
    Op{"vpminsw",    k0F, k66, 0xEA, kAny, kAny, 2, 0, INTACT_TWIN(_mm256_min_epi16)},
    Op{"vpmaxsw",    k0F, k66, 0xEE, kAny, kAny, 2, 0, INTACT_TWIN(_mm256_max_epi16)},
    Op{"vpminsb",    k0F38, k66, 0x38, kAny, kAny, 1, 0, INTACT_TWIN(_mm256_min_epi8)},
    Op{"vpmaxsb",    k0F38, k66, 0x3C, kAny, kAny, 1, 0, INTACT_TWIN(_mm256_max_epi8)},
    Op{"vpminsd",    k0F38, k66, 0x39, kAny, k0, 4, 4, INTACT_TWIN(_mm256_min_epi32)},
    Op{"vpmaxsd",    k0F38, k66, 0x3D, kAny, k0, 4, 4, INTACT_TWIN(_mm256_max_epi32)},
    Op{"vpminuw",    k0F38, k66, 0x3A, kAny, kAny, 2, 0, INTACT_TWIN(_mm256_min_epu16)},
    Op{"vpmaxuw",    k0F38, k66, 0x3E, kAny, kAny, 2, 0, INTACT_TWIN(_mm256_max_epu16)},
    Op{"vpminud",    k0F38, k66, 0x3B, kAny, k0, 4, 4, INTACT_TWIN(_mm256_min_epu32)},
    Op{"vpmaxud",    k0F38, k66, 0x3F, kAny, k0, 4, 4, INTACT_TWIN(_mm256_max_epu32)},

    // dot products
    Op{"vpdpbusd",   k0F38, k66, 0x50, k0, k0, 4, 4, Dot4<false, true>}.Emulated(),
    Op{"vpdpbssd",   k0F38, kF2, 0x50, k0, k0, 4, 4, Dot4<true, true>}.Emulated(),
    Op{"vpdpbsud",   k0F38, kF3, 0x50, k0, k0, 4, 4, Dot4<true, false>}.Emulated(),
    Op{"vpdpbuud",   k0F38, kNoPrefix, 0x50, k0, k0, 4, 4, Dot4<false, false>}.Emulated(),

    // bits
    Op{"vpand",      k0F, k66, 0xDB, kAny, k0, 4, 4, kBitwiseAnd},
    Op{"vpandq",     k0F, k66, 0xDB, kNo, k1, 8, 8, kBitwiseAnd},
    Op{"vpandn",     k0F, k66, 0xDF, kAny, k0, 4, 4, kBitwiseAndNot},
    Op{"vpandnq",    k0F, k66, 0xDF, kNo, k1, 8, 8, kBitwiseAndNot},
    Op{"vpor",       k0F, k66, 0xEB, kAny, k0, 4, 4, kBitwiseOr},
    Op{"vporq",      k0F, k66, 0xEB, kNo, k1, 8, 8, kBitwiseOr},
    Op{"vpxor",      k0F, k66, 0xEF, kAny, k0, 4, 4, kBitwiseXor},
    Op{"vpxorq",     k0F, k66, 0xEF, kNo, k1, 8, 8, kBitwiseXor},
    Op{"vpternlogd", k0F3A, k66, 0x25, kNo, k0, 4, 4, TernaryLogic},
    Op{"vpternlogq", k0F3A, k66, 0x25, kNo, k1, 8, 8, TernaryLogic},

    // shifts
    Op{"vpsrlw", k0F, k66, 0x71, kAny, kAny, 2, 0, INTACT_SHIFT(ShiftByImmediate, _mm256_srl_epi16)}.InGroup(2),
    Op{"vpsraw", k0F, k66, 0x71, kAny, kAny, 2, 0, INTACT_SHIFT(ShiftByImmediate, _mm256_sra_epi16)}.InGroup(4),
    Op{"vpsllw", k0F, k66, 0x71, kAny, kAny, 2, 0, INTACT_SHIFT(ShiftByImmediate, _mm256_sll_epi16)}.InGroup(6),
    Op{"vpsrld", k0F, k66, 0x72, kAny, k0, 4, 4, INTACT_SHIFT(ShiftByImmediate, _mm256_srl_epi32)}.InGroup(2),
    Op{"vpsrad", k0F, k66, 0x72, kAny, k0, 4, 4, INTACT_SHIFT(ShiftByImmediate, _mm256_sra_epi32)}.InGroup(4),
    Op{"vpslld", k0F, k66, 0x72, kAny, k0, 4, 4, INTACT_SHIFT(ShiftByImmediate, _mm256_sll_epi32)}.InGroup(6),
    Op{"vpsrlq", k0F, k66, 0x73, kAny, k1, 8, 8, INTACT_SHIFT(ShiftByImmediate, _mm256_srl_epi64)}.InGroup(2),
    Op{"vpsllq", k0F, k66, 0x73, kAny, k1, 8, 8, INTACT_SHIFT(ShiftByImmediate, _mm256_sll_epi64)}.InGroup(6),
    Op{"vpsrlw", k0F, k66, 0xD1, kAny, kAny, 2, 0, INTACT_SHIFT(ShiftByVector, _mm256_srl_epi16)}.With(Tuple::k16),
    Op{"vpsrld", k0F, k66, 0xD2, kAny, k0, 4, 0, INTACT_SHIFT(ShiftByVector, _mm256_srl_epi32)}.With(Tuple::k16),
    Op{"vpsrlq", k0F, k66, 0xD3, kAny, k1, 8, 0, INTACT_SHIFT(ShiftByVector, _mm256_srl_epi64)}.With(Tuple::k16),
    Op{"vpsraw", k0F, k66, 0xE1, kAny, kAny, 2, 0, INTACT_SHIFT(ShiftByVector, _mm256_sra_epi16)}.With(Tuple::k16),
    Op{"vpsrad", k0F, k66, 0xE2, kAny, k0, 4, 0, INTACT_SHIFT(ShiftByVector, _mm256_sra_epi32)}.With(Tuple::k16),
    Op{"vpsllw", k0F, k66, 0xF1, kAny, kAny, 2, 0, INTACT_SHIFT(ShiftByVector, _mm256_sll_epi16)}.With(Tuple::k16),
    Op{"vpslld", k0F, k66, 0xF2, kAny, k0, 4, 0, INTACT_SHIFT(ShiftByVector, _mm256_sll_epi32)}.With(Tuple::k16),
    Op{"vpsllq", k0F, k66, 0xF3, kAny, k1, 8, 0, INTACT_SHIFT(ShiftByVector, _mm256_sll_epi64)}.With(Tuple::k16),
    Op{"vpsrlvd", k0F38, k66, 0x45, k0, k0, 4, 4, INTACT_TWIN(_mm256_srlv_epi32)},
    Op{"vpsravd", k0F38, k66, 0x46, k0, k0, 4, 4, INTACT_TWIN(_mm256_srav_epi32)},
    Op{"vpsllvd", k0F38, k66, 0x47, k0, k0, 4, 4, INTACT_TWIN(_mm256_sllv_epi32)},

    // packs, unpacks and shuffles, within 128 bits
    Op{"vpacksswb",  k0F, k66, 0x63, kAny, kAny, 1, 0, INTACT_TWIN(_mm256_packs_epi16)}.Crossing(),
    Op{"vpackuswb",  k0F, k66, 0x67, kAny, kAny, 1, 0, INTACT_TWIN(_mm256_packus_epi16)}.Crossing(),
    Op{"vpackssdw",  k0F, k66, 0x6B, kAny, k0, 2, 4, INTACT_TWIN(_mm256_packs_epi32)}.Crossing(),
    Op{"vpackusdw",  k0F38, k66, 0x2B, kAny, k0, 2, 4, INTACT_TWIN(_mm256_packus_epi32)}.Crossing(),
    Op{"vpunpcklbw", k0F, k66, 0x60, kAny, kAny, 1, 0, INTACT_TWIN(_mm256_unpacklo_epi8)}.Crossing(),
    Op{"vpunpckhbw", k0F, k66, 0x68, kAny, kAny, 1, 0, INTACT_TWIN(_mm256_unpackhi_epi8)}.Crossing(),
    Op{"vpunpcklwd", k0F, k66, 0x61, kAny, kAny, 2, 0, INTACT_TWIN(_mm256_unpacklo_epi16)}.Crossing(),
    Op{"vpunpckhwd", k0F, k66, 0x69, kAny, kAny, 2, 0, INTACT_TWIN(_mm256_unpackhi_epi16)}.Crossing(),
    Op{"vpunpckldq", k0F, k66, 0x62, kAny, k0, 4, 4, INTACT_TWIN(_mm256_unpacklo_epi32)}.Crossing(),
    Op{"vpunpckhdq", k0F, k66, 0x6A, kAny, k0, 4, 4, INTACT_TWIN(_mm256_unpackhi_epi32)}.Crossing(),
    Op{"vpunpcklqdq", k0F, k66, 0x6C, kAny, k1, 8, 8, INTACT_TWIN(_mm256_unpacklo_epi64)}.Crossing(),
    Op{"vpunpckhqdq", k0F, k66, 0x6D, kAny, k1, 8, 8, INTACT_TWIN(_mm256_unpackhi_epi64)}.Crossing(),
    Op{"vpshufb",    k0F38, k66, 0x00, kAny, kAny, 1, 0, INTACT_TWIN(_mm256_shuffle_epi8)}.Crossing(),
    Op{"vpshufd",    k0F, k66, 0x70, kAny, k0, 4, 4, ShuffleDwords}.As(Form::kUnary).Crossing(),
    Op{"vpalignr",   k0F3A, k66, 0x0F, kAny, kAny, 1, 0, AlignRight}.Crossing(),
    Op{"vpblendd",   k0F3A, k66, 0x02, k0, kNo, 0, 0, BlendDwords},

    // permutations, insertions and extractions
    Op{"vpermd",     k0F38, k66, 0x36, k0, k0, 4, 4, Permute<uint32_t>}.With(kFrom256).Crossing(),
    Op{"vpermw",     k0F38, k66, 0x8D, kNo, k1, 2, 0, Permute<uint16_t>}.Crossing(),
    Op{"vpermq",     k0F3A, k66, 0x00, k1, k1, 8, 8, PermuteQwords}.As(Form::kUnary).With(kFrom256).Crossing(),
    Op{"vpermi2w",   k0F38, k66, 0x75, kNo, k1, 2, 0, Permute2<uint16_t, true>}.Crossing(),
    Op{"vpermi2d",   k0F38, k66, 0x76, kNo, k0, 4, 4, Permute2<uint32_t, true>}.Crossing(),
    Op{"vpermi2q",   k0F38, k66, 0x76, kNo, k1, 8, 8, Permute2<uint64_t, true>}.Crossing(),
    Op{"vpermt2w",   k0F38, k66, 0x7D, kNo, k1, 2, 0, Permute2<uint16_t, false>}.Crossing(),
    Op{"vpermt2d",   k0F38, k66, 0x7E, kNo, k0, 4, 4, Permute2<uint32_t, false>}.Crossing(),
    Op{"vpermt2q",   k0F38, k66, 0x7E, kNo, k1, 8, 8, Permute2<uint64_t, false>}.Crossing(),
    Op{"vperm2i128", k0F3A, k66, 0x46, k0, kNo, 0, 0, Permute2x128}.With(kOnly256),
    Op{"vshufi32x4", k0F3A, k66, 0x43, kNo, k0, 4, 4, Quarters<ShuffledQuarter>}.With(kFrom256).Crossing(),
    Op{"vshufi64x2", k0F3A, k66, 0x43, kNo, k1, 8, 8, Quarters<ShuffledQuarter>}.With(kFrom256).Crossing(),
    Op{"vinserti128",   k0F3A, k66, 0x38, k0, k0, 4, 0, Insert<16>}.With(Tuple::k16).With(kFrom256),
    Op{"vinserti64x2",  k0F3A, k66, 0x38, kNo, k1, 8, 0, Insert<16>}.With(Tuple::k16).With(kFrom256),
    Op{"vinserti32x8",  k0F3A, k66, 0x3A, kNo, k0, 4, 0, Insert<32>}.With(Tuple::k32).With(kOnly512),
    Op{"vinserti64x4",  k0F3A, k66, 0x3A, kNo, k1, 8, 0, Insert<32>}.With(Tuple::k32).With(kOnly512),
    Op{"vextracti128",  k0F3A, k66, 0x39, k0, k0, 4, 0, Extract<16>}.As(Form::kStore).With(Tuple::k16).With(kFrom256),
    Op{"vextracti64x2", k0F3A, k66, 0x39, kNo, k1, 8, 0, Extract<16>}.As(Form::kStore).With(Tuple::k16).With(kFrom256),
    Op{"vextracti32x8", k0F3A, k66, 0x3B, kNo, k0, 4, 0, Extract<32>}.As(Form::kStore).With(Tuple::k32).With(kOnly512),
    Op{"vextracti64x4", k0F3A, k66, 0x3B, kNo, k1, 8, 0, Extract<32>}.As(Form::kStore).With(Tuple::k32).With(kOnly512),

    // broadcasts
    Op{"vpbroadcastb", k0F38, k66, 0x78, k0, k0, 1, 0, Repeat<1>}.As(Form::kUnary).With(Tuple::kElement),
    Op{"vpbroadcastw", k0F38, k66, 0x79, k0, k0, 2, 0, Repeat<2>}.As(Form::kUnary).With(Tuple::kElement),
    Op{"vpbroadcastd", k0F38, k66, 0x58, k0, k0, 4, 0, Repeat<4>}.As(Form::kUnary).With(Tuple::kElement),
    Op{"vpbroadcastq", k0F38, k66, 0x59, k0, kNo, 0, 0, Repeat<8>}.As(Form::kUnary).With(Tuple::k8),
    Op{"vpbroadcastq", k0F38, k66, 0x59, kNo, k1, 8, 0, Repeat<8>}.As(Form::kUnary).With(Tuple::kElement),
    Op{"vbroadcastss", k0F38, k66, 0x18, k0, k0, 4, 0, Repeat<4>}.As(Form::kUnary).With(Tuple::kElement),
    Op{"vbroadcasti128",  k0F38, k66, 0x5A, k0, k0, 4, 0, Repeat<16>}.As(Form::kUnary).With(Tuple::k16).With(kFrom256),
    Op{"vbroadcasti64x2", k0F38, k66, 0x5A, kNo, k1, 8, 0, Repeat<16>}.As(Form::kUnary).With(Tuple::k16).With(kFrom256),
    Op{"vbroadcasti32x8", k0F38, k66, 0x5B, kNo, k0, 4, 0, Repeat<32>}.As(Form::kUnary).With(Tuple::k32).With(kOnly512),
    Op{"vbroadcasti64x4", k0F38, k66, 0x5B, kNo, k1, 8, 0, Repeat<32>}.As(Form::kUnary).With(Tuple::k32).With(kOnly512),

    // widening and narrowing
    Op{"vpmovsxbw", k0F38, k66, 0x20, kAny, kAny, 2, 0, Widen<int8_t, int16_t>}.As(Form::kUnary).With(Tuple::kHalf),
    Op{"vpmovsxbd", k0F38, k66, 0x21, kAny, kAny, 4, 0, Widen<int8_t, int32_t>}.As(Form::kUnary).With(Tuple::kQuarter),
    Op{"vpmovsxbq", k0F38, k66, 0x22, kAny, kAny, 8, 0, Widen<int8_t, int64_t>}.As(Form::kUnary).With(Tuple::kEighth),
    Op{"vpmovsxwd", k0F38, k66, 0x23, kAny, kAny, 4, 0, Widen<int16_t, int32_t>}.As(Form::kUnary).With(Tuple::kHalf),
    Op{"vpmovsxwq", k0F38, k66, 0x24, kAny, kAny, 8, 0, Widen<int16_t, int64_t>}.As(Form::kUnary).With(Tuple::kQuarter),
    Op{"vpmovsxdq", k0F38, k66, 0x25, kAny, k0, 8, 0, Widen<int32_t, int64_t>}.As(Form::kUnary).With(Tuple::kHalf),
    Op{"vpmovzxbw", k0F38, k66, 0x30, kAny, kAny, 2, 0, Widen<uint8_t, uint16_t>}.As(Form::kUnary).With(Tuple::kHalf),
    Op{"vpmovzxbd", k0F38, k66, 0x31, kAny, kAny, 4, 0, Widen<uint8_t, uint32_t>}.As(Form::kUnary).With(Tuple::kQuarter),
    Op{"vpmovzxbq", k0F38, k66, 0x32, kAny, kAny, 8, 0, Widen<uint8_t, uint64_t>}.As(Form::kUnary).With(Tuple::kEighth),
    Op{"vpmovzxwd", k0F38, k66, 0x33, kAny, kAny, 4, 0, Widen<uint16_t, uint32_t>}.As(Form::kUnary).With(Tuple::kHalf),
    Op{"vpmovzxwq", k0F38, k66, 0x34, kAny, kAny, 8, 0, Widen<uint16_t, uint64_t>}.As(Form::kUnary).With(Tuple::kQuarter),
    Op{"vpmovzxdq", k0F38, k66, 0x35, kAny, k0, 8, 0, Widen<uint32_t, uint64_t>}.As(Form::kUnary).With(Tuple::kHalf),
    Op{"vpmovuswb", k0F38, kF3, 0x10, kNo, k0, 1, 0, Narrow<uint16_t, uint8_t, true>}.As(Form::kStore).With(Tuple::kHalf),
    Op{"vpmovusdb", k0F38, kF3, 0x11, kNo, k0, 1, 0, Narrow<uint32_t, uint8_t, true>}.As(Form::kStore).With(Tuple::kQuarter),
    Op{"vpmovusdw", k0F38, kF3, 0x13, kNo, k0, 2, 0, Narrow<uint32_t, uint16_t, true>}.As(Form::kStore).With(Tuple::kHalf),
    Op{"vpmovswb",  k0F38, kF3, 0x20, kNo, k0, 1, 0, Narrow<int16_t, int8_t, true>}.As(Form::kStore).With(Tuple::kHalf),
    Op{"vpmovsdb",  k0F38, kF3, 0x21, kNo, k0, 1, 0, Narrow<int32_t, int8_t, true>}.As(Form::kStore).With(Tuple::kQuarter),
    Op{"vpmovsdw",  k0F38, kF3, 0x23, kNo, k0, 2, 0, Narrow<int32_t, int16_t, true>}.As(Form::kStore).With(Tuple::kHalf),
    Op{"vpmovwb",   k0F38, kF3, 0x30, kNo, k0, 1, 0, Narrow<uint16_t, uint8_t, false>}.As(Form::kStore).With(Tuple::kHalf),
    Op{"vpmovdb",   k0F38, kF3, 0x31, kNo, k0, 1, 0, Narrow<uint32_t, uint8_t, false>}.As(Form::kStore).With(Tuple::kQuarter),
    Op{"vpmovdw",   k0F38, kF3, 0x33, kNo, k0, 2, 0, Narrow<uint32_t, uint16_t, false>}.As(Form::kStore).With(Tuple::kHalf),

    // comparisons: VEX writes a vector, EVEX a mask
    Op{"vpcmpeqb", k0F, k66, 0x74, kAny, kNo, 0, 0, INTACT_TWIN(_mm256_cmpeq_epi8)},
    Op{"vpcmpeqw", k0F, k66, 0x75, kAny, kNo, 0, 0, INTACT_TWIN(_mm256_cmpeq_epi16)},
    Op{"vpcmpeqd", k0F, k66, 0x76, kAny, kNo, 0, 0, INTACT_TWIN(_mm256_cmpeq_epi32)},
    Op{"vpcmpgtb", k0F, k66, 0x64, kAny, kNo, 0, 0, INTACT_TWIN(_mm256_cmpgt_epi8)},
    Op{"vpcmpgtw", k0F, k66, 0x65, kAny, kNo, 0, 0, INTACT_TWIN(_mm256_cmpgt_epi16)},
    Op{"vpcmpgtd", k0F, k66, 0x66, kAny, kNo, 0, 0, INTACT_TWIN(_mm256_cmpgt_epi32)},
    Op{"vpcmpeqb", k0F, k66, 0x74, kNo, kAny, 1, 0, INTACT_TWIN(_mm256_cmpeq_epi8)}.As(Form::kToMask),
    Op{"vpcmpeqw", k0F, k66, 0x75, kNo, kAny, 2, 0, INTACT_TWIN(_mm256_cmpeq_epi16)}.As(Form::kToMask),
    Op{"vpcmpeqd", k0F, k66, 0x76, kNo, k0, 4, 4, INTACT_TWIN(_mm256_cmpeq_epi32)}.As(Form::kToMask),
    Op{"vpcmpgtb", k0F, k66, 0x64, kNo, kAny, 1, 0, INTACT_TWIN(_mm256_cmpgt_epi8)}.As(Form::kToMask),
    Op{"vpcmpgtw", k0F, k66, 0x65, kNo, kAny, 2, 0, INTACT_TWIN(_mm256_cmpgt_epi16)}.As(Form::kToMask),
    Op{"vpcmpgtd", k0F, k66, 0x66, kNo, k0, 4, 4, INTACT_TWIN(_mm256_cmpgt_epi32)}.As(Form::kToMask),
    Op{"vpcmpub",  k0F3A, k66, 0x3E, kNo, k0, 1, 0, ComparePredicate<uint8_t>}.As(Form::kToMask),
    Op{"vpcmpb",   k0F3A, k66, 0x3F, kNo, k0, 1, 0, ComparePredicate<int8_t>}.As(Form::kToMask),
    Op{"vpcmpuw",  k0F3A, k66, 0x3E, kNo, k1, 2, 0, ComparePredicate<uint16_t>}.As(Form::kToMask),
    Op{"vpcmpw",   k0F3A, k66, 0x3F, kNo, k1, 2, 0, ComparePredicate<int16_t>}.As(Form::kToMask),
    Op{"vpcmpud",  k0F3A, k66, 0x1E, kNo, k0, 4, 4, ComparePredicate<uint32_t>}.As(Form::kToMask),
    Op{"vpcmpd",   k0F3A, k66, 0x1F, kNo, k0, 4, 4, ComparePredicate<int32_t>}.As(Form::kToMask),

    // float32
    Op{"vaddps",     k0F, kNoPrefix, 0x58, kAny, k0, 4, 4, INTACT_ORDERED_FLOAT_TWIN("vaddps")},
    Op{"vmulps",     k0F, kNoPrefix, 0x59, kAny, k0, 4, 4, INTACT_ORDERED_FLOAT_TWIN("vmulps")},
    Op{"vsubps",     k0F, kNoPrefix, 0x5C, kAny, k0, 4, 4, INTACT_FLOAT_TWIN(_mm256_sub_ps)},
    Op{"vminps",     k0F, kNoPrefix, 0x5D, kAny, k0, 4, 4, INTACT_FLOAT_TWIN(_mm256_min_ps)},
    Op{"vdivps",     k0F, kNoPrefix, 0x5E, kAny, k0, 4, 4, INTACT_FLOAT_TWIN(_mm256_div_ps)},
    Op{"vmaxps",     k0F, kNoPrefix, 0x5F, kAny, k0, 4, 4, INTACT_FLOAT_TWIN(_mm256_max_ps)},
    Op{"vfmadd213ps", k0F38, k66, 0xA8, k0, k0, 4, 4, MultiplyAddSecond},
    Op{"vfmadd231ps", k0F38, k66, 0xB8, k0, k0, 4, 4, MultiplyAdd},
    Op{"vcvtdq2ps",  k0F, kNoPrefix, 0x5B, kAny, k0, 4, 4,
       HalvesOfOne<[](auto a) INTACT_AVX2 { return _mm256_castps_si256(_mm256_cvtepi32_ps(a)); }>}.As(Form::kUnary),
    Op{"vcvtph2ps",  k0F38, k66, 0x13, k0, k0, 4, 0, WidenHalfFloats}.As(Form::kUnary).With(Tuple::kHalf),
    Op{"vcvtps2ph",  k0F3A, k66, 0x1D, k0, k0, 2, 0, NarrowToHalfFloats}.As(Form::kStore).With(Tuple::kHalf),
    Op{"vcvtps2dq",  k0F, k66, 0x5B, kAny, k0, 4, 4,
       HalvesOfOne<[](auto a) INTACT_AVX2 { return _mm256_cvtps_epi32(_mm256_castsi256_ps(a)); }>}.As(Form::kUnary),
    Op{"vcvttps2dq", k0F, kF3, 0x5B, kAny, k0, 4, 4,
       HalvesOfOne<[](auto a) INTACT_AVX2 { return _mm256_cvttps_epi32(_mm256_castsi256_ps(a)); }>}.As(Form::kUnary),
};
// clang-format on

// ----- lookup ---------------------------------------------------------------------------------------------

bool Permits(W required, bool w) { return required == kAny || required == (w ? W::k1 : W::k0); }

bool Permits(Lengths required, size_t bytes) {
  switch (required) {
    case Lengths::kAll:
      return true;
    case Lengths::kFrom256:
      return bytes >= 32;
    case Lengths::kOnly512:
      return bytes == 64;
    case Lengths::kOnly256:
      return bytes == 32;
    case Lengths::kOnly128:
      return bytes == 16;
  }
  return false;
}

bool Matches(const VectorOperation& operation, const Instruction& in) {
  return operation.opcode == in.opcode && operation.map == in.map && operation.prefix == in.prefix &&
         Permits(in.encoding == Encoding::kVex ? operation.vex : operation.evex, in.w) &&
         Permits(operation.lengths, in.vector_bytes) &&
         (operation.group < 0 || static_cast<uint8_t>(operation.group) == in.group);
}

/// Whether all fields have values that do not raise #UD.
bool IsEncodable(const VectorOperation& operation, const Instruction& in) {
  const bool has_vvvv = operation.form != Form::kUnary && operation.form != Form::kStore;
  if (!has_vvvv && in.vvvv != 0) return false;
  if (operation.form == Form::kToMask && (in.reg >= 8 || in.zeroes)) return false;
  if (in.mask != 0 && operation.element == 0) return false;
  if (in.zeroes && (in.mask == 0 || (operation.form == Form::kStore && in.is_memory))) return false;
  if (in.has_evex_b && (!in.is_memory || operation.broadcast == 0)) return false;
  // shifts with VEX have no operand in memory.
  return !(operation.form == Form::kGroup && in.is_memory && in.encoding == Encoding::kVex);
}

constexpr auto kExecuteForm =
    std::to_array<void (*)(State&, const Instruction&)>({ToRegister, ToRegister, Store, ToVvvv, ToMask});

bool IsZeroUpper(const Instruction& in) {
  return in.encoding == Encoding::kVex && in.map == Map::k0F && in.prefix == Prefix::kNone &&
         in.opcode == 0x77 && in.vvvv == 0;
}

}  // namespace

bool FindVectorOperation(Instruction* instruction) {
  Instruction& in = *instruction;
  if (in.encoding == Encoding::kLegacy) return false;
  if (IsZeroUpper(in)) {
    in.execute = ZeroUpper;
    return true;
  }
  for (const VectorOperation& operation : kOperations) {
    if (!Matches(operation, in) || !IsEncodable(operation, in)) continue;
    in.operation = &operation;
    in.execute = kExecuteForm[static_cast<size_t>(operation.form)];
    in.is_emulated = in.encoding == Encoding::kEvex || operation.is_emulated;
    if (in.encoding == Encoding::kEvex && in.has_byte_displacement) {
      in.displacement *=
          static_cast<int64_t>(in.has_evex_b ? operation.broadcast : TupleBytes(operation, in.vector_bytes));
    }
    return true;
  }
  return false;
}

}  // namespace intact::emulator
