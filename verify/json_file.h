// JSON objects in files that users bring: layer.json, report.json, sweeps and their journals.
#ifndef INTACT_VERIFY_JSON_FILE_H_
#define INTACT_VERIFY_JSON_FILE_H_

#include <intact/intact.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace intact::verify {

/// The object that is `text`. No object of it has a key twice. Errors are one line of what is wrong, begun
/// with `name`, the file's.
Result<nlohmann::json> ParseJson(std::string_view name, std::string_view text);

/// The same of a file.
Result<nlohmann::json> ReadJson(const std::string& path);

/// What the exception says, without the library's code for it.
std::string ReasonOf(const nlohmann::json::exception& exception);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_JSON_FILE_H_
