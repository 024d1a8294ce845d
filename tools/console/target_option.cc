#include "tools/console/target_option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "core/result.h"
#include "support/output_file.h"
#include "verify/explain/claim.h"
#include "verify/sweep/reproducer.h"
#include "verify/targets/emulated_target.h"
#include "verify/targets/intact_target.h"
#include "verify/targets/isolated_target.h"
#include "verify/targets/plugin_target.h"

namespace intact::tools {
namespace {

namespace fs = std::filesystem;

// The folders of built-in peers, relative to the program: in the build tree, and where `cmake --install` puts
// them.
constexpr std::array<std::string_view, 2> kPeerFolders = {"../peers", INTACT_PEERS_FROM_BIN};

bool IsFile(std::string_view name) {
  return name.find('/') != std::string_view::npos || name.ends_with(".so");
}

// Where the file's name ends in the user's text.
size_t EndOfFile(const std::string& text) {
  std::error_code error;
  for (size_t end = text.size(); end != std::string::npos && end > 0; end = text.rfind(':', end - 1)) {
    const std::string beginning = text.substr(0, end);
    if (IsFile(beginning) && fs::is_regular_file(beginning, error)) return end;
  }
  return std::min(text.find(':'), text.size());  // a peer, or no file
}

constexpr std::string_view kPeerPrefix = "intact_peer_", kPeerSuffix = ".so";

// Files of built-in peers, by their names.
std::map<std::string, fs::path> Peers() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  std::map<std::string, fs::path> peers;
  for (const std::string_view folder : kPeerFolders) {
    for (const fs::directory_entry& entry : fs::directory_iterator(program / folder, error)) {
      std::string name = entry.path().filename().string();
      if (!name.starts_with(kPeerPrefix) || !name.ends_with(kPeerSuffix)) continue;
      name = name.substr(kPeerPrefix.size(), name.size() - kPeerPrefix.size() - kPeerSuffix.size());
      peers.emplace(std::move(name), entry.path().lexically_normal());  // the first folder's, if both have it
    }
  }
  return peers;
}

Result<std::string> FindPeer(const std::string& name) {
  if (name.empty()) {
    return Error{INTACT_INVALID_ARGUMENT, "--target: no name before the ':'; expected a file or a peer"};
  }
  if (name == "python") {
    return Error{
        INTACT_INVALID_ARGUMENT,
        "--target python: only the intact of the Python package runs Python classes; install intact's "
        "wheel with pip (tools/bootstrap.sh wheel builds it)"};
  }
  const std::map<std::string, fs::path> peers = Peers();
  if (const auto peer = peers.find(name); peer != peers.end()) return peer->second.string();
  std::vector<std::string> names;
  names.reserve(peers.size());
  for (const auto& [other, file] : peers) names.push_back(other);
  const std::string known =
      names.empty() ? "none was built in" : fmt::format("there are {}", fmt::join(names, ", "));
  return Error{
      INTACT_INVALID_ARGUMENT,
      fmt::format("--target {}: no peer has that name: {}; a plug-in is a path, ./{}.so", name, known, name)};
}

}  // namespace

void TargetOption::Add(CLI::App* app) {
  RefuseEmpty(app->add_option("--target", text,
                              "whose kernels: FILE.so, a plug-in (docs/targets.md), or a built-in peer's "
                              "name, optionally with :OPTIONS for it (default: our own)"))
      ->type_name("TARGET");
  AddDeadline(app, &deadline);
}

void TargetOption::AddDeadline(CLI::App* app, double* deadline) {
  app->add_option("--deadline", *deadline, "seconds that a call of a --target may take")
      ->type_name("SECONDS")
      ->check(Between(0.01, 1e6))
      ->capture_default_str()
      ->needs("--target");
}

Result<std::unique_ptr<verify::Target>> TargetOption::Open(const RunChoice& choice, bool emulate) const {
  if (!IsPlugin()) return std::unique_ptr<verify::Target>(std::make_unique<verify::IntactTarget>());
  const auto refused = [this](const std::string& what) {
    return Error{INTACT_INVALID_ARGUMENT, fmt::format("--target {}: {}", text, what)};
  };
  if (choice.isa != INTACT_ISA_ANY) {
    return refused("--isa chooses among our own kernels; a target's options are its own");
  }
  if (choice.mode != INTACT_EXACT) {
    return refused("--mode chooses among our own kernels; a target says what it computes");
  }
  ASSIGN_OR_RETURN(const Plugin plugin, Find());
  verify::TargetFactory open = [plugin] { return verify::PluginTarget::Open(plugin.file, plugin.options); };
  if (emulate) open = verify::Emulated(std::move(open));
  Result<std::unique_ptr<verify::Target>> target = verify::IsolatedTarget::Start(
      std::move(open), std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(deadline)));
  if (!target) return refused(target.error().message);
  if (const std::optional<std::string> error = verify::CheckClaims((*target)->Arithmetic())) {
    return refused(*error);
  }
  return target;
}

Result<TargetOption::Plugin> TargetOption::Find() const {
  const size_t end = EndOfFile(text);
  std::string file = text.substr(0, end);
  const std::string options = end == text.size() ? "" : text.substr(end + 1);
  if (!IsFile(file)) {
    ASSIGN_OR_RETURN(file, FindPeer(file));
  }
  return Plugin{std::move(file), options};
}

Error TargetOption::WriteReproducer(const verify::Target& target, const verify::Problem& problem,
                                    const std::string& file) const {
  ASSIGN_OR_RETURN(const Plugin plugin, Find());
  ASSIGN_OR_RETURN(const std::string code,
                   verify::Reproducer(target, problem,
                                      {text, fs::absolute(plugin.file).string(), plugin.options,
                                       fs::path(file).filename().string()}));
  return support::WriteFile(file, code).value_or(Error());
}

std::string NoGroupedWeights(const TargetOption& target) {
  return fmt::format("--target {}: has no grouped weights; expected a target with INTACT_TARGET_GROUPED",
                     target.text);
}

}  // namespace intact::tools
