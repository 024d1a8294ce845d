// A linear layer of a transformer: the run quantizes float32 activations row by row; outputs are float32. The
// arithmetic is that of ONNX's DynamicQuantizeLinear and MatMulInteger, so the program can predict each bit.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <intact/intact.hpp>
#include <vector>

int main() {
  constexpr int64_t m = 5, n = 4, k = 32;
  std::vector<float> x(m * k);
  for (int64_t i = 0; i < m * k; ++i) x[i] = std::sin(static_cast<float>(i)) * static_cast<float>(1 + i / k);
  std::vector<int8_t> weights(k * n);  // k×n, row-major
  for (int64_t i = 0; i < k * n; ++i) weights[i] = static_cast<int8_t>(i * 37 % 255 - 127);
  const std::vector<float> weight_scales = {0.01f, 0.02f, 0.03f, 0.04f};

  intact::GemmDesc desc = intact::MakeGemmDesc();
  desc.n = n;
  desc.k = k;
  desc.linear.a_quantization = INTACT_QUANTIZATION_DYNAMIC_ROWS;
  desc.linear.a_source_type = INTACT_F32;
  desc.linear.c_type = INTACT_F32;
  desc.linear.scales = weight_scales.data();  // the run multiplies them by each row's scale
  desc.linear.scale_count = n;
  const auto gemm = intact::Gemm::Create(desc, weights.data());
  if (!gemm) return std::fprintf(stderr, "Create: %s\n", gemm.error().message.c_str()), 1;
  std::vector<float> y(m * n);
  const intact::Error error =
      gemm->Run(intact::MatrixView<const float>(x.data(), m, k), intact::MatrixView(y.data(), m, n));
  if (!error.ok()) return std::fprintf(stderr, "Run: %s\n", error.message.c_str()), 1;

  for (int64_t row = 0; row < m; ++row) {
    const float* const values = &x[row * k];
    const float low = std::min(0.0f, *std::min_element(values, values + k));
    const float high = std::max(0.0f, *std::max_element(values, values + k));
    const float scale = (high - low) / 255;
    const float zero_point = std::clamp(std::nearbyint(0 - low / scale), 0.0f, 255.0f);
    for (int64_t column = 0; column < n; ++column) {
      int32_t sum = 0;
      for (int64_t i = 0; i < k; ++i) {
        const float q = std::clamp(std::nearbyint(values[i] / scale) + zero_point, 0.0f, 255.0f);
        sum += static_cast<int32_t>(q - zero_point) * weights[i * n + column];
      }
      if (y[row * n + column] != static_cast<float>(sum) * (scale * weight_scales[column])) return 1;
    }
  }
  std::printf("%s: %d outputs, each bit as predicted\n", gemm->Info().kernel, int(m * n));
}
