// When and by which command a report was made, for people who find it later.
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

/// FNV-1a of a file's bytes, which tells builds apart; "unknown" if it cannot be read.
std::string FileDigest(const std::string& path);

/// `text` in the quotes that make it one word to a shell.
std::string ShellQuoted(std::string_view text);

/// `arguments` as a shell takes them, quoted where they need it.
std::string ShellLine(std::span<const std::string> arguments);

}  // namespace intact::support
#endif  // INTACT_SUPPORT_ORIGIN_H_
