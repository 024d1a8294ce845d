// Ctrl-C and SIGTERM as a wish: long work ends with its summary.
#ifndef INTACT_TOOLS_CONSOLE_INTERRUPTION_H_
#define INTACT_TOOLS_CONSOLE_INTERRUPTION_H_

namespace intact::tools {

/// From here on they no longer end the process.
void CatchInterruptions();

/// Whether one has come since.
bool IsInterrupted() noexcept;

}  // namespace intact::tools
#endif  // INTACT_TOOLS_CONSOLE_INTERRUPTION_H_
