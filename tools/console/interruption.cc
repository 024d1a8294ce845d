#include "tools/console/interruption.h"

#include <atomic>
#include <csignal>

namespace intact::tools {
namespace {

std::atomic<bool> is_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

}  // namespace

void CatchInterruptions() {
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, [](int) { is_interrupted = true; });
}

bool IsInterrupted() noexcept { return is_interrupted; }

}  // namespace intact::tools
