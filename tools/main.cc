// The `intact` command line: what this CPU does with int8, and the proof of what kernels compute.
#include "jit/isa.h"
#include "tools/commands.h"

namespace intact::tools {
namespace {

int Main(int argc, char** argv) {
  CLI::App app("int8 kernels that are exact on every CPU, and the verifier that proves it", "intact");
  app.set_version_flag("--version", intact_version());
  Command command;
  AddInfo(&app, &command);
  CLI::App* verify = app.add_subcommand("verify", "the standard run of this machine, or one part of it");
  verify->require_subcommand(0, 1);
  AddVerifyStandard(verify, &command);
  AddVerifyPairs(verify, &command);
  AddVerifySweep(verify, &command);
  AddVerifyRamp(verify, &command);
  AddVerifyLayer(verify, &command);
  AddVerifySoak(verify, &command);
  AddVerifyReplay(verify, &command);
  AddVerifyCompare(verify, &command);
  AddVerifyCertify(verify, &command);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return Fail(std::string(error.what()) + " (see --help)");
  }
  if (!command) return Fail("a subcommand is required: info or verify (see --help)");
  if (const Result<jit::IsaSet> isas = jit::PermittedIsas(); !isas) return Fail(isas.error());
  return command();
}

}  // namespace
}  // namespace intact::tools

int main(int argc, char** argv) { return intact::tools::RunProgram(intact::tools::Main, argc, argv); }
