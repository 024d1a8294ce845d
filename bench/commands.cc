#include "bench/commands.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/measure/cost_fit.h"
#include "bench/measure/peaks.h"
#include "bench/measure/run.h"
#include "bench/measure/search.h"
#include "bench/measure/traps.h"
#include "bench/measure/tuning.h"
#include "bench/peers/peer_process.h"
#include "bench/peers/peers.h"
#include "bench/report/report.h"
#include "core/isas.h"
#include "jit/isa.h"
#include "kernels/engines/cost_table.h"
#include "support/counted.h"
#include "support/machine.h"
#include "support/npy.h"
#include "support/output_file.h"
#include "tools/console/commands.h"
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
    "  2  bad usage or input, reported in one line on standard error\n"
    "  4  the time of --time was over first; nothing that was measured is wrong\n\n";

/// The options of all commands. Each command declares its own.
struct Options {
  std::string suite;
  std::vector<std::string> layers;
  std::string isa = "any", costs;
  std::string weights;
  double turns = 0.25;  // seconds
  tools::TimeLimit time;
  std::string json, html;
  std::vector<std::string> peers;
  std::string fit;
  uint64_t seed = 1;
};

using Isas = std::vector<core::Isa>;
using Action = int (*)(const Options&, Isas);

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
  return text;
}

void AddMachine(CLI::App* app, Options* options) {
  app->add_option("--isa", options->isa, "only this ISA, for intact and peers (default: all of this machine)")
      ->type_name(tools::IsaNames());
  tools::AddFileOption(app, "--costs", &options->costs,
                       "use this table of the cost models instead of the CPU's (a file of `fit`)")
      ->take_last();
}

void AddShapes(CLI::App* app, Options* options, const std::string& suite) {
  CLI::Option* const named =
      app->add_option("--suite", options->suite, "shapes to measure (default: " + suite + ")")
          ->check(CLI::IsMember(Names(Suites())));
  app->add_option("--layer", options->layers,
                  "measure this shape, as tables print it: M×N×K, M×N×K u4/32, 12×(M×N×K) u8×s8ᵀ, or "
                  "C×H×W→N 3×3/2 d1 g32 batch 8 (also with x, T and ->); may be repeated")
      ->allow_extra_args(false)
      ->excludes(named);
}

/// --turns, and --time for the whole command.
void AddTimes(CLI::App* app, Options* options) {
  tools::AddSecondsOption(app, "--turns", &options->turns, 1e-3, 60,
                          "time for the turns of a shape on an ISA")
      ->capture_default_str();
  options->time.Add(app, "measure no further shape, and report the measured ones (status 4)");
}

void AddWeights(CLI::App* app, Options* options) {
  app->add_option("--weights", options->weights,
                  "distribution of the weights (default: laplace; for layers of a trained network: like the "
                  "trained weights)")
      ->check(CLI::IsMember(Names(kWeights)));
}

void AddPeerOption(CLI::App* app, Options* options) {
  app->add_option("--peer", options->peers,
                  fmt::format("another peer, in a separate process: {}; may be repeated", kPeerOptions))
      ->allow_extra_args(false);
}

void AddJson(CLI::App* app, Options* options, const std::string& header) {
  tools::AddFileOption(app, "--json", &options->json, "write the results (schema: bench/" + header + ")")
      ->take_last();
}

// The ISAs with generated kernels. Portable kernels are for other machines, and are measured only if --isa
// asks.
Isas AvailableIsas() {
  Isas isas;
  for (const core::Isa isa : core::kAllIsas) {
    if (core::IsCompiled(isa)) continue;
    if (intact_isa_available(static_cast<intact_isa>(isa)) != 0) isas.push_back(isa);
  }
  return isas;
}

