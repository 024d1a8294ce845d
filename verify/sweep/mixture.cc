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
#include <string_view>
#include <utility>

#include "verify/explain/identify.h"
#include "verify/problem/problem.h"

namespace intact::verify {
namespace {

// ----- properties of problems -----------------------------------------------------------------------------

bool HasA(const Problem& p) { return p.za != 0 || p.row_zero_points || p.IsDynamic(); }
bool HasB(const Problem& p) { return p.zb != 0 || p.zb_kind != ZeroPointKind::kTensor; }
int64_t GroupChannels(const Problem& p) { return p.conv ? p.conv->GroupInputs() : 1; }
template <class Predicate>
bool AnyAxis(const Problem& p, const Predicate& predicate) {
  return p.conv && std::ranges::any_of(p.conv->axes, predicate);
}
bool HasPadding(const Problem& p) {
  return AnyAxis(p, [](const reference::Axis& axis) { return axis.pad_begin > 0 || axis.pad_end > 0; });
}

struct Property {
  std::string_view holds, does_not;
  bool (*of)(const Problem& problem);
};
constexpr std::array kProperties = {
    Property{"A or B has a zero point", "neither A nor B has a zero point",
             [](const Problem& p) { return HasA(p) || HasB(p); }},
    Property{"A has a zero point", "A has no zero point", HasA},
    Property{"B has a zero point", "B has no zero point", HasB},
    Property{"there is padding", "there is no padding", HasPadding},
    Property{"there is padding, and A has a zero point", "there is no padding, or A has no zero point",
             [](const Problem& p) { return HasPadding(p) && HasA(p); }},
    Property{"there are groups", "there are no groups",
             [](const Problem& p) { return p.conv && p.conv->groups > 1; }},
    Property{"groups have an odd number of channels", "groups have an even number of channels",
             [](const Problem& p) { return GroupChannels(p) % 2 == 1; }},
    Property{"there is a stride", "there is no stride",
             [](const Problem& p) { return AnyAxis(p, [](const auto& axis) { return axis.stride > 1; }); }},
    Property{"there is a dilation", "there is no dilation",
             [](const Problem& p) { return AnyAxis(p, [](const auto& axis) { return axis.dilation > 1; }); }},
    Property{"there is a bias of s32", "there is no bias of s32",
             [](const Problem& p) { return p.bias == BiasKind::kS32; }},
    Property{"there is a bias of f32", "there is no bias of f32",
             [](const Problem& p) { return p.bias == BiasKind::kF32; }},
    Property{"there is a bias", "there is no bias",
             [](const Problem& p) { return p.bias != BiasKind::kNone; }},
    Property{"C has a zero point", "C has no zero point", [](const Problem& p) { return p.zc != 0; }},
    Property{"there is a residual", "there is no residual",
             [](const Problem& p) { return p.residual != INTACT_TYPE_NONE; }},
    Property{"there is an activation", "there is no activation",
             [](const Problem& p) { return p.activation != INTACT_ACTIVATION_NONE; }},
    Property{"C is s32", "C is not s32", [](const Problem& p) { return p.c_type == INTACT_S32; }},
    Property{"C is f32", "C is not f32", [](const Problem& p) { return p.c_type == INTACT_F32; }},
    Property{"C is bf16", "C is not bf16", [](const Problem& p) { return p.c_type == INTACT_BF16; }},
    Property{"C is u8 or s8", "C is neither u8 nor s8",
             [](const Problem& p) { return p.c_type == INTACT_U8 || p.c_type == INTACT_S8; }},
    Property{"rows of A have scales", "rows of A have no scales",
             [](const Problem& p) { return p.quantization != INTACT_QUANTIZATION_STATIC; }},
    Property{"there is a batch", "there is no batch",
             [](const Problem& p) { return p.batch > 1 || (p.conv && p.conv->batch > 1); }},
    Property{"B is given with the run", "B is given with the plan", [](const Problem& p) { return p.own_b; }},
};

struct Measure {
  std::string_view name;
  int64_t (*of)(const Problem& problem);
};
constexpr std::array kMeasures = {
    Measure{"k", [](const Problem& p) { return p.conv ? p.conv->Taps() * p.conv->GroupInputs() : p.k; }},
    Measure{"m", [](const Problem& p) { return p.conv ? p.conv->OutputPixels() : p.m; }},
    Measure{"n", [](const Problem& p) { return p.conv ? p.conv->GroupOutputs() : p.n; }},
};

using Problems = std::vector<const Problem*>;

// What separates few problems does so by chance. A condition may have few exceptions, which are told.
constexpr size_t kFewest = 2, kFewestOthers = 4, kPerException = 50, kOwnPerException = 10;

// How many problems `holds` for.
int64_t Count(const Problems& problems, const std::function<bool(const Problem&)>& holds) {
  return std::ranges::count_if(problems, [&](const Problem* problem) { return holds(*problem); });
}

// What `others` are: known not to be computed as `those` are; or merely computed otherwise, as far as it
// shows, as exact problems are for a rounding. Then only what is there may be told, not what is missing.
enum class Others : uint8_t { kContrary, kDifferent };

// "only where …": what holds for `those` and for none of `others`; "" if nothing does.
class Separation {
 public:
  Separation(const Problems& those, const Problems& others, Others kind) : those_(those), others_(others) {
    if (those.size() < kFewest || others.size() < kFewestOthers) return;
    for (const Property& property : kProperties) {
      const auto does_not = [&](const Problem& problem) { return !property.of(problem); };
      Try(fmt::format("only where {}", property.holds), property.of);
      if (kind == Others::kContrary) Try(fmt::format("only where {}", property.does_not), does_not);
    }
    if (kind == Others::kDifferent) return;
    TryMeasures();
    if (text_.empty() || exceptions_ > 0) TryRests();
    if (text_.empty()) TryPairs();
  }
  const std::string& text() const { return text_; }

