#include "support/origin.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <fstream>
#include <string_view>
#include <vector>

#include "support/fnv1a.h"
#include "support/npy.h"

namespace intact::support {
namespace {

constexpr std::string_view kPlain =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789%+,-./:=@_";

bool IsPlain(std::string_view argument) {
  return !argument.empty() && argument.find_first_not_of(kPlain) == std::string::npos;
}

}  // namespace

std::string ShellQuoted(std::string_view text) {
  std::string quoted(1, '\'');
  for (const char c : text) {
    if (c == '\'') quoted.append("'\\'");
    quoted.push_back(c);
  }
  quoted.push_back('\'');
  return quoted;
}

std::string ShellLine(std::span<const std::string> arguments) {
  std::string line;
  for (const std::string& argument : arguments) {
    line.append(line.empty() ? "" : " ").append(IsPlain(argument) ? argument : ShellQuoted(argument));
  }
  return line;
}

std::string FileDigest(const std::string& path) {
  const Result<std::vector<uint8_t>> bytes = ReadFile(path);
  return bytes ? fmt::format("{:016x}", Fnv1a(*bytes)) : "unknown";
}

Origin CurrentOrigin() {
  std::ifstream command("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(command, argument, '\0');) arguments.push_back(argument);
  return {fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr))), ShellLine(arguments)};
}

}  // namespace intact::support
