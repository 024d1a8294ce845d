#include "verify/sweep/shard.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "core/result.h"

namespace intact::verify {
namespace {

Error Invalid(std::string message) { return {INTACT_INVALID_ARGUMENT, std::move(message)}; }

/// All of `text`, in decimal digits.
std::optional<int64_t> Number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.starts_with('-')) return std::nullopt;
  return value;
}

Result<int64_t> Variable(const char* name, const Environment& environment) {
  const char* const text = environment(name);
  if (text == nullptr) return Invalid(fmt::format("{} is not set", name));
  const std::optional<int64_t> value = Number(text);
  if (!value) return Invalid(fmt::format("{}: '{}' is not a number", name, text));
  return *value;
}

/// Shard `index`, counted from 0, of `count`. `names`: the variables with these values, for the error.
Result<Shard> Checked(int64_t index, int64_t count, std::string_view names) {
  if (index < 0 || index >= count) {
    return Invalid(fmt::format("{}: there is no part {} of {}", names, index + 1, count));
  }
  return Shard{index + 1, count};
}

/// A way to start many processes. No other way sets `variable`. `size`: MPI's variable for the number of
/// processes. `shard`: its argument `count` is the number of shards, if the user gave it.
struct Launcher {
  const char* variable;
  const char* size;
  Result<Shard> (*shard)(std::optional<int64_t> count, const Environment& environment);
};

Result<Shard> SlurmShard(std::optional<int64_t> count, const Environment& environment) {
  ASSIGN_OR_RETURN(const int64_t id, Variable("SLURM_ARRAY_TASK_ID", environment));
  if (count) return Checked(id - 1, *count, fmt::format("SLURM_ARRAY_TASK_ID={}", id));
  ASSIGN_OR_RETURN(const int64_t min, Variable("SLURM_ARRAY_TASK_MIN", environment));
  ASSIGN_OR_RETURN(const int64_t tasks, Variable("SLURM_ARRAY_TASK_COUNT", environment));
  const bool has_step = environment("SLURM_ARRAY_TASK_STEP") != nullptr;
  ASSIGN_OR_RETURN(const int64_t step,
                   has_step ? Variable("SLURM_ARRAY_TASK_STEP", environment) : Result<int64_t>(1));
  const int64_t distance = id - min;
  if (step < 1 || distance % step != 0 || distance / step >= tasks || distance < 0) {
    return Invalid(fmt::format(
        "SLURM_ARRAY_TASK_ID={}: is not among {} ids from {} on in steps of {}; expected an array "
        "such as 1-8, or auto/N",
        id, tasks, min, step));
  }
  return Checked(distance / step, tasks, "SLURM_ARRAY_TASK_ID");
}

Result<Shard> KubernetesShard(std::optional<int64_t> count, const Environment& environment) {
  ASSIGN_OR_RETURN(const int64_t index, Variable("JOB_COMPLETION_INDEX", environment));
  if (!count) return Invalid("Kubernetes does not report the number of completions; expected auto/N");
  return Checked(index, *count, fmt::format("JOB_COMPLETION_INDEX={}", index));
}

Result<Shard> MpiShard(const char* rank_name, const char* size_name, std::optional<int64_t> count,
                       const Environment& environment) {
  ASSIGN_OR_RETURN(const int64_t rank, Variable(rank_name, environment));
  ASSIGN_OR_RETURN(const int64_t size, Variable(size_name, environment));
  if (count && *count != size) {
    return Invalid(fmt::format("{}={}: expected {} ranks, one for each shard", size_name, size, *count));
  }
  return Checked(rank, size, fmt::format("{}={}, {}={}", rank_name, rank, size_name, size));
}

constexpr Launcher kLaunchers[] = {
    {"SLURM_ARRAY_TASK_ID", nullptr, SlurmShard},
    {"JOB_COMPLETION_INDEX", nullptr, KubernetesShard},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     [](std::optional<int64_t> count, const Environment& environment) {
       return MpiShard("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", count, environment);
     }},
    {"PMI_RANK", "PMI_SIZE",
     [](std::optional<int64_t> count, const Environment& environment) {
       return MpiShard("PMI_RANK", "PMI_SIZE", count, environment);
     }},
};

/// The launchers that started this process. srun starts any program as a single rank of MPI, which therefore
/// counts only if there is no other launcher.
std::vector<Launcher> LaunchersOf(const Environment& environment) {
  std::vector<Launcher> present, several;
  for (const Launcher& launcher : kLaunchers) {
    if (environment(launcher.variable) == nullptr) continue;
    present.push_back(launcher);
    const char* const size = launcher.size == nullptr ? nullptr : environment(launcher.size);
    if (size == nullptr || std::string_view(size) != "1") several.push_back(launcher);
  }
  if (!several.empty()) return several;
  present.resize(std::min(present.size(), size_t{1}));
  return present;
}