 private:
  void TryMeasures() {
    for (const Measure& measure : kMeasures) {
      const auto of = [&](const Problem* problem) { return measure.of(*problem); };
      const auto [least, greatest] = std::ranges::minmax_element(those_, {}, of);
      const int64_t low = of(*least), high = of(*greatest);
      Try(fmt::format("only from {} = {} on", measure.name, low),
          [&](const Problem& problem) { return measure.of(problem) >= low; });
      Try(fmt::format("only up to {} = {}", measure.name, high),
          [&](const Problem& problem) { return measure.of(problem) <= high; });
    }
  }

  // A size's rest by the width of some vector or block; the simplest first.
  void TryRests() {
    constexpr size_t kEnough = 4, kEnoughOthers = 20;
    if (those_.size() < kEnough || others_.size() < kEnoughOthers) return;
    for (const Measure& measure : kMeasures) {
      for (const int64_t by : {2, 4, 8, 16, 32, 64}) {
        const auto rest_of = [&](const Problem& problem) { return measure.of(problem) % by; };
        Try(fmt::format("only where {} is a multiple of {}", measure.name, by),
            [&](const Problem& problem) { return rest_of(problem) == 0; });
        Try(fmt::format("only where {} is no multiple of {}", measure.name, by),
            [&](const Problem& problem) { return rest_of(problem) != 0; });
        const int64_t first = rest_of(*those_.front());
        if (first == 0) continue;
        Try(fmt::format("only where {} leaves {} by {}", measure.name, first, by),
            [&](const Problem& problem) { return rest_of(problem) == first; });
      }
    }
  }

  // Two properties of which either is enough. There are many pairs, and what separates few problems does so
  // by chance: each is to tell several that the other does not.
  void TryPairs() {
    constexpr size_t kMany = 20;
    constexpr int64_t kSeveral = 10;
    if (those_.size() < kMany || others_.size() < kMany) return;
    for (size_t i = 0; i < kProperties.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        const auto first = kProperties[j].of, second = kProperties[i].of;
        const auto alone = [&](auto one, auto other) {
          return Count(those_, [&](const Problem& problem) { return one(problem) && !other(problem); });
        };
        if (alone(first, second) < kSeveral || alone(second, first) < kSeveral) continue;
        Try(fmt::format("only where {} or {}", kProperties[j].holds, kProperties[i].holds),
            [&](const Problem& problem) { return first(problem) || second(problem); });
      }
    }
  }

  // Of several the one with the fewest exceptions, and of those the first, is told.
  void Try(const std::string& text, const std::function<bool(const Problem&)>& holds) {
    const int64_t without = std::ssize(those_) - Count(those_, holds);
    const int64_t wrongly = Count(others_, holds);
    const auto are_few = [](int64_t exceptions, const Problems& all) {
      return static_cast<size_t>(exceptions) * kPerException <= all.size();
    };
    if (!are_few(without, those_) || !are_few(wrongly, others_)) return;
    if (static_cast<size_t>(without + wrongly) * kOwnPerException > those_.size()) return;
    if (!text_.empty() && without + wrongly >= exceptions_) return;
    exceptions_ = without + wrongly;
    text_ = exceptions_ == 0 ? text : fmt::format("{}, but for {}", text, exceptions_);
  }

