// A plan of grouped weights on disk. The file holds weights as the saving machine packed them. If the kernels
// of the loading machine read the same layout, it uses the weights in the file. Otherwise it packs them
// again. So the file loads on any machine, with any ISA.
//
//   offset        contents, little-endian
//   0             the header, version 5: ImageBegin, with the magic INTACTGW, the descriptor as it lies in memory
//                 (NumbersOf()), GroupedPacking
//   then, each aligned to 64 bytes and padded with zeros to 64:
//                 panels   of all experts (grouped_weights.h)
//                 minimums   of all experts, if present
//                 bias     f32[expert][n], if present
//
// pack_file.h defines the checksum. The descriptor, scales, zero points and sums are checked like a caller's.
#ifndef INTACT_KERNELS_WEIGHTS_GROUPED_FILE_H_
#define INTACT_KERNELS_WEIGHTS_GROUPED_FILE_H_

#include <intact/grouped.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/result.h"
#include "kernels/problem/grouped_problem.h"
#include "kernels/weights/grouped_weights.h"

namespace intact::kernels {

/// The image of a plan. Throws std::bad_alloc.
std::vector<uint8_t> WriteGroupedImage(const GroupedProblem& problem, const GroupedWeights& weights);

/// The size of the image.
size_t GroupedImageBytes(const GroupedProblem& problem, const GroupedWeights& weights);

/// The contents of an image. The weights point into the image.
struct GroupedImage {
  GroupedProblem problem;
  std::shared_ptr<GroupedWeights> weights;
};
/// Checks that the image is complete and well-formed. `image` is aligned to 64 bytes; `owner` keeps it alive.
/// The caller must still check the weights.
Result<GroupedImage> ReadGroupedImage(const void* image, size_t size, std::shared_ptr<const void> owner);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_GROUPED_FILE_H_
