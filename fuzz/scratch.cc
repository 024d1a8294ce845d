#include "fuzz/scratch.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "support/printable.h"

namespace intact::fuzz {
namespace {

struct TemporaryFolder {
  TemporaryFolder() : path(std::filesystem::temp_directory_path() / "intact_fuzz_XXXXXX") {
    if (mkdtemp(path.data()) == nullptr) throw std::runtime_error("no temporary folder");
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string path;
};

}  // namespace

const std::string& ScratchFolder() {
  static const TemporaryFolder kFolder;
  return kFolder.path;
}

std::string WriteScratch(const std::string& name, std::span<const uint8_t> bytes) {
  const std::filesystem::path path = std::filesystem::path(ScratchFolder()) / name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  if (!file.flush()) throw std::runtime_error(path.string() + " cannot be written");
  return path.string();
}

std::string WrongFileRefusal(const std::string& path, const Error& error) {
  const std::string& message = error.message;
  if (error.status != INTACT_INVALID_ARGUMENT) {
    return fmt::format("{} is refused with status {}: {}", path, int{error.status}, message);
  }
  if (!message.starts_with(path) || message.size() <= path.size() + 2) {
    return fmt::format("the refusal of {} is '{}'; expected its path first", path, message);
  }
  return support::Printable(message) == message ? "" : "a refusal is not one printable line: " + message;
}

}  // namespace intact::fuzz
