#include "verify/report/sweep_file.h"

#include "fuzz/check.h"
#include "fuzz/scratch.h"
#include "verify/report/report_terminal.h"

namespace intact::fuzz {
namespace {

std::string Written(const verify::SweepPart& part) {
  support::Json json = verify::ToJson(part.run, part.result);
  if (part.random) json["random"] = verify::ToJson(*part.random);
  return json.dump(1, ' ', false, support::Json::error_handler_t::replace);
}

}  // namespace

std::string CheckSweepFile(std::span<const uint8_t> bytes) {
  const std::string path = WriteScratch("sweep", bytes);
  const Result<verify::SweepPart> part = verify::ReadSweepPart(path);
  if (!part) return WrongFileRefusal(path, part.error());
  const verify::SweepResult* random = part->random ? &part->random->sweep : nullptr;
  const std::string text = verify::ToText(part->result, part->run.target.text);
  if (text.empty() || verify::VerdictText(part->result, random).empty())
    return "the report or the verdict is empty";
  const std::string written = Written(*part);
  const Result<verify::SweepPart> again = verify::ReadSweepPart(
      WriteScratch("again", {reinterpret_cast<const uint8_t*>(written.data()), written.size()}));
  if (!again) return "the sweep is written, but not read back: " + again.error().message;
  return Written(*again) == written ? "" : "the sweep is read back changed";
}

}  // namespace intact::fuzz
