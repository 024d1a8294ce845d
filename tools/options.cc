#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <system_error>

#include "tools/commands.h"
#include "tools/machine.h"
#include "verify/audit.h"
#include "verify/output_file.h"
#include "verify/printable.h"
#include "verify/problem.h"

namespace intact::tools {

void RunChoice::AddOptions(CLI::App* app) {
  app->add_option("--isa", isa_name, "the kernels' ISA (default: the best here)")->type_name(IsaNames());
  app->add_option("--mode", mode_name, "kernels that are exact, or those that saturate in int16")
      ->type_name("{exact,saturating}")
      ->capture_default_str();
}

std::string IsaNames() {
  std::string names;
  for (const intact_isa each : verify::kIsaLadder) names += fmt::format("{},", intact_isa_name(each));
  return "{" + names + "any}";
}

Result<intact_isa> ResolveIsa(const std::string& name) {
  Result<intact_isa> isa = verify::ParseIsa(name);
  if (!isa) return Error{isa.error().status, "--" + isa.error().message};
  if (*isa == INTACT_ISA_ANY || intact_isa_available(*isa) != 0) return isa;
  return Error{INTACT_UNSUPPORTED,
               fmt::format("--isa {}: not available here: {}", name, WhyNotAvailable(*isa))};
}

int RunChoice::Resolve() {
  const Result<intact_isa> resolved_isa = ResolveIsa(isa_name);
  if (!resolved_isa) return Fail(resolved_isa.error());
  const Result<intact_mode> parsed_mode = verify::ParseMode(mode_name);
  if (!parsed_mode) return Fail("--" + parsed_mode.error().message);
  isa = *resolved_isa;
  mode = *parsed_mode;
  return kParity;
}

int Fail(const std::string& message) {
  fmt::print(stderr, "{}: {}\n", program_invocation_short_name, verify::Printable(message));
  return kBadInput;
}

std::optional<std::string> MakeFolder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return error.message();
  if (access(folder.c_str(), W_OK | X_OK) == 0) return std::nullopt;
  return std::generic_category().message(errno);
}

void AddJsonOption(CLI::App* app, std::string* path, const std::string& help) {
  AddFileOption(app, "--json", path, help);
}

CLI::Option* AddFileOption(CLI::App* app, const std::string& name, std::string* path,
                           const std::string& help) {
  return app->add_option(name, *path, help)
      ->type_name("FILE")
      ->check([](const std::string& file) -> std::string {
        std::optional<std::string> why = verify::WhyNotFileName(file);
        const std::filesystem::path folder = std::filesystem::path(file).parent_path();
        if (!why) why = MakeFolder(folder.empty() ? "." : folder.string());
        return why ? fmt::format("{}: cannot be written: {}", file, *why) : std::string();
      });
}

CLI::Option* RefuseEmpty(CLI::Option* option) {
  return option->check([](const std::string& value) -> std::string {
    return value.empty() ? "the value is empty; expected a name" : "";
  });
}

int RunProgram(int (*program)(int, char**), int argc, char** argv) {
  const auto lost = [](int error) {
    return Fail("standard output: cannot be written: " + std::generic_category().message(error));
  };
  // The next file to be opened would take its place and be printed into.
  if (fcntl(STDOUT_FILENO, F_GETFD) < 0) return lost(errno);
  int status = kBadInput;
  try {
    status = program(argc, argv);
  } catch (const std::exception& exception) {  // out of memory, or a bug; or it printed in vain
    if (std::ferror(stdout) == 0) return Fail(exception.what());
  }
  errno = 0;
  const bool is_written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  return is_written ? status : lost(errno == 0 ? EIO : errno);
}

int WriteJson(const std::string& path, const nlohmann::ordered_json& json, int status) {
  if (path.empty()) return status;
  const std::optional<Error> error = verify::WriteFile(
      path, json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  return error ? Fail(*error) : status;
}

}  // namespace intact::tools
