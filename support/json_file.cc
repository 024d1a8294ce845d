#include "support/json_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "support/npy.h"
#include "support/printable.h"

namespace intact::support {
namespace {

// Deeper values are an error: functions on values recurse at each level, and no file needs many levels.
constexpr int kMaxDepth = 32;

}  // namespace

Result<nlohmann::json> ParseJson(std::string_view name, std::string_view text) {
  const auto invalid = [name](std::string_view what) {
    return Error{INTACT_INVALID_ARGUMENT, fmt::format("{}: {}", name, what)};
  };
  using Event = nlohmann::json::parse_event_t;
  bool too_deep = false;
  std::optional<std::string> doubled;
  std::vector<std::set<std::string>> keys;  // the keys of each open object
  const auto keep = [&](int depth, Event event, const nlohmann::json& parsed) {
    too_deep = too_deep || depth > kMaxDepth;
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(parsed).second && !doubled)
      doubled = parsed.get<std::string>();
    return depth <= kMaxDepth;
  };
  try {
    nlohmann::json root = nlohmann::json::parse(text, keep);
    if (too_deep) return invalid(fmt::format("is nested deeper than {} levels", kMaxDepth));
    if (doubled) return invalid(fmt::format("has the key \"{}\" twice in an object", Excerpt(*doubled)));
    if (!root.is_object()) return invalid("is not a JSON object");
    return root;
  } catch (const nlohmann::json::exception& exception) {
    return invalid("malformed JSON: " + ReasonOf(exception));
  }
}

Result<nlohmann::json> ReadJson(const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, ReadFile(path));
  return ParseJson(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::string ReasonOf(const nlohmann::json::exception& exception) {
  std::string_view reason = exception.what();
  reason.remove_prefix(std::min(reason.find("] ") + 2, reason.size()));
  return Excerpt(reason);
}

}  // namespace intact::support
