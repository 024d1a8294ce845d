// guarded_run.h for products with grouped weights.
#ifndef INTACT_VERIFY_TARGETS_GUARDED_GROUPED_H_
#define INTACT_VERIFY_TARGETS_GUARDED_GROUPED_H_

#include <intact/grouped.h>

#include <cstdint>
#include <functional>
#include <intact/intact.hpp>
#include <vector>

#include "reference/contract/grouped.h"
#include "verify/problem/target.h"

namespace intact::verify {

/// The descriptor without arrays and strides.
intact_grouped_desc DescOf(const reference::Grouped& grouped, const RunOptions& options);
/// Returns call(descriptor, b). The descriptor's arrays and the weights are in guarded memory. With
/// options.reused, calls it twice: first with other weights, scales and zero points in the same memory.
Error CallGuarded(const reference::Grouped& grouped, const RunOptions& options,
                  const std::function<Error(const intact_grouped_desc& desc, const void* b)>& call);
/// Calls `call` with the arguments of each run, in guarded memory, and returns the bytes of C without gaps.
/// All runs are repeated, options.calls times in total. If a later call writes other bytes than the first
/// call, returns an error and sets *changed, if `changed` is given.
Result<std::vector<uint8_t>> RunGuarded(const reference::Grouped& grouped, const RunOptions& options,
                                        const std::function<Error(const intact_grouped_args&)>& call,
                                        bool* changed = nullptr);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_TARGETS_GUARDED_GROUPED_H_
