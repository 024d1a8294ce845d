// JSON objects in files that users bring: layer.json, report.json.
#ifndef INTACT_VERIFY_JSON_FILE_H_
#define INTACT_VERIFY_JSON_FILE_H_

#include <intact/intact.hpp>
#include <nlohmann/json.hpp>
#include <string>

namespace intact::verify {

/// No object of it has a key twice. Errors are one line that names the file and what is wrong.
Result<nlohmann::json> ReadJson(const std::string& path);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_JSON_FILE_H_
