#include "verify/sweep/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

namespace intact::verify {
namespace {

/// All of `text`, in decimal digits.
std::optional<int64_t> Number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.starts_with('-')) return std::nullopt;
  return value;
}

/// The approximate cost of a problem, in multiply-adds of the scalar reference: of its products, of making
/// and comparing its elements, and of its plan.
int64_t Cost(const Problem& problem) {
  constexpr int64_t kPlan = 500'000, kElement = 64;
  if (const auto& grouped = problem.grouped) {
    const auto& [m, n, k, experts] = std::tie(problem.m, problem.n, problem.k, grouped->experts);
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

Result<Shard> ParseShard(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash != std::string_view::npos) {
    const std::optional<int64_t> index = Number(text.substr(0, slash));
    const std::optional<int64_t> count = Number(text.substr(slash + 1));
    if (index && count && *index >= 1 && *index <= *count) return Shard{*index, *count};
  }
  return Error{INTACT_INVALID_ARGUMENT,
               fmt::format("'{}' is no shard; expected i/n with i from 1 to n", text)};
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
