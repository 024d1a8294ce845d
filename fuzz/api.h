// GemmApi, ConvApi and GroupedApi: functions and types of GEMMs, of convolutions and of grouped weights, under
// equal names.
#ifndef INTACT_FUZZ_API_H_
#define INTACT_FUZZ_API_H_

#include <intact/bound.h>
#include <intact/grouped.h>
#include <intact/intact.h>

#include "reference/contract/conv.h"
#include "reference/contract/gemm.h"

namespace intact::fuzz {

struct GemmApi {
  using Plan = intact_gemm;
  using Args = intact_gemm_args;
  using Info = intact_gemm_info;
  using Operation = reference::Gemm;
  static constexpr Info kInfo = INTACT_GEMM_INFO_INIT;
  static constexpr auto Prepare = intact_gemm_prepare;
  static constexpr auto Run = intact_gemm_run;
  static constexpr auto RunPart = intact_gemm_run_part;
  static constexpr auto Bind = intact_gemm_bind;
  static constexpr auto Query = intact_gemm_query;
  static constexpr auto SaveMemory = intact_gemm_save_memory;
  static constexpr auto LoadMemory = intact_gemm_load_memory;
  static constexpr auto Destroy = intact_gemm_destroy;
};

struct ConvApi {
  using Plan = intact_conv;
  using Args = intact_conv_args;
  using Info = intact_conv_info;
  using Operation = reference::Conv;
  static constexpr Info kInfo = INTACT_CONV_INFO_INIT;
  static constexpr auto Prepare = intact_conv_prepare;
  static constexpr auto Run = intact_conv_run;
  static constexpr auto RunPart = intact_conv_run_part;
  static constexpr auto Bind = intact_conv_bind;
  static constexpr auto Query = intact_conv_query;
  static constexpr auto SaveMemory = intact_conv_save_memory;
  static constexpr auto LoadMemory = intact_conv_load_memory;
  static constexpr auto Destroy = intact_conv_destroy;
};

/// Only what tests of saved plans call.
struct GroupedApi {
  using Plan = intact_grouped;
  using Info = intact_grouped_info;
  static constexpr Info kInfo = INTACT_GROUPED_INFO_INIT;
  static constexpr auto Query = intact_grouped_query;
  static constexpr auto LoadMemory = intact_grouped_load_memory;
  static constexpr auto Destroy = intact_grouped_destroy;
};

}  // namespace intact::fuzz
#endif  // INTACT_FUZZ_API_H_
