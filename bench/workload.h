// What a case computes on, and whether what came out is right.
//
// A contender is run on two inputs before it is timed:
//
//   ordinary   activations of the case; sampled rows of the output (of a convolution nine pixels, from corner
//              to corner) are compared with the scalar reference, which affords no more at every size
//   maximum    all at their largest, where pairs saturate wherever the weights let them: every row is
//              compared; at the edges of an image a row differs by the taps that it has outside
//
// A float convolution (a peer's c_type f32) computes on an eighth of the activations, in integers: its sums
// stay below 2²⁴, so that they are exact in any order, and are compared for equality too.
#ifndef INTACT_BENCH_WORKLOAD_H_
#define INTACT_BENCH_WORKLOAD_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "bench/case.h"
#include "bench/contender.h"
#include "kernels/base/aligned_buffer.h"
#include "reference/conv.h"
#include "reference/gemm.h"

namespace intact::bench {

using Bytes = kernels::AlignedBuffer<uint8_t>;

class Workload {
 public:
  /// Takes c's shape, weights and range; the rest of `c` does not matter.
  explicit Workload(const Case& c);

  /// What is computed on the ordinary input, with u8 outputs, per-channel scales and ReLU; s32 outputs have
  /// none of these. A GEMM or a convolution, as the case's shape is.
  const reference::Gemm& gemm() const { return std::get<reference::Gemm>(operation_); }
  const reference::Conv& conv() const { return std::get<reference::Conv>(operation_); }
  /// The ordinary input as a contender of `c_type` takes it, u8 or for f32 floats; aligned to a cache line.
  const uint8_t* a(intact_type c_type) const { return InputFor(c_type).ordinary.data(); }
  /// Room for C, aligned likewise.
  Bytes NewC(intact_type c_type) const;

  /// The first of `models` that `contender` computes; nothing if it computes none of them or fails.
  std::optional<reference::Model> Recognise(Contender* contender, intact_type c_type,
                                            std::span<const reference::Model> models) const;

 private:
  struct Input {
    Bytes ordinary, maximum;             // as contenders take them
    std::vector<int32_t> exact, triple;  // accumulators of the probes, n each
  };

  const Input& InputFor(intact_type c_type) const { return c_type == INTACT_F32 ? float_ : int8_; }
  void FindProbes();
  Input MakeInput(std::vector<uint8_t> ordinary, uint8_t largest, bool is_float);
  bool Equals(const uint8_t* c, const uint8_t* c_of_maximum, intact_type c_type,
              reference::Model model) const;

  Shape shape_;
  std::variant<reference::Gemm, reference::Conv> operation_;
  // Probes are rows of the output whose accumulators are known: of the ordinary input, then of the maximum.
  std::vector<int64_t> ordinary_probes_, maximum_probes_;
  std::vector<size_t> like_;  // the probe of the maximum that each row of it is like
  Input int8_, float_;
};

/// What `c` may compute: a peer either; intact what its mode promises.
std::span<const reference::Model> AdmissibleModels(const Case& c);

}  // namespace intact::bench
#endif  // INTACT_BENCH_WORKLOAD_H_
