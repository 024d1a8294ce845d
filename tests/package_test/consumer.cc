// Links the installed library through its C++ wrapper.
#include <array>
#include <cstdint>
#include <cstdio>
#include <intact/intact.hpp>

int main() {
  const std::array<uint8_t, 6> a = {255, 255, 1, 0, 2, 255};
  const std::array<int8_t, 6> b = {127, -128, 127, 3, -1, 5};
  const std::array<int32_t, 4> expected = {64769, -31870, -1, 1281};
  std::array<int32_t, 4> c = {};

  intact::GemmDesc desc = intact::MakeGemmDesc();
  desc.n = 2;
  desc.k = 3;
  const auto gemm = intact::Gemm::Create(desc, b.data());
  if (!gemm) {
    std::fprintf(stderr, "Gemm::Create: %s\n", gemm.error().message.c_str());
    return 1;
  }
  const intact::Error error =
      gemm->Run(intact::MatrixView(a.data(), 2, 3), intact::MatrixView(c.data(), 2, 2));
  if (!error.ok() || c != expected) {
    std::fprintf(stderr, "Gemm::Run: %s, or wrong result\n", error.message.c_str());
    return 1;
  }
  return 0;
}
