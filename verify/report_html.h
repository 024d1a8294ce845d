// The report as one HTML page that needs nothing beside it: style and pictures are inside.
#ifndef INTACT_VERIFY_REPORT_HTML_H_
#define INTACT_VERIFY_REPORT_HTML_H_

#include <string>

#include "verify/report.h"

namespace intact::verify {

std::string ToHtml(const Report& report);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_REPORT_HTML_H_
