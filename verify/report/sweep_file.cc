#include "verify/report/sweep_file.h"
#include "core/result.h"
#include "support/counted.h"
#include "verify/report/schemas.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <map>
#include <string_view>
#include <utility>

#include "support/fnv1a.h"
#include "support/json_file.h"
#include "support/npy.h"
#include "support/printable.h"
#include "verify/report/report_terminal.h"
#include "verify/sweep/grouped_sweep.h"
#include "verify/sweep/mixture.h"

namespace intact::verify {
namespace {

constexpr std::array<std::pair<Effort, std::string_view>, 3> kEfforts = {
    {{Effort::kQuick, "quick"}, {Effort::kStandard, "standard"}, {Effort::kThorough, "thorough"}}};

Error Invalid(std::string_view name, std::string_view what) {
  return {INTACT_INVALID_ARGUMENT, fmt::format("{}: {}", name, what)};
}

/// One line, whatever bytes a target's messages hold.
std::string Line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string Hex(uint64_t digest) { return fmt::format("{:016x}", digest); }

Json ToJson(const std::optional<Takes>& takes) {
  if (!takes) return nullptr;
  const auto array = [](const std::vector<Taken>& all) {
    Json json = Json::array();
    for (const Taken& taken : all) {
      json.push_back({{"types", ToString(taken)}, {"multiples", taken.multiples}});
    }
    return json;
  };
  return {{"features",
           {{"gemm", Hex(takes->features.gemm)},
            {"conv", Hex(takes->features.conv)},
            {"grouped", Hex(takes->features.grouped)}}},
          {"gemm", array(takes->gemm)},
          {"conv", array(takes->conv)}};
}

Json ToJson(const SweepRun& run, const Schema& schema) {
  Json isas = Json::array();
  for (const intact_isa isa : run.isas) isas.push_back(intact_isa_name(isa));
  std::string_view effort;
  for (const auto& [value, name] : kEfforts) {
    if (value == run.effort) effort = name;
  }
  return {
      {"schema", schema.name},
      {"schema_version", schema.version},
      {"version", run.version},
      {"build", run.build},
      {"machine", {{"cpu", run.machine.cpu}, {"family", run.machine.family}, {"model", run.machine.model}}},
      {"target",
       {{"name", run.target.name},
        {"text", run.target.text},
        {"options", run.target.options},
        {"build", run.target.build},
        {"deadline", run.target.deadline},
        {"takes", ToJson(run.target.takes)}}},
      {"isas", isas},
      {"mode", ToString(run.mode)},
      {"effort", effort},
      {"grouped_seed", run.grouped_seed ? Json(*run.grouped_seed) : Json()},
      {"emulated", run.emulated},
      {"problems", run.problems},
      {"problems_digest", Hex(run.problems_digest)},
      {"shard", {{"index", run.shard.index}, {"count", run.shard.count}}}};
}

Json ToJson(const SweepOutcome& outcome) {
  Json json = {{"problem", outcome.problem}};
  if (!outcome.skipped.empty()) {
    json["skipped"] = outcome.skipped;
    return json;
  }
  if (outcome.outputs) {
    json["outputs"] = outcome.outputs->outputs;
    json["differing"] = outcome.outputs->differing;
    json["causes"] = CausesJson(outcome.outputs->by_cause);
    json["digest"] = Hex(outcome.outputs->digest);
    if (const auto& naming = outcome.outputs->naming) {
      json["telling"] = naming->would_show_clamping;
      json["reproduced_by"] = naming->reproduced_by;
      if (!naming->in_parts.empty()) json["in_parts"] = naming->in_parts;
    }
  }
  if (!outcome.failure.empty()) {
    json["failure"] = outcome.failure;
    json["kind"] = outcome.kind;
    json["minimised"] = outcome.minimised;
    json["minimised_reason"] = outcome.minimised_reason;
  }
  return json;
}

Json ToJson(const std::vector<SweepFailure>& failures) {
  Json json = Json::array();
  for (const SweepFailure& failure : failures) json.push_back(ToJson(failure));
  return json;
}

// The texts of arithmetics, numbered in order of first appearance.
class Texts {
 public:
  size_t NumberOf(const std::string& text) {
    const auto [at, is_new] = numbers_.emplace(text, numbers_.size());
    if (is_new) texts_.push_back(text);
    return at->second;
  }
  const Json& texts() const { return texts_; }

