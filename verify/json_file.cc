#include "verify/json_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "verify/npy.h"

namespace intact::verify {

Result<nlohmann::json> ReadJson(const std::string& path) {
  const auto invalid = [&path](std::string_view what) {
    return Error{INTACT_INVALID_ARGUMENT, fmt::format("{}: {}", path, what)};
  };
  const Result<std::vector<uint8_t>> bytes = ReadFile(path);
  if (!bytes) return bytes.error();
  try {
    nlohmann::json root = nlohmann::json::parse(bytes->begin(), bytes->end());
    if (!root.is_object()) return invalid("is not a JSON object");
    return root;
  } catch (const nlohmann::json::exception& exception) {
    std::string_view reason = exception.what();
    reason.remove_prefix(std::min(reason.find("] ") + 2, reason.size()));
    std::string line(reason);
    std::ranges::replace_if(
        line, [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
    return invalid("malformed JSON: " + line);
  }
}

}  // namespace intact::verify
