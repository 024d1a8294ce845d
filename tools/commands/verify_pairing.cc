// intact-pairing, schema version 1:
//
//   schema, schema_version   "intact-pairing", 1
//   target                   the target's own name
//   rows[]                   operation, types ("u8s8s32"), pairing (verify/studies/pair_probe.h),
//                            clamping_pairs[] of depths [i, j], other_sums: how many columns have a sum that
//                            is neither exact nor that of a clamped pair. A failed row has `error` instead
#include <algorithm>
#include <memory>
#include <utility>

#include "support/printable.h"
#include "tools/console/commands.h"
#include "tools/console/target_option.h"
#include "tools/console/terminal.h"
#include "verify/report/schemas.h"
#include "verify/studies/pair_probe.h"

namespace intact::tools {
namespace {

struct PairingOptions {
  RunChoice choice;
  TargetOption target;
  std::string json;
};

int RunPairing(PairingOptions options) {
  if (const int status = options.choice.Resolve(); status != kParity) return status;
  const Result<std::unique_ptr<verify::Target>> target = options.target.Open(options.choice);
  if (!target) return Fail(target.error());
  const std::vector<verify::ProbedPairs> probed =
      verify::ProbePairs(**target, options.choice.mode, options.choice.isa, options.choice.pairing);
  const auto has_result = [](const verify::ProbedPairs& pairs) { return pairs.error.ok(); };
  const auto failed = [](const verify::ProbedPairs& pairs) { return verify::PairingOf(pairs) == "failed"; };
  if (probed.empty()) return Fail("verify pairing: the target takes none of the probes");
  Print("pairs of depths that {} adds in int16 on this CPU:\n{}", support::Printable((*target)->Name()),
        verify::ToText(probed));
  const int status = std::ranges::any_of(probed, failed)        ? kDifference
                     : std::ranges::none_of(probed, has_result) ? kBadInput
                                                                : kParity;
  const support::Json json = {{"schema", verify::kPairingSchema.name},
                              {"schema_version", verify::kPairingSchema.version},
                              {"target", support::Printable((*target)->Name())},
                              {"rows", verify::ToJson(probed)}};
  return WriteJson(options.json, json, status);
}

}  // namespace

void AddVerifyPairing(CLI::App* verify, Command* command) {
  auto options = std::make_shared<PairingOptions>();
  CLI::App* pairing =
      verify->add_subcommand("pairing", "which products kernels add in int16, found by probing pair by pair");
  options->choice.AddOptions(pairing);
  options->choice.AddPairing(pairing);
  options->target.Add(pairing);
  AddJsonOption(pairing, &options->json, "write the pairs");
  pairing->callback([options, command] { *command = [options] { return RunPairing(*options); }; });
}

}  // namespace intact::tools
