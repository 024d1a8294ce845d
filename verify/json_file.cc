#include "verify/json_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "verify/npy.h"
#include "verify/printable.h"

namespace intact::verify {
namespace {

// Deeper values are not kept: what works on values calls itself for each level, and no file needs many.
constexpr int kMaxDepth = 32;

}  // namespace

Result<nlohmann::json> ReadJson(const std::string& path) {
  const auto invalid = [&path](std::string_view what) {
    return Error{INTACT_INVALID_ARGUMENT, fmt::format("{}: {}", path, what)};
  };
  const Result<std::vector<uint8_t>> bytes = ReadFile(path);
  if (!bytes) return bytes.error();
  bool too_deep = false;
  const auto keep = [&too_deep](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return depth <= kMaxDepth;
  };
  try {
    nlohmann::json root = nlohmann::json::parse(bytes->begin(), bytes->end(), keep);
    if (too_deep) return invalid(fmt::format("is nested deeper than {} levels", kMaxDepth));
    if (!root.is_object()) return invalid("is not a JSON object");
    return root;
  } catch (const nlohmann::json::exception& exception) {
    std::string_view reason = exception.what();
    reason.remove_prefix(std::min(reason.find("] ") + 2, reason.size()));
    return invalid("malformed JSON: " + Printable(reason));
  }
}

}  // namespace intact::verify
