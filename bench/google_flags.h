// Values of Google Benchmark's options, checked before it sees them: some that make no sense it takes for
// others, or answers with its usage and success, or with a run that has no end.
#ifndef INTACT_BENCH_GOOGLE_FLAGS_H_
#define INTACT_BENCH_GOOGLE_FLAGS_H_

#include <optional>
#include <string>
#include <string_view>

namespace intact::bench {

/// What is wrong with the value of an argument "--benchmark_…=value", in a line that names the option and
/// what was expected; nothing if it is right, or if this file does not know the option.
std::optional<std::string> WhyNotGoogleFlag(std::string_view argument);

}  // namespace intact::bench
#endif  // INTACT_BENCH_GOOGLE_FLAGS_H_
