#include <array>
#include <string>
#include <string_view>

#include "verify/sweep/sweep_problems.h"

namespace intact::verify {
namespace {

// One problem of a kind suffices. Sizes are small where calls are many.
constexpr std::array<std::string_view, 17> kLines = {
    // Other weights at an address that the target has seen.
    "gemm u8s8s32 m=5 n=33 k=67 za=3 reused=yes",
    "gemm s8s8u8 m=1 n=64 k=130 scale=channel zc=9 reused=yes threads=2",
    "conv u8s8s32 in=6x7 c=5 o=9 kernel=3x3 pad=1x1 za=3 reused=yes",
    "conv u8s8u8 in=6x7 c=17 o=17 groups=17 kernel=3x3 reused=yes",
    // Many calls of one plan, and more threads than cores.
    "gemm u8s8s32 m=2 n=17 k=9 calls=1200",
    "gemm u8s8s32 m=33 n=40 k=20 threads=16 calls=60",
    "conv u8s8s32 in=9x9 c=4 o=8 kernel=3x3 pad=1x1 threads=16 calls=30",
    // Many threads, and batches of 9. Random problems have other numbers of threads.
    "gemm u8s8s32 m=100 n=130 k=67 threads=16",
    "gemm u8s8s32 m=7 n=20 k=33 batch=9 threads=8",
    "conv u8s8s32 in=5x6 c=8 o=17 kernel=3x3 pad=1x1 batch=9 threads=12",
    // 0 times an infinite product of scales; numbers beyond int32 before they are clamped to 8 bits.
    "gemm u8s8u8 m=9 n=33 k=5 quant=rows scale=huge wmax=1 fill=one_hot zc=9",
    "gemm u8s8s8 m=5 n=33 k=20 scale=huge",
    "conv s8s8u8 in=6x6 c=3 o=18 kernel=3x3 quant=tensor scale=huge wmax=1 zc=128",
    // Depths beyond 8,192 and other large sizes, and lines of 64 to 256 output pixels.
    "gemm u8s8s32 m=3 n=17 k=20000",
    "gemm s8s8s32 m=2 n=5000 k=9",
    "conv u8s8s32 in=3x200 c=5 o=17 kernel=3x3 pad=1x1 za=3",
    "conv u8s8s32 in=3x131 c=18 o=18 groups=18 kernel=3x3 pad=1x1",
};

}  // namespace

std::vector<Problem> StateProblems(uint64_t seed) {
  std::vector<Problem> problems;
  for (const std::string_view line : kLines) {
    problems.push_back(ParsedProblem(std::string(line)));
    problems.back().seed = seed;
  }
  return problems;
}

}  // namespace intact::verify
