#include "formats.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <vector>

namespace intact::ggml {
namespace {

template <class T>
T Load(const uint8_t* bytes) {
  T value = 0;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// Blocks of 32 depths: the low nibbles of 16 bytes are depths 0 to 15, the high nibbles are depths 16 to 31.
uint8_t NibbleAt(const uint8_t* nibbles, int depth) {
  return depth < 16 ? nibbles[depth] & 15 : nibbles[depth - 16] >> 4;
}

// Codes of 4 bits with adjacent depths in a byte.
void PackNibbles(const uint8_t* nibbles, uint8_t* codes) {
  for (int i = 0; i < 16; ++i)
    codes[i] = static_cast<uint8_t>(NibbleAt(nibbles, 2 * i) | NibbleAt(nibbles, 2 * i + 1) << 4);
}

// A word with the fifth bit of each code, then the low four bits. `less` is subtracted from the codes.
void UnpackFiveBits(const uint8_t* bits, int less, uint8_t* codes) {
  const auto fifth = Load<uint32_t>(bits);
  for (int i = 0; i < 32; ++i)
    codes[i] = static_cast<uint8_t>((NibbleAt(bits + 4, i) | (fifth >> i & 1) << 4) - less);
}

// A half-float, then nibbles: weight + 8.
void UnpackQ4_0(const uint8_t* block, const BlockParts& to) {
  std::memcpy(to.scales, block, 2);
  PackNibbles(block + 2, to.codes);
}

// A half-float, then signed bytes.
void UnpackQ8_0(const uint8_t* block, const BlockParts& to) {
  std::memcpy(to.scales, block, 2);
  std::memcpy(to.codes, block + 2, 32);
}

// A half-float, then codes of 5 bits: weight + 16.
void UnpackQ5_0(const uint8_t* block, const BlockParts& to) {
  std::memcpy(to.scales, block, 2);
  UnpackFiveBits(block + 2, 16, to.codes);
}

// 128 bytes of low nibbles, 64 bytes of the upper two bits, a signed scale for each 16 depths, and a half-float that multiplies
// these scales. Each half of the block has 128 depths: its byte i < 64 of nibbles has depths i and 64 + i, its byte i < 32 of
// pairs of bits has depths i, 32 + i, 64 + i and 96 + i. Codes are weight + 32.
void UnpackQ6_K(const uint8_t* block, const BlockParts& to) {
  for (int depth = 0; depth < 256; ++depth) {
    const int half = depth / 128, i = depth % 128;
    const int low = block[half * 64 + i % 64] >> (i / 64 * 4) & 15;
    const int high = block[128 + half * 32 + i % 32] >> (i / 32 * 2) & 3;
    to.codes[depth] = static_cast<uint8_t>((low | high << 4) - 32);
  }
  const float scale = ggml_fp16_to_fp32(Load<uint16_t>(block + 208));
  for (int g = 0; g < 16; ++g) {
    const float own = scale * static_cast<float>(static_cast<int8_t>(block[192 + g]));  // exact: 11 + 7 bits
    std::memcpy(to.scales + g * 4, &own, 4);
  }
}

template <size_t kCount>
void UnpackTable(const uint8_t* nibbles, const std::array<int8_t, kCount>& table, uint8_t* codes) {
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(table[NibbleAt(nibbles, i)]);
}

// A half-float, then nibbles: numbers of weights in a table.
void UnpackIq4Nl(const uint8_t* block, const BlockParts& to) {
  constexpr std::array<int8_t, 16> kTable = {-127, -104, -83, -65, -49, -35, -22, -10,
                                             1,    13,   25,  38,  53,  69,  89,  113};
  std::memcpy(to.scales, block, 2);
  UnpackTable(block + 2, kTable, to.codes);
}

// A biased exponent e, then nibbles: floats with 2 bits of exponent and 1 of mantissa. Twice such a float is an integer. The scale
// of these integers is 2^(e − 128), which bf16 holds, also if it is subnormal.
void UnpackMxfp4(const uint8_t* block, const BlockParts& to) {
  constexpr std::array<int8_t, 16> kTable = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const int e = block[0];
  const auto scale = static_cast<uint16_t>(e >= 2 ? (e - 1) << 7 : 0x20 << e);
  std::memcpy(to.scales, &scale, 2);
  UnpackTable(block + 1, kTable, to.codes);
}

// Scale and minimum as half-floats, then nibbles.
void UnpackQ4_1(const uint8_t* block, const BlockParts& to) {
  std::memcpy(to.scales, block, 2);
  *to.minimums = ggml_fp16_to_fp32(Load<uint16_t>(block + 2));
  PackNibbles(block + 4, to.codes);
}

// Scale and minimum as half-floats, a word with the fifth bit of each code, then the low four bits.
void UnpackQ5_1(const uint8_t* block, const BlockParts& to) {
  std::memcpy(to.scales, block, 2);
  *to.minimums = ggml_fp16_to_fp32(Load<uint16_t>(block + 2));
  UnpackFiveBits(block + 4, 0, to.codes);
}

// The head of Q4_K and Q5_K: half-floats d and m, then for each of 8 groups a factor of d and a factor of −m, of 6 bits each.
// Byte i < 4 has the factor of d of group i, and byte 4 + i its factor of m, in six bits. The upper two bits of these bytes are the
// upper bits of the factors of group 4 + i. Byte 8 + i has the low four bits of both: of d in the low nibble, of m in the high one.
void UnpackGroups(const uint8_t* block, const BlockParts& to) {
  const float d = ggml_fp16_to_fp32(Load<uint16_t>(block)), m = ggml_fp16_to_fp32(Load<uint16_t>(block + 2));
  const uint8_t* const factors = block + 4;
  for (int g = 0; g < 8; ++g) {
    const int i = g % 4;
    const int of_d = g < 4 ? factors[i] & 63 : (factors[8 + i] & 15) | factors[i] >> 6 << 4;
    const int of_m = g < 4 ? factors[4 + i] & 63 : factors[8 + i] >> 4 | factors[4 + i] >> 6 << 4;
    const float scale = d * static_cast<float>(of_d);  // exact: 11 + 6 bits
    std::memcpy(to.scales + g * 4, &scale, 4);
    to.minimums[g] = -m * static_cast<float>(of_m);
  }
}

// The head, then 128 bytes of nibbles: each 32 bytes have 32 depths in the low nibbles, and the next 32 in the high ones.
int NibbleOfK(const uint8_t* nibbles, int depth) {
  return nibbles[depth / 64 * 32 + depth % 32] >> (depth / 32 % 2 * 4) & 15;
}
void UnpackQ4_K(const uint8_t* block, const BlockParts& to) {
  UnpackGroups(block, to);
  for (int i = 0; i < 128; ++i)
    to.codes[i] = static_cast<uint8_t>(NibbleOfK(block + 16, 2 * i) | NibbleOfK(block + 16, 2 * i + 1) << 4);
}

// The head, 32 bytes, then nibbles. Bit g of the 32 bytes is the fifth bit of a depth of group g.
void UnpackQ5_K(const uint8_t* block, const BlockParts& to) {
  UnpackGroups(block, to);
  for (int i = 0; i < 256; ++i)
    to.codes[i] = static_cast<uint8_t>(NibbleOfK(block + 48, i) | (block[16 + i % 32] >> (i / 32) & 1) << 4);
}

constexpr Format kFormats[] = {
    {GGML_TYPE_Q4_0, 32, 18, 32, INTACT_U4, INTACT_F16, false, UnpackQ4_0},
    {GGML_TYPE_Q4_1, 32, 20, 32, INTACT_U4, INTACT_F16, true, UnpackQ4_1},
    {GGML_TYPE_Q5_0, 32, 22, 32, INTACT_S8, INTACT_F16, false, UnpackQ5_0},
    {GGML_TYPE_Q5_1, 32, 24, 32, INTACT_S8, INTACT_F16, true, UnpackQ5_1},
    {GGML_TYPE_Q8_0, 32, 34, 32, INTACT_S8, INTACT_F16, false, UnpackQ8_0},
    {GGML_TYPE_Q4_K, 256, 144, 32, INTACT_U4, INTACT_F32, true, UnpackQ4_K},
    {GGML_TYPE_Q5_K, 256, 176, 32, INTACT_S8, INTACT_F32, true, UnpackQ5_K},
    {GGML_TYPE_Q6_K, 256, 210, 16, INTACT_S8, INTACT_F32, false, UnpackQ6_K},
    {GGML_TYPE_IQ4_NL, 32, 18, 32, INTACT_S8, INTACT_F16, false, UnpackIq4Nl},
    {GGML_TYPE_MXFP4, 32, 17, 32, INTACT_S8, INTACT_BF16, false, UnpackMxfp4},
};

}  // namespace

const Format* FormatOf(ggml_type type) {
  const auto* const found =
      std::find_if(std::begin(kFormats), std::end(kFormats), [&](const Format& f) { return f.type == type; });
  return found == std::end(kFormats) ? nullptr : found;
}

intact_status MakePlan(const Format& format, int64_t experts, int64_t n, int64_t k, const void* blocks,
                       intact_grouped** plan) {
  *plan = nullptr;
  const int64_t count = experts * n * (k / format.depths);
  std::vector<uint8_t> codes, scales;
  std::vector<float> minimums;
  try {
    codes.resize(static_cast<size_t>(count * format.code_bytes()));
    scales.resize(static_cast<size_t>(count * format.scale_bytes()));
    if (format.has_minimums) minimums.resize(static_cast<size_t>(count * (format.depths / format.group)));
  } catch (const std::bad_alloc&) {
    return INTACT_OUT_OF_MEMORY;
  }
  const auto* block = static_cast<const uint8_t*>(blocks);
  BlockParts to = {codes.data(), scales.data(), minimums.data()};
  for (int64_t i = 0; i < count; ++i, block += format.bytes) {
    format.unpack(block, to);
    to.codes += format.code_bytes();
    to.scales += format.scale_bytes();
    if (format.has_minimums) to.minimums += format.depths / format.group;
  }
  intact_grouped_desc desc = INTACT_GROUPED_DESC_INIT;
  desc.n = n;
  desc.k = k;
  desc.group = format.group;
  desc.a_granularity = INTACT_GRANULARITY_GROUPS;
  desc.b_type = format.b_type;
  desc.b_scales = scales.data();
  desc.scale_type = format.scale_type;
  desc.experts = experts;
  if (format.has_minimums) desc.b_minimums = minimums.data();
  return intact_grouped_create(&desc, codes.data(), plan);
}

}  // namespace intact::ggml