 private:
  std::map<std::string, size_t> numbers_;
  Json texts_ = Json::array();
};

void AddComputed(const std::vector<SweepComputed>& all, Json* json) {
  if (all.empty()) return;
  Texts texts;
  Json computed = Json::object();
  for (const SweepComputed& problem : all) {
    Json numbers = Json::array();
    for (const std::string& text : problem.reproduced_by) numbers.push_back(texts.NumberOf(text));
    Json& how = computed[problem.problem] = {{"differing", problem.differing},
                                             {"telling", problem.would_show_clamping},
                                             {"reproduced_by", numbers}};
    if (!problem.in_parts.empty()) how["in_parts"] = problem.in_parts;
  }
  (*json)["arithmetics"] = texts.texts();
  (*json)["computed"] = std::move(computed);
}

// Reading. A missing member, or one of another type, throws the JSON library's exception. A value of the
// right type that makes no sense throws an Error. Reading() turns both into an error that names the file.

using Input = nlohmann::json;

template <class T>
Result<T> Reading(std::string_view name, const auto& read) {
  try {
    return read();
  } catch (const Input::exception& exception) {
    return Invalid(name, "is not as a sweep writes it: " + support::ReasonOf(exception));
  } catch (const Error& error) {
    return Invalid(name, "is not as a sweep writes it: " + support::Excerpt(error.message));
  }
}

template <class T>
T Value(Result<T> result) {
  if (!result) throw result.error();
  return std::move(*result);
}

int64_t Count(const Input& json) {
  constexpr int64_t kMost = int64_t{1} << 48;  // so that sums of many still fit
  if (!json.is_number_integer() || json < 0 || json > kMost) {
    throw Error{INTACT_INVALID_ARGUMENT, fmt::format("{} is not a count", json.dump())};
  }
  return json;
}

uint64_t Digest(const Input& json) {
  const auto text = json.get<std::string>();
  uint64_t digest = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), digest, 16);
  if (error != std::errc() || end != text.data() + text.size() || Hex(digest) != text) {
    throw Error{INTACT_INVALID_ARGUMENT, fmt::format("{} is not a digest", json.dump())};
  }
  return digest;
}

std::array<int64_t, kCauseCount> Causes(const Input& json) {
  std::array<int64_t, kCauseCount> by_cause = {};
  for (size_t i = 0; i < by_cause.size(); ++i) {
    by_cause[i] = Count(json.at(std::string(ToString(static_cast<Cause>(i)))));
  }
  return by_cause;
}

Effort ParseEffort(std::string_view text) {
  for (const auto& [value, name] : kEfforts) {
    if (name == text) return value;
  }
  throw Error{INTACT_INVALID_ARGUMENT,
              fmt::format("'{}' is no effort; expected quick, standard or thorough", text)};
}

std::optional<Takes> ParseTakes(const Input& json) {
  if (json.is_null()) return std::nullopt;
  const auto taken = [](const Input& array) {
    std::vector<Taken> all;
    for (const Input& one : array) {
      Taken& last = all.emplace_back(Taken{Value(ParseTypes(one.at("types").get<std::string>()))});
      const Input& multiples = one.at("multiples");
      if (multiples.size() != last.multiples.size()) {
        throw Error{INTACT_INVALID_ARGUMENT, "multiples: expected three numbers, for m, n and k"};
      }
      for (size_t i = 0; i < last.multiples.size(); ++i) {
        last.multiples.at(i) = Count(multiples.at(i));
        if (last.multiples.at(i) < 1 || last.multiples.at(i) > kMaxMultiple) {
          throw Error{INTACT_INVALID_ARGUMENT, fmt::format("multiples: expected 1 to {}", kMaxMultiple)};
        }
      }
    }
    return all;
  };
  const Input& features = json.at("features");
  return Takes{{Digest(features.at("gemm")), Digest(features.at("conv")), Digest(features.at("grouped"))},
               taken(json.at("gemm")),
               taken(json.at("conv"))};
}

