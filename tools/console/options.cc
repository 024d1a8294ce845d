#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <new>
#include <optional>
#include <sstream>
#include <system_error>

#include "core/isas.h"
#include "support/machine.h"
#include "support/output_file.h"
#include "support/printable.h"
#include "tools/console/commands.h"
#include "tools/console/terminal.h"
#include "verify/explain/audit.h"
#include "verify/problem/problem.h"

namespace intact::tools {
namespace {

bool IsOpen(int file) { return fcntl(file, F_GETFD) >= 0; }

/// Opens closed standard files as /dev/null. Otherwise the next file that is opened would get the number of a
/// closed one, and output would be printed into it.
void OpenStandardFiles() {
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (!IsOpen(file)) open("/dev/null", O_RDWR);  // takes the lowest free number
  }
}

bool IsOutputUnread() {
  pollfd output = {STDOUT_FILENO, POLLOUT, 0};
  return poll(&output, 1, 0) > 0 && (output.revents & (POLLERR | POLLHUP)) != 0;
}

/// SIGPIPE ends the process if standard output has no reader, whoever writes there. It is ignored if only
/// standard error has none: results do not depend on a reader of the progress. This is a handler, not
/// SIG_IGN, because executed programs would inherit SIG_IGN.
void OutliveStandardError() {
  const auto handler = [](int signal) {
    const int error = errno;
    if (IsOutputUnread()) {
      std::signal(signal, SIG_DFL);
      raise(signal);  // delivered when this handler returns
    }
    errno = error;
  };
  if (std::signal(SIGPIPE, handler) == SIG_IGN) std::signal(SIGPIPE, SIG_IGN);  // the parent's choice
}

}  // namespace

bool AreOneFile(const std::string& a, const std::string& b) {
  std::error_code error;
  const std::filesystem::path path_a = std::filesystem::weakly_canonical(a, error);
  if (!error && path_a == std::filesystem::weakly_canonical(b, error) && !error) return true;
  return std::filesystem::equivalent(a, b, error) && !error;  // hard links
}

// CLI11 takes "-1" for the largest number.
CLI::Option* AddSeedOption(CLI::App* app, uint64_t* seed, const std::string& description) {
  return app->add_option("--seed", *seed, description)
      ->capture_default_str()
      ->check(CLI::Validator(
          [](const std::string& text) -> std::string {
            uint64_t value = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            const bool is_number = error == std::errc() && end == text.data() + text.size();
            return is_number ? ""
                             : fmt::format("{}; expected 0 to 18446744073709551615", support::Excerpt(text));
          },
          "UINT64"));
}

CLI::Option* AddSecondsOption(CLI::App* app, const std::string& name, double* seconds, double least,
                              double greatest, const std::string& description) {
  const std::map<std::string, double> units = {{"ms", 1e-3}, {"s", 1}, {"min", 60}, {"h", 3600}};
  const CLI::AsNumberWithUnit in_seconds(units, CLI::AsNumberWithUnit::DEFAULT, "ms|s|min|h");
  return app->add_option(name, *seconds, description)
      ->check(Between(least, greatest))
      ->transform(CLI::Validator(
          [in_seconds](std::string& text) -> std::string {
            const std::string given = text;
            try {
              in_seconds(text);
              return "";
            } catch (const CLI::ValidationError&) {
              return fmt::format("{}; expected seconds, or a number with ms, s, min or h",
                                 support::Excerpt(given));
            }
          },
          in_seconds.get_description()))
      ->type_name("TIME");
}

CLI::Option* TimeLimit::Add(CLI::App* app, const std::string& what) {
  return AddSecondsOption(app, "--time", &seconds, 0.1, 1e9, "after this time " + what);
}

int Missing(const std::string& what) {
  Print("missing: {}: {}\n", support::Printable(what), support::kTimeIsOver);
  return kUnfinished;
}

int Unfinished(const std::string& what) {
  PrintError("{}: unfinished: {}: {}\n", program_invocation_short_name, support::Printable(what),
             support::kTimeIsOver);
  return kUnfinished;
}

void RunChoice::AddOptions(CLI::App* app) {
  app->add_option("--isa", isa_name, "the kernels' ISA (default: the best here)")->type_name(IsaNames());
  app->add_option("--mode", mode_name, "exact kernels, or kernels that saturate in int16")
      ->type_name("{exact,saturating}")
      ->capture_default_str();
}

void RunChoice::AddPairing(CLI::App* app) {
  app->add_option("--pairing", pairing_name, "which depths saturating kernels of a convolution add in int16")
      ->type_name("{within_tap,flattened}")
      ->capture_default_str();
}

std::string IsaNames() {
  std::string names;
  for (const intact_isa each : core::kIsaLadder) names += fmt::format("{},", intact_isa_name(each));
  return "{" + names + "any}";
}

