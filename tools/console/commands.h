// The subcommands of `intact`. Each AddXxx() declares its arguments on a CLI11 app. If the user gives the
// subcommand, parsing stores a function in `command`. The function does the work and returns the exit status:
//
//   0  parity, or success of a subcommand that compares nothing
//   1  a difference
//   2  bad usage or input, reported in one line on stderr (other inputs are still processed); or a sweep that
//      compared nothing
//   4  the time of --time was over first, and what was done has no difference
#ifndef INTACT_TOOLS_CONSOLE_COMMANDS_H_
#define INTACT_TOOLS_CONSOLE_COMMANDS_H_

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <intact/intact.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "emulator/emulator.h"
#include "support/deadline.h"
#include "verify/sweep/sweep.h"

namespace intact::tools {

using Command = std::function<int()>;

inline constexpr int kParity = 0;
inline constexpr int kDifference = 1;
inline constexpr int kBadInput = 2;
inline constexpr int kUnfinished = 4;

/// Declares the commands of the Python package, for --help and the documents.
void AddPythonCommands(CLI::App* app);
/// Replaces the process by Python, with all arguments, if argv names one of these commands. Returns the exit
/// status if Python cannot be run; nothing for other commands.
std::optional<int> RunPythonCommand(int argc, char** argv);
/// Runs the benchmarks with arguments after "bench". Returns the exit status.
int RunBench(int argc, char** argv);
void AddInfo(CLI::App* app, Command* command);
void AddVerifyBenchdnn(CLI::App* verify, Command* command);
void AddVerifyCertify(CLI::App* verify, Command* command);
void AddVerifyCompare(CLI::App* verify, Command* command);
void AddVerifyDigests(CLI::App* verify, Command* command);
void AddVerifyGrouped(CLI::App* verify, Command* command);
void AddVerifyLayer(CLI::App* verify, Command* command);
void AddVerifyMerge(CLI::App* verify, Command* command);
void AddVerifyModels(CLI::App* verify, Command* command);
void AddVerifyPairing(CLI::App* verify, Command* command);
void AddVerifyPairs(CLI::App* verify, Command* command);
void AddVerifyRamp(CLI::App* verify, Command* command);
void AddVerifyReplay(CLI::App* verify, Command* command);
void AddVerifyStandard(CLI::App* verify, Command* command);  // `verify` without a subcommand
void AddVerifySweep(CLI::App* verify, Command* command);

inline int StatusOf(verify::SweepVerdict verdict) {
  switch (verdict) {
    case verify::SweepVerdict::kPassed:
      return kParity;
    case verify::SweepVerdict::kFailed:
      return kDifference;
    case verify::SweepVerdict::kUnfinished:
      return kUnfinished;
    case verify::SweepVerdict::kNothingCompared:
      break;
  }
  return kBadInput;
}

/// Sweeps our kernels on `isa`, or on all ISAs that this machine offers, with progress on stderr. `emulate`:
/// also on the ISAs that emulator::AddMissingIsas() added.
Result<verify::SweepResult> SweepThisMachine(intact_isa isa, std::span<const intact_mode> modes,
                                             verify::Effort effort, bool emulate,
                                             const support::Deadline& deadline);
verify::Effort EffortOf(bool quick);
/// The ISAs on which a sweep of `isa` runs here; for `any`: all that are available.
std::vector<intact_isa> IsasHere(intact_isa isa);

/// --emulate: also runs the instructions that this CPU lacks, in software.
struct EmulateOption {
  bool on = false;
  bool has_target = false;  // a plug-in, whose process has its own emulator

  void Add(CLI::App* app);
  bool IsOurs() const { return on && !has_target; }
  /// Without a target, lets plans choose the emulated ISAs. Call it before an ISA is resolved.
  void Prepare(bool is_plugin);
  /// The Result that `run` returns; or an error that describes a fault of the emulator.
  template <class Run>
  auto Emulated(const Run& run) const -> decltype(run()) {
    if (!IsOurs()) return run();
    const emulator::ScopedEmulator emulator;
    auto result = run();
    Error fault = TakeFault();
    if (!fault.ok()) return fault;
    return result;
  }
  /// The first fault of the emulator since the last call, as an error.
  static Error TakeFault();
};

/// The variables that the library reads, for the end of --help.
inline constexpr const char* kEnvironmentHelp =
    "Environment:\n"
    "  INTACT_MAX_ISA=ISA   no kernels beyond this ISA\n"
    "  INTACT_VERBOSE=1     a line on standard error for each plan, tuning and run\n"
    "  INTACT_JIT_DUMP=DIR  the listing and the bytes of each kernel go to files in DIR\n"
    "  INTACT_PERF_MAP=1    symbols for perf, in /tmp/perf-PID.map";

/// The names that --isa takes, in the syntax of an option's type: {avx2,...,any}.
std::string IsaNames();
/// The ISA named by --isa. Errors name the option; it is an error if this machine lacks the ISA. `emulate`:
/// the command's --emulate, if it has this option.
Result<intact_isa> ResolveIsa(const std::string& name, const EmulateOption* emulate = nullptr);
/// Why an ISA is not available here. Mentions --emulate if the command has the option, and its use would make
/// the ISA available.
std::string NotAvailable(intact_isa isa, const EmulateOption* emulate);

/// --isa and --mode.
struct RunChoice {
  std::string isa_name = "any";
  std::string mode_name = "exact";
  intact_isa isa = INTACT_ISA_ANY;
  intact_mode mode = INTACT_EXACT;
  std::string pairing_name = "within_tap";
  intact_pairing pairing = INTACT_PAIRING_WITHIN_TAP;

