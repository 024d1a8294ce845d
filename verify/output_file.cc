#include "verify/output_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

namespace intact::verify {
namespace {

Error Failed(std::string_view path, const std::string& why) {
  return {INTACT_INVALID_ARGUMENT, fmt::format("{}: cannot be written: {}", path, why)};
}
Error Failed(std::string_view path, const std::error_code& why) { return Failed(path, why.message()); }

// What errno says of a call that failed; such a call is never taken for a success.
std::error_code LastError() { return {errno == 0 ? EIO : errno, std::generic_category()}; }

struct NewFile {
  std::FILE* file;
  std::string path;
};

// A file that did not exist, with the permissions that the umask gives (mkstemp() would give the owner's
// only). Its `file` is null on failure.
NewFile CreateBeside(const std::string& path) {
  static std::atomic<int> count = 0;
  for (;;) {
    std::string name = fmt::format("{}.{}.{}.tmp", path, getpid(), count++);
    std::FILE* const file = std::fopen(name.c_str(), "wbx");
    if (file != nullptr || errno != EEXIST) return {file, std::move(name)};
  }
}

/// Why no file can take that name: nothing, or what it names now (a folder, a device), which would be lost.
std::optional<std::string> WhyNotFileName(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  const bool is_missing = status.type() == std::filesystem::file_type::not_found;
  if (error && !is_missing) return error.message();
  if (path.empty() || path.back() == '/') return "is not the name of a file";
  if (is_missing || std::filesystem::is_regular_file(status)) return std::nullopt;
  return "is there, and not a file";
}

}  // namespace

Result<OutputFile> OutputFile::Write(const std::string& path, const std::string& text) {
  if (const std::optional<std::string> why = WhyNotFileName(path)) return Failed(path, *why);
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) return Failed(path, error);
  errno = 0;
  const NewFile created = CreateBeside(path);
  if (created.file == nullptr) return Failed(path, LastError());
  OutputFile output(path, created.path);
  if (std::fwrite(text.data(), 1, text.size(), created.file) != text.size()) error = LastError();
  if (std::fclose(created.file) != 0 && !error) error = LastError();
  if (error) return Failed(path, error);
  return output;
}

OutputFile::OutputFile(std::string path, std::string temporary)
    : path_(std::move(path)), temporary_(std::move(temporary)) {}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, {})) {}

OutputFile::~OutputFile() {
  std::error_code ignored;
  if (!temporary_.empty()) std::filesystem::remove(temporary_, ignored);
}

std::optional<Error> OutputFile::Publish() {
  std::error_code error;
  std::filesystem::rename(temporary_, path_, error);
  if (error) return Failed(path_, error);
  temporary_.clear();
  return std::nullopt;
}

std::optional<Error> WhyNotWritable(const std::string& path) {
  const Result<OutputFile> file = OutputFile::Write(path, "");
  return file ? std::nullopt : std::optional(file.error());
}

std::optional<Error> WriteFile(const std::string& path, const std::string& text) {
  Result<OutputFile> file = OutputFile::Write(path, text);
  return file ? file->Publish() : file.error();
}

}  // namespace intact::verify
