// When a report was made, and by which command.
#ifndef INTACT_SUPPORT_ORIGIN_H_
#define INTACT_SUPPORT_ORIGIN_H_

#include <span>
#include <string>
#include <string_view>

namespace intact::support {

struct Origin {
  std::string date;     // "2026-11-23 05:48 UTC"
  std::string command;  // the command line
};

/// The origin of what this process reports now.
Origin CurrentOrigin();

/// FNV-1a of a file's bytes, which identifies a build of a program or library. "unknown" if the file cannot be read.
std::string FileDigest(const std::string& path);

/// `text` in single quotes, so that a shell reads it as one word.
std::string ShellQuoted(std::string_view text);

/// `arguments` as a command line of a shell, quoted if necessary.
std::string ShellLine(std::span<const std::string> arguments);

}  // namespace intact::support
#endif  // INTACT_SUPPORT_ORIGIN_H_
