// What an engine does by itself around a library whose matrix product takes u8 and gives s32: it quantizes
// float32 activations before, and scales the sums after. Peers that have no dynamic quantization of their own
// are measured with these passes.
//
// They are vectorised loops over memory, as engines have them: one finds the smallest and the largest number,
// of all rows or of each row just before it is quantized, in ymm; one quantizes by division, in ymm or zmm as
// the ISA is; one takes the zero point's share off each sum and scales it, in place, in ymm. They compute
// what the contract defines (include/intact/intact.h), so that a peer's results can be compared bit for bit,
// and do not look for NaNs.
#ifndef INTACT_BENCH_ENGINE_PASSES_H_
#define INTACT_BENCH_ENGINE_PASSES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "core/isas.h"

namespace intact::bench {

class EnginePasses {
 public:
  /// How the numbers of a row stand as u8.
  struct RowQuantization {
    float scale = 1;
    int32_t zero_point = 0;
  };

  /// A is m×k, C is m×n, all dense; columns of the weights w have the sums Σ_k w and these scales. `by_row`:
  /// each row is quantized by a scale and a zero point of its own.
  EnginePasses(core::Isa isa, int64_t m, int64_t k, bool by_row, std::span<const int64_t> column_sums,
               std::vector<float> scales);

  /// m×k numbers to u8.
  void Quantize(const float* x, uint8_t* a);
  /// Sums of products with what was quantized last, m×n, to float32 in their place.
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
#endif  // INTACT_BENCH_ENGINE_PASSES_H_
