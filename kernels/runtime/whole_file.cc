#include "kernels/runtime/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "jit/file_descriptor.h"

namespace intact::kernels {
namespace {

constexpr mode_t kReadWriteByAll = 0666;  // less the umask
constexpr mode_t kReadWriteByOwner = 0600;
constexpr int kMostNames = 100;  // temporary names to try, if other writers hold some

// An open file without a name, or with a temporary name that the destructor removes.
class PartialFile {
 public:
  PartialFile(std::string path, mode_t rights) : path_(std::move(path)) {
    const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
    file_.Reset(open(folder.empty() ? "." : folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, rights));
    // Not every file system has files without names, and naming them later needs /proc.
    if (IsOpen() && access(ProcName().c_str(), F_OK) == 0) return;
    file_.Reset();
    MakeName([&](const std::string& name) {
      file_.Reset(open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, rights));
      return IsOpen();
    });
  }
  ~PartialFile() {
    if (!name_.empty()) unlink(name_.c_str());
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  bool IsOpen() const { return file_.IsOpen(); }

  bool Write(const std::vector<uint8_t>& contents) const {
    for (size_t written = 0; written < contents.size();) {
      const ssize_t bytes = write(file_.get(), contents.data() + written, contents.size() - written);
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes <= 0) return false;
      written += static_cast<size_t>(bytes);
    }
    return true;
  }

  // Keeps owner and group if the process may set them. If the group cannot be kept, the new group gets no
  // permissions. Set-user-ID and set-group-ID bits are not kept, because the contents change.
  bool TakeRightsOf(const struct stat& other) const {
    mode_t rights = other.st_mode & (S_IRWXU | S_IRWXG | S_IRWXO);
    const bool has_group = fchown(file_.get(), other.st_uid, other.st_gid) == 0 ||
                           fchown(file_.get(), static_cast<uid_t>(-1), other.st_gid) == 0;
    if (!has_group) rights &= ~mode_t{S_IRWXG};
    return fchmod(file_.get(), rights) == 0;
  }

  bool Publish(bool replaces) {
    if (fsync(file_.get()) != 0) return false;
    if (!replaces && name_.empty() && Link(path_)) return true;
    if (name_.empty() && !MakeName([&](const std::string& name) { return Link(name); })) return false;
    if (std::rename(name_.c_str(), path_.c_str()) != 0) return false;
    name_.clear();
    return true;
  }

 private:
  std::string ProcName() const { return "/proc/self/fd/" + std::to_string(file_.get()); }
  bool Link(const std::string& name) const {
    return linkat(AT_FDCWD, ProcName().c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
  }
  // Cuts the end of the file's name if the result would be too long.
  std::string NameBeside(const std::string& ending) const {
    const std::filesystem::path path = path_;
    std::string name = path.filename();
    if (name.size() + ending.size() > NAME_MAX) name.resize(NAME_MAX - ending.size());
    return path.parent_path() / (name + ending);
  }
  template <class Make>
  bool MakeName(const Make& make) {
    for (int i = 0; i < kMostNames; ++i) {
      std::string name = NameBeside(".partial-" + std::to_string(getpid()) + "-" + std::to_string(i));
      if (make(name)) {
        name_ = std::move(name);
        return true;
      }
      if (errno != EEXIST) return false;
    }
    return false;
  }

  std::string path_, name_;
  jit::FileDescriptor file_;
};

// The target of `path` after all symbolic links, also of links to missing files.
std::string Followed(const std::string& path) {
  constexpr int kMostLinks = 40;  // as in the Linux kernel
  std::filesystem::path followed = path;
  std::error_code error;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(followed, error); ++i) {
    const std::filesystem::path link = std::filesystem::read_symlink(followed, error);
    if (error) break;
    followed = followed.parent_path() / link;  // an absolute link replaces the parent
  }
  return followed.string();
}

}  // namespace

Error WriteWholeFile(const std::string& path, const std::vector<uint8_t>& contents) {
  const auto refused = [&](const std::string& why) {
    return Error{INTACT_INVALID_ARGUMENT, "path '" + path + "' cannot be written: " + why};
  };
  const auto failed = [&] { return refused(std::strerror(errno)); };  // NOLINT(concurrency-mt-unsafe)
  const std::string target = Followed(path);
  // Replacing a device or a pipe would remove it.
  struct stat present {};
  const bool replaces = stat(target.c_str(), &present) == 0;
  if (replaces && !S_ISREG(present.st_mode)) return refused("it exists and is not a regular file");
  if (!replaces && errno != ENOENT) return failed();
  PartialFile file(target, replaces ? kReadWriteByOwner : kReadWriteByAll);
  if (!file.IsOpen() || (replaces && !file.TakeRightsOf(present)) || !file.Write(contents) ||
      !file.Publish(replaces)) {
    return failed();
  }
  return {};
}

}  // namespace intact::kernels
