// The C ABI of bound runs, except for the calls that bind a kind of plan.
#include <intact/bound.h>

#include "kernels/api/bound.h"
#include "kernels/api/guard.h"

extern "C" {

intact_status intact_bound_run(intact_bound* bound) {
  using intact::kernels::Guard;
  return Guard("bound", "run", [&]() -> intact::Error {
    if (bound == nullptr) return intact::kernels::NullArgument("bound");
    return bound->run->Run();
  });
}

void intact_bound_destroy(intact_bound* bound) { delete bound; }

}  // extern "C"
