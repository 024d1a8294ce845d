// Work in a child process: a peer can be confined to an ISA only once per process, and its crash must not end
// the program.
#ifndef INTACT_BENCH_MEASURE_CHILD_H_
#define INTACT_BENCH_MEASURE_CHILD_H_

#include <functional>
#include <intact/intact.hpp>
#include <nlohmann/json.hpp>

namespace intact::bench {

/// Runs `work` in a forked copy of this process, and returns its result. An error if the process could not be
/// made or ended early. The caller must not have used OpenMP yet.
Result<nlohmann::json> RunInChild(const std::function<nlohmann::json()>& work);

}  // namespace intact::bench
#endif  // INTACT_BENCH_MEASURE_CHILD_H_
