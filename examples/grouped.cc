// A layer of a language model: weights of 4 bits in groups of 32 with float16 scales, and float activations
// that each run quantizes to s8 row by row. The weights are a Q4_0 tensor of a GGUF file. A block of the file
// has a scale and 32 weights; its low nibbles are depths 0 to 15, its high nibbles depths 16 to 31.
#include <cstdint>
#include <cstdio>
#include <intact/grouped.hpp>
#include <vector>

namespace {

constexpr int64_t kGroup = 32;

struct Block {                  // as in the file
  uint16_t scale;               // float16
  uint8_t nibbles[kGroup / 2];  // weight + 8
};

// Puts adjacent depths into one byte, the even depth in the low nibble.
void Reorder(const Block& block, uint8_t* to) {
  const auto at = [&](int64_t depth) {
    return depth < kGroup / 2 ? block.nibbles[depth] & 15 : block.nibbles[depth - kGroup / 2] >> 4;
  };
  for (int64_t i = 0; i < kGroup / 2; ++i) to[i] = static_cast<uint8_t>(at(2 * i) | at(2 * i + 1) << 4);
}

}  // namespace

int main() {
  constexpr int64_t m = 2, n = 3, k = 4 * kGroup, groups = k / kGroup;
  std::vector<Block> file(n * groups);
  for (Block& block : file) {
    block.scale = 0x3800;  // 0.5
    for (uint8_t& byte : block.nibbles)
      byte = 0x79;  // depths 0 to 15: 9 − 8 = 1; depths 16 to 31: 7 − 8 = −1
  }

  std::vector<uint8_t> weights(n * k / 2);
  std::vector<uint16_t> scales;
  for (int64_t i = 0; i < n * groups; ++i) {
    Reorder(file[i], &weights[i * kGroup / 2]);
    scales.push_back(file[i].scale);
  }
  intact_grouped_desc desc = INTACT_GROUPED_DESC_INIT;  // f32 → s8 activations, u4 weights, groups of 32
  desc.n = n;
  desc.k = k;
  desc.b_scales = scales.data();
  const auto layer = intact::Grouped::Create(desc, weights.data());  // copies and packs the weights, once
  if (!layer) return std::fprintf(stderr, "Create: %s\n", layer.error().message.c_str()), 1;

  std::vector<float> a(m * k), c(m * n);
  for (int64_t i = 0; i < m * k; ++i) a[i] = i % kGroup < kGroup / 2 ? 1.0f : -2.0f;
  intact_grouped_args args = INTACT_GROUPED_ARGS_INIT;
  args.m = m;
  args.a = a.data();
  args.c = c.data();
  const intact::Error error = layer->Run(args);
  if (!error.ok()) return std::fprintf(stderr, "Run: %s\n", error.message.c_str()), 1;

  // The largest magnitude, 2, becomes 127, and 1 becomes 63.5, which rounds to the even 64. A group's sum is
  // 16·64 + 16·127 = 3056; four groups times 0.5 make 6112; the scale of a row is 2/127.
  std::printf("%s: %g\n", layer->Info().kernel, static_cast<double>(c[0]));
  return c[0] == 6112 * (2.0f / 127) && c[m * n - 1] == c[0] ? 0 : 1;
}
