// When and by which command a report was made, for people who find it later.
#ifndef INTACT_VERIFY_ORIGIN_H_
#define INTACT_VERIFY_ORIGIN_H_

#include <span>
#include <string>

namespace intact::verify {

struct Origin {
  std::string date;     // "2026-11-23 05:48 UTC"
  std::string command;  // the command line
};

/// Of this process, now.
Origin CurrentOrigin();

/// `arguments` as a shell takes them.
std::string ShellLine(std::span<const std::string> arguments);

}  // namespace intact::verify
#endif  // INTACT_VERIFY_ORIGIN_H_
