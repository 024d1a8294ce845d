// JSON objects in files that users bring: layer.json, report.json, sweeps and their journals.
#ifndef INTACT_SUPPORT_JSON_FILE_H_
#define INTACT_SUPPORT_JSON_FILE_H_

#include <intact/intact.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace intact::support {

/// JSON that keeps its fields in the order in which they were added: for files that the project writes.
using Json = nlohmann::ordered_json;

/// The object in `text`. An object that has a key twice is an error. Errors are one line that begins with
/// `name`, the name of the file.
Result<nlohmann::json> ParseJson(std::string_view name, std::string_view text);

/// The object in a file.
Result<nlohmann::json> ReadJson(const std::string& path);

/// The exception's message, without the prefix "[json.exception.…]" of the JSON library.
std::string ReasonOf(const nlohmann::json::exception& exception);

}  // namespace intact::support
#endif  // INTACT_SUPPORT_JSON_FILE_H_
