// MergeSweeps() of verify/report/sweep_file.h.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "support/counted.h"
#include "verify/report/sweep_file.h"

namespace intact::verify {
namespace {

using Places = std::unordered_map<std::string, size_t>;  // from problems' lines to their numbers in the list

Error Invalid(const SweepPart& part, std::string_view what) {
  return {INTACT_INVALID_ARGUMENT, fmt::format("{}: {}", part.path, what)};
}

/// Why the parts, as their files describe them, are not all shards of one sweep; nullopt if they are.
std::optional<Error> WhyNotOneSweep(std::span<const SweepPart> parts) {
  const SweepPart& first = parts[0];
  const int64_t count = first.run.shard.count;
  std::vector<const SweepPart*> shards(static_cast<size_t>(count));
  for (const SweepPart& part : parts) {
    if (const std::optional<RunMismatch> mismatch = Mismatch(first.run, part.run)) {
      const bool is_machine = mismatch->field == "machine";
      return Invalid(part,
                     fmt::format("is of another sweep than {}: {}{}", first.path, mismatch->text,
                                 is_machine ? "; machines are compared by `intact verify compare`" : ""));
    }
    const Shard& shard = part.run.shard;
    if (shard.count != count) {
      return Invalid(part, fmt::format("is shard {}, but {} is shard {}", shard.ToString(), first.path,
                                       first.run.shard.ToString()));
    }
    const SweepPart*& known = shards[static_cast<size_t>(shard.index - 1)];
    if (known != nullptr)
      return Invalid(part, fmt::format("is shard {}, as is {}", shard.ToString(), known->path));
    known = &part;
  }
  std::vector<std::string> missing;
  for (size_t i = 0; i < shards.size(); ++i) {
    if (shards[i] == nullptr) missing.push_back(Shard{static_cast<int64_t>(i) + 1, count}.ToString());
  }
  if (missing.empty()) return std::nullopt;
  return Error{INTACT_INVALID_ARGUMENT, fmt::format("shard {} {} missing", fmt::join(missing, ", "),
                                                    missing.size() == 1 ? "is" : "are")};
}

/// An error unless the part has exactly the outcomes of `dealt`, each once.
std::optional<Error> WhyNotItsProblems(const SweepPart& part, std::span<const Problem> problems,
                                       const std::vector<size_t>& dealt, const Places& places) {
  const SweepResult& result = part.result;
  std::set<size_t> found;
  std::optional<Error> error;
  const auto find = [&](const std::string& problem) {
    const auto place = places.find(problem);
    const bool is_its = place != places.end() && std::ranges::binary_search(dealt, place->second);
    if (is_its) return found.insert(place->second).second;
    if (!error)
      error =
          Invalid(part, fmt::format("'{}' is no problem of shard {}", problem, part.run.shard.ToString()));
    return true;
  };
  const auto find_once = [&](const std::string& problem) {
    if (!find(problem) && !error) error = Invalid(part, fmt::format("has '{}' twice", problem));
  };
  for (const SweepDigest& digest : result.digests) find_once(digest.problem);
  for (const SweepSkip& skip : result.skips) find_once(skip.problem);
  for (const SweepComputed& computed : result.computed) find(computed.problem);  // a problem that ran
  for (const SweepFailure& failure : result.failures) find(failure.problem);  // a problem that ran or did not
  if (error) return error;
  if (result.not_run > 0) {
    return Invalid(part,
                   fmt::format("{} of shard {} not run: {}", support::Counted(result.not_run, "problem"),
                               part.run.shard.ToString(), result.why_not_run));
  }
  for (const size_t i : dealt) {
    if (found.contains(i)) continue;
    return Invalid(part, fmt::format("{} of the {} problems of shard {} are missing, such as '{}'",
                                     dealt.size() - found.size(), dealt.size(), part.run.shard.ToString(),
                                     problems[i].ToString()));
  }
  int64_t counted = 0, failed = 0;
  for (const SweepCell& cell : result.cells) {
    counted += cell.problems + cell.skipped;
    failed += cell.failed;
  }
  if (counted == std::ssize(dealt) && failed == std::ssize(result.failures)) return std::nullopt;
  return Invalid(
      part, fmt::format("its cells count {} and {}; expected {} and {}", support::Counted(counted, "problem"),
                        support::Counted(failed, "failure"), dealt.size(), result.failures.size()));
}

template <class T>
void Gather(const std::vector<T>& from, std::vector<T>* to) {
  to->insert(to->end(), from.begin(), from.end());
}

void AddRandom(const RandomFindings& part, std::optional<RandomFindings>* whole) {
  RandomFindings& all = whole->has_value() ? **whole : whole->emplace();
  all.shards += part.shards;
  all.problems += part.problems;
  all.sweep.tried.Add(part.sweep.tried);
  for (const SweepCell& cell : part.sweep.cells) all.sweep.CellOf(cell.isa, cell.mode).Add(cell);
  Gather(part.sweep.failures, &all.sweep.failures);
}

template <class T>
void Sort(const Places& places, std::vector<T>* values) {
  std::ranges::sort(*values, {}, [&places](const T& value) { return places.at(value.problem); });
}

}  // namespace

Result<SweepPart> MergeSweeps(std::span<const SweepPart> parts) {
  SweepPart whole = {{}, parts[0].run, {}, {}};
  whole.run.shard = {};
  const std::vector<Problem> problems = whole.run.AllProblems();
  SweepRun here = whole.run;
  here.Describe(problems);
  if (Mismatch(whole.run, here)) {
    return Invalid(parts[0], fmt::format("is of version {}, whose sweeps have other problems; merge with the "
                                         "program that made it",
                                         whole.run.version));
  }
  if (std::optional<Error> error = WhyNotOneSweep(parts)) return *error;
  Places places;
  SweepResult& merged = whole.result;
  for (size_t i = 0; i < problems.size(); ++i) {
    places.emplace(problems[i].ToString(), i);
    merged.CellOf(problems[i].isa, problems[i].mode);
  }
  const std::vector<std::vector<size_t>> dealt = Deal(problems, parts[0].run.shard.count);
  for (const SweepPart& part : parts) {
    const auto index = static_cast<size_t>(part.run.shard.index - 1);
    if (std::optional<Error> error = WhyNotItsProblems(part, problems, dealt[index], places)) return *error;
    for (const SweepCell& cell : part.result.cells) merged.CellOf(cell.isa, cell.mode).Add(cell);
    Gather(part.result.failures, &merged.failures);
    Gather(part.result.skips, &merged.skips);
    Gather(part.result.digests, &merged.digests);
    Gather(part.result.computed, &merged.computed);
    merged.tried.Add(part.result.tried);
    if (part.random) AddRandom(*part.random, &whole.random);
  }
  Sort(places, &merged.failures);
  Sort(places, &merged.skips);
  Sort(places, &merged.digests);
  Sort(places, &merged.computed);
  // Shards together may minimise more failures than a whole sweep. The whole sweep's choice is among them.
  MinimisedChoice choice;
  for (SweepFailure& failure : merged.failures) {
    if (choice.Take(failure.kind)) continue;
    failure.minimised.clear();
    failure.minimised_reason.clear();
  }
  return whole;
}

}  // namespace intact::verify
