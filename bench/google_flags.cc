#include "bench/google_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace intact::bench {
namespace {

using Words = std::vector<std::string_view>;

const Words kFormats = {"console", "json", "csv"};
const Words kUnits = {"ns", "us", "ms", "s"};
const Words kTruths = {"true", "false", "yes", "no", "on", "off", "1", "0"};
const Words kColours = {"auto", "true", "false", "yes", "no", "on", "off", "1", "0"};

const std::vector<std::pair<std::string_view, const Words*>> kChoices = {
    {"--benchmark_format", &kFormats},
    {"--benchmark_out_format", &kFormats},
    {"--benchmark_time_unit", &kUnits},
    {"--benchmark_color", &kColours},
    {"--benchmark_list_tests", &kTruths},
    {"--benchmark_report_aggregates_only", &kTruths},
    {"--benchmark_display_aggregates_only", &kTruths},
    {"--benchmark_counters_tabular", &kTruths},
    {"--benchmark_enable_random_interleaving", &kTruths}};

// Fractions are accepted if `Number` is double.
template <class Number>
struct Limits {
  std::string_view flag;
  Number least, most;
};
constexpr Limits<double> kMinTime = {"--benchmark_min_time", 1e-6, 3600};
constexpr Limits<double> kWarmup = {"--benchmark_min_warmup_time", 0, 3600};
constexpr Limits<int> kRepetitions = {"--benchmark_repetitions", 1, 1000000};

template <class Number>
std::optional<std::string> WhyNotWithin(const Limits<Number>& limits, std::string_view value) {
  Number number{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool is_number = error == std::errc() && end == value.data() + value.size();
  if (is_number && number >= limits.least && number <= limits.most) return std::nullopt;
  return fmt::format("{}='{}' is not {} from {} to {}", limits.flag, value,
                     std::is_integral_v<Number> ? "an integer" : "a number", limits.least, limits.most);
}

// The file is written while benchmarks run, so it is checked before.
std::optional<std::string> WhyNotWritable(std::string_view flag, const std::string& path) {
  errno = 0;
  if (std::ofstream(path, std::ios::app)) return std::nullopt;
  return fmt::format("{}={}: cannot be written: {}", flag, path,
                     std::generic_category().message(errno == 0 ? EIO : errno));
}

}  // namespace

std::optional<std::string> WhyNotGoogleFlag(std::string_view argument) {
  const size_t equals = argument.find('=');
  if (equals == std::string_view::npos) return std::nullopt;
  const std::string_view flag = argument.substr(0, equals);
  const std::string_view value = argument.substr(equals + 1);
  for (const auto& [name, words] : kChoices) {
    if (flag != name || std::ranges::find(*words, value) != words->end()) continue;
    return fmt::format("{}='{}' is unknown; expected one of {}", flag, value, fmt::join(*words, ", "));
  }
  if (flag == kMinTime.flag) return WhyNotWithin(kMinTime, value);
  if (flag == kWarmup.flag) return WhyNotWithin(kWarmup, value);
  if (flag == kRepetitions.flag) return WhyNotWithin(kRepetitions, value);
  if (flag == "--benchmark_out") return WhyNotWritable(flag, std::string(value));
  return std::nullopt;
}

}  // namespace intact::bench
