#include <fmt/format.h>

#include <cstdio>
#include <optional>

#include "jit/isa.h"
#include "tools/commands.h"
#include "verify/problem.h"
#include "verify/report_json.h"

namespace intact::tools {

void RunChoice::AddOptions(CLI::App* app) {
  app->add_option("--isa", isa_name,
                  "avx2, avx_vnni, avx512, avx512_vnni or amx_int8 (default: the best here)");
  app->add_option("--mode", mode_name, "exact or saturating")->capture_default_str();
}

int RunChoice::Resolve() {
  const Result<intact_isa> parsed_isa = verify::ParseIsa(isa_name);
  if (!parsed_isa) return Fail("--isa: " + parsed_isa.error().message);
  const Result<intact_mode> parsed_mode = verify::ParseMode(mode_name);
  if (!parsed_mode) return Fail("--mode: " + parsed_mode.error().message);
  isa = *parsed_isa;
  mode = *parsed_mode;
  if (isa == INTACT_ISA_ANY || intact_isa_available(isa) != 0) return kParity;
  return Fail(fmt::format("--isa {}: not available here: {}", isa_name,
                          jit::WhyNotPermitted(static_cast<jit::Isa>(isa))));
}

int Fail(const std::string& message) {
  fmt::print(stderr, "intact: {}\n", message);
  return kBadInput;
}

int WriteJson(const std::string& path, const nlohmann::ordered_json& json, int status) {
  if (path.empty()) return status;
  const std::optional<Error> error = verify::WriteFile(
      path, json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  return error ? Fail(*error) : status;
}

}  // namespace intact::tools