  void AddOptions(CLI::App* app);
  /// --pairing, for convolutions in saturating mode.
  void AddPairing(CLI::App* app);
  /// Fills isa, mode and pairing from the names. Fails, with a message, if a name is wrong or this machine
  /// lacks the ISA.
  int Resolve(const EmulateOption* emulate = nullptr);
};

/// Whether two paths name one file, which need not exist.
bool AreOneFile(const std::string& a, const std::string& b);

/// Adds an option for a seed: 0 to 2^64 − 1.
CLI::Option* AddSeedOption(CLI::App* app, uint64_t* seed, const std::string& description);

/// Adds an option for a time: `*seconds`, from `least` to `greatest`. Users give seconds, or a number with a
/// unit: ms, s, min, h.
CLI::Option* AddSecondsOption(CLI::App* app, const std::string& name, double* seconds, double least,
                              double greatest, const std::string& description);

/// --time, which bounds all long commands. After this time a command ends at the next whole unit of work. It
/// prints and writes what it has, and says what is missing. If nothing in this is wrong, it returns kUnfinished.
/// Commands with few units always do the first.
struct TimeLimit {
  double seconds = 0;  // 0: none

  /// `what`: what the command does when the time is over.
  CLI::Option* Add(CLI::App* app, const std::string& what);
  /// The deadline of a command that starts now.
  support::Deadline Start() const { return support::Deadline(seconds); }
};

/// Prints one line on stdout: what is missing in the output because the time was over. Returns kUnfinished.
int Missing(const std::string& what);
/// Prints one line on stderr: which output was not made because the time was over. Returns kUnfinished.
int Unfinished(const std::string& what);

/// The worse of two statuses. From bad to good: kBadInput, kDifference, kUnfinished, kParity.
inline int WorseOf(int a, int b) {
  if (a == kUnfinished) return b == kParity ? a : b;
  if (b == kUnfinished) return a == kParity ? b : a;
  return std::max(a, b);
}

/// Prints one line on stderr that begins with the program's name. Returns kBadInput.
int Fail(const std::string& message);
inline int Fail(const Error& error) { return Fail(error.message); }

/// Prints the text of --help or --version, or what is wrong with the arguments. Returns the status for main()
/// if `app` did not parse.
int Exit(const CLI::App& app, const CLI::ParseError& error);

/// Runs `program` and returns its status. kBadInput, with a message on stderr, if `program` throws, or if
/// standard output is closed or could not take all of the text. Text that stderr cannot take is lost. If
/// standard output is a pipe without a reader, SIGPIPE ends the process as usual. If only stderr is a
/// pipe without a reader, the process continues.
int RunProgram(int (*program)(int, char**), int argc, char** argv);

/// Refuses an empty value, as from a script's unset variable: CLI11 would ignore such an option.
CLI::Option* RefuseEmpty(CLI::Option* option);

/// Accepts numbers from `least` to `greatest`. Refuses NaN, which CLI::Range accepts.
CLI::Validator Between(double least, double greatest);

/// An option `name` for a file to be written. A file that cannot be written is refused before the work, not
/// after it.
CLI::Option* AddFileOption(CLI::App* app, const std::string& name, std::string* path,
                           const std::string& help);
/// The option --json, made by AddFileOption().
void AddJsonOption(CLI::App* app, std::string* path, const std::string& help);

/// Writes `json` to `path`, unless `path` is empty. Returns `status`, or kBadInput if writing failed.
int WriteJson(const std::string& path, const nlohmann::ordered_json& json, int status);

}  // namespace intact::tools
#endif  // INTACT_TOOLS_CONSOLE_COMMANDS_H_
