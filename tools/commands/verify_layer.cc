#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "core/result.h"
#include "reference/contract/grouped.h"
#include "support/counted.h"
#include "tools/console/commands.h"
#include "tools/console/target_option.h"
#include "tools/console/terminal.h"
#include "verify/explain/judge.h"
#include "verify/report/report_json.h"
#include "verify/report/report_terminal.h"
#include "verify/studies/cost.h"
#include "verify/studies/grouped_layer_check.h"
#include "verify/studies/layer.h"
#include "verify/studies/layer_check.h"
#include "verify/targets/intact_target.h"

namespace intact::tools {
namespace {

struct LayerOptions {
  std::vector<std::string> folders;
  RunChoice choice;
  TargetOption target;
  EmulateOption emulate;
  std::string expect;
  std::string json;
  bool no_cost = false;
  TimeLimit time;
};

/// Every output_*.npy of the layer's folder, by name.
Result<std::vector<verify::Expectation>> ReadRecorded(const verify::Layer& layer) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(layer.folder, error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("output_") && name.ends_with(".npy")) names.push_back(name);
  }
  std::ranges::sort(names);
  std::vector<verify::Expectation> outputs;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(std::vector<uint8_t> output, verify::ReadExpected(layer, name));
    outputs.push_back({name, std::move(output)});
  }
  return outputs;
}

/// `folder` if it is a layer; otherwise the folders of layers in it, by name.
std::vector<std::string> LayersIn(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::exists(fs::path(folder) / "layer.json", error)) return {folder};
  std::vector<std::string> folders;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (fs::exists(entry.path() / "layer.json", error)) folders.push_back(entry.path());
  }
  std::ranges::sort(folders);
  return folders.empty() ? std::vector<std::string>{folder} : folders;
}

/// The output that --expect names; without --expect, the outputs that engines recorded.
struct GivenOutputs {
  std::optional<verify::Expectation> expected;
  std::vector<verify::Expectation> recorded;  // not with a --target
};
Result<GivenOutputs> ReadOutputs(const verify::Layer& layer, const LayerOptions& options) {
  GivenOutputs outputs;
  if (!options.expect.empty()) {
    ASSIGN_OR_RETURN(std::vector<uint8_t> output, verify::ReadExpected(layer, options.expect));
    outputs.expected = verify::Expectation{options.expect, std::move(output)};
  } else if (!options.target.IsPlugin()) {
    ASSIGN_OR_RETURN(outputs.recorded, ReadRecorded(layer));
  }
  return outputs;
}

struct LayerFindings {
  verify::LayerCheck check;
  std::optional<verify::Cost> cost;  // only of our own kernels, on the CPU, without --no-cost
};

Result<LayerFindings> Check(const verify::Layer& layer, const LayerOptions& options,
                            const verify::Target& target) {
  const auto failed = [&layer](const Error& error) {
    return Error{error.status, layer.folder + ": " + error.message};
  };
  ASSIGN_OR_RETURN(const GivenOutputs outputs, ReadOutputs(layer, options));
  const bool is_plugin = options.target.IsPlugin();
  verify::Layer run = layer;
  LinearOf(run.operation).pairing = options.choice.pairing;
  Result<verify::LayerCheck> check = options.emulate.Emulated([&] {
    return verify::CheckLayer(
        run, options.choice.mode, options.choice.isa, outputs.expected,
        is_plugin ? verify::LayerTarget{options.target.text, &target} : verify::LayerTarget());
  });
  if (!check) return failed(check.error());
  check->recorded = verify::ExplainRecorded(layer, outputs.recorded);
  if (is_plugin || options.emulate.on || options.no_cost)
    return LayerFindings{std::move(*check), std::nullopt};
  Result<verify::Cost> cost = verify::MeasureCost(run);
  if (!cost) return failed(cost.error());
  return LayerFindings{std::move(*check), std::move(*cost)};
}

/// Runs a layer with grouped weights.
Result<verify::GroupedLayerCheck> CheckGrouped(const verify::Layer& layer, const LayerOptions& options,
                                               const verify::Target& target) {
  if (options.choice.mode != INTACT_EXACT) {
    return Error{INTACT_INVALID_ARGUMENT, layer.folder + ": --mode: grouped weights have no saturating mode"};
  }
  ASSIGN_OR_RETURN(const GivenOutputs outputs, ReadOutputs(layer, options));
  const bool is_plugin = options.target.IsPlugin();
  if (target.Features().grouped == 0) return Error{INTACT_INVALID_ARGUMENT, NoGroupedWeights(options.target)};
  const bool is_any = options.choice.isa == INTACT_ISA_ANY;
  const intact_isa isa = is_plugin || !is_any ? options.choice.isa : verify::BestIsa();
  Result<verify::GroupedLayerCheck> check = options.emulate.Emulated([&] {
    return verify::CheckGroupedLayer(layer, target, is_plugin ? options.target.text : intact_isa_name(isa),
                                     isa, outputs.recorded, outputs.expected);
  });
  if (!check) return Error{check.error().status, layer.folder + ": " + check.error().message};
  return check;
}