  const Problems& those_;
  const Problems& others_;
  int64_t exceptions_ = 0;
  std::string text_;
};

std::string Separating(const Problems& those, const Problems& others, Others kind) {
  return Separation(those, others, kind).text();
}

// ----- problems of a kind ---------------------------------------------------------------------------------

std::string OperationOf(const Problem& p) {
  return fmt::format("{} {}{}", NameOf(KindOf(p)), ToString(p.a_type), ToString(p.b_type));
}

struct Computed {
  Problem problem;
  const SweepComputed* how = nullptr;  // none where the target gave no outputs
  std::string failure;                 // then: why
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
  const auto add = [&kinds](const std::string& line, const SweepComputed* how, const std::string& failure) {
    const Result<Problem> problem = Problem::Parse(line);
    if (!problem) return;
    const std::string operation = OperationOf(*problem);
    const auto found = std::ranges::find(kinds, operation, &Kind::operation);
    Kind& kind = found == kinds.end() ? kinds.emplace_back(Kind{operation, {}}) : *found;
    kind.problems.push_back({*problem, how, failure});
  };
  std::set<std::string_view> with_outputs;
  for (const SweepComputed& computed : sweep.computed) {
    with_outputs.insert(computed.problem);
    add(computed.problem, &computed, {});
  }
  for (const SweepFailure& failure : sweep.failures) {
    if (!with_outputs.contains(failure.problem)) add(failure.problem, nullptr, failure.reason);
  }
  return kinds;
}

Problems Select(const Kind& kind, const std::function<bool(const Computed&)>& is_wanted) {
  Problems selected;
  for (const Computed& computed : kind.problems) {
    if (computed.how != nullptr && is_wanted(computed)) selected.push_back(&computed.problem);
  }
  return selected;
}

bool IsTelling(const Computed& computed) { return computed.how->differing == 0 && computed.how->telling; }

// Whether some arithmetic of exact sums reproduces it.
bool HasExactSums(const Computed& computed) {
  return std::ranges::any_of(computed.how->reproduced_by, [](const std::string& text) {
    return reference::ParseArithmetic(text)->model == reference::Model::kExact;
  });
}

using Those = std::vector<const Computed*>;

int StrangenessOf(const std::string& arithmetic) {
  return Strangeness(*reference::ParseArithmetic(arithmetic));
}

// How many of `those` each arithmetic reproduces.
std::map<std::string, int64_t> CountsOf(const Those& those) {
  std::map<std::string, int64_t> counts;
  for (const Computed* computed : those) {
    for (const std::string& arithmetic : computed->how->reproduced_by) ++counts[arithmetic];
  }
  return counts;
}

// The arithmetic that reproduces most of `those`, of several the least strange; nothing if none does any.
std::optional<std::string> Likeliest(const Those& those) {
  std::optional<std::pair<int64_t, std::string>> best;
  for (const auto& [text, count] : CountsOf(those)) {
    const bool is_better = !best || count > best->first ||
                           (count == best->first && StrangenessOf(text) < StrangenessOf(best->second));
    if (is_better) best = {count, text};
  }
  if (!best) return std::nullopt;
  return best->second;
}

// Of `those` what `cover` does not reproduce; without looking at cover[leaving_out].
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

// Leaves out an arithmetic of `cover` that the others make needless, or puts the least strange one that will
// do beside the others in its place; false if there is nothing left to do. Each time there are fewer, or less
// strange ones.
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
      if (will_do && StrangenessOf(text) < StrangenessOf(best)) best = text;
    }
    if (best != (*cover)[i]) {
      (*cover)[i] = best;
      return true;
    }
  }
  return false;
}

// Arithmetics that together reproduce each of `those` that any does. A greedy choice; then each gives way to
// the least strange one that will do beside the others, for the greedy one is often two in one: the first's
// sums with the second's rounding.
std::vector<std::string> Cover(const Those& those) {
  std::vector<std::string> cover;
  for (auto text = Likeliest(those); text; text = Likeliest(NotReproduced(those, cover))) {
    cover.push_back(*text);
  }
  while (Simplify(those, &cover)) {
  }
  return cover;
}

Problems ProblemsOf(const Those& those) {
  Problems problems;
  problems.reserve(those.size());
  for (const Computed* computed : those) problems.push_back(&computed->problem);
  return problems;
}

// `in_order`: those that are exact or explained.
Mixture::Rest RestOf(const Those& those, const Problems& in_order) {
  if (those.empty()) return {};
  return {std::ssize(those), those[0]->problem.ToString(), those[0]->failure,
          Separating(ProblemsOf(those), in_order, Others::kContrary)};
}

