#include "jit/code_memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "core/result.h"
#include "jit/file_descriptor.h"
#include "jit/fork_generation.h"

namespace intact::jit {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kBlockBytes = size_t{64} << 10;
constexpr unsigned kExecutableFile = 0x10;  // MFD_EXEC, since Linux 6.3

std::atomic<int64_t> live_functions{0}, live_bytes{0};

size_t RoundUp(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

size_t PageBytes() {
  static const auto kBytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return kBytes;
}

// The error after the system refused something. Memory may be available later; permission will not.
Error Refused(const std::string& what, int why) {
  if (why == ENOMEM || why == EAGAIN || why == EMFILE || why == ENFILE) {
    return {INTACT_OUT_OF_MEMORY, "no memory for code: " + what + ": " + std::strerror(why)};
  }
  return {INTACT_UNSUPPORTED,
          "this process may not have executable memory: " + what + ": " + std::strerror(why)};
}

// perf looks up functions in /tmp/perf-PID.map only if their memory does not belong to a file.
bool IsForPerf() {
  static const bool kIsForPerf = std::getenv("INTACT_PERF_MAP") != nullptr;
  return kIsForPerf;
}

int MakeMemoryFile() {
  const int fd = memfd_create("intact code", MFD_CLOEXEC | kExecutableFile);
  return fd < 0 && errno == EINVAL ? memfd_create("intact code", MFD_CLOEXEC) : fd;
}

void* Map(size_t bytes, int protection, int flags, int fd) {
  void* const pages = mmap(nullptr, bytes, protection, flags, fd, 0);
  return pages == MAP_FAILED ? nullptr : pages;
}

}  // namespace

class CodeSpace::Block {
 public:
  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() {
    if (executable_ != nullptr && executable_ != writable_) munmap(executable_, bytes_);
    if (writable_ != nullptr) munmap(writable_, bytes_);
  }

  Error MapFile(size_t bytes) {
    bytes_ = RoundUp(bytes, PageBytes());
    // Beyond this limit, ftruncate() raises a signal that ends the process.
    rlimit largest = {};
    if (getrlimit(RLIMIT_FSIZE, &largest) != 0 || largest.rlim_cur < bytes_) {
      return Refused("memory file", EFBIG);
    }
    const FileDescriptor file(MakeMemoryFile());
    if (file.get() < 0) return Refused("memfd_create", errno);
    if (ftruncate(file.get(), static_cast<off_t>(bytes_)) != 0) return Refused("ftruncate", errno);
    writable_ = static_cast<uint8_t*>(Map(bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file.get()));
    if (writable_ == nullptr) return Refused("mmap of a memory file", errno);
    executable_ = static_cast<uint8_t*>(Map(bytes_, PROT_READ | PROT_EXEC, MAP_SHARED, file.get()));
    if (executable_ == nullptr) return Refused("executable mmap of a memory file", errno);
    return {};
  }

  // Pages for one function, which Seal() makes executable. `no_file`: why no memory file is used.
  Error MapPages(size_t bytes, std::string no_file) {
    bytes_ = RoundUp(bytes, PageBytes());
    no_file_ = std::move(no_file);
    writable_ = static_cast<uint8_t*>(Map(bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1));
    if (writable_ == nullptr) return Refused("mmap", errno);
    executable_ = writable_;
    return {};
  }

  Error Seal() {
    if (executable_ != writable_ || mprotect(executable_, bytes_, PROT_READ | PROT_EXEC) == 0) return {};
    Error error = Refused("mprotect", errno);
    return {error.status, error.message + "; " + no_file_};
  }

  bool HasRoom(size_t bytes) const { return owner_ == ForkGeneration() && bytes_ - used_ >= bytes; }
  size_t Append(size_t bytes) {
    used_ += bytes;
    return used_ - bytes;
  }
  uint8_t* writable() const { return writable_; }
  uint8_t* executable() const { return executable_; }

 private:
  uint64_t owner_ = ForkGeneration();  // after a fork, parent and child share the file
  size_t bytes_ = 0, used_ = 0;
  uint8_t *writable_ = nullptr, *executable_ = nullptr;
  std::string no_file_;
};

/// Appends functions to the current block. It is never destroyed, because a plan, and so its code, may
/// outlive main().
class CodeSpace::Appender {
 public:
  static Appender& Instance() {
    static auto* const kInstance = new Appender;
    return *kInstance;
  }

  Result<CodeSpace> Reserve(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const Error no_file = MakeRoom(bytes);
    if (no_file.status == INTACT_OK) return CodeSpace(block_, block_->Append(bytes), bytes);
    auto pages = std::make_shared<Block>();
    RETURN_IF_ERROR(pages->MapPages(bytes, no_file.message));
    return CodeSpace(std::move(pages), 0, bytes);
  }

  /// Tries whether Reserve() and Seal() would succeed.
  Error Try() {
    const std::lock_guard lock(mutex_);
    const Error no_file = TryFile();
    if (no_file.status == INTACT_OK) return {};
    Block pages;
    Error error = pages.MapPages(kAlignment, no_file.message);
    return error.status == INTACT_OK ? pages.Seal() : error;
  }

 private:
  /// MakeRoom(). If the current block still has room, also asks for executable memory: the system may refuse now
  /// what it permitted before. An empty mapping is invalid, which the system finds after its permission.
  Error TryFile() {
    if (block_ != nullptr && block_->HasRoom(kAlignment)) {
      void* const empty = Map(0, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1);
      if (empty == nullptr && errno != EINVAL) return Refused("mmap of executable pages", errno);
    }
    return MakeRoom(kAlignment);
  }
  /// Makes room in block_, or returns the error of a memory file.
  Error MakeRoom(size_t bytes) {
    if (block_ != nullptr && block_->HasRoom(bytes)) return {};
    if (IsForPerf()) return {INTACT_UNSUPPORTED, "INTACT_PERF_MAP is set"};
    auto block = std::make_shared<Block>();
    Error error = block->MapFile(std::max(bytes, kBlockBytes));
    if (error.status == INTACT_OK) block_ = std::move(block);
    return error;
  }

  std::mutex mutex_;
  std::shared_ptr<Block> block_;
};

CodeSpace::CodeSpace(std::shared_ptr<Block> block, size_t offset, size_t bytes)
    : block_(std::move(block)),
      writable_(block_->writable() + offset),
      executable_(block_->executable() + offset),
      bytes_(bytes) {}

Result<CodeSpace> CodeSpace::Reserve(size_t bytes) {
  return Appender::Instance().Reserve(RoundUp(bytes, kAlignment));
}

Result<Code> CodeSpace::Seal() && {
  RETURN_IF_ERROR(block_->Seal());
  const auto free = [block = block_, bytes = bytes_](const void*) {
    live_functions.fetch_sub(1);
    live_bytes.fetch_sub(static_cast<int64_t>(bytes));
  };
  live_functions.fetch_add(1);
  live_bytes.fetch_add(static_cast<int64_t>(bytes_));
  return Code(executable_, free);  // calls `free` if memory runs out
}

std::string CodeSpace::WhyRefused() {
  const Error error = Appender::Instance().Try();
  return error.status == INTACT_UNSUPPORTED ? error.message : "";
}

CodeUsage GetCodeUsage() { return {live_functions.load(), live_bytes.load()}; }

}  // namespace intact::jit
