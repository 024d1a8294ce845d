// Progress of long work, on stderr: one line that is redrawn in a terminal; otherwise a line for each tenth.
#ifndef INTACT_TOOLS_CONSOLE_PROGRESS_H_
#define INTACT_TOOLS_CONSOLE_PROGRESS_H_

#include <string>

#include "verify/sweep/sweep.h"

namespace intact::tools {

/// Prints that a step of the run begins.
void ReportStep(const std::string& step);

/// Seconds between two lines of progress, for work that is limited by time. If a sixtieth of the whole time
/// is longer, that is used instead.
inline constexpr double kLineSeconds = 10;

verify::Progress ReportProgress(const std::string& step);

}  // namespace intact::tools
#endif  // INTACT_TOOLS_CONSOLE_PROGRESS_H_
