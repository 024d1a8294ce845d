#include "support/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

namespace intact::support {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kReadWriteByAll = 0666;  // less the umask
constexpr mode_t kReadWriteByOwner = 0600;

Error Failed(std::string_view path, const std::string& why) {
  return {INTACT_INVALID_ARGUMENT, fmt::format("{}: cannot be written: {}", path, why)};
}
Error Failed(std::string_view path, const std::error_code& why) { return Failed(path, why.message()); }

// The errno of a call that failed; an error even if errno is 0.
std::error_code LastError() { return {errno == 0 ? EIO : errno, std::generic_category()}; }

/// The descriptor of this process that `path` names after all links, as /dev/stdout does.
std::optional<int> OwnDescriptor(const fs::path& path) {
  std::error_code error;
  const fs::path own = fs::canonical("/proc/self/fd", error);
  if (error || fs::canonical(path.parent_path(), error) != own) return std::nullopt;
  const std::string name = path.filename();
  int descriptor = 0;
  const auto [end, wrong] = std::from_chars(name.data(), name.data() + name.size(), descriptor);
  return wrong == std::errc() && *end == '\0' ? std::optional(descriptor) : std::nullopt;
}

/// The path that `path` names after all links; it need not exist. Links are not followed beyond a descriptor,
/// because the descriptor itself is written.
std::string Followed(const std::string& path) {
  constexpr int kMostLinks = 40;  // like the kernel
  fs::path followed = path;
  std::error_code error;
  for (int i = 0; i < kMostLinks && fs::is_symlink(followed, error) && !OwnDescriptor(followed); ++i) {
    const fs::path link = fs::read_symlink(followed, error);
    if (error) break;
    followed = followed.parent_path() / link;  // an absolute one replaces it
  }
  return followed.string();
}

/// Whether text is written to `target` directly: a device or a pipe, which no file can replace.
bool IsStream(const std::string& target) {
  std::error_code error;
  const fs::file_status status = fs::status(target, error);
  return OwnDescriptor(target) || fs::is_character_file(status) || fs::is_fifo(status);
}

/// Does not open the file: to open a pipe waits for a reader.
std::error_code WhyNotStream(const std::string& target) {
  errno = 0;
  const std::optional<int> own = OwnDescriptor(target);
  if (!own) return access(target.c_str(), W_OK) == 0 ? std::error_code() : LastError();
  const int flags = fcntl(*own, F_GETFL);
  if (flags < 0) return LastError();
  return (flags & O_ACCMODE) == O_RDONLY ? std::make_error_code(std::errc::bad_file_descriptor)
                                         : std::error_code();
}

std::error_code WriteStream(const std::string& target, std::string_view text) {
  (void)std::fflush(stdout);  // what was printed there comes first
  errno = 0;
  // A descriptor is duplicated: opened anew, its file would be written from the beginning.
  const std::optional<int> own = OwnDescriptor(target);
  const int descriptor =
      own ? fcntl(*own, F_DUPFD_CLOEXEC, 0) : open(target.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
  if (descriptor < 0) return LastError();
  std::FILE* const file = fdopen(descriptor, "w");
  if (file == nullptr) {
    const std::error_code error = LastError();
    close(descriptor);
    return error;
  }
  std::error_code error;
  if (std::fwrite(text.data(), 1, text.size(), file) != text.size()) error = LastError();
  if (std::fclose(file) != 0 && !error) error = LastError();
  return error;
}

/// A unique name in the folder of `path`. It begins like `path`'s name, cut if the whole would be too long.
std::string NameBeside(const fs::path& path) {
  static std::atomic<int> count = 0;
  const std::string ending = fmt::format(".{}.{}.tmp", getpid(), count++);
  std::string name = path.filename();
  if (name.size() + ending.size() > NAME_MAX) name.resize(NAME_MAX - ending.size());
  return path.parent_path() / (name + ending);
}

/// Owner and group are kept if the process may give files away. If the group is lost, its permissions are
/// dropped and not given to another group. Set-user-ID and similar bits are dropped, because the text is new.
bool TakeRightsOf(const struct stat& other, int file) {
  mode_t rights = other.st_mode & (S_IRWXU | S_IRWXG | S_IRWXO);
  const bool has_group = fchown(file, other.st_uid, other.st_gid) == 0 ||
                         fchown(file, static_cast<uid_t>(-1), other.st_gid) == 0;
  if (!has_group) rights &= ~mode_t{S_IRWXG};
  return fchmod(file, rights) == 0;
}

struct NewFile {
  std::FILE* file;
  std::string path;
};

// Creates a file that did not exist, with the permissions of `present`, which it will replace; without
// `present`, with the permissions that the umask leaves. `file` is null on failure.
NewFile CreateBeside(const std::string& path, const struct stat* present) {
  for (;;) {
    std::string name = NameBeside(path);
    const int file = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                          present == nullptr ? kReadWriteByAll : kReadWriteByOwner);
    if (file < 0 && errno == EEXIST) continue;
    if (file < 0) return {nullptr, std::move(name)};
    if (present == nullptr || TakeRightsOf(*present, file)) {
      if (std::FILE* const stream = fdopen(file, "wb")) return {stream, std::move(name)};
    }
    const int error = errno;
    unlink(name.c_str());
    close(file);
    errno = error;
    return {nullptr, std::move(name)};
  }
}

/// Why no file can take the name `path`, or nothing. The name may belong to a folder or a disk, which would
/// be lost; or the folder may let only the owner replace the file.
std::optional<std::string> WhyNotFileName(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  const bool is_missing = status.type() == fs::file_type::not_found;
  if (error && !is_missing) return error.message();
  if (path.empty() || path.back() == '/') return "is not the name of a file";
  if (is_missing) return std::nullopt;
  if (!fs::is_regular_file(status)) return "exists and is not a regular file";
  // rename() needs permission to remove the file that it replaces. rmdir() checks this permission first, and
  // then refuses anything that is not a folder.
  if (rmdir(path.c_str()) != 0 && (errno == EPERM || errno == EACCES)) return LastError().message();
  return std::nullopt;
}

fs::path FolderOf(const fs::path& path) {
  const fs::path folder = path.parent_path();
  return folder.empty() ? "." : folder;
}

/// Why missing folders, and `path` in them, cannot be made. Tries to make the first missing folder under
/// another name.
std::error_code WhyNotInNewFolders(const fs::path& path) {
  for (const fs::path& part : path) {
    if (part.native().size() > NAME_MAX) return std::make_error_code(std::errc::filename_too_long);
  }
  std::error_code error;
  fs::path first = path.parent_path();
  while (!fs::exists(FolderOf(first), error)) first = first.parent_path();
  const std::string tried = NameBeside(first);
  errno = 0;
  if (mkdir(tried.c_str(), S_IRWXU) != 0) return LastError();
  rmdir(tried.c_str());
  return {};
}

}  // namespace

