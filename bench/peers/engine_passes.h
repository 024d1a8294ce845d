// The passes that an engine adds around a library whose matrix product takes u8 and returns s32: it quantizes
// float32 activations before the product, and scales the sums after it. Peers without dynamic quantization
// are measured with these passes.
//
// They are vectorised loops over memory, as in engines:
// 1. Find the smallest and the largest number, of all rows, or of each row just before it is quantized (ymm).
// 2. Quantize by division (ymm or zmm, by the ISA).
// 3. Subtract the zero point's part from each sum and scale it, in place (ymm).
// They compute what the contract defines (include/intact/intact.h), so that a peer's results can be compared
// bit for bit. They do not look for NaNs.
#ifndef INTACT_BENCH_PEERS_ENGINE_PASSES_H_
#define INTACT_BENCH_PEERS_ENGINE_PASSES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "core/isas.h"

namespace intact::bench {

class EnginePasses {
 public:
  /// How the numbers of a row are quantized to u8.
  struct RowQuantization {
    float scale = 1;
    int32_t zero_point = 0;
  };

  /// A is m×k, C is m×n, both dense. `column_sums`: Σ_k of each column of the weights. `scales`: one for each
  /// column. `by_row`: each row has its own scale and zero point.
  EnginePasses(core::Isa isa, int64_t m, int64_t k, bool by_row, std::span<const int64_t> column_sums,
               std::vector<float> scales);

  /// Quantizes m×k numbers to u8.
  void Quantize(const float* x, uint8_t* a);
  /// Converts the m×n sums to float32 in place. They must be sums with the activations quantized last.
  void Dequantize(int32_t* c) const;

 private:
  core::Isa isa_;
  int64_t k_;
  bool by_row_;
  std::vector<int32_t> column_sums_;
  std::vector<float> scales_;
  std::vector<RowQuantization> rows_;  // m
};

}  // namespace intact::bench
#endif  // INTACT_BENCH_PEERS_ENGINE_PASSES_H_
