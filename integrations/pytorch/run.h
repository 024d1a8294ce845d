// Runs of plans on PyTorch's threads.
#ifndef INTACT_INTEGRATIONS_PYTORCH_RUN_H_
#define INTACT_INTEGRATIONS_PYTORCH_RUN_H_

#include <intact/intact.h>
#include <torch/csrc/stable/ops.h>

#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>

#include "../parts.h"

namespace intact::pytorch {

/// Calls `run_part(part, parts)` for each part. It returns an intact_status.
template <class RunPart>
void RunParts(const integrations::PlanWork& work, const RunPart& run_part) {
  static const double part_products = integrations::PartProducts(INTACT_ISA_ANY);
  const auto threads = static_cast<int>(torch::stable::get_num_threads());
  const int32_t parts = integrations::PartsOf(work, part_products, threads);
  std::mutex mutex;
  std::string error;
  torch::stable::parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      if (run_part(static_cast<int32_t>(part), parts) == INTACT_OK) continue;
      const std::lock_guard lock(mutex);
      error = intact_last_error();
    }
  });
  if (!error.empty()) throw std::runtime_error("intact: " + error);
}

}  // namespace intact::pytorch

#endif  // INTACT_INTEGRATIONS_PYTORCH_RUN_H_
