// Turns Ctrl-C and SIGTERM into a request: long work ends early, with its summary.
#ifndef INTACT_TOOLS_CONSOLE_INTERRUPTION_H_
#define INTACT_TOOLS_CONSOLE_INTERRUPTION_H_

namespace intact::tools {

/// From now on, these signals no longer end the process.
void CatchInterruptions();

/// Whether one of them has come since.
bool IsInterrupted() noexcept;

}  // namespace intact::tools
#endif  // INTACT_TOOLS_CONSOLE_INTERRUPTION_H_
