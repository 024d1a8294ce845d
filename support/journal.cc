#include "support/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

namespace intact::support {
namespace {

constexpr std::chrono::seconds kSyncInterval(1);

Error Invalid(std::string_view path, std::string_view what) {
  return {INTACT_INVALID_ARGUMENT, fmt::format("{}: {}", path, what)};
}

/// False if another process has locked the file. Children, who might outlive this process, do not inherit
/// this kind of lock. It ends when this process first closes a descriptor of the file.
bool TryLock(int file) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return fcntl(file, F_SETLK, &lock) == 0 || (errno != EACCES && errno != EAGAIN);
}

/// On failure nullopt; errno is the reason.
std::optional<std::string> ReadAll(int file) {
  std::string text;
  std::array<char, 65536> block;
  for (;;) {
    const ssize_t count = pread(file, block.data(), block.size(), std::ssize(text));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::nullopt;
    if (count == 0) return text;
    text.append(block.data(), static_cast<size_t>(count));
  }
}

/// A new file survives a crash of the machine only if its folder is on the disk too.
void SyncFolderOf(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const int file = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return;
  fsync(file);
  close(file);
}

/// Calls write() until all is written. Returns errno on failure, else 0.
int WriteAll(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : EIO;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

}  // namespace

JournalText SplitJournal(std::string_view text) {
  JournalText split;
  for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    split.lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  split.torn = text;
  return split;
}

Result<Journal> Journal::Open(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) return Invalid(path, "cannot be opened: " + std::generic_category().message(errno));
  Journal journal(path, file);
  if (!TryLock(file)) return Invalid(path, "is in use: another process writes this journal");
  const std::optional<std::string> text = ReadAll(file);
  if (!text) return Invalid(path, "cannot be read: " + std::generic_category().message(errno));
  journal.text_ = SplitJournal(*text);
  journal.is_torn_ = !journal.text_.torn.empty();
  journal.size_ = std::ssize(*text) - std::ssize(journal.text_.torn);
  if (text->empty()) SyncFolderOf(path);
  return journal;
}

Journal::Journal(Journal&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      text_(std::move(other.text_)),
      is_torn_(other.is_torn_),
      size_(other.size_),
      last_sync_(other.last_sync_) {}

Journal::~Journal() {
  if (file_ < 0) return;
  fdatasync(file_);
  close(file_);
}

std::optional<Error> Journal::Append(std::string_view line) {
  if (is_torn_ && ftruncate(file_, size_) != 0) return Failed(errno);
  is_torn_ = true;  // until the line is whole
  const std::string text = fmt::format("{}\n", line);
  if (const int error = WriteAll(file_, text); error != 0) return Failed(error);
  is_torn_ = false;
  size_ += std::ssize(text);
  const auto now = std::chrono::steady_clock::now();
  if (now - last_sync_ < kSyncInterval) return std::nullopt;
  last_sync_ = now;
  if (fdatasync(file_) != 0) return Failed(errno);
  return std::nullopt;
}

Error Journal::Failed(int error) const {
  return Invalid(path_, "cannot be written: " + std::generic_category().message(error));
}

}  // namespace intact::support
