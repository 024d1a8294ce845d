// What a case computes on, and whether what came out is right.
//
// A contender is run on two inputs before it is timed: the activations of the case, of which three rows are
// compared with the scalar reference (it affords no more at every size), and activations that are all at
// their maximum, where pairs saturate wherever the weights let them, and all rows must be the same.
#ifndef INTACT_BENCH_WORKLOAD_H_
#define INTACT_BENCH_WORKLOAD_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bench/case.h"
#include "bench/contender.h"
#include "kernels/aligned_buffer.h"
#include "reference/gemm.h"

namespace intact::bench {

using Bytes = kernels::AlignedBuffer<uint8_t>;

class Workload {
 public:
  /// Of c's shape, weights and range; the rest of `c` does not matter.
  explicit Workload(const Case& c);

  /// With u8 outputs, per-channel scales and ReLU; s32 outputs have none of these.
  const reference::Gemm& gemm() const { return gemm_; }
  /// Activations, aligned to a cache line.
  const uint8_t* a() const { return a_.data(); }
  /// Room for C, aligned likewise.
  Bytes NewC(intact_type c_type) const;

  /// The first of `models` that `contender` computes; nothing if it computes none of them or fails.
  std::optional<reference::Model> Recognise(Contender* contender, intact_type c_type,
                                            std::span<const reference::Model> models) const;

 private:
  static constexpr int64_t kSampledRows = 3;

  bool Equals(const uint8_t* c, const uint8_t* c_of_maximum, intact_type c_type,
              reference::Model model) const;
  std::array<int64_t, kSampledRows> SampledRows() const { return {0, gemm_.m / 2, gemm_.m - 1}; }

  reference::Gemm gemm_;
  Bytes a_, maximum_;
  // The sampled rows and one of maxima: without tensors, only what turns accumulators into outputs.
  reference::Gemm probe_;
  std::vector<int32_t> exact_, triple_;  // accumulators of the probe
};

/// What `c` may compute: a peer either; intact what its mode promises.
std::span<const reference::Model> AdmissibleModels(const Case& c);

}  // namespace intact::bench
#endif  // INTACT_BENCH_WORKLOAD_H_
