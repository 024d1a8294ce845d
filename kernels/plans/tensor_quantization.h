// The dynamic quantization of a whole tensor (codegen/quantizer.h). Each thread finds the range of some rows.
#ifndef INTACT_KERNELS_PLANS_TENSOR_QUANTIZATION_H_
#define INTACT_KERNELS_PLANS_TENSOR_QUANTIZATION_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/codegen/quantizer.h"
#include "kernels/runtime/threads.h"

namespace intact::kernels {

/// The quantization of `rows` rows. scan(begin, end) returns the NumberRange of rows [begin, end).
template <class Scan>
RowQuantization FindQuantization(const Quantizer& quantizer, int64_t rows, int threads, const Scan& scan) {
  constexpr int kMostShares = 64;
  std::array<NumberRange, kMostShares> ranges;
  const int shares = std::min(threads, kMostShares);
  RunParts({shares, shares}, [&](int share, int /*thread*/) {
    ranges[static_cast<size_t>(share)] = scan(rows * share / shares, rows * (share + 1) / shares);
  });
  for (int share = 1; share < shares; ++share) ranges[0].Add(ranges[static_cast<size_t>(share)]);
  return quantizer.Choose(ranges[0]);
}

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_PLANS_TENSOR_QUANTIZATION_H_
