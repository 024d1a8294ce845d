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

// A half-float, then nibbles: weight + 8.
void UnpackQ4_0(const uint8_t* block, const BlockParts& to) {
  std::memcpy(to.scales, block, 2);
  for (int i = 0; i < 16; ++i)
    to.codes[i] = static_cast<uint8_t>(NibbleAt(block + 2, 2 * i) | NibbleAt(block + 2, 2 * i + 1) << 4);
}

// A half-float, then signed bytes.
void UnpackQ8_0(const uint8_t* block, const BlockParts& to) {
  std::memcpy(to.scales, block, 2);
  std::memcpy(to.codes, block + 2, 32);
}

// A half-float, a word with the fifth bit of each code, then the low four bits: weight + 16.
void UnpackQ5_0(const uint8_t* block, const BlockParts& to) {
  std::memcpy(to.scales, block, 2);
  const auto fifth = Load<uint32_t>(block + 2);
  for (int i = 0; i < 32; ++i)
    to.codes[i] = static_cast<uint8_t>((NibbleAt(block + 6, i) | (fifth >> i & 1) << 4) - 16);
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

// A biased exponent e, then nibbles: floats with 2 bits of exponent and 1 of mantissa, whose doubles are integers. The scale of
// these integers is 2^(e − 128), which bf16 holds, also if it is subnormal.
void UnpackMxfp4(const uint8_t* block, const BlockParts& to) {
  constexpr std::array<int8_t, 16> kTable = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const int e = block[0];
  const auto scale = static_cast<uint16_t>(e >= 2 ? (e - 1) << 7 : 0x20 << e);
  std::memcpy(to.scales, &scale, 2);
  UnpackTable(block + 1, kTable, to.codes);
}

constexpr Format kFormats[] = {
    {GGML_TYPE_Q4_0, 32, 18, 32, INTACT_U4, INTACT_F16, UnpackQ4_0},
    {GGML_TYPE_Q5_0, 32, 22, 32, INTACT_S8, INTACT_F16, UnpackQ5_0},
    {GGML_TYPE_Q8_0, 32, 34, 32, INTACT_S8, INTACT_F16, UnpackQ8_0},
    {GGML_TYPE_Q6_K, 256, 210, 16, INTACT_S8, INTACT_F32, UnpackQ6_K},
    {GGML_TYPE_IQ4_NL, 32, 18, 32, INTACT_S8, INTACT_F16, UnpackIq4Nl},
    {GGML_TYPE_MXFP4, 32, 17, 32, INTACT_S8, INTACT_BF16, UnpackMxfp4},
};

}  // namespace

const Format* FormatOf(ggml_type type) {
  const auto* const found =
      std::find_if(std::begin(kFormats), std::end(kFormats), [&](const Format& f) { return f.type == type; });
  return found == std::end(kFormats) ? nullptr : found;
}

intact_grouped* MakePlan(const Format& format, int64_t experts, int64_t n, int64_t k, const void* blocks) {
  const int64_t count = experts * n * (k / format.depths);
  std::vector<uint8_t> codes, scales;
  try {
    codes.resize(static_cast<size_t>(count * format.code_bytes()));
    scales.resize(static_cast<size_t>(count * format.scale_bytes()));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  const auto* block = static_cast<const uint8_t*>(blocks);
  BlockParts to = {codes.data(), scales.data()};
  for (int64_t i = 0; i < count; ++i, block += format.bytes) {
    format.unpack(block, to);
    to.codes += format.code_bytes();
    to.scales += format.scale_bytes();
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
  intact_grouped* plan = nullptr;
  (void)intact_grouped_create(&desc, codes.data(), &plan);
  return plan;
}

}  // namespace intact::ggml