SweepRun ParseRun(const Input& json) {
  SweepRun run;
  run.version = json.at("version");
  run.build = json.at("build");
  const Input& machine = json.at("machine");
  run.machine.cpu = machine.at("cpu");
  run.machine.family = static_cast<int>(Count(machine.at("family")));
  run.machine.model = static_cast<int>(Count(machine.at("model")));
  const Input& target = json.at("target");
  run.target = {target.at("name"), target.at("options"),  target.at("build"),
                target.at("text"), target.at("deadline"), ParseTakes(target.at("takes"))};
  for (const std::string isa : json.at("isas")) run.isas.push_back(Value(ParseIsa(isa)));
  run.mode = Value(ParseMode(json.at("mode").get<std::string>()));
  run.effort = ParseEffort(json.at("effort").get<std::string>());
  if (const Input& seed = json.at("grouped_seed"); !seed.is_null()) run.grouped_seed = seed.get<uint64_t>();
  run.emulated = json.at("emulated");
  run.problems = Count(json.at("problems"));
  run.problems_digest = Digest(json.at("problems_digest"));
  const Input& shard = json.at("shard");
  run.shard = {Count(shard.at("index")), Count(shard.at("count"))};
  if (run.shard.index < 1 || run.shard.index > run.shard.count || run.shard.count > run.problems) {
    throw Error{INTACT_INVALID_ARGUMENT, fmt::format("there is no shard {}", run.shard.ToString())};
  }
  return run;
}

/// The text of an arithmetic of `problem`, a line.
std::string Arithmetic(const Input& json, std::string_view problem) {
  auto text = json.get<std::string>();
  if (IsGroupedLine(problem) || reference::ParseArithmetic(text)) return text;
  throw Error{INTACT_INVALID_ARGUMENT, fmt::format("{} is no arithmetic", json.dump())};
}

/// A problem of grouped weights has one arithmetic.
void CheckNaming(std::string_view problem, const std::vector<std::string>& reproduced_by) {
  if (!IsGroupedLine(problem) || reproduced_by.size() == 1) return;
  throw Error{INTACT_INVALID_ARGUMENT,
              fmt::format("reproduced_by has {} arithmetics; expected one", reproduced_by.size())};
}

SweepOutcome ParseOutcome(const Input& json) {
  SweepOutcome outcome;
  outcome.problem = json.at("problem");
  const Problem problem = Value(Problem::Parse(outcome.problem));
  outcome.isa = problem.isa;
  outcome.mode = problem.mode;
  outcome.skipped = json.value("skipped", "");
  outcome.failure = json.value("failure", "");
  if (!outcome.failure.empty()) outcome.kind = json.at("kind");
  outcome.minimised = json.value("minimised", "");
  outcome.minimised_reason = json.value("minimised_reason", "");
  if (json.contains("outputs")) {
    outcome.outputs = {Count(json.at("outputs")),
                       Count(json.at("differing")),
                       Causes(json.at("causes")),
                       Digest(json.at("digest")),
                       {}};
    if (json.contains("reproduced_by")) {
      SweepNaming& naming = outcome.outputs->naming.emplace();
      naming.would_show_clamping = json.at("telling");
      for (const Input& text : json.at("reproduced_by"))
        naming.reproduced_by.push_back(Arithmetic(text, outcome.problem));
      naming.in_parts = json.value("in_parts", "");
      CheckNaming(outcome.problem, naming.reproduced_by);
    }
  }
  if (!outcome.outputs && outcome.skipped.empty() && outcome.failure.empty()) {
    throw Error{INTACT_INVALID_ARGUMENT, "a problem has no outcome"};
  }
  return outcome;
}

Tried ParseTried(const Input& json) {
  return {Count(json.at("m")),     Count(json.at("n")),       Count(json.at("k")),
          Count(json.at("batch")), Count(json.at("threads")), Count(json.at("calls"))};
}

/// Cells, failures and sizes.
SweepResult ParseFindings(const Input& json) {
  SweepResult result;
  for (const Input& cell : json.at("cells")) {
    result.cells.push_back({Value(ParseIsa(cell.at("isa").get<std::string>())),
                            Value(ParseMode(cell.at("mode").get<std::string>())), Count(cell.at("problems")),
                            Count(cell.at("skipped")), Count(cell.at("failed")), Count(cell.at("outputs")),
                            Count(cell.at("differing")), Causes(cell.at("causes"))});
  }
  for (const Input& failure : json.at("failures")) {
    result.failures.push_back({failure.at("problem"), failure.at("reason"), failure.at("kind"),
                               failure.at("minimised"), failure.at("minimised_reason")});
  }
  result.tried = ParseTried(json.at("tried"));
  return result;
}

