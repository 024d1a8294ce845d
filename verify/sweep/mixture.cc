#include "verify/sweep/mixture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "support/counted.h"
#include "verify/explain/identify.h"
#include "verify/problem/problem.h"
#include "verify/problem/problem_size.h"

namespace intact::verify {
namespace {

// ----- problems of a kind ---------------------------------------------------------------------------------

std::string OperationOf(const Problem& p) {
  return fmt::format("{} {}{}", NameOf(KindOf(p)), ToString(p.a_type), ToString(p.b_type));
}

struct Computed {
  Problem problem;
  const SweepComputed* how = nullptr;  // nullptr if the target gave no outputs
  std::string failure;                 // if so: why
  bool is_explained = true;
  bool IsReproducedBy(const std::string& arithmetic) const {
    return std::ranges::find(how->reproduced_by, arithmetic) != how->reproduced_by.end();
  }
};

struct Kind {
  std::string operation;
  std::vector<Computed> problems;
};

std::vector<Kind> KindsOf(const SweepResult& sweep) {
  std::vector<Kind> kinds;
  const auto add = [&kinds](const std::string& line, const SweepComputed* how, const std::string& failure,
                            bool is_explained) {
    const Result<Problem> problem = Problem::Parse(line);
    if (!problem || problem->grouped) return;
    const std::string operation = OperationOf(*problem);
    const auto found = std::ranges::find(kinds, operation, &Kind::operation);
    Kind& kind = found == kinds.end() ? kinds.emplace_back(Kind{operation, {}}) : *found;
    kind.problems.push_back({*problem, how, failure, is_explained});
  };
  std::set<std::string_view> with_outputs;
  for (const SweepComputed& computed : sweep.computed) {
    with_outputs.insert(computed.problem);
    add(computed.problem, &computed, {}, true);
  }
  const std::string not_explained = Failure{FailureKind::kOutput, std::string(kNotExplained)}.Text();
  for (const SweepFailure& failure : sweep.failures) {
    if (with_outputs.contains(failure.problem)) continue;
    add(failure.problem, nullptr, failure.reason, failure.kind != not_explained);
  }
  return kinds;
}

using Those = std::vector<const Computed*>;

std::pair<int, int> RankOf(const std::string& arithmetic) {
  return NamingRank(*reference::ParseArithmetic(arithmetic));
}

// How many of `those` each arithmetic reproduces.
std::map<std::string, int64_t> CountsOf(const Those& those) {
  std::map<std::string, int64_t> counts;
  for (const Computed* computed : those) {
    for (const std::string& arithmetic : computed->how->reproduced_by) ++counts[arithmetic];
  }
  return counts;
}

// The arithmetic that reproduces most of `those`; among equals, the least strange. Nothing if none reproduces
// any.
std::optional<std::string> Likeliest(const Those& those) {
  std::optional<std::pair<int64_t, std::string>> best;
  for (const auto& [text, count] : CountsOf(those)) {
    const bool is_better =
        !best || count > best->first || (count == best->first && RankOf(text) < RankOf(best->second));
    if (is_better) best = {count, text};
  }
  if (!best) return std::nullopt;
  return best->second;
}

// The problems of `those` that no arithmetic of `cover` reproduces; cover[leaving_out] does not count.
Those NotReproduced(const Those& those, const std::vector<std::string>& cover,
                    std::optional<size_t> leaving_out = std::nullopt) {
  Those left;
  std::ranges::copy_if(those, std::back_inserter(left), [&](const Computed* computed) {
    for (size_t i = 0; i < cover.size(); ++i) {
      if (i != leaving_out && computed->IsReproducedBy(cover[i])) return false;
    }
    return true;
  });
  return left;
}

// Removes an arithmetic of `cover` that the others make needless, or replaces an arithmetic by the least
// strange arithmetic that reproduces the same problems. False if there is nothing left to do. Each call
// leaves fewer or less strange arithmetics.
bool Simplify(const Those& those, std::vector<std::string>* cover) {
  for (size_t i = cover->size(); i-- > 0;) {
    const Those its_own = NotReproduced(those, *cover, i);
    if (its_own.empty()) {
      cover->erase(cover->begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    }
    std::string best = (*cover)[i];
    for (const auto& [text, count] : CountsOf(its_own)) {
      const bool will_do = count == std::ssize(its_own);
      if (will_do && RankOf(text) < RankOf(best)) best = text;
    }
    if (best != (*cover)[i]) {
      (*cover)[i] = best;
      return true;
    }
  }
  return false;
}

// Arithmetics that together reproduce each of `those` that any arithmetic does. The choice is greedy, and
// then simplified: a greedy arithmetic is often two in one, with the sums of the first and the rounding of
// the second.
std::vector<std::string> Cover(const Those& those) {
  std::vector<std::string> cover;
  for (auto text = Likeliest(those); text; text = Likeliest(NotReproduced(those, cover))) {
    cover.push_back(*text);
  }
  while (Simplify(those, &cover)) {
  }
  return cover;
}

// The roundings that with the sums of `text` reproduce each of `those` too.
std::vector<reference::Rounding> OtherRoundings(const std::string& text, const Those& those) {
  const reference::Arithmetic named = *reference::ParseArithmetic(text);
  std::vector<reference::Rounding> others;
  if (named.rounding == reference::Rounding::kContract) return others;  // all others are stranger
  for (const reference::Rounding rounding : reference::kAllRoundings) {
    const std::string other = ToString(reference::Arithmetic{named.model, rounding});
    const auto reproduces = [&](const Computed* computed) { return computed->IsReproducedBy(other); };
    if (rounding != named.rounding && std::ranges::all_of(those, reproduces)) others.push_back(rounding);
  }
  return others;
}

Mixture::Sizes SizesOf(std::span<const Computed* const> those) {
  Mixture::Sizes sizes;
  for (const Computed* computed : those) {
    const std::array<int64_t, 3> own = GemmSizesOf(computed->problem);
    for (size_t i = 0; i < own.size(); ++i) {
      auto& [least, most] = sizes.at(i);
      least = computed == those.front() ? own.at(i) : std::min(least, own.at(i));
      most = std::max(most, own.at(i));
    }
  }
  return sizes;
}

Mixture::Others OthersOf(const Those& those) {
  if (those.empty()) return {};
  return {std::ssize(those), those[0]->problem.ToString(), those[0]->failure, SizesOf(those)};
}

Mixture MixtureOf(const Kind& kind) {
  Mixture mixture;
  mixture.operation = kind.operation;
  mixture.problems = std::ssize(kind.problems);
  Those explained, in_parts, unexplained, without_outputs;
  for (const Computed& computed : kind.problems) {
    if (!computed.is_explained) {
      ++mixture.not_explained;
    } else if (computed.how == nullptr) {
      without_outputs.push_back(&computed);
    } else if (computed.how->differing == 0) {
      ++mixture.exact;
      mixture.would_show_clamping += computed.how->would_show_clamping ? 1 : 0;
    } else if (!computed.how->reproduced_by.empty()) {
      explained.push_back(&computed);
    } else if (!computed.how->in_parts.empty()) {
      in_parts.push_back(&computed);
    } else {
      unexplained.push_back(&computed);
    }
  }
  mixture.unexplained = OthersOf(unexplained);
  mixture.without_outputs = OthersOf(without_outputs);
  if (!in_parts.empty()) {
    const Computed& clearest = **std::ranges::max_element(
        in_parts, {}, [](const Computed* computed) { return computed->how->differing; });
    mixture.in_parts = {std::ssize(in_parts), clearest.problem.ToString(), clearest.how->in_parts,
                        SizesOf(in_parts)};
  }
  for (const std::string& text : Cover(explained)) {
    const auto is_its = [&](const Computed* computed) { return computed->IsReproducedBy(text); };
    const auto its = std::stable_partition(explained.begin(), explained.end(), std::not_fn(is_its));
    const Those those(its, explained.end());
    explained.erase(its, explained.end());
    mixture.parts.push_back(
        {*reference::ParseArithmetic(text), std::ssize(those), SizesOf(those), OtherRoundings(text, those)});
  }
  std::ranges::stable_sort(mixture.parts, std::greater(), &Mixture::Part::problems);
  return mixture;
}

}  // namespace

std::vector<Mixture> Mixtures(const SweepResult& sweep) {
  if (sweep.computed.empty()) return {};
  std::vector<Mixture> mixtures;
  for (const Kind& kind : KindsOf(sweep)) mixtures.push_back(MixtureOf(kind));
  return mixtures;
}

std::string InWords(const Mixture::Sizes& sizes) {
  std::string text;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto& [least, most] = sizes.at(i);
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", "mnk"[i], least);
    if (most > least) text += fmt::format(" to {}", most);
  }
  return text;
}

std::vector<std::string> Phrases(const Mixture& mixture) {
  std::vector<std::string> phrases;
  const auto add = [&](int64_t problems, const std::string& what) {
    const std::string of =
        phrases.empty() ? " of " + support::Counted(mixture.problems, "problem") : std::string();
    phrases.push_back(fmt::format("{}{}: {}", problems, of, what));
  };
  const auto add_exact = [&] {
    if (mixture.exact == 0) return;
    const std::string shown =
        mixture.would_show_clamping == 0
            ? ", none could have shown saturation"
            : fmt::format(", {} could have shown saturation", mixture.would_show_clamping);
    add(mixture.exact, "exact" + shown);
  };
  const bool is_mostly_exact = mixture.parts.empty() || mixture.exact >= mixture.parts[0].problems;
  if (is_mostly_exact) add_exact();
  for (size_t i = 0; i < mixture.parts.size(); ++i) {
    const Mixture::Part& part = mixture.parts[i];
    // A model of fewer problems than have no model at all may fit by chance.
    const bool is_doubtful = part.problems < mixture.unexplained.problems;
    add(part.problems, (is_doubtful ? "perhaps " : "") + InWords(part.arithmetic) + OrOthers(part.others));
    if (i == 0 && !is_mostly_exact) add_exact();
  }
  const auto add_others = [&](const Mixture::Others& others, std::string_view what) {
    if (others.problems == 0) return;
    const std::string sizes = others.problems == 1 ? "; " : ", " + InWords(others.sizes) + "; e.g. ";
    add(others.problems, fmt::format("{}{}'{}'{}{}", what, sizes, others.example,
                                     others.known.empty() ? "" : ": ", others.known));
  };
  add_others(mixture.in_parts, "each output has an arithmetic, but none reproduces a whole problem");
  add_others(mixture.unexplained, "no model reproduces all that differs");
  add_others(mixture.without_outputs, "no outputs");
  if (mixture.not_explained > 0) {
    add(mixture.not_explained,
        fmt::format("wrong, not analysed: {} failures without an explanation are analysed", kMostExplained));
  }
  return phrases;
}

std::string InWords(const Mixture& mixture) { return fmt::format("{}", fmt::join(Phrases(mixture), "; ")); }

std::map<std::string, int64_t> GroupedArithmetics(const SweepResult& sweep) {
  std::map<std::string, int64_t> problems;
  for (const SweepComputed& computed : sweep.computed) {
    if (IsGroupedLine(computed.problem)) ++problems[computed.reproduced_by.at(0)];
  }
  return problems;
}

}  // namespace intact::verify
