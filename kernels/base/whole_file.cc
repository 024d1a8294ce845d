#include "kernels/base/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

namespace intact::kernels {
namespace {

constexpr mode_t kReadWriteByAll = 0666;  // less the umask
constexpr int kMostNames = 100;           // that other writers may hold at the same time

// An open file without a name, or with a temporary one, which goes with it.
class PartialFile {
 public:
  explicit PartialFile(std::string path) : path_(std::move(path)) {
    const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
    descriptor_ =
        open(folder.empty() ? "." : folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, kReadWriteByAll);
    // Not every file system has files without names, and not every /proc is there to name them from.
    if (descriptor_ >= 0 && access(ProcName().c_str(), F_OK) == 0) return;
    if (descriptor_ >= 0) close(descriptor_);
    descriptor_ = -1;
    MakeName([&](const std::string& name) {
      descriptor_ = open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, kReadWriteByAll);
      return descriptor_ >= 0;
    });
  }
  ~PartialFile() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!name_.empty()) unlink(name_.c_str());
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  bool IsOpen() const { return descriptor_ >= 0; }

  bool Write(const std::vector<uint8_t>& contents) const {
    for (size_t written = 0; written < contents.size();) {
      const ssize_t bytes = write(descriptor_, contents.data() + written, contents.size() - written);
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes <= 0) return false;
      written += static_cast<size_t>(bytes);
    }
    return true;
  }

  // The owner is kept where the process may give files away.
  bool TakeRightsOf(const struct stat& other) const {
    (void)!fchown(descriptor_, other.st_uid, other.st_gid);
    return fchmod(descriptor_, other.st_mode & 07777) == 0;
  }

  bool Publish(bool replaces) {
    if (fsync(descriptor_) != 0) return false;
    if (!replaces && name_.empty() && Link(path_)) return true;
    if (name_.empty() && !MakeName([&](const std::string& name) { return Link(name); })) return false;
    if (std::rename(name_.c_str(), path_.c_str()) != 0) return false;
    name_.clear();
    return true;
  }

 private:
  std::string ProcName() const { return "/proc/self/fd/" + std::to_string(descriptor_); }
  bool Link(const std::string& name) const {
    return linkat(AT_FDCWD, ProcName().c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
  }
  template <class Make>
  bool MakeName(const Make& make) {
    for (int i = 0; i < kMostNames; ++i) {
      const std::string name = path_ + ".partial-" + std::to_string(getpid()) + "-" + std::to_string(i);
      if (make(name)) {
        name_ = name;
        return true;
      }
      if (errno != EEXIST) return false;
    }
    return false;
  }

  std::string path_, name_;
  int descriptor_ = -1;
};

// What `path` names in the end; links to nothing are followed, too.
std::string Followed(const std::string& path) {
  constexpr int kMostLinks = 40;  // as the kernel has it
  std::filesystem::path followed = path;
  std::error_code error;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(followed, error); ++i) {
    const std::filesystem::path link = std::filesystem::read_symlink(followed, error);
    if (error) break;
    followed = followed.parent_path() / link;  // an absolute one replaces it
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
  // A device's or a pipe's name would become the file's, and they would be gone.
  struct stat present {};
  const bool replaces = stat(target.c_str(), &present) == 0;
  if (replaces && !S_ISREG(present.st_mode)) return refused("it is there, and not a file");
  if (!replaces && errno != ENOENT) return failed();
  PartialFile file(target);
  if (!file.IsOpen() || !file.Write(contents) || (replaces && !file.TakeRightsOf(present)) ||
      !file.Publish(replaces)) {
    return failed();
  }
  return {};
}

}  // namespace intact::kernels
