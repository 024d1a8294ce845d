// Pictures for the report, drawn by gnuplot (an optional tool) as SVG.
#ifndef INTACT_SUPPORT_PLOT_H_
#define INTACT_SUPPORT_PLOT_H_

#include <intact/intact.hpp>
#include <string>
#include <string_view>

namespace intact::support {

/// Runs gnuplot on `commands`, with the terminal already set. Returns an <svg> element for HTML, drawn for a
/// white page, without a background. `name` prefixes the element's ids and must be unique on a page.
/// Error: gnuplot is missing or failed.
Result<std::string> PlotSvg(std::string_view name, std::string_view commands);

}  // namespace intact::support
#endif  // INTACT_SUPPORT_PLOT_H_
