// JSON objects in files that users bring: layer.json, report.json, sweeps and their journals.
#ifndef INTACT_SUPPORT_JSON_FILE_H_
#define INTACT_SUPPORT_JSON_FILE_H_

#include <intact/intact.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace intact::support {

/// JSON whose fields keep the order in which they were added: what the project writes.
using Json = nlohmann::ordered_json;

/// The object that is `text`. No object of it has a key twice. Errors are one line of what is wrong, begun
/// with `name`, the file's.
Result<nlohmann::json> ParseJson(std::string_view name, std::string_view text);

/// The same of a file.
Result<nlohmann::json> ReadJson(const std::string& path);

/// What the exception says, without the library's code for it.
std::string ReasonOf(const nlohmann::json::exception& exception);

}  // namespace intact::support
#endif  // INTACT_SUPPORT_JSON_FILE_H_