SweepResult ParseResult(const Input& json) {
  SweepResult result = ParseFindings(json);
  for (const Input& skip : json.at("skipped")) {
    result.skips.push_back({skip.at("problem"), skip.at("reason")});
  }
  if (json.contains("not_run")) {
    result.not_run = Count(json.at("not_run").at("problems"));
    result.why_not_run = json.at("not_run").at("reason");
  }
  for (const auto& [problem, digest] : json.at("digests").items()) {
    result.digests.push_back({problem, Digest(digest)});
  }
  if (!json.contains("computed")) return result;
  const Input& arithmetics = json.at("arithmetics");
  for (const auto& [problem, how] : json.at("computed").items()) {
    SweepComputed& computed = result.computed.emplace_back(
        SweepComputed{problem, Count(how.at("differing")), how.at("telling"), {}, how.value("in_parts", "")});
    for (const Input& number : how.at("reproduced_by")) {
      computed.reproduced_by.push_back(
          Arithmetic(arithmetics.at(static_cast<size_t>(Count(number))), problem));
    }
    CheckNaming(problem, computed.reproduced_by);
  }
  return result;
}

std::optional<RandomFindings> ParseRandom(const Input& json) {
  if (!json.contains("random")) return std::nullopt;
  const Input& random = json.at("random");
  RandomFindings findings = {random.contains("shards") ? Count(random.at("shards")) : 1,
                             Count(random.at("problems")), ParseFindings(random)};
  if (std::ssize(findings.sweep.failures) > findings.sweep.Failed()) {
    throw Error{INTACT_INVALID_ARGUMENT, "random has more failures than its cells count"};
  }
  return findings;
}

bool Has(const Input& json, const Schema& schema) {
  return json.value("/schema"_json_pointer, Input()) == schema.name &&
         json.value("/schema_version"_json_pointer, Input()) == schema.version;
}

// A journal's line is an object whose last member is the FNV-1a of the line without it.
constexpr std::string_view kCheck = ",\"check\":\"";

std::string WithCheck(std::string line) {
  const std::string check = Hex(support::Fnv1a(line));
  line.pop_back();
  return line.append(kCheck).append(check).append("\"}");
}

/// The line without its check, if the check is right.
std::optional<std::string> WithoutCheck(const std::string& line) {
  const size_t at = line.rfind(kCheck);
  if (at == std::string::npos) return std::nullopt;
  std::string bare = line.substr(0, at) + "}";
  if (WithCheck(bare) != line) return std::nullopt;
  return bare;
}

/// The run that a journal's first line describes.
Result<SweepRun> ParseHeader(const std::string& path, const std::string& line) {
  const Result<Input> json = support::ParseJson(path, line);
  if (!json || !Has(*json, kJournalSchema)) {
    return Invalid(path, fmt::format("is no journal of a sweep: its first line has no schema \"{}\", "
                                     "schema_version {}",
                                     kJournalSchema.name, kJournalSchema.version));
  }
  return Reading<SweepRun>(path, [&] { return ParseRun(*json); });
}

/// The outcomes in a journal's lines after the first, in their order.
Result<std::vector<SweepOutcome>> ParseOutcomes(const std::string& path,
                                                const std::vector<std::string>& lines) {
  std::vector<SweepOutcome> outcomes;
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::string name = fmt::format("{}: line {}", path, i + 1);
    const std::optional<std::string> line = WithoutCheck(lines[i]);
    if (!line) return Invalid(name, "does not match its checksum: it was changed or damaged");
    ASSIGN_OR_RETURN(const Input json, support::ParseJson(name, *line));
    Result<SweepOutcome> outcome = Reading<SweepOutcome>(name, [&] { return ParseOutcome(json); });
    if (!outcome) return outcome.error();
    outcomes.push_back(std::move(*outcome));
  }
  return outcomes;
}

}  // namespace

FittedProblems SweepRun::Fitted() const {
  std::vector<Problem> standard = grouped_seed ? GroupedSweepProblems(isas, effort, *grouped_seed)
                                               : SweepProblems(isas, std::span(&mode, 1), effort);
  if (target.takes) return Fit(standard, *target.takes);
  const int64_t count = std::ssize(standard);
  FittedProblems fitted;
  fitted.problems = std::move(standard);
  fitted.of = fitted.unchanged = count;
  return fitted;
}

void SweepRun::Describe(std::span<const Problem> all) {
  problems = std::ssize(all);
  std::string lines;
  for (const Problem& problem : all) lines.append(problem.ToString()).push_back('\n');
  problems_digest = support::Fnv1a(lines);
}

