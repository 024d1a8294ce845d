#include <memory>
#include <utility>

#include "tools/commands.h"
#include "tools/terminal.h"
#include "verify/ramp.h"
#include "verify/report_json.h"
#include "verify/report_terminal.h"

namespace intact::tools {
namespace {

struct RampOptions {
  std::string folder;
  RunChoice choice;
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
  const Result<verify::Ramp> ramp = verify::RunRamp(*layer, options.choice.mode, options.choice.isa);
  if (!ramp) return Fail(ramp.error());
  Print("{}", verify::ToText(*ramp));
  return WriteJson(options.json, verify::ToJson(*ramp), ramp->Passed() ? kParity : kDifference);
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
  AddJsonOption(ramp, &options->json, "write the kinks");
  ramp->callback([options, command] { *command = [options] { return RunRamp(*options); }; });
}

}  // namespace intact::tools