/// The layers of --layer, or of --suite, or of `suite`.
Result<Request> RequestOf(const Options& options, Isas isas, std::string_view suite) {
  Request request;
  request.suite = *FindSuite(options.suite.empty() ? suite : options.suite);
  if (!options.layers.empty()) {
    static std::vector<Layer> layers;  // for the rest of the process
    for (const std::string& text : options.layers) {
      const std::optional<Shape> shape = ParseShape(text);
      if (!shape) {
        return Error{INTACT_INVALID_ARGUMENT,
                     fmt::format("--layer '{}': is not a shape; expected M×N×K, M×N×K u4/32, 12×(M×N×K) "
                                 "u8×s8ᵀ, or C×H×W→N 3×3/2 g32",
                                 text)};
      }
      layers.push_back({*shape});
    }
    request.suite = {"--layer", "", layers};
  }
  const auto* const weights = std::ranges::find(kWeights, options.weights, &Weights::name);
  if (weights != kWeights.end()) request.weights = *weights;
  if (request.weights && request.suite.HasBlocks()) {
    return Error{INTACT_INVALID_ARGUMENT,
                 "--weights: has no meaning with weights in blocks, which are uniform"};
  }
  request.isas = std::move(isas);
  request.budget = Seconds(options.turns);
  request.deadline = options.time.Start();
  return request;
}