Result<Shard> ShardOfEnvironment(std::optional<int64_t> count, const Environment& environment) {
  const auto names = [](std::span<const Launcher> launchers, std::string_view separator) {
    std::vector<std::string_view> variables;
    for (const Launcher& launcher : launchers) variables.emplace_back(launcher.variable);
    return fmt::format("{}", fmt::join(variables, separator));
  };
  const std::vector<Launcher> launchers = LaunchersOf(environment);
  if (launchers.empty()) {
    return Invalid(
        fmt::format("auto: none of {} is set; expected one of them, or i/n", names(kLaunchers, ", ")));
  }
  if (launchers.size() > 1) {
    return Invalid(
        fmt::format("auto: {} are set, and each names a shard; expected i/n", names(launchers, " and ")));
  }
  Result<Shard> shard = launchers[0].shard(count, environment);
  if (shard) return shard;
  return Invalid(fmt::format("auto{}: {}", count ? fmt::format("/{}", *count) : "", shard.error().message));
}

/// The approximate cost of a problem, in multiply-adds of the scalar reference: of its products, of making
/// and comparing its elements, and of its plan.
int64_t Cost(const Problem& problem) {
  constexpr int64_t kPlan = 500'000, kElement = 64;
  if (const auto& grouped = problem.grouped) {
    const auto& [m, n, k, experts] = std::tie(grouped->m, grouped->n, grouped->k, grouped->experts);
    return kPlan + m * n * k + kElement * (m * n + m * k + experts * n * k);
  }
  if (!problem.conv) {
    const auto& [batch, m, n, k] = std::tie(problem.batch, problem.m, problem.n, problem.k);
    return kPlan + batch * (m * n * k + kElement * (m * n + m * k + n * k));
  }
  const reference::ConvGeometry& g = *problem.conv;
  const int64_t outputs = g.OutputPixels() * g.output_channels;
  const int64_t inputs = g.InputPixels() * g.input_channels;
  const int64_t depth = g.Taps() * g.GroupInputs();
  return kPlan + outputs * depth + kElement * (outputs + inputs + depth * g.output_channels);
}

}  // namespace

std::string Shard::ToString() const { return fmt::format("{}/{}", index, count); }

Result<Shard> ParseShard(std::string_view text, const Environment& environment) {
  const auto unknown = [text] {
    return Invalid(fmt::format("'{}' is no shard; expected i/n with i from 1 to n, auto or auto/n", text));
  };
  const size_t slash = text.find('/');
  const std::string_view which = text.substr(0, slash);
  std::optional<int64_t> count;
  if (slash != std::string_view::npos) {
    count = Number(text.substr(slash + 1));
    if (!count || *count < 1) return unknown();
  }
  if (which == "auto") return ShardOfEnvironment(count, environment);
  const std::optional<int64_t> index = Number(which);
  if (!index || !count || *index < 1 || *index > *count) return unknown();
  return Shard{*index, *count};
}

std::vector<std::vector<size_t>> Deal(std::span<const Problem> problems, int64_t count) {
  std::vector<int64_t> costs;
  for (const Problem& problem : problems) costs.push_back(Cost(problem));
  std::vector<size_t> heaviest_first(problems.size());
  std::iota(heaviest_first.begin(), heaviest_first.end(), size_t{0});
  std::ranges::stable_sort(heaviest_first, std::greater(), [&](size_t i) { return costs[i]; });

  std::vector<std::vector<size_t>> shards(static_cast<size_t>(count));
  using Load = std::pair<int64_t, size_t>;  // cost so far, shard
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (size_t shard = 0; shard < shards.size(); ++shard) loads.push({0, shard});
  for (const size_t i : heaviest_first) {
    const auto [cost, shard] = loads.top();
    loads.pop();
    shards[shard].push_back(i);
    loads.push({cost + costs[i], shard});
  }
  for (std::vector<size_t>& shard : shards) std::ranges::sort(shard);
  return shards;
}

std::vector<Problem> ProblemsOf(std::span<const Problem> problems, const Shard& shard) {
  const std::vector<std::vector<size_t>> shards = Deal(problems, shard.count);
  std::vector<Problem> part;
  for (const size_t i : shards.at(static_cast<size_t>(shard.index - 1))) part.push_back(problems[i]);
  return part;
}

}  // namespace intact::verify
