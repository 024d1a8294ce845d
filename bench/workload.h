// What a case computes on, and whether what came out is right.
//
// A contender is run on two inputs before it is timed:
//
//   ordinary   activations of the case; sampled rows of the output (of a convolution nine pixels, from corner
//              to corner; of a batch all) are compared with the scalar reference, which affords no more at
//              every size
//   maximum    all at their largest, where pairs saturate wherever the weights let them: every row is
//              compared; at the edges of an image a row differs by the taps that it has outside
//
// Numbers that runs quantize are bell-shaped, rows of very different scales where each has its own; at their
// maximum all are 1.
//
// What is computed in float is computed on an eighth of the activations, in integers: its sums stay below
// 2²⁴, so that they are exact in any order, and are compared for equality too.
#ifndef INTACT_BENCH_WORKLOAD_H_
#define INTACT_BENCH_WORKLOAD_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bench/case.h"
#include "bench/contender.h"
#include "bench/probes.h"
#include "kernels/runtime/aligned_buffer.h"
#include "reference/contract/operation.h"
#include "reference/models/models.h"

namespace intact::bench {

using Bytes = kernels::AlignedBuffer<uint8_t>;

class Workload {
 public:
  /// Takes c's shape, weights and range; the rest of `c` does not matter.
  explicit Workload(const Case& c);

  /// What is computed on the ordinary input that is quantized already. A GEMM or a convolution, as the case's
  /// shape is; scales and activation are those of u8 outputs.
  const reference::Gemm& gemm() const { return std::get<reference::Gemm>(operation_); }
  const reference::Conv& conv() const { return std::get<reference::Conv>(operation_); }
  /// What both have.
  const reference::Linear& operation() const { return LinearOf(operation_); }
  /// Of outputs: see Format.
  core::PostOps PostOpsOf(const Format& format) const;
  /// The ordinary input as a contender of `format` takes it, u8 or floats; aligned to a cache line.
  const uint8_t* a(const Format& format) const { return InputFor(format).ordinary.data(); }
  /// B as the shape lays it out.
  std::span<const int8_t> b() const;
  /// Room for C, aligned to a cache line.
  Bytes NewC(intact_type c_type) const;

  /// The first of `models` that `contender` computes; nothing if it computes none of them or fails.
  std::optional<reference::Model> Recognise(Contender* contender, const Format& format,
                                            std::span<const reference::Model> models) const;

 private:
  struct Input {
    Bytes ordinary, maximum;  // as contenders take them
    size_t first_probe = 0;
    std::vector<float> a_scales;  // of the probes, if runs choose them
  };

  const Input& InputFor(const Format& format) const {
    return inputs_.at(static_cast<size_t>(format.quantization));
  }
  void FindProbes();
  void AddInput(const Case& c, Quantization quantization, Probes* probes);
  reference::Linear EpilogueOf(const Format& format) const;
  bool Equals(const uint8_t* c, const uint8_t* c_of_maximum, const Format& format,
              reference::Model model) const;

  Shape shape_;
  reference::Operation operation_;
  std::vector<int8_t> b_by_columns_;  // of a batch that has its Bs so
  // Probes are rows of the output whose accumulators are known: of each ordinary input, then of its maximum.
  std::vector<int64_t> ordinary_probes_, maximum_probes_;
  std::vector<size_t> like_;     // the probe of the maximum that each row of it is like
  std::array<Input, 4> inputs_;  // by Quantization; empty where none of the shape's formats has it
  Sums sums_;                    // of the probes of all inputs
};

/// What `c` may compute: a peer either; intact what its mode promises.
std::span<const reference::Model> AdmissibleModels(const Case& c);

}  // namespace intact::bench
#endif  // INTACT_BENCH_WORKLOAD_H_
