// A quantized fully connected layer: u8 activations, s8 weights, u8 outputs, a scale for each output channel,
// ReLU.
#include <cstdint>
#include <cstdio>
#include <intact/intact.hpp>
#include <vector>

int main() {
  constexpr int64_t m = 4, n = 3, k = 64;
  const std::vector<uint8_t> activations(m * k, 255);  // m×k, row-major
  std::vector<int8_t> weights(n * k);                  // n×k: a row for each output channel
  for (int64_t i = 0; i < n * k; ++i) weights[i] = i % 2 == 0 ? 127 : -126;
  const std::vector<int32_t> bias = {0, 1000, -2000};  // in the accumulator's scale
  const std::vector<float> scales = {0.015625f, 0.03125f,
                                     0.0625f};  // input scale · weight scale / output scale

  intact::GemmDesc desc = intact::MakeGemmDesc();  // exact, on the best ISA of this CPU
  desc.n = n;
  desc.k = k;
  desc.b_stride_k = 1;  // elements from depth k to k + 1 of a channel
  desc.b_stride_n = k;  // elements from one channel to the next
  desc.linear.a_zero_point = 128;
  desc.linear.bias_s32 = bias.data();
  desc.linear.c_type = INTACT_U8;
  desc.linear.c_zero_point = 3;
  desc.linear.scales = scales.data();
  desc.linear.scale_count = n;
  desc.linear.activation = INTACT_ACTIVATION_RELU;
  const auto gemm = intact::Gemm::Create(desc, weights.data());  // copies and packs the weights, once
  if (!gemm) return std::fprintf(stderr, "Create: %s\n", gemm.error().message.c_str()), 1;

  std::vector<uint8_t> output(m * n);
  const intact::Error error =
      gemm->Run(intact::MatrixView(activations.data(), m, k), intact::MatrixView(output.data(), m, n));
  if (!error.ok()) return std::fprintf(stderr, "Run: %s\n", error.message.c_str()), 1;

  std::printf("%s: %d %d %d\n", gemm->Info().kernel, output[0], output[1], output[2]);
  // Channel 0: its weights add up to 32, so the sum is 32·(255 − 128) = 4064. 4064/64 = 63.5 rounds to the
  // even 64.
  return output[0] == 67 && output[1] == 161 && output[2] == 132 ? 0 : 1;
}
