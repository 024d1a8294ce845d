#include "verify/origin.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <fstream>
#include <string_view>
#include <vector>

namespace intact::verify {
namespace {

constexpr std::string_view kPlain =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789%+,-./:=@_";

std::string Quoted(const std::string& argument) {
  if (!argument.empty() && argument.find_first_not_of(kPlain) == std::string::npos) return argument;
  std::string quoted(1, '\'');
  for (const char c : argument) {
    if (c == '\'') quoted.append("'\\'");
    quoted.push_back(c);
  }
  quoted.push_back('\'');
  return quoted;
}

}  // namespace

std::string ShellLine(std::span<const std::string> arguments) {
  std::string line;
  for (const std::string& argument : arguments) line.append(line.empty() ? "" : " ").append(Quoted(argument));
  return line;
}

Origin CurrentOrigin() {
  std::ifstream command("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(command, argument, '\0');) arguments.push_back(argument);
  return {fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr))), ShellLine(arguments)};
}

}  // namespace intact::verify
