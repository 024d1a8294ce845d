// Makes plans from descriptors and from pack files, for the C ABI and for tests of internals.
#ifndef INTACT_KERNELS_API_CREATE_H_
#define INTACT_KERNELS_API_CREATE_H_

#include <intact/grouped.h>
#include <intact/intact.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/result.h"
#include "kernels/plans/convolution.h"
#include "kernels/plans/gemm_plan.h"
#include "kernels/plans/grouped_plan.h"

namespace intact::kernels {

/// Makes a plan from descriptors of this version, and checks them.
Result<std::unique_ptr<GemmPlan>> MakePlan(const intact_gemm_desc& desc, const intact_linear_desc& linear,
                                           const void* b);
Result<std::unique_ptr<Convolution>> MakePlan(const intact_conv_desc& desc, const intact_linear_desc& linear,
                                              const void* weights);
Result<std::unique_ptr<GroupedPlan>> MakePlan(const intact_grouped_desc& desc, const void* b);

/// Makes a plan from a pack file's image, aligned to 64 bytes. A GEMM's weights stay in the image. `mapping`
/// keeps the image alive.
Result<std::unique_ptr<GemmPlan>> LoadGemm(const void* image, size_t size, int32_t max_isa,
                                           std::shared_ptr<const void> mapping);
Result<std::unique_ptr<Convolution>> LoadConvolution(const void* image, size_t size, int32_t max_isa,
                                                     std::shared_ptr<const void> mapping);
/// Without `mapping`, the plan copies what it needs.
Result<std::unique_ptr<GroupedPlan>> LoadGrouped(const void* image, size_t size, int32_t max_isa,
                                                 std::shared_ptr<const void> mapping);

/// The images of pack files. Errors: OUT_OF_MEMORY.
Result<std::vector<uint8_t>> ImageOf(const GemmPlan& plan);
Result<std::vector<uint8_t>> ImageOf(const Convolution& plan);
Result<std::vector<uint8_t>> ImageOf(const GroupedPlan& plan);
/// The sizes of these images. Finds the schedules that no run has needed, and copies no weights. Errors:
/// OUT_OF_MEMORY.
Result<size_t> ImageBytes(const GemmPlan& plan);
Result<size_t> ImageBytes(const Convolution& plan);
Result<size_t> ImageBytes(const GroupedPlan& plan);

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_API_CREATE_H_
