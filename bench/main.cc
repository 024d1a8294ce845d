// intact_bench prints a table that compares intact with its peers and the machine's peaks. With --benchmark_…
// options it runs its named benchmarks, like a Google Benchmark program.
//
// Exit status: 0; 1 a result of intact was wrong, and not timed; 2 bad usage or input, reported in one line
// on stderr.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/balance.h"
#include "bench/benchmarks.h"
#include "bench/cost_fit.h"
#include "bench/google_flags.h"
#include "bench/grouped.h"
#include "bench/peaks.h"
#include "bench/peer_process.h"
#include "bench/peers.h"
#include "bench/report.h"
#include "bench/run.h"
#include "bench/search.h"
#include "bench/traps.h"
#include "bench/tuning.h"
#include "core/isas.h"
#include "jit/isa.h"
#include "kernels/engines/cost_table.h"
#include "support/machine.h"
#include "support/npy.h"
#include "support/output_file.h"
#include "tools/console/commands.h"
#include "tools/console/documents.h"
#include "tools/console/progress.h"
#include "tools/console/terminal.h"

namespace intact::bench {
namespace {

using tools::Fail;

constexpr int kFailure = 1;
constexpr const char* kExitStatus =
    "Exit status:\n"
    "  0  everything was measured\n"
    "  1  a result of intact was wrong, and not timed; or a search met an error or measured no problem\n"
    "  2  bad usage or input, reported in one line on standard error\n\n";
constexpr std::string_view kTuneSuite = "tune";    // it implies --tune
constexpr std::string_view kTrapsSuite = "traps";  // without --tune, its table is TrapResults

struct Options {
  std::string suite;
  std::string isa = "any";
  std::string weights;
  int milliseconds = 250;
  bool tune = false;
  bool grouped = false;
  std::string json, html;
  std::vector<std::string> peers;
  bool is_balance = false;
  std::string fit, costs;
  int search_seconds = 0;  // 0: no search
  uint64_t seed = 1;
};

std::vector<std::string> Names(const auto& named) {
  std::vector<std::string> names;
  names.reserve(named.size());
  for (const auto& item : named) names.emplace_back(item.name);
  return names;
}

std::string Description() {
  std::string text =
      "Measures int8 GEMM and convolution, and compares them with peers and the machine's "
      "peaks.\n\nSuites:\n";
  for (const Suite& suite : Suites()) text += fmt::format("  {:<16} {}\n", suite.name, suite.what);
  return text +
         "\nWith --benchmark_... options (--benchmark_filter=REGEX, --benchmark_list_tests=true, ...) Google "
         "Benchmark runs the named benchmarks of --suite (default: figures, small-m and conv) and --isa.";
}

void AddOptions(CLI::App* app, Options* options) {
  app->add_option("--suite", options->suite, "shapes to measure (default: short)")
      ->check(CLI::IsMember(Names(Suites())));
  app->add_option("--isa", options->isa, "only this ISA, for intact and peers (default: all of this machine)")
      ->type_name(tools::IsaNames());
  app->add_option("--weights", options->weights,
                  "distribution of the weights (default: laplace; for layers of a trained network: like the "
                  "trained weights)")
      ->check(CLI::IsMember(Names(kWeights)));
  app->add_option("--milliseconds", options->milliseconds, "time for the turns of a shape on an ISA")
      ->check(CLI::Range(1, 60000))
      ->capture_default_str();
  app->add_flag("--balance", options->is_balance,
                "measure nothing; compute how evenly runs are divided among 2 to 128 threads");
  app->add_flag("--tune", options->tune, "compare tuned plans with the choices of the cost models");
  app->add_flag("--grouped", options->grouped,
                "measure products with 4- and 8-bit weights in groups of depths: K×N 4096×4096, or with "
                "--suite llm the shapes of decoders");
  app->add_option("--peer", options->peers,
                  fmt::format("another peer, in a separate process: {}; may be repeated", kPeerOptions))
      ->allow_extra_args(false);
  tools::AddFileOption(app, "--fit", &options->fit,
                       "measure this CPU, fit the table of the cost models to it, and write the table (takes "
                       "some minutes)")
      ->take_last();
  tools::AddFileOption(app, "--costs", &options->costs,
                       "use this table of the cost models instead of the CPU's (a file of --fit)")
      ->take_last();
  app->add_option("--search", options->search_seconds,
                  "with --suite traps: search for other traps for this number of seconds")
      ->check(CLI::Range(1, 86400));
  app->add_option("--seed", options->seed, "with --search: the seed of the random problems")
      ->capture_default_str();
  tools::AddFileOption(app, "--json", &options->json,
                       "write the results (schemas: bench/report.h, grouped.h, tuning.h, traps.h, search.h)")
      ->take_last();
  tools::AddFileOption(app, "--html", &options->html, "write a page with the table and a roofline")
      ->take_last();
}

// The ISAs with generated kernels. Portable kernels are for other machines, and are measured only if --isa
// asks.
std::vector<core::Isa> AvailableIsas() {
  std::vector<core::Isa> isas;
  for (const core::Isa isa : core::kAllIsas) {
    if (core::IsCompiled(isa)) continue;
    if (intact_isa_available(static_cast<intact_isa>(isa)) != 0) isas.push_back(isa);
  }
  return isas;
}

Request RequestOf(const Options& options, std::vector<core::Isa> isas) {
  Request request;
  request.suite = FindSuite(options.suite.empty() ? "short" : options.suite);
  const auto* const weights = std::ranges::find(kWeights, options.weights, &Weights::name);
  if (weights != kWeights.end()) request.weights = *weights;
  request.isas = std::move(isas);
  request.budget = std::chrono::milliseconds(options.milliseconds);
  return request;
}

/// Prints `results` and writes --json. Returns `status`, or kBadInput if the file cannot be written.
int Report(const Options& options, const auto& results, int status) {
  tools::Print("{}", ToText(results));
  if (tools::WriteJson(options.json, ToJson(results), status) == tools::kBadInput) return tools::kBadInput;
  if (!options.json.empty()) tools::Print("wrote {}\n", options.json);
  return status;
}

int RunTuningTable(const Options& options, std::vector<core::Isa> isas) {
  if (!options.html.empty()) return Fail("--html: has no meaning with --tune");
  const TunedResults results = RunTuned(RequestOf(options, std::move(isas)), tools::ReportProgress("tuning"));
  return Report(options, results, results.AllRight() ? 0 : kFailure);
}

int RunTrapTable(const Options& options, std::vector<core::Isa> isas) {
  if (!options.html.empty()) return Fail("--html: has no meaning with --suite traps");
  const TrapResults results =
      RunTraps(RequestOf(options, std::move(isas)), tools::ReportProgress("measuring"));
  return Report(options, results, results.AllRight() ? 0 : kFailure);
}

/// Starts the peers of --peer.
std::optional<Error> AddPeers(const std::vector<std::string>& options) {
  for (const std::string& option : options) {
    Result<std::unique_ptr<Peer>> peer = StartPeer(option);
    if (!peer) return peer.error();
    if (std::optional<Error> error = AddPeer(std::move(*peer))) {
      error->message = fmt::format("--peer {}: {}", option, error->message);
      return error;
    }
  }
  return std::nullopt;
}

int RunGroupedTable(const Options& options, std::vector<core::Isa> isas) {
  const std::optional<GroupedSuite> suite = FindGroupedSuite(options.suite);
  if (!suite)
    return Fail(fmt::format("--suite {}: has no meaning with --grouped; expected llm", options.suite));
  if (const std::optional<Error> error = AddPeers(options.peers)) return Fail(*error);
  std::vector<const Peer*> peers;
  for (const Peer* peer : Peers()) {
    if (!peer->GroupedKernels(suite->shapes.front(), isas.front()).empty()) peers.push_back(peer);
  }
  const GroupedResults results =
      RunGrouped(RequestOf(options, std::move(isas)), *suite, peers, tools::ReportProgress("measuring"));
  return Report(options, results, results.AllRight() ? 0 : kFailure);
}

int RunSearch(const Options& options, std::vector<core::Isa> isas) {
  const SearchRequest request = {std::move(isas), Seconds(options.search_seconds), options.seed};
  const SearchResults results = Search(request, TimeRuns, tools::ReportProgress("searching"));
  return Report(options, results, results.AllRight() ? 0 : kFailure);
}

int RunTable(const Options& options, std::vector<core::Isa> isas) {
  if (const std::optional<Error> error = AddPeers(options.peers)) return Fail(*error);
  const Request request = RequestOf(options, std::move(isas));
  const Result<Results> results = Run(request, tools::ReportProgress("measuring"));
  if (!results) return Fail(results.error());
  tools::Print("{}", ToText(*results));
  if (!options.html.empty()) {
    if (const std::optional<Error> error = support::WriteFile(options.html, ToHtml(*results)))
      return Fail(*error);
  }
  const int status = results->AllRight() ? 0 : kFailure;
  if (tools::WriteJson(options.json, ToJson(*results), status) == tools::kBadInput) return tools::kBadInput;
  for (const std::string& file : {options.json, options.html}) {
    if (!file.empty()) tools::Print("wrote {}\n", file);
  }
  return status;
}

int RunBalance(const Options& options, const std::vector<core::Isa>& isas) {
  const Request request = RequestOf(options, isas);
  for (const core::Isa isa : request.isas) {
    const Result<std::string> table = BalanceTable(request, isa);
    if (!table) return Fail(table.error());
    tools::Print("{}", *table);
  }
  return 0;
}

/// Replaces the process's table by the table of `path`.
Error UseCosts(const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, support::ReadFile(path));
  const Result<kernels::CostTable> table =
      kernels::ParseCostTable({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!table) return {table.error().status, path + ": " + table.error().message};
  kernels::SetCosts(*table);
  return {};
}

int RunFit(const Options& options, const std::vector<core::Isa>& isas) {
  if (const std::optional<Error> error = support::WhyNotWritable(options.fit)) return Fail(*error);
  constexpr int kPlans = 160;
  const Result<CostSamples> measured = MeasureCosts(isas, kPlans, tools::ReportProgress("measuring"));
  if (!measured) return Fail(measured.error());
  const std::span<const CostSample> samples = measured->samples;
  const kernels::CostTable start = kernels::Costs();
  tools::Print("the table at the start\n{}", ToText(ErrorsOf(samples, FitTimes(samples, start))));
  const CostFit fit = FitCosts(samples, start);
  tools::Print("the fitted table\n{}", ToText(ErrorsOf(samples, fit)));
  if (const std::optional<Error> error = support::WriteFile(options.fit, kernels::ToText(fit.table)))
    return Fail(*error);
  tools::Print("wrote {}\n", options.fit);
  return 0;
}

int RunNamed(const Options& options, const std::vector<core::Isa>& isas, std::vector<char*> arguments) {
  for (const char* argument : arguments) {
    if (const std::optional<std::string> why = WhyNotGoogleFlag(argument)) return Fail(*why);
  }
  const core::Isa best = isas.back();
  if (const std::optional<Error> error = Confine(Peers(), best)) return Fail(*error);
  RegisterPeaks();
  RegisterBandwidth(best);
  RegisterPlans(isas);
  const std::vector<std::string> suites = options.suite.empty()
                                              ? std::vector<std::string>{"figures", "small-m", "conv"}
                                              : std::vector{options.suite};
  std::vector<Layer> layers;
  for (const std::string& suite : suites) {
    for (const Layer& layer : FindSuite(suite)->layers) {
      if (std::ranges::find(layers, layer.shape, &Layer::shape) == layers.end()) layers.push_back(layer);
    }
  }
  RegisterLayers(layers, isas, best);
  RegisterPairs(layers, isas);
  RegisterThreads(isas);
  auto count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  if (count > 1) return Fail(fmt::format("{}: is unknown (see --help)", arguments[1]));
  const size_t matches = benchmark::RunSpecifiedBenchmarks();  // reports if the filter matches none
  benchmark::Shutdown();
  if (matches == 0) return tools::kBadInput;
  return AnyFailed() ? kFailure : 0;
}

int Main(int argc, char** argv) {
  std::vector<char*> named = {argv[0]}, own = {argv[0]};
  for (char* argument : std::vector<char*>(argv + 1, argv + argc)) {
    (std::string_view(argument).starts_with("--benchmark_") ? named : own).push_back(argument);
  }
  Options options;
  CLI::App app(Description(), "intact_bench");
  AddOptions(&app, &options);
  tools::AddDocumentOption(&app);
  app.footer(std::string(kExitStatus) + tools::kEnvironmentHelp);
  try {
    app.parse(static_cast<int>(own.size()), own.data());
  } catch (const CLI::ParseError& error) {
    return tools::Exit(app, error);
  }
  const Result<intact_isa> isa = tools::ResolveIsa(options.isa);
  if (!isa) return Fail(isa.error());
  if (const Result<core::IsaSet> permitted = jit::PermittedIsas(); !permitted) return Fail(permitted.error());
  std::vector<core::Isa> isas = AvailableIsas();
  if (*isa != INTACT_ISA_ANY) isas = {static_cast<core::Isa>(*isa)};
  if (isas.empty()) return Fail("this machine permits no ISA that intact generates kernels for");
  if (intact_isa_available(static_cast<intact_isa>(YardstickOf(isas.front()))) == 0) {
    return Fail("--isa portable: is compared with AVX2's peak, which this process cannot run");
  }
  if (!options.json.empty() && options.json == options.html) {
    return Fail(fmt::format("--html {}: is also the file of --json; expected another file", options.html));
  }
  if (!options.costs.empty()) {
    if (const Error error = UseCosts(options.costs); !error.ok()) return Fail(error);
  }
  if (!options.fit.empty()) {
    for (const char* other : {"--suite", "--weights", "--milliseconds", "--json", "--html", "--tune",
                              "--balance", "--grouped", "--peer", "--search"}) {
      if (app.count(other) != 0) return Fail(fmt::format("{}: has no meaning with --fit", other));
    }
    if (named.size() > 1) return Fail("--fit: has no meaning with --benchmark_... options");
    return RunFit(options, isas);
  }
  if (app.count("--seed") != 0 && app.count("--search") == 0) return Fail("--seed: needs --search");
  if (app.count("--search") != 0) {
    if (options.suite != kTrapsSuite) return Fail("--search: needs --suite traps");
    for (const char* other :
         {"--weights", "--milliseconds", "--html", "--tune", "--balance", "--grouped", "--peer"}) {
      if (app.count(other) != 0) return Fail(fmt::format("{}: has no meaning with --search", other));
    }
    if (named.size() > 1) return Fail("--search: has no meaning with --benchmark_... options");
    return RunSearch(options, std::move(isas));
  }
  if (options.grouped) {
    for (const char* other : {"--weights", "--html", "--tune", "--balance"}) {
      if (app.count(other) != 0) return Fail(fmt::format("{}: has no meaning with --grouped", other));
    }
    for (const std::string& peer : options.peers) {
      if (peer.starts_with("onednn") || peer.starts_with("fbgemm")) {
        return Fail(
            fmt::format("--peer {}: has no meaning with --grouped; expected onnxruntime or ggml", peer));
      }
    }
    if (named.size() > 1) return Fail("--grouped: has no meaning with --benchmark_... options");
    return RunGroupedTable(options, std::move(isas));
  }
  for (const std::string& peer : options.peers) {
    if (peer.starts_with("ggml")) return Fail(fmt::format("--peer {}: needs --grouped", peer));
  }
  const bool is_tuned = options.tune || options.suite == kTuneSuite;
  if (options.is_balance) {
    for (const char* other : {"--milliseconds", "--json", "--html", "--tune", "--peer"}) {
      if (app.count(other) != 0) return Fail(fmt::format("{}: has no meaning with --balance", other));
    }
    if (named.size() > 1) return Fail("--balance: has no meaning with --benchmark_... options");
    return RunBalance(options, isas);
  }
  if (named.size() == 1) {
    const bool is_traps = options.suite == kTrapsSuite;
    if (!options.peers.empty() && (is_tuned || is_traps)) {
      return Fail(fmt::format("--peer: has no meaning with {}",
                              options.tune ? "--tune" : "--suite " + options.suite));
    }
    return (is_tuned ? RunTuningTable : is_traps ? RunTrapTable : RunTable)(options, std::move(isas));
  }
  for (const char* table_only : {"--weights", "--milliseconds", "--json", "--html", "--tune", "--peer"}) {
    if (app.count(table_only) != 0) {
      return Fail(fmt::format("{}: has no meaning with --benchmark_... options", table_only));
    }
  }
  return RunNamed(options, isas, std::move(named));
}

}  // namespace
}  // namespace intact::bench

int main(int argc, char** argv) { return intact::tools::RunProgram(intact::bench::Main, argc, argv); }
