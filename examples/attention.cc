// Attention's product of queries and keys, for all heads in one call. Neither operand is constant, so each
// run packs B. The product of probabilities and values works the same way.
#include <cstdint>
#include <cstdio>
#include <intact/intact.hpp>
#include <vector>

int main() {
  constexpr int64_t heads = 3, tokens = 10, depth = 16;
  std::vector<uint8_t> queries(heads * tokens * depth);  // [head][token][depth]
  std::vector<int8_t> keys(heads * tokens * depth);      // [head][token][depth]: B is n×k
  for (size_t i = 0; i < queries.size(); ++i) queries[i] = static_cast<uint8_t>(255 - i % 7);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int8_t>(i % 11 < 9 ? 127 : -128);

  intact::GemmDesc desc = intact::MakeGemmDesc();
  desc.n = tokens;
  desc.k = depth;
  desc.b_stride_k = 1;
  desc.b_stride_n = depth;
  desc.runtime_b = 1;
  desc.linear.a_zero_point = 128;
  const auto gemm = intact::Gemm::Create(desc, nullptr);  // exact for any weights
  if (!gemm) return std::fprintf(stderr, "Create: %s\n", gemm.error().message.c_str()), 1;

  std::vector<int32_t> logits(heads * tokens * tokens);
  const intact::BatchView<const uint8_t> a = {{queries.data(), tokens, depth}, heads, tokens * depth};
  const intact::BatchView<int32_t> c = {{logits.data(), tokens, tokens}, heads, tokens * tokens};
  const intact::Error error = gemm->Run(a, keys.data(), tokens * depth, c);
  if (!error.ok()) return std::fprintf(stderr, "Run: %s\n", error.message.c_str()), 1;

  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t i = 0; i < tokens; ++i) {
      for (int64_t j = 0; j < tokens; ++j) {
        int32_t sum = 0;
        for (int64_t d = 0; d < depth; ++d) {
          sum += (queries[(head * tokens + i) * depth + d] - 128) * keys[(head * tokens + j) * depth + d];
        }
        if (logits[(head * tokens + i) * tokens + j] != sum) return 1;
      }
    }
  }
  std::printf("%s: %d heads of %dx%d logits, exact\n", gemm->Info().kernel, int(heads), int(tokens),
              int(tokens));
}
