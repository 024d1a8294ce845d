// A plan of grouped weights on disk. It loads on any machine, with any ISA: loading packs the weights.
//
//   offset        contents, little-endian
//   0             the header, version 1: ImageBegin, with the magic INTACTGW, and the descriptor
//   then, each aligned to 64 bytes and padded with zeros to 64:
//                 weights      column after column of each expert, ⌈k/2⌉ bytes each (4 bits) or k bytes
//                              each (8 bits)
//                 scales       of scale_type, [expert][n][groups]
//                 zero points  a byte each, [expert][n][groups], if present
//                 bias         f32[expert][n], if present
//
// pack_file.h defines the checksum. The descriptor and the arrays are checked like a caller's.
#ifndef INTACT_KERNELS_WEIGHTS_GROUPED_FILE_H_
#define INTACT_KERNELS_WEIGHTS_GROUPED_FILE_H_

#include <intact/grouped.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/result.h"
#include "kernels/problem/grouped_problem.h"

namespace intact::kernels {

/// The image of a plan. `unpack` writes its weights. `desc`: pointers and strides are not used. Throws
/// std::bad_alloc.
std::vector<uint8_t> WriteGroupedImage(const intact_grouped_desc& desc, const GroupedProblem& problem,
                                       const std::function<void(const GroupedColumns&)>& unpack);

/// The size of this image.
size_t GroupedImageBytes(const intact_grouped_desc& desc, const GroupedProblem& problem);

/// The descriptor and the weights in an image, which they point into.
struct GroupedImage {
  intact_grouped_desc desc = INTACT_GROUPED_DESC_INIT;
  const uint8_t* weights = nullptr;
};
/// Checks that the image is complete and well-formed. `image` is aligned to 4 bytes. The caller must still
/// check the descriptor.
Result<GroupedImage> ReadGroupedImage(const void* image, size_t size);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_WEIGHTS_GROUPED_FILE_H_