void EmulateOption::Add(CLI::App* app) {
  app->add_flag("--emulate", on,
                "also run what this CPU lacks in software (needs AVX2): kernels of other ISAs, or the "
                "instructions of a --target");
}

void EmulateOption::Prepare(bool is_plugin) {
  has_target = is_plugin;
  if (IsOurs()) emulator::AddMissingIsas();
}

Error EmulateOption::TakeFault() {
  const std::string fault = emulator::ScopedEmulator::TakeFault();
  return fault.empty() ? Error() : Error{INTACT_CODEGEN_FAILED, "--emulate: " + fault};
}

std::string NotAvailable(intact_isa isa, const EmulateOption* emulate) {
  const bool would_help =
      emulate != nullptr && !emulate->on && emulator::MissingIsas().Has(static_cast<core::Isa>(isa));
  return fmt::format("not available here: {}{}", support::WhyNotAvailable(isa),
                     would_help ? "; --emulate runs it in software" : "");
}

Result<intact_isa> ResolveIsa(const std::string& name, const EmulateOption* emulate) {
  Result<intact_isa> isa = verify::ParseIsa(name);
  if (!isa) return Error{isa.error().status, "--" + isa.error().message};
  if (*isa == INTACT_ISA_ANY || intact_isa_available(*isa) != 0) return isa;
  return Error{INTACT_UNSUPPORTED, fmt::format("--isa {}: {}", name, NotAvailable(*isa, emulate))};
}

int RunChoice::Resolve(const EmulateOption* emulate) {
  const Result<intact_isa> resolved_isa = ResolveIsa(isa_name, emulate);
  if (!resolved_isa) return Fail(resolved_isa.error());
  const Result<intact_mode> parsed_mode = verify::ParseMode(mode_name);
  if (!parsed_mode) return Fail("--" + parsed_mode.error().message);
  const Result<intact_pairing> parsed_pairing = verify::ParsePairing(pairing_name);
  if (!parsed_pairing) return Fail("--" + parsed_pairing.error().message);
  if (*parsed_pairing != INTACT_PAIRING_WITHIN_TAP && *parsed_mode != INTACT_SATURATING) {
    return Fail("--pairing: is " + pairing_name + " in exact mode; expected --mode saturating with it");
  }
  isa = *resolved_isa;
  mode = *parsed_mode;
  pairing = *parsed_pairing;
  return kParity;
}

int Fail(const std::string& message) {
  PrintError("{}: {}\n", program_invocation_short_name, support::Printable(message));
  return kBadInput;
}

void AddJsonOption(CLI::App* app, std::string* path, const std::string& help) {
  AddFileOption(app, "--json", path, help);
}

CLI::Option* AddFileOption(CLI::App* app, const std::string& name, std::string* path,
                           const std::string& help) {
  return app->add_option(name, *path, help)
      ->type_name("FILE")
      ->check([](const std::string& file) -> std::string {
        const std::optional<Error> error = support::WhyNotWritable(file);
        return error ? error->message : std::string();
      });
}

CLI::Option* RefuseEmpty(CLI::Option* option) {
  return option->check([](const std::string& value) -> std::string {
    return value.empty() ? "the value is empty; expected a name" : "";
  });
}

CLI::Validator Between(double least, double greatest) {
  const std::string range = fmt::format("{:g} to {:g}", least, greatest);
  const auto refuse = [=](const std::string& value) -> std::string {
    double number = 0;
    const bool is_number = CLI::detail::lexical_cast(value, number);
    if (is_number && number >= least && number <= greatest) return {};
    return fmt::format("{} is not a number from {}", value, range);
  };
  return CLI::Validator(refuse, range);
}

int Exit(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() != 0) return Fail(std::string(error.what()) + " (see --help)");
  std::ostringstream text;
  app.exit(error, text, text);
  Print("{}", text.str());
  return kParity;
}

int RunProgram(int (*program)(int, char**), int argc, char** argv) {
  const auto lost = [](int error) {
    return Fail("standard output: cannot be written: " + std::generic_category().message(error));
  };
  std::setlocale(LC_CTYPE, "");
  const bool is_closed = !IsOpen(STDOUT_FILENO);
  OpenStandardFiles();
  OutliveStandardError();
  if (is_closed) return lost(EBADF);
  int status = kBadInput;
  try {
    status = program(argc, argv);
  } catch (const std::bad_alloc&) {
    return Fail("out of memory");
  } catch (const std::exception& exception) {  // a bug
    return Fail(exception.what());
  }
  errno = 0;
  const bool is_written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  return is_written ? status : lost(errno == 0 ? EIO : errno);
}

int WriteJson(const std::string& path, const nlohmann::ordered_json& json, int status) {
  if (path.empty()) return status;
  const std::optional<Error> error = support::WriteFile(
      path, json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  return error ? Fail(*error) : status;
}

}  // namespace intact::tools