std::optional<RunMismatch> Mismatch(const SweepRun& there, const SweepRun& here) {
  SweepRun as_here = there;
  as_here.target.text = here.target.text;
  const Json a = ToJson(as_here, kSweepSchema), b = ToJson(here, kSweepSchema);
  for (const auto& [key, value] : a.items()) {
    const std::string left = Line(value), right = Line(b.at(key));  // as text, as files keep them
    if (key == "shard" || left == right) continue;
    return RunMismatch{key, fmt::format("{} is {} there, {} here", key, left, right)};
  }
  return std::nullopt;
}

Json ToJson(const SweepRun& run, const SweepResult& result) {
  Json json = ToJson(run, kSweepSchema);
  json.update(ToJson(result));
  json["failures"] = ToJson(result.failures);
  AddComputed(result.computed, &json);
  json["computes"] = ToJson(Mixtures(result));
  return json;
}

Json ToJson(const RandomFindings& random) {
  Json cells = Json::array();
  for (const SweepCell& cell : random.sweep.cells) cells.push_back(ToJson(cell));
  return {{"shards", random.shards},
          {"problems", random.problems},
          {"cells", std::move(cells)},
          {"failures", ToJson(random.sweep.failures)},
          {"tried", ToJson(random.sweep.tried)}};
}

std::string ToText(const RandomFindings& random, const std::string& target) {
  const std::string text =
      fmt::format("random problems: {}, in {}\n", random.problems, support::Counted(random.shards, "shard"));
  return text + CellsText(random.sweep, target) + FailuresText(random.sweep, target);
}

Result<SweepOutcomes> Resume(const std::string& path, const SweepRun& run, support::Journal* journal) {
  const std::string header = WithCheck(Line(ToJson(run, kJournalSchema)));
  const auto& [lines, torn] = journal->text();
  if (lines.empty()) {
    if (!header.starts_with(torn)) return Invalid(path, "is no journal of a sweep");
    if (const std::optional<Error> error = journal->Append(header)) return *error;
    return SweepOutcomes();
  }
  ASSIGN_OR_RETURN(const SweepRun journaled, ParseHeader(path, lines[0]));
  if (!WithoutCheck(lines[0])) {
    return Invalid(path, "line 1 does not match its checksum: it was changed or damaged");
  }
  std::optional<RunMismatch> mismatch = Mismatch(journaled, run);
  if (!mismatch && journaled.shard != run.shard) {
    mismatch = {"shard", fmt::format("it is shard {} there, {} here", journaled.shard.ToString(),
                                     run.shard.ToString())};
  }
  if (mismatch) return Invalid(path, "is the journal of another run: " + mismatch->text);
  ASSIGN_OR_RETURN(std::vector<SweepOutcome> outcomes, ParseOutcomes(path, lines));
  SweepOutcomes known;
  for (SweepOutcome& outcome : outcomes) {
    const std::string problem = outcome.problem;
    if (!known.emplace(problem, std::move(outcome)).second) {
      return Invalid(path, fmt::format("has '{}' twice", problem));
    }
  }
  return known;
}

std::optional<Error> Append(const SweepOutcome& outcome, support::Journal* journal) {
  return journal->Append(WithCheck(Line(ToJson(outcome))));
}

Result<SweepPart> ReadSweepPart(const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, support::ReadFile(path));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  SweepPart part = {path, {}, {}, {}};
  // JSON that is written for people has only a bracket in its first line.
  const support::JournalText journal = support::SplitJournal(text);
  if (!journal.lines.empty() && journal.lines[0].find(kJournalSchema.name) != std::string::npos) {
    ASSIGN_OR_RETURN(SweepRun run, ParseHeader(path, journal.lines[0]));
    ASSIGN_OR_RETURN(const std::vector<SweepOutcome> outcomes, ParseOutcomes(path, journal.lines));
    part.run = std::move(run);
    for (const SweepOutcome& outcome : outcomes) part.result.Add(outcome);
    return part;
  }
  ASSIGN_OR_RETURN(const Input json, support::ParseJson(path, text));
  if (!Has(json, kSweepSchema)) {
    return Invalid(path, fmt::format("is neither a sweep's JSON nor its journal; expected schema \"{}\", "
                                     "schema_version {}, or \"{}\", schema_version {}",
                                     kSweepSchema.name, kSweepSchema.version, kJournalSchema.name,
                                     kJournalSchema.version));
  }
  return Reading<SweepPart>(path, [&] {
    part.run = ParseRun(json);
    part.result = ParseResult(json);
    part.random = ParseRandom(json);
    return part;
  });
}

}  // namespace intact::verify
