// The matrices of tensors with more than two dimensions, as MatMul multiplies them.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_ITEMS_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_ITEMS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "node.h"

namespace intact::onnxruntime {

/// Throws unless A's rows have `k` elements.
void CheckRows(const Shape& a, int64_t k);
/// Throws unless B's matrices have `k` rows.
void CheckDepth(int64_t rows, int64_t k);

/// The leading extents of two shapes with at least two dimensions, broadcast. Throws if they do not fit.
Shape BroadcastItems(const Shape& a, const Shape& b);

/// Where the matrix of each item of `items` begins in a tensor of `shape`, whose leading extents are broadcast. `bytes`: of a
/// matrix.
std::vector<const void*> PlacesOfItems(const void* data, int64_t bytes, const Shape& shape,
                                       std::span<const int64_t> items);

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_ITEMS_H_
