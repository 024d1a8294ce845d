// Checks values of Google Benchmark's options before Google Benchmark reads them. Google Benchmark
// misreads some bad values. With others it prints its usage and succeeds, or runs without end.
#ifndef INTACT_BENCH_GOOGLE_FLAGS_H_
#define INTACT_BENCH_GOOGLE_FLAGS_H_

#include <optional>
#include <string>
#include <string_view>

namespace intact::bench {

/// What is wrong with the value of an argument "--benchmark_…=value": a line that names the option and the
/// values expected. Nothing if the value is right, or if the option is not checked here.
std::optional<std::string> WhyNotGoogleFlag(std::string_view argument);

}  // namespace intact::bench
#endif  // INTACT_BENCH_GOOGLE_FLAGS_H_
