#include "tools/console/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "tools/console/terminal.h"

namespace intact::tools {

namespace {

bool is_silent = false;

}  // namespace

void SilenceProgress() { is_silent = true; }

void PrintProgress(const std::string& line) {
  if (!is_silent) PrintError("{}\n", line);
}

void ReportStep(const std::string& step) { PrintProgress(step + " ..."); }

verify::Progress ReportProgress(const std::string& step) {
  const bool redraw = isatty(STDERR_FILENO) != 0;
  return [step, redraw, last = int64_t{-1}](int64_t done, int64_t total) mutable {
    if (total == 0) return;  // no whole unit
    const int64_t tenths = 10 * done / total;
    const int64_t percent = 100 * done / total;
    const int64_t mark = redraw ? percent : tenths;
    if (mark == last || is_silent) return;
    last = mark;
    const std::string line = fmt::format("{}: {} of {} ({} %)", step, done, total, percent);
    redraw ? Redraw(line) : PrintError("{}\n", line);
    if (done == total) EndRedrawnLine();
    std::fflush(stderr);
  };
}

}  // namespace intact::tools
