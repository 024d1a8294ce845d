// Turns Ctrl-C and SIGTERM into a request: long work ends early, with its summary.
#ifndef INTACT_TOOLS_CONSOLE_INTERRUPTION_H_
#define INTACT_TOOLS_CONSOLE_INTERRUPTION_H_

namespace intact::tools {

/// From now on, Ctrl-C and SIGTERM no longer end the process.
void CatchInterruptions();

/// Whether one of these signals has arrived since CatchInterruptions().
bool IsInterrupted() noexcept;

}  // namespace intact::tools
#endif  // INTACT_TOOLS_CONSOLE_INTERRUPTION_H_
