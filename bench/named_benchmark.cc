#include "bench/benchmarks.h"

namespace intact::bench {
namespace {

bool any_failed = false;

}  // namespace

void Fail(benchmark::State& state, const std::string& why) {
  any_failed = true;
  state.SkipWithError(why.c_str());
}

bool AnyFailed() { return any_failed; }

}  // namespace intact::bench