/// Prints `results` and writes --json. Returns `status`, or kBadInput if the file cannot be written.
int Report(const Options& options, const auto& results) {
  tools::Print("{}", ToText(results));
  int status = results.AllRight() ? 0 : kFailure;
  if constexpr (requires { results.not_measured; }) {
    if (results.not_measured > 0) {
      status =
          tools::WorseOf(status, tools::Unfinished(support::Counted(results.not_measured, "measurement")));
    }
  }
  if (tools::WriteJson(options.json, ToJson(results), status) == tools::kBadInput) return tools::kBadInput;
  if (!options.json.empty()) tools::Print("wrote {}\n", options.json);
  return status;
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

int RunTable(const Options& options, Isas isas) {
  if (!options.json.empty() && options.json == options.html) {
    return Fail(fmt::format("--html {}: is also the file of --json; expected another file", options.html));
  }
  const Result<Request> request = RequestOf(options, std::move(isas), "short");
  if (!request) return Fail(request.error());
  for (const std::string& peer : options.peers) {
    if (request->suite.HasBlocks()) {
      if (peer.starts_with("ggml") || peer.starts_with("onnxruntime")) continue;
      return Fail(
          fmt::format("--peer {}: computes no weights in blocks; expected onnxruntime or ggml", peer));
    }
    if (!peer.starts_with("ggml")) continue;
    return Fail(fmt::format("--peer {}: computes only weights in blocks; expected `--suite blocks`", peer));
  }
  if (const std::optional<Error> error = AddPeers(options.peers)) return Fail(*error);
  const Result<Results> results = Run(*request, tools::ReportProgress("measuring"));
  if (!results) return Fail(results.error());
  if (!options.html.empty()) {
    if (const std::optional<Error> error = support::WriteFile(options.html, ToHtml(*results)))
      return Fail(*error);
  }
  const int status = Report(options, *results);
  if (!options.html.empty()) tools::Print("wrote {}\n", options.html);
  return status;
}

int RunTune(const Options& options, Isas isas) {
  const Result<Request> request = RequestOf(options, std::move(isas), "tune");
  if (!request) return Fail(request.error());
  if (std::ranges::none_of(request->suite.layers, IsTunable)) {
    return Fail(fmt::format("{}: no layer can be tuned; expected one without a batch and without blocks",
                            request->suite.name));
  }
  return Report(options, RunTuned(*request, tools::ReportProgress("tuning")));
}

int RunTrapTable(const Options& options, Isas isas) {
  const Result<Request> request = RequestOf(options, std::move(isas), "short");
  if (!request) return Fail(request.error());
  return Report(options, RunTraps(*request, tools::ReportProgress("measuring")));
}

int RunSearch(const Options& options, Isas isas) {
  const SearchRequest request = {std::move(isas), Seconds(options.time.seconds), options.seed};
  return Report(options, Search(request, TimeRuns, tools::ReportProgress("searching")));
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

int RunFit(const Options& options, Isas isas) {
  if (const std::optional<Error> error = support::WhyNotWritable(options.fit)) return Fail(*error);
  constexpr int kPlans = 160;
  const support::Deadline deadline = options.time.Start();
  const Result<CostSamples> measured =
      MeasureCosts(isas, kPlans, tools::ReportProgress("measuring"), deadline);
  if (!measured && measured.error().message == support::kTimeIsOver) {
    return tools::Unfinished(options.fit + " was not written");
  }
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

/// A subcommand. The options of the table, which needs no subcommand, have no meaning with it.
CLI::App* AddCommand(CLI::App* app, Options* options, Action* action, const std::string& name,
                     const std::string& what, Action runs) {
  CLI::App* const command = app->add_subcommand(name, what);
  for (CLI::Option* option : app->get_options()) {
    if (option->get_items_expected_max() > 0) command->excludes(option);
  }
  AddMachine(command, options);
  command->callback([action, runs] { *action = runs; });
  return command;
}

void AddCommands(CLI::App* app, Options* options, Action* action) {
  AddMachine(app, options);
  AddShapes(app, options, "short");
  AddWeights(app, options);
  AddTimes(app, options);
  AddPeerOption(app, options);
  AddJson(app, options, "report/report.h");
  tools::AddFileOption(app, "--html", &options->html, "write a page with the table and a roofline")
      ->take_last();
  app->require_subcommand(0, 1);

  CLI::App* const tune =
      AddCommand(app, options, action, "tune", "tuned plans beside the choices of the cost models", RunTune);
  AddShapes(tune, options, "tune");
  AddWeights(tune, options);
  AddTimes(tune, options);
  AddJson(tune, options, "measure/tuning.h");

  CLI::App* const traps =
      AddCommand(app, options, action, "traps",
                 "shapes that were slow beside their neighbours, with their targets", RunTrapTable);
  AddWeights(traps, options);
  AddTimes(traps, options);
  AddJson(traps, options, "measure/traps.h");

  CLI::App* const search =
      AddCommand(app, options, action, "search", "search for other traps among random problems", RunSearch);
  options->time.Add(search, "search no further")->required();
  tools::AddSeedOption(search, &options->seed, "the seed of the random problems");
  AddJson(search, options, "measure/search.h");

  CLI::App* const fit =
      AddCommand(app, options, action, "fit",
                 "measure this CPU, and fit the table of the cost models to it (minutes)", RunFit);
  tools::AddFileOption(fit, "FILE", &options->fit, "the table is written to it")->required();
  options->time.Add(
      fit, "give up, and leave FILE as it was: a part of the measurements gives no table (status 4)");
}

}  // namespace

int Main(int argc, char** argv) {
  Options options;
  Action action = RunTable;
  CLI::App app(Description(), "intact_bench");
  app.set_version_flag("--version", intact_version());
  app.set_help_all_flag("--help-all", "the help of all commands");
  AddCommands(&app, &options, &action);
  app.footer(std::string(kExitStatus) + tools::kEnvironmentHelp);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return tools::Exit(app, error);
  }
  const Result<intact_isa> isa = tools::ResolveIsa(options.isa);
  if (!isa) return Fail(isa.error());
  if (const Result<core::IsaSet> permitted = jit::PermittedIsas(); !permitted) return Fail(permitted.error());
  Isas isas = AvailableIsas();
  if (*isa != INTACT_ISA_ANY) isas = {static_cast<core::Isa>(*isa)};
  if (isas.empty()) return Fail("this machine permits no ISA that intact generates kernels for");
  if (intact_isa_available(static_cast<intact_isa>(YardstickOf(isas.front()))) == 0) {
    return Fail("--isa portable: is compared with AVX2's peak, which this process cannot run");
  }
  if (!options.costs.empty()) {
    if (const Error error = UseCosts(options.costs); !error.ok()) return Fail(error);
  }
  return action(options, std::move(isas));
}

}  // namespace intact::bench
