// The handle of a bound run (intact/bound.h), and the code that its binding calls share.
#ifndef INTACT_KERNELS_API_BOUND_H_
#define INTACT_KERNELS_API_BOUND_H_

#include <intact/bound.h>

#include <memory>

#include "core/result.h"
#include "kernels/api/calls.h"
#include "kernels/plans/bound_run.h"

struct intact_bound {
  std::unique_ptr<intact::kernels::BoundRun> run;
};

namespace intact::kernels {

template <class Handle, class Args>
intact_status BindCall(const Handle* handle, const Args* args, intact_bound** bound) noexcept {
  if (bound != nullptr) *bound = nullptr;
  return GuardCall<Handle>("bind", handle, [&]() -> Error {
    if (bound == nullptr) return NullArgument("bound");
    return WithStruct("args", args, Kind<Handle>::kArgs, [&](const Args& own) -> Error {
      ASSIGN_OR_RETURN(std::unique_ptr<BoundRun> run, handle->plan->Bind(own));
      *bound = new intact_bound{std::move(run)};
      return {};
    });
  });
}

}  // namespace intact::kernels
#endif  // INTACT_KERNELS_API_BOUND_H_
