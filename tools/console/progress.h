// Progress of long work, on stderr: in a terminal, one line that is redrawn; elsewhere a line for each tenth.
#ifndef INTACT_TOOLS_CONSOLE_PROGRESS_H_
#define INTACT_TOOLS_CONSOLE_PROGRESS_H_

#include <string>

#include "verify/sweep/sweep.h"

namespace intact::tools {

/// From now on, nothing in this file prints.
void SilenceProgress();

/// Prints a line.
void PrintProgress(const std::string& line);

/// Prints that a step of the run begins.
void ReportStep(const std::string& step);

/// Least seconds between two progress lines. Work with a time limit uses a sixtieth of the limit if this is
/// longer.
inline constexpr double kLineSeconds = 10;

verify::Progress ReportProgress(const std::string& step);

}  // namespace intact::tools
#endif  // INTACT_TOOLS_CONSOLE_PROGRESS_H_
