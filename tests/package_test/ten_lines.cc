#include <cstdio>
#include <intact/intact.hpp>

int main() {
  const uint8_t a[] = {255, 255};
  const int8_t b[] = {127, 127};
  int32_t sum = 0;
  intact::GemmDesc desc = intact::MakeGemmDesc();
  desc.n = 1;
  desc.k = 2;
  const auto gemm = intact::Gemm::Create(desc, b);
  if (!gemm || !gemm->Run(intact::MatrixView(a, 1, 2), intact::MatrixView(&sum, 1, 1)).ok()) return 1;
  std::printf("%d\n", sum);  // 64770: kernels that saturate say 32767
}
