// The two files of a report in a folder: report.json for programs, report.html for people.
#ifndef INTACT_VERIFY_REPORT_REPORT_FILES_H_
#define INTACT_VERIFY_REPORT_REPORT_FILES_H_

#include <optional>
#include <string>

#include "core/result.h"
#include "support/json_file.h"

namespace intact::verify {

struct ReportFiles {
  explicit ReportFiles(const std::string& folder)
      : json(folder + "/report.json"), html(folder + "/report.html") {}
  std::string json, html;
};

/// Writes both files. Each file appears whole or not at all. Neither file appears before both are written.
/// `page`: HTML.
std::optional<Error> WriteReport(const support::Json& report, const std::string& page,
                                 const ReportFiles& files);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_REPORT_REPORT_FILES_H_
