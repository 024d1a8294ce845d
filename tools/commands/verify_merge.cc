#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "support/printable.h"
#include "tools/console/commands.h"
#include "tools/console/terminal.h"
#include "verify/report/report_terminal.h"
#include "verify/report/sweep_file.h"

namespace intact::tools {
namespace {

struct MergeOptions {
  std::string out;
  std::vector<std::string> shards;
};

int Merge(const MergeOptions& options) {
  for (const std::string& path : options.shards) {
    if (AreOneFile(options.out, path)) {
      return Fail(fmt::format("OUT and SHARD are one file, {}; expected two", support::Excerpt(path)));
    }
  }
  std::vector<verify::SweepPart> parts;
  for (const std::string& path : options.shards) {
    Result<verify::SweepPart> part = verify::ReadSweepPart(path);
    if (part) {
      parts.push_back(std::move(*part));
    } else {
      Fail(part.error());
    }
  }
  if (parts.size() < options.shards.size()) return kBadInput;
  const Result<verify::SweepPart> whole = verify::MergeSweeps(parts);
  if (!whole) return Fail(whole.error());
  const std::string& target = whole->run.target.text;
  Print("{}{}", verify::ToText(whole->run.Fitted(), ""), verify::ToText(whole->result, target));
  support::Json json = verify::ToJson(whole->run, whole->result);
  if (whole->random) {
    Print("{}", verify::ToText(*whole->random, target));
    json["random"] = verify::ToJson(*whole->random);
  }
  const verify::SweepResult* random = whole->random ? &whole->random->sweep : nullptr;
  Print("{}", verify::VerdictText(whole->result, random));
  return WriteJson(options.out, json, StatusOf(whole->result.VerdictWith(random)));
}

}  // namespace

void AddVerifyMerge(CLI::App* verify, Command* command) {
  auto options = std::make_shared<MergeOptions>();
  CLI::App* merge = verify->add_subcommand(
      "merge", "merge all shards of a sweep into the JSON of the whole sweep; names missing shards");
  RefuseEmpty(AddFileOption(merge, "OUT", &options->out, "the JSON to write"))->required();
  RefuseEmpty(merge->add_option("SHARD", options->shards, "JSON or journal of each shard, in any order"))
      ->type_name("FILE")
      ->required();
  merge->callback([options, command] { *command = [options] { return Merge(*options); }; });
}

}  // namespace intact::tools
