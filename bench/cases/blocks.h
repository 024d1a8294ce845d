// The operands of a GEMM with weights in blocks (include/intact/grouped.h), and a check of its output.
#ifndef INTACT_BENCH_CASES_BLOCKS_H_
#define INTACT_BENCH_CASES_BLOCKS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/cases/case.h"
#include "bench/cases/contender.h"
#include "core/weight_format.h"
#include "kernels/runtime/aligned_buffer.h"
#include "reference/contract/grouped.h"

namespace intact::bench {

/// Random weights, and activations, which runs quantize.
class BlockOperands {
 public:
  explicit BlockOperands(const Shape& shape);

  /// Aligned to a cache line.
  const uint8_t* a() const { return reinterpret_cast<const uint8_t*>(a_.data()); }
  size_t a_bytes() const { return a_.bytes(); }
  /// Column by column: s8 with zero points of 0, or u4 with zero points of 8 and the even depth in the low bits.
  std::span<const uint8_t> b() const { return b_; }
  /// f16, by column and block.
  std::span<const uint16_t> scales() const { return scales_; }
  intact_grouped_desc Describe(const Case& c) const;

  /// Runs `contender` of the case `c`. Returns "" if sampled outputs of intact equal the reference's, or those of
  /// a peer are near the float64 product of its own integers; else what is wrong. Throws as the contender does.
  std::string Check(Contender* contender, const Case& c) const;

 private:
  int64_t blocks() const { return format_.Groups(shape_.k); }
  double Scale(int64_t n, int64_t block) const;
  void QuantizeByPeer(const float* row, int64_t block, intact_type scale_type, double* real) const;
  std::string CompareWithReference(const std::vector<float>& found, bool by_groups) const;
  std::string CompareWithFloats(const std::vector<float>& found, intact_type scale_type) const;
  reference::Grouped Sample(bool by_groups) const;

  Shape shape_;
  core::WeightFormat format_;            // with f16 scales
  std::vector<int64_t> rows_, columns_;  // that are checked
  std::vector<uint8_t> b_;
  std::vector<uint16_t> scales_;
  kernels::AlignedBuffer<float> a_;
};

}  // namespace intact::bench
#endif  // INTACT_BENCH_CASES_BLOCKS_H_
