// The report as one HTML page that needs no other file: style and pictures are inside.
#ifndef INTACT_VERIFY_REPORT_REPORT_HTML_H_
#define INTACT_VERIFY_REPORT_REPORT_HTML_H_

#include <string>
#include <string_view>
#include <vector>

#include "support/html.h"
#include "verify/report/report.h"

namespace intact::verify {

std::string ToHtml(const Report& report);

/// A table of sweeps: the cells of `names`, under `head`, then the counts of the sweep's cell.
struct SweepRow {
  support::html::Row names;
  const SweepCell* cell;
};
std::string SweepTable(support::html::Row head, const std::vector<SweepRow>& rows);

/// A saturation map as a picture; `name` identifies the picture on its page.
std::string MapFigure(const SaturationMap& map, std::string_view name);
/// The exact and the computed outputs of the column of `ramp` that has most kinks (verify/studies/ramp.h);
/// `caption` is HTML.
std::string RampFigure(const Ramp& ramp, std::string_view name, std::string_view caption);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_REPORT_REPORT_HTML_H_
