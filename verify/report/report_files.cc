#include "verify/report/report_files.h"

#include "support/output_file.h"

namespace intact::verify {

std::optional<Error> WriteReport(const support::Json& report, const std::string& page,
                                 const ReportFiles& files) {
  const std::string text = report.dump(1, ' ', false, support::Json::error_handler_t::replace) + "\n";
  ASSIGN_OR_RETURN(support::OutputFile json, support::OutputFile::Write(files.json, text));
  ASSIGN_OR_RETURN(support::OutputFile html, support::OutputFile::Write(files.html, page));
  if (std::optional<Error> error = json.Publish()) return error;
  return html.Publish();
}

}  // namespace intact::verify