Mixture MixtureOf(const Kind& kind) {
  Mixture mixture;
  mixture.operation = kind.operation;
  mixture.problems = std::ssize(kind.problems);
  Those explained, in_parts, unexplained, without_outputs;
  for (const Computed& computed : kind.problems) {
    if (computed.how == nullptr) {
      without_outputs.push_back(&computed);
    } else if (computed.how->differing == 0) {
      ++mixture.exact;
    } else if (!computed.how->reproduced_by.empty()) {
      explained.push_back(&computed);
    } else if (!computed.how->in_parts.empty()) {
      in_parts.push_back(&computed);
    } else {
      unexplained.push_back(&computed);
    }
  }
  const Problems in_order = Select(kind, [](const Computed& computed) {
    const SweepComputed& how = *computed.how;
    return how.differing == 0 || !how.reproduced_by.empty() || !how.in_parts.empty();
  });
  mixture.unexplained = RestOf(unexplained, in_order);
  mixture.without_outputs = RestOf(without_outputs, in_order);
  if (!in_parts.empty()) {
    const Computed& clearest = **std::ranges::max_element(
        in_parts, {}, [](const Computed* computed) { return computed->how->differing; });
    mixture.in_parts = {std::ssize(in_parts), clearest.problem.ToString(), clearest.how->in_parts, {}};
  }
  const Problems telling = Select(kind, IsTelling);
  const auto clamps = [](const Computed& computed) {
    return !computed.how->reproduced_by.empty() && !HasExactSums(computed);
  };
  mixture.telling = std::ssize(telling);
  mixture.exact_where = Separating(telling, Select(kind, clamps), Others::kContrary);
  for (const std::string& text : Cover(explained)) {
    const auto is_its = [&](const Computed* computed) { return computed->IsReproducedBy(text); };
    const auto its = std::stable_partition(explained.begin(), explained.end(), std::not_fn(is_its));
    const Problems those = ProblemsOf({its, explained.end()});
    explained.erase(its, explained.end());
    const reference::Arithmetic arithmetic = *reference::ParseArithmetic(text);
    const bool is_exact = arithmetic.model == reference::Model::kExact;
    const Problems others = Select(kind, [&](const Computed& computed) {
      if (computed.how->differing > 0) return !computed.IsReproducedBy(text);
      return computed.how->telling && !is_exact;
    });
    mixture.parts.push_back({arithmetic, std::ssize(those),
                             Separating(those, others, is_exact ? Others::kDifferent : Others::kContrary)});
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

std::vector<std::string> Phrases(const Mixture& mixture) {
  std::vector<std::string> phrases;
  const auto add = [&](int64_t problems, const std::string& what) {
    const std::string of = phrases.empty() ? fmt::format(" of {} problems", mixture.problems) : std::string();
    phrases.push_back(fmt::format("{}{}: {}", problems, of, what));
  };
  const auto with = [](const std::string& where) { return where.empty() ? where : ": " + where; };
  const auto add_exact = [&] {
    if (mixture.exact == 0) return;
    const std::string telling = mixture.telling == 0
                                    ? ", none of which could have shown saturation"
                                    : fmt::format(", {} of which could have shown saturation{}",
                                                  mixture.telling, with(mixture.exact_where));
    add(mixture.exact, "exact" + telling);
  };
  const bool is_mostly_exact = mixture.parts.empty() || mixture.exact >= mixture.parts[0].problems;
  if (is_mostly_exact) add_exact();
  for (size_t i = 0; i < mixture.parts.size(); ++i) {
    const Mixture::Part& part = mixture.parts[i];
    // Where more problems have no model at all, few have one by chance.
    const bool is_doubtful = part.problems < mixture.unexplained.problems;
    add(part.problems, fmt::format("{}{}{}{}", is_doubtful ? "perhaps " : "", InWords(part.arithmetic),
                                   part.where.empty() ? "" : ", ", part.where));
    if (i == 0 && !is_mostly_exact) add_exact();
  }
  const auto add_rest = [&](const Mixture::Rest& rest, std::string_view what) {
    if (rest.problems == 0) return;
    add(rest.problems, fmt::format("{}{}{}; {}'{}'{}{}", what, rest.where.empty() ? "" : ", ", rest.where,
                                   rest.problems == 1 ? "" : "e.g. ", rest.example,
                                   rest.known.empty() ? "" : ": ", rest.known));
  };
  add_rest(mixture.in_parts, "each output has an arithmetic, but no one reproduces all of a problem");
  add_rest(mixture.unexplained, "no model reproduces all that differs");
  add_rest(mixture.without_outputs, "no outputs");
  return phrases;
}

std::string InWords(const Mixture& mixture) { return fmt::format("{}", fmt::join(Phrases(mixture), "; ")); }

}  // namespace intact::verify
