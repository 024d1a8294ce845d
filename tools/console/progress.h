// Progress of long work, on stderr: one line that is redrawn in a terminal, a line per tenth elsewhere.
#ifndef INTACT_TOOLS_CONSOLE_PROGRESS_H_
#define INTACT_TOOLS_CONSOLE_PROGRESS_H_

#include <string>

#include "verify/sweep/sweep.h"

namespace intact::tools {

/// Says that a step of the run begins.
void ReportStep(const std::string& step);

/// Seconds between two lines of progress of work that is limited by time; a sixtieth of the whole if that is
/// longer.
inline constexpr double kLineSeconds = 10;

verify::Progress ReportProgress(const std::string& step);

}  // namespace intact::tools
#endif  // INTACT_TOOLS_CONSOLE_PROGRESS_H_