Result<OutputFile> OutputFile::Write(const std::string& path, const std::string& text) {
  const std::string target = Followed(path);
  if (IsStream(target)) {
    const std::error_code why = WhyNotStream(target);
    if (why) return Failed(path, why);
    return OutputFile(path, target, "", text);
  }
  if (const std::optional<std::string> why = WhyNotFileName(target)) return Failed(path, *why);
  std::error_code error;
  fs::create_directories(FolderOf(target), error);
  if (error) return Failed(path, error);
  struct stat present {};
  const bool replaces = stat(target.c_str(), &present) == 0;
  errno = 0;
  const NewFile created = CreateBeside(target, replaces ? &present : nullptr);
  if (created.file == nullptr) return Failed(path, LastError());
  OutputFile output(path, target, created.path, "");
  if (std::fwrite(text.data(), 1, text.size(), created.file) != text.size()) error = LastError();
  if (std::fclose(created.file) != 0 && !error) error = LastError();
  if (error) return Failed(path, error);
  return output;
}

OutputFile::OutputFile(std::string path, std::string target, std::string temporary, std::string text)
    : path_(std::move(path)),
      target_(std::move(target)),
      temporary_(std::move(temporary)),
      text_(std::move(text)) {}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, {})),
      text_(std::move(other.text_)) {}

OutputFile::~OutputFile() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove(temporary_, ignored);
}

std::optional<Error> OutputFile::Publish() {
  std::error_code error;
  if (temporary_.empty()) {
    error = WriteStream(target_, text_);
  } else {
    fs::rename(temporary_, target_, error);
  }
  if (error) return Failed(path_, error);
  temporary_.clear();
  return std::nullopt;
}

std::optional<Error> WhyNotWritable(const std::string& path) {
  const std::string target = Followed(path);
  std::error_code error;
  if (WhyNotFileName(target) || fs::exists(FolderOf(target), error)) {
    const Result<OutputFile> file = OutputFile::Write(path, "");
    return file ? std::nullopt : std::optional(file.error());
  }
  error = WhyNotInNewFolders(target);
  return error ? std::optional(Failed(path, error)) : std::nullopt;
}

std::optional<Error> WriteFile(const std::string& path, const std::string& text) {
  Result<OutputFile> file = OutputFile::Write(path, text);
  return file ? file->Publish() : file.error();
}

}  // namespace intact::support
