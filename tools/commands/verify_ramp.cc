#include <memory>
#include <utility>

#include "tools/console/commands.h"
#include "tools/console/target_option.h"
#include "tools/console/terminal.h"
#include "verify/explain/audit.h"
#include "verify/explain/claim.h"
#include "verify/explain/judge.h"
#include "verify/report/report_json.h"
#include "verify/report/report_terminal.h"
#include "verify/studies/ramp.h"

namespace intact::tools {
namespace {

struct RampOptions {
  std::string folder;
  RunChoice choice;
  TargetOption target;
  std::string json;
};

Result<verify::Layer> RampLayer(const std::string& folder) {
  if (folder.empty()) return verify::BuiltinLayers().front();
  Result<verify::Layer> layer = verify::ReadLayer(folder);
  return layer ? verify::AsRamp(std::move(*layer)) : layer;
}

int RunRamp(RampOptions options) {
  if (const int status = options.choice.Resolve(); status != kParity) return status;
  const Result<verify::Layer> layer = RampLayer(options.folder);
  if (!layer) return Fail(layer.error());
  const Result<std::unique_ptr<verify::Target>> target = options.target.Open(options.choice);
  if (!target) return Fail(target.error());
  const intact_isa isa = options.choice.isa == INTACT_ISA_ANY && !options.target.IsPlugin()
                             ? verify::BestIsa()
                             : options.choice.isa;
  const Result<verify::Ramp> ramp = verify::RunRamp(**target, *layer, options.choice.mode, isa);
  if (!ramp) {
    const bool is_finding = options.target.IsPlugin() && ramp.error().status != INTACT_UNSUPPORTED;
    if (!is_finding) return Fail(ramp.error());
    Print("FAILED: {}\n", ramp.error().message);
    return kDifference;
  }
  Print("{}", verify::ToText(*ramp));
  // A target may claim an arithmetic whose outputs are not monotonic.
  const bool passed =
      options.target.IsPlugin() ? !verify::Fails(**target, layer->gemm(), {}) : ramp->Passed();
  if (options.target.IsPlugin()) {
    Print("{}as the target claims: {}\n", passed ? "" : "not ",
          verify::ClaimOf((*target)->Arithmetic(), verify::KindOf(layer->gemm())));
  }
  return WriteJson(options.json, verify::ToJson(*ramp), passed ? kParity : kDifference);
}

}  // namespace

void AddVerifyRamp(CLI::App* verify, Command* command) {
  auto options = std::make_shared<RampOptions>();
  CLI::App* ramp =
      verify->add_subcommand("ramp", "probe a linear layer with constants: outputs must be monotonic");
  RefuseEmpty(ramp->add_option("DIR", options->folder,
                               "folder with layer.json and .npy tensors (default: a layer made by code)"))
      ->type_name("");
  options->choice.AddOptions(ramp);
  options->target.Add(ramp);
  AddJsonOption(ramp, &options->json, "write the kinks");
  ramp->callback([options, command] { *command = [options] { return RunRamp(*options); }; });
}

}  // namespace intact::tools
