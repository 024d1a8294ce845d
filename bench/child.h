// Work in a process of its own: a peer can be confined to an ISA only once per process, and its crash shall
// not be ours.
#ifndef INTACT_BENCH_CHILD_H_
#define INTACT_BENCH_CHILD_H_

#include <functional>
#include <intact/intact.hpp>
#include <nlohmann/json.hpp>

namespace intact::bench {

/// What `work` returns in a forked copy of this process. An error if that could not be made or ended before
/// it returned. The caller must not have used OpenMP yet.
Result<nlohmann::json> RunInChild(const std::function<nlohmann::json()>& work);

}  // namespace intact::bench
#endif  // INTACT_BENCH_CHILD_H_