/// Lines of what computed the recorded outputs of a layer with grouped weights.
std::string GroupedRecorded(const verify::Layer& layer, const std::vector<verify::Expectation>& outputs) {
  const verify::Oracle oracle(*layer.grouped());
  std::string text;
  for (const auto& [file, output] : outputs) {
    const verify::Comparison comparison = verify::JudgeGrouped(oracle, output, "any").comparison;
    text += fmt::format("  {}  {}  {} of {} not exact  {}\n", layer.name, file, comparison.differing,
                        comparison.outputs, comparison.grouped->InWords());
  }
  return text;
}

/// A table of what computed the recorded outputs of all layers in `folder`.
int PrintRecorded(const std::string& folder, const std::vector<std::string>& layers,
                  const support::Deadline& deadline) {
  int status = kParity;
  size_t done = 0;
  std::vector<verify::Recorded> all;
  std::string grouped;
  for (const std::string& path : layers) {
    if (deadline.IsOver() && done > 0) break;
    ++done;
    const Result<verify::Layer> layer = verify::ReadLayer(path);
    const Result<std::vector<verify::Expectation>> outputs =
        layer ? ReadRecorded(*layer) : Result<std::vector<verify::Expectation>>(layer.error());
    if (!outputs) {
      status = Fail(outputs.error());
      continue;
    }
    if (layer->grouped() != nullptr) {
      grouped += GroupedRecorded(*layer, *outputs);
    } else {
      std::ranges::move(verify::ExplainRecorded(*layer, *outputs), std::back_inserter(all));
    }
  }
  Print("{}: {}\n{}{}", folder, support::Counted(layers.size(), "layer"), grouped,
        all.empty() ? "" : verify::RecordedTable(all));
  if (done == layers.size()) return status;
  return WorseOf(
      status, Missing(fmt::format("{} of the {} layers of {}", layers.size() - done, layers.size(), folder)));
}

int RunLayers(LayerOptions options) {
  const support::Deadline deadline = options.time.Start();
  options.emulate.Prepare(options.target.IsPlugin());
  if (const int status = options.choice.Resolve(&options.emulate); status != kParity) return status;
  const Result<std::unique_ptr<verify::Target>> target =
      options.target.Open(options.choice, options.emulate.on);
  if (!target) return Fail(target.error());
  int status = kParity;
  support::Json report = support::Json::array(), missing = support::Json::array();
  for (const std::string& folder : options.folders) {
    if (deadline.IsOver() && &folder != &options.folders.front()) {
      status = WorseOf(status, Missing(folder));
      missing.push_back({{"layer", folder}, {"missing", support::kTimeIsOver}});
      continue;
    }
    if (const std::vector<std::string> layers = LayersIn(folder); layers.front() != folder) {
      status = WorseOf(status, PrintRecorded(folder, layers, deadline));
      continue;
    }
    const Result<verify::Layer> layer = verify::ReadLayer(folder);
    if (!layer) {
      status = Fail(layer.error());
      continue;
    }
    if (layer->grouped() != nullptr) {
      const Result<verify::GroupedLayerCheck> check = CheckGrouped(*layer, options, **target);
      if (!check) {
        status = Fail(check.error());
        continue;
      }
      Print("{}\n", verify::ToText(*check));
      report.push_back(verify::ToJson(*check));
      if (!check->Passed()) status = std::max(status, kDifference);
      continue;
    }
    const Result<LayerFindings> findings = Check(*layer, options, **target);
    if (!findings) {
      status = Fail(findings.error());
      continue;
    }
    const auto& [check, cost] = *findings;
    Print("{}{}\n", verify::ToText(check), cost ? verify::ToText({&*cost, 1}) : "");
    report.push_back(verify::ToJson(check));
    if (cost) report.back()["cost"] = verify::ToJson(*cost);
    const bool is_right = check.Passed() && (!cost || cost->AllRight());
    if (!is_right) status = std::max(status, kDifference);
  }
  if (report.empty()) return status;
  for (support::Json& left : missing) report.push_back(std::move(left));
  return WriteJson(options.json, report, status);
}

}  // namespace

void AddVerifyLayer(CLI::App* verify, Command* command) {
  auto options = std::make_shared<LayerOptions>();
  CLI::App* layer =
      verify->add_subcommand("layer", "run layers that a framework wrote and explain each difference");
  RefuseEmpty(layer->add_option("DIR", options->folders,
                                "folders with layer.json and .npy tensors; for a folder of layer folders, a "
                                "table of their output_*.npy"))
      ->type_name("")
      ->required();
  options->choice.AddOptions(layer);
  options->choice.AddPairing(layer);
  options->target.Add(layer);
  options->emulate.Add(layer);
  RefuseEmpty(layer->add_option("--expect", options->expect,
                                ".npy file that outputs must equal, in the layer's folder or absolute"))
      ->type_name("FILE");
  layer->add_flag("--no-cost", options->no_cost,
                  "do not measure what exactness costs, which takes most of the time");
  options->time.Add(layer, "begin no further layer, and name the layers that are left (status 4)");
  AddJsonOption(layer, &options->json, "write an array with an object for each layer");
  layer->callback([options, command] { *command = [options] { return RunLayers(*options); }; });
}

}  // namespace intact::tools
