// The input and weights of a case, and a check of its output.
//
// A contender is run on two inputs before it is timed:
//
//   ordinary   the activations of the case. Sampled rows of the output are compared with the scalar
//              reference, which is too slow for all rows: nine pixels of a convolution, from corner to
//              corner; but all rows of a batch
//   maximum    all activations at their largest, so that pairs saturate wherever the weights let them. Every
//              row is compared; rows at the edges of an image differ by the taps that lie outside
//
// Numbers that runs quantize are bell-shaped. If each row has its own scale, the magnitudes of rows differ
// widely. At the maximum all numbers are 1.
//
// A product in float gets an eighth of the activations, as integers. Its sums stay below 2²⁴: they are exact
// in any order, and are compared for equality too.
#ifndef INTACT_BENCH_CASES_WORKLOAD_H_
#define INTACT_BENCH_CASES_WORKLOAD_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <vector>

#include "bench/cases/blocks.h"
#include "bench/cases/case.h"
#include "bench/cases/contender.h"
#include "bench/cases/probes.h"
#include "kernels/runtime/aligned_buffer.h"
#include "reference/contract/operation.h"
#include "reference/models/models.h"

namespace intact::bench {

using Bytes = kernels::AlignedBuffer<uint8_t>;

/// A copy of `values`, aligned to a cache line. Throws std::bad_alloc if memory runs out.
template <class Value>
Bytes ToBytes(const std::vector<Value>& values) {
  Bytes bytes;
  if (!bytes.Resize(values.size() * sizeof(Value))) throw std::bad_alloc();
  std::copy_n(reinterpret_cast<const uint8_t*>(values.data()), bytes.size(), bytes.data());
  return bytes;
}

class Workload {
 public:
  /// Uses c's shape and weights, and nothing else of `c`.
  explicit Workload(const Case& c);

  /// The operation on the ordinary u8 input: a GEMM or a convolution, depending on the case's shape. Its
  /// scales and activation are for u8 outputs.
  const reference::Gemm& gemm() const { return std::get<reference::Gemm>(operation_); }
  const reference::Conv& conv() const { return std::get<reference::Conv>(operation_); }
  /// The members that GEMMs and convolutions share.
  const reference::Linear& operation() const { return LinearOf(operation_); }
  /// The post-operations of outputs: see Format.
  core::PostOps PostOpsOf(const Format& format) const;
  /// The ordinary input as a contender of `format` takes it, u8 or floats; aligned to a cache line.
  const uint8_t* a(const Format& format) const {
    return blocks_ ? blocks_->a() : InputFor(format).ordinary.data();
  }
  size_t a_bytes(const Format& format) const {
    return blocks_ ? blocks_->a_bytes() : InputFor(format).ordinary.bytes();
  }
  /// B in the shape's layout; aligned to a cache line if runs pass B.
  std::span<const int8_t> b() const;
  /// The scales of the weights: f32, or those of blocks.
  std::span<const std::byte> scales() const {
    return blocks_ ? std::as_bytes(blocks_->scales()) : std::as_bytes(std::span(operation().scales));
  }
  /// The operands of a GEMM with weights in blocks; else nothing. Such a workload has no operation().
  const std::optional<BlockOperands>& blocks() const { return blocks_; }
  /// A buffer for C, aligned to a cache line.
  Bytes NewC(intact_type c_type) const;

  /// The first of `models` that `contender` computes; nothing if it matches no model, or fails.
  std::optional<reference::Model> Recognise(Contender* contender, const Format& format,
                                            std::span<const reference::Model> models) const;

 private:
  struct Input {
    Bytes ordinary, maximum;  // as contenders take them
    size_t first_probe = 0;
    std::vector<float> a_scales;  // of the probes' rows; empty unless runs quantize
  };

  const Input& InputFor(const Format& format) const {
    return inputs_.at(static_cast<size_t>(format.quantization));
  }
  void FindProbes();
  void AddInput(Quantization quantization, Probes* probes);
  reference::Linear EpilogueOf(const Format& format) const;
  bool Equals(const uint8_t* c, const uint8_t* c_of_maximum, const Format& format,
              reference::Model model) const;

  Shape shape_;
  std::optional<BlockOperands> blocks_;
  reference::Operation operation_;
  Bytes runtime_b_;  // each B in the shape's order, if runs pass B
  // Probes are rows of the output with known accumulators: of each ordinary input, then of its maximum.
  std::vector<int64_t> ordinary_probes_, maximum_probes_;
  std::vector<size_t> like_;     // for each row of the maximum, the probe that it equals
  std::array<Input, 5> inputs_;  // by Quantization; empty if no format of the shape uses it
  Sums sums_;                    // the probes' sums, all inputs
};

/// The models that `c` may compute: for intact the model of its mode, for a peer either (in float: the exact
/// one).
std::span<const reference::Model> AdmissibleModels(const Case& c);

}  // namespace intact::bench
#endif  // INTACT_BENCH_CASES_WORKLOAD_H_
