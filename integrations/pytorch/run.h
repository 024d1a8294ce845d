// Runs of plans on PyTorch's threads.
#ifndef INTACT_INTEGRATIONS_PYTORCH_RUN_H_
#define INTACT_INTEGRATIONS_PYTORCH_RUN_H_

#include <intact/intact.h>
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>

namespace intact::pytorch {

/// Calls `run_part(part, parts)` for each part. It returns an intact_status.
template <class RunPart>
void RunParts(double multiply_adds, const RunPart& run_part) {
  // A part of less work takes less time than the thread needs to begin it.
  constexpr double kMultiplyAddsOfPart = 1 << 20;
  const double threads = torch::stable::get_num_threads();
  const auto parts = static_cast<int32_t>(std::clamp(multiply_adds / kMultiplyAddsOfPart, 1.0, threads));
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
