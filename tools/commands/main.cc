// The `intact` command line: what this CPU does with int8, and the proof of what kernels compute.
#include <string_view>

#include "core/isas.h"
#include "jit/isa.h"
#include "tools/console/commands.h"

namespace intact::tools {
namespace {

constexpr const char* kExitStatus =
    "Exit status:\n"
    "  0  parity, or success of a subcommand that compares nothing\n"
    "  1  a difference\n"
    "  2  bad usage or input, reported in one line on standard error; or a sweep that compared nothing\n"
    "  4  the time of --time was over first; nothing that was done is wrong\n\n";

int Main(int argc, char** argv) {
  if (const std::optional<int> status = RunPythonCommand(argc, argv)) return *status;
  if (argc > 1 && std::string_view(argv[1]) == "bench") return RunBench(argc - 1, argv + 1);
  CLI::App app("int8 kernels that are exact on every CPU, and the verifier that proves it", "intact");
  app.set_version_flag("--version", intact_version());
  app.set_help_all_flag("--help-all", "the help of all commands");
  Command command;
  AddInfo(&app, &command);
  AddPythonCommands(&app);
  app.add_subcommand("bench", "the speed of this machine's kernels beside its peaks (intact_bench)");
  CLI::App* verify = app.add_subcommand("verify", "the standard run of this machine, or one part of it");
  verify->require_subcommand(0, 1);
  AddVerifyStandard(verify, &command);
  AddVerifyPairs(verify, &command);
  AddVerifyPairing(verify, &command);
  AddVerifySweep(verify, &command);
  AddVerifyGrouped(verify, &command);
  AddVerifyDigests(verify, &command);
  AddVerifyMerge(verify, &command);
  AddVerifyRamp(verify, &command);
  AddVerifyLayer(verify, &command);
  AddVerifyReplay(verify, &command);
  AddVerifyBenchdnn(verify, &command);
  AddVerifyCompare(verify, &command);
  AddVerifyCertify(verify, &command);
  AddVerifyModels(verify, &command);
  app.footer(std::string(kExitStatus) + kEnvironmentHelp);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return Exit(app, error);
  }
  if (!command)
    return Fail(
        "a subcommand is required: info, audit, bench, compare, digest, operators, repair or verify (see "
        "--help)");
  if (const Result<core::IsaSet> isas = jit::PermittedIsas(); !isas) return Fail(isas.error());
  return command();
}

}  // namespace
}  // namespace intact::tools

int main(int argc, char** argv) { return intact::tools::RunProgram(intact::tools::Main, argc, argv); }
