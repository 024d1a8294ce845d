#include "verify/targets/worker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "jit/file_descriptor.h"
#include "support/printable.h"
#include "support/signal_name.h"
#include "verify/targets/guarded_buffer.h"
#include "verify/targets/page_fault.h"

namespace intact::verify {
namespace {

constexpr size_t kHeaderBytes = 4096;
constexpr off_t kMostPrinted = off_t{64} << 20;  // bytes; the worker's output is kept in memory

// What the handler saw of the signal that ends the worker.
struct Fault {
  int32_t signal = 0;  // 0: none yet
  int32_t code = 0;    // siginfo_t::si_code
  Access access = Access::kUnknown;
  bool is_unmapped = false;  // `address` is in a tensor's memory, which is no longer mapped
  uint64_t address = 0;
  std::array<char, 32> tensor = {};  // name of the tensor that the address is in or near; else ""
  int64_t offset = 0;                // bytes from the tensor's first byte to the address
  int64_t size = 0;                  // bytes of the tensor
};

struct Header {
  uint64_t taken = 0;  // the number of the last request that the worker has begun to serve
  size_t request_bytes = 0;
  size_t answer_bytes = 0;
  Fault fault;
  std::array<char, 256> refusal = {};  // of Worker::Refuse(); else ""
};
static_assert(sizeof(Header) <= kHeaderBytes);

Error OutOfMemory(const char* what) {
  return {INTACT_OUT_OF_MEMORY, fmt::format("worker process: {}: {}", what, std::strerror(errno))};
}

// The worker's header, for its handler. Processes that the worker starts inherit the handler, so it also
// checks own_process.
Header* own_header = nullptr;
pid_t own_process = 0;

void OnFault(int signal, siginfo_t* info, void* context) {
  // A second fault, in this handler or in another thread, does not overwrite the first one's record.
  if (own_header->fault.signal == 0 && getpid() == own_process) {
    Fault fault;
    fault.signal = signal;
    fault.code = info->si_code;
    // Signals that somebody sent have no address, nor do exceptions without one.
    const bool has_address = info->si_code > 0 && info->si_code != SI_KERNEL;
    if (has_address && (signal == SIGSEGV || signal == SIGBUS)) {
      fault.access = AccessAtFault(context);
      fault.address = reinterpret_cast<uintptr_t>(info->si_addr);
      if (const NamedBuffer buffer = NamedBufferAt(info->si_addr); buffer.name != nullptr) {
        std::strncpy(fault.tensor.data(), buffer.name, fault.tensor.size() - 1);
        fault.offset = static_cast<const uint8_t*>(info->si_addr) - buffer.data;
        fault.size = static_cast<int64_t>(buffer.size);
        const auto mapping = reinterpret_cast<uintptr_t>(buffer.mapping);
        fault.is_unmapped = info->si_code == SEGV_MAPERR && fault.address - mapping < buffer.mapped;
      }
    }
    own_header->fault = fault;
  }
  (void)std::signal(signal, SIG_DFL);  // the instruction runs again, or raise() repeats the signal
  (void)raise(signal);
}

void CatchFaults() {
  static std::array<uint8_t, 65536> stack;
  stack_t alternate = {};
  alternate.ss_sp = stack.data();
  alternate.ss_size = stack.size();
  (void)sigaltstack(&alternate, nullptr);
  struct sigaction action = {};
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS}) {
    (void)sigaction(signal, &action, nullptr);
  }
}

std::string Place(const Fault& fault) {
  if (fault.tensor[0] == '\0') return fmt::format("at address {:#x}", fault.address);
  const std::string_view tensor = fault.tensor.data();
  if (fault.offset < 0) return fmt::format("{} byte(s) before {}", -fault.offset, tensor);
  if (fault.offset < fault.size) return fmt::format("to byte {} of {}", fault.offset, tensor);
  return fmt::format("{} byte(s) beyond the end of {}", fault.offset - fault.size + 1, tensor);
}

std::string SignalName(int signal) {
  const char* name = intact_signal_name(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : name;
}

// What faults of one kind have in common.
std::string AccessOf(const Fault& fault) {
  std::string text = SignalName(fault.signal);
  const bool has_place = (fault.signal == SIGSEGV || fault.signal == SIGBUS) && fault.code > 0;
  if (!has_place || fault.code == SI_KERNEL) return text;
  text += std::string(", ") + NameOf(fault.access);
  if (fault.tensor[0] == '\0') return text;
  const bool is_inside = fault.offset >= 0 && fault.offset < fault.size;
  return fmt::format("{} {} {}", text,
                     is_inside          ? "to"
                     : fault.offset < 0 ? "before"
                                        : "beyond",
                     fault.tensor.data());
}

std::string Describe(const Fault& fault) {
  const std::string name = SignalName(fault.signal);
  if (fault.signal == SIGABRT) return "aborted (SIGABRT)";
  if (fault.signal != SIGSEGV && fault.signal != SIGBUS) return fmt::format("crashed ({})", name);
  if (fault.code <= 0) return fmt::format("was sent {}", name);
  if (fault.code == SI_KERNEL) {
    return fmt::format(
        "crashed ({}): an aligned access (movaps, vmovdqa …) to unaligned memory, or an invalid address",
        name);
  }
  const bool is_inside = fault.offset >= 0 && fault.offset < fault.size;
  const char* const why = fault.is_unmapped                             ? ", whose memory has been unmapped"
                          : is_inside && fault.access == Access::kWrite ? ", which is an input"
                                                                        : "";
  return fmt::format("crashed ({}): {} {}{}", name, NameOf(fault.access), Place(fault), why);
}

// The next message of the other side; nullopt if the other side is gone. `flags` are passed to recv().
template <class T>
std::optional<T> ReceiveOne(int socket, int flags) {
  for (;;) {
    T message = {};
    const ssize_t count = recv(socket, &message, sizeof message, flags);
    if (count == sizeof message) return message;
    if (count >= 0) errno = 0;  // the other side is gone; errno is an earlier call's
    if (errno != EINTR) return std::nullopt;
  }
}

template <class T>
bool SendOne(int socket, const T& message) {
  return send(socket, &message, sizeof message, MSG_NOSIGNAL) == sizeof message;
}

bool MakePair(std::array<jit::FileDescriptor, 2>* sockets) {
  std::array<int, 2> files = {};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, files.data()) != 0) return false;
  for (size_t i = 0; i < files.size(); ++i) (*sockets)[i].Reset(files[i]);
  return true;
}

// Kills the children of this process, which has one thread. False if there are no children, or the list
// cannot be read.
bool KillChildren() {
  const jit::FileDescriptor list(open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC));
  std::array<char, 65536> text = {};
  if (read(list.get(), text.data(), text.size() - 1) <= 0) return false;
  for (char* at = text.data(); const auto process = static_cast<pid_t>(std::strtol(at, &at, 10));) {
    if (*at == ' ') (void)kill(process, SIGKILL);  // the last number may be cut
  }
  return true;
}

// Kills the children of this process, and all that they have started, as these become its children in turn.
// Gives up after two seconds: it cannot kill processes of another user.
void EndChildren() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (KillChildren() && std::chrono::steady_clock::now() < end) {
    const pid_t ended = waitpid(-1, nullptr, WNOHANG);
    if (ended < 0 && errno != EINTR) return;
    if (ended == 0) (void)poll(nullptr, 0, 1);
  }
}

// The worker must not keep the parent's files: sockets of other workers, or a journal, whose lock would
// outlive the parent. On Linux before 5.9, which lacks close_range(), they stay open.
void CloseRange(int first, unsigned last) {
  constexpr long kCloseRange =
      436;  // SYS_close_range, on every architecture; glibc before 2.34 lacks the name
  (void)syscall(kCloseRange, static_cast<unsigned>(first), last, 0U);
}

template <size_t N>
void CloseAllBut(std::array<int, N> kept) {
  std::ranges::sort(kept);
  int first = STDERR_FILENO + 1;
  for (const int file : kept) {
    if (file > first) CloseRange(first, static_cast<unsigned>(file - 1));
    first = std::max(first, file + 1);
  }
  CloseRange(first, ~0U);
}

// Passes the lines of `text` to `use` until it returns false.
template <class Use>
void ForEachLine(std::string_view text, const Use& use) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (!use(text.substr(0, end))) return;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace

// A memfd and this process' mapping of it, which follows the file as it grows.
class Worker::SharedMemory {
 public:
  static std::unique_ptr<SharedMemory> Create() {
    const int file = memfd_create("intact worker", MFD_CLOEXEC);
    if (file < 0) return nullptr;
    auto memory = std::unique_ptr<SharedMemory>(new SharedMemory(file));
    return memory->Reserve(0) ? std::move(memory) : nullptr;
  }
  ~SharedMemory() {
    if (mapping_ != nullptr) (void)munmap(mapping_, mapped_);
    (void)close(file_);
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  int file() const noexcept { return file_; }
  Header* header() const noexcept { return reinterpret_cast<Header*>(mapping_); }
  uint8_t* payload() const noexcept { return mapping_ + kHeaderBytes; }

  // Makes room for a payload of `bytes`, which this side will write.
  bool Reserve(size_t bytes) {
    struct stat status = {};
    if (fstat(file_, &status) != 0) return false;
    const size_t wanted = kHeaderBytes + bytes;
    const auto size = static_cast<size_t>(status.st_size);
    if (size < wanted && ftruncate(file_, static_cast<off_t>(wanted)) != 0) return false;
    return Map(std::max(size, wanted));
  }

  // Maps `bytes` that the other side has written; false if the file is smaller.
  bool Follow(size_t bytes) {
    struct stat status = {};
    if (fstat(file_, &status) != 0) return false;
    const auto size = static_cast<size_t>(status.st_size);
    return bytes <= size - kHeaderBytes && Map(size);
  }

 private:
  explicit SharedMemory(int file) : file_(file) {}

  bool Map(size_t size) {
    if (size == mapped_) return true;
    void* mapping = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (mapping == MAP_FAILED) return false;
    if (mapping_ != nullptr) (void)munmap(mapping_, mapped_);
    mapping_ = static_cast<uint8_t*>(mapping);
    mapped_ = size;
    return true;
  }

  const int file_;
  uint8_t* mapping_ = nullptr;
  size_t mapped_ = 0;
};

Worker::Worker(std::unique_ptr<SharedMemory> memory, int socket, int printed, int keeper_socket, pid_t keeper)
    : memory_(std::move(memory)),
      socket_(socket),
      printed_(printed),
      keeper_socket_(keeper_socket),
      keeper_(keeper) {}

Worker::~Worker() {
  (void)close(keeper_socket_);
  while (waitpid(keeper_, nullptr, 0) < 0 && errno == EINTR) {
  }
  (void)close(socket_);
  (void)close(printed_);
}

Result<std::unique_ptr<Worker>> Worker::Start(const Serve& serve) {
  std::unique_ptr<SharedMemory> memory = SharedMemory::Create();
  if (memory == nullptr) return OutOfMemory("no shared memory");
  jit::FileDescriptor printed(memfd_create("intact worker's output", MFD_CLOEXEC));
  if (!printed.IsOpen()) return OutOfMemory("no memory for what it prints");
  std::array<jit::FileDescriptor, 2> sockets, keepers;
  if (!MakePair(&sockets) || !MakePair(&keepers)) return OutOfMemory("no socket");
  (void)std::fflush(nullptr);  // or the child would write buffered output again
  const pid_t keeper = fork();
  if (keeper < 0) return OutOfMemory("no process");
  if (keeper == 0) {
    sockets[0].Reset();
    keepers[0].Reset();
    Keep(serve, memory.get(), sockets[1].get(), printed.get(), keepers[1].get());
  }
  sockets[1].Reset();
  keepers[1].Reset();
  std::unique_ptr<Worker> worker(
      new Worker(std::move(memory), sockets[0].Release(), printed.Release(), keepers[0].Release(), keeper));
  const std::optional<Note> started = ReceiveOne<Note>(worker->keeper_socket_, 0);
  if (started && started->status == 0) return worker;
  errno = started ? started->status : ECHILD;
  return OutOfMemory("no process");
}

void Worker::Keep(const Serve& serve, SharedMemory* memory, int socket, int printed, int parent) noexcept {
  (void)setpgid(0, 0);  // the terminal's signals are for the parent only
  (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
  // SIGCHLD is unblocked only while ppoll() waits, so none is missed.
  sigset_t child = {}, before = {};
  (void)sigemptyset(&child);
  (void)sigaddset(&child, SIGCHLD);
  (void)sigprocmask(SIG_BLOCK, &child, &before);
  (void)std::signal(SIGCHLD, [](int) {});
  sigset_t waiting = before;
  (void)sigdelset(&waiting, SIGCHLD);  // it may have been blocked by our parent
  const pid_t worker = fork();
  if (worker == 0) {
    (void)std::signal(SIGCHLD, SIG_DFL);
    (void)sigprocmask(SIG_SETMASK, &before, nullptr);
    Live(serve, memory, socket, printed);
  }
  (void)SendOne(parent, Note{0, worker < 0 ? errno : 0});
  if (worker < 0) _exit(0);
  CloseAllBut(std::array{parent});
  bool has_ended = false;
  for (pollfd poll_parent = {parent, POLLIN, 0}; !has_ended && poll_parent.revents == 0;) {
    (void)ppoll(&poll_parent, 1, nullptr, &waiting);
    siginfo_t info = {};
    while (!has_ended && waitid(P_ALL, 0, &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0) {
      has_ended = info.si_pid == worker;
      if (has_ended) (void)SendOne(parent, Note{info.si_code, info.si_status});
    }
  }
  if (!has_ended) (void)kill(worker, SIGKILL);
  EndChildren();
  _exit(0);
}

void Worker::Live(const Serve& serve, SharedMemory* memory, int socket, int printed) noexcept {
  own_process = getpid();
  (void)setpgid(0, 0);
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);  // if the target kills the keeper
  const rlimit no_core = {0, 0};
  (void)setrlimit(RLIMIT_CORE, &no_core);
  // The target must not run our handlers.
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) (void)std::signal(signal, SIG_DFL);
  CloseAllBut(std::array{socket, printed, memory->file()});
  if (const int null = open("/dev/null", O_RDONLY); null >= 0) {
    (void)dup2(null, STDIN_FILENO);
    (void)close(null);
  }
  (void)dup2(printed, STDOUT_FILENO);
  (void)dup2(printed, STDERR_FILENO);
  // Line buffering, or a crash would lose a line. Needs its own buffer: a stream that has been used keeps its
  // mode.
  static std::array<char, BUFSIZ> line;
  (void)std::setvbuf(stdout, line.data(), _IOLBF, line.size());
  own_header = memory->header();
  CatchFaults();
  while (const std::optional<uint64_t> sequence = ReceiveOne<uint64_t>(socket, 0)) {
    (void)ftruncate(printed, 0);
    (void)lseek(printed, 0, SEEK_SET);
    if (!memory->Follow(memory->header()->request_bytes)) break;
    own_header = memory->header();
    own_header->taken = *sequence;
    const std::vector<uint8_t> answer = serve({memory->payload(), memory->header()->request_bytes});
    if (getpid() != own_process) break;  // a copy: the target called fork() and both returned
    if (!memory->Reserve(answer.size())) break;
    own_header = memory->header();
    std::ranges::copy(answer, memory->payload());
    own_header->answer_bytes = answer.size();
    if (!SendOne(socket, *sequence)) break;
  }
  _exit(0);  // not exit(): exit handlers are the parent's
}

void Worker::Refuse(const char* why) {
  std::strncpy(own_header->refusal.data(), why, own_header->refusal.size() - 1);
  _exit(0);
}

Result<std::vector<uint8_t>> Worker::Ask(std::span<const uint8_t> request,
                                         std::chrono::milliseconds deadline) {
  if (!memory_->Reserve(request.size())) return OutOfMemory("no shared memory");
  std::ranges::copy(request, memory_->payload());
  memory_->header()->request_bytes = request.size();
  const Waited waited = SendOne(socket_, ++sequence_) ? AwaitAnswer(deadline) : Waited::kGone;
  if (waited == Waited::kTimeout) {
    failure_ = {FailureKind::kHang};
    return Error{INTACT_CODEGEN_FAILED,
                 AfterPrinting(fmt::format("did not return within {:g} s",
                                           static_cast<double>(deadline.count()) / 1e3))};
  }
  if (waited == Waited::kFlood) {
    failure_ = {FailureKind::kFlood};
    return Error{INTACT_CODEGEN_FAILED,
                 AfterPrinting(fmt::format("printed more than {} MiB", kMostPrinted >> 20))};
  }
  if (waited == Waited::kGone) {
    std::string obituary = Obituary();  // waits for the end
    std::array<char, 256> refusal = memory_->header()->refusal;
    refusal.back() = '\0';  // the target can write to this memory
    if (refusal[0] != '\0') return Error{INTACT_UNSUPPORTED, refusal.data()};
    died_between_ = memory_->header()->taken != sequence_;
    return Error{INTACT_CODEGEN_FAILED, std::move(obituary)};
  }
  const size_t bytes = memory_->header()->answer_bytes;
  if (!memory_->Follow(bytes)) {
    failure_ = {FailureKind::kBrokenMemory};
    return Error{INTACT_CODEGEN_FAILED, "overwrote memory that is not its own"};
  }
  return std::vector<uint8_t>(memory_->payload(), memory_->payload() + bytes);
}

// Also checks regularly whether the worker has ended: if other processes hold its socket, poll() does not
// report it.
Worker::Waited Worker::AwaitAnswer(std::chrono::milliseconds deadline) const {
  using std::chrono::milliseconds;
  constexpr milliseconds kTurn(20);
  const auto end = std::chrono::steady_clock::now() + deadline;
  for (;;) {
    const bool has_ended = End().has_value();  // asked first, so that poll() sees all that it sent before
    const auto left = std::chrono::ceil<milliseconds>(end - std::chrono::steady_clock::now());
    const auto turn = has_ended ? milliseconds(0) : std::clamp(left, milliseconds(0), kTurn);
    pollfd poll_socket = {socket_, POLLIN, 0};
    if (poll(&poll_socket, 1, static_cast<int>(turn.count())) > 0) {
      const std::optional<uint64_t> sequence = ReceiveOne<uint64_t>(socket_, MSG_DONTWAIT);
      if (!sequence) return Waited::kGone;
      if (*sequence == sequence_) return Waited::kAnswered;
    } else if (has_ended) {
      return Waited::kGone;
    } else if (left <= milliseconds(0)) {
      return Waited::kTimeout;
    } else if (Floods()) {
      return Waited::kFlood;
    }
  }
}

bool Worker::Floods() const {
  struct stat status = {};
  return fstat(printed_, &status) == 0 && status.st_size > kMostPrinted;
}

std::optional<Worker::Note> Worker::End() const {
  // The note stays in the socket for later calls.
  const std::optional<Note> note = ReceiveOne<Note>(keeper_socket_, MSG_PEEK | MSG_DONTWAIT);
  if (note || errno == EAGAIN) return note;
  return Note{CLD_KILLED, SIGKILL};  // the keeper is gone, and with it the worker
}

std::optional<Worker::Note> Worker::AwaitEnd() const {
  pollfd poll_keeper = {keeper_socket_, POLLIN, 0};
  (void)poll(&poll_keeper, 1, 2000);
  return End();
}

std::string Worker::Obituary() {
  const std::optional<Note> end = AwaitEnd();
  failure_ = {FailureKind::kLostConnection};
  if (!end) return "closed its connection but did not end";
  Fault fault = memory_->header()->fault;
  fault.tensor.back() = '\0';  // the target can write to this memory
  std::string text;
  if (end->code == CLD_EXITED) {
    text = fmt::format("ended its process with status {}", end->status);
    failure_ = {end->status == 0 ? FailureKind::kCleanExit : FailureKind::kExit};
  } else if (fault.signal != 0) {
    text = Describe(fault);
    failure_ = {FailureKind::kCrash, AccessOf(fault)};
  } else {
    text = "was ended by " + SignalName(end->status);
    failure_ = {FailureKind::kCrash, SignalName(end->status)};
    if (end->status == SIGPIPE) text += ": it wrote to a pipe or a socket that nobody reads";
  }
  return AfterPrinting(text);
}

std::string Worker::AfterPrinting(const std::string& what) const {
  std::string line = ErrorOrLastLine(Printed());
  constexpr size_t kShown = 160;
  if (line.size() > kShown) line = line.substr(0, kShown) + "…";
  return line.empty() ? what : fmt::format("{}, after printing \"{}\"", what, support::Excerpt(line));
}

// The first error is at the beginning, the last words are at the end.
std::string Worker::Printed() const {
  constexpr size_t kMost = 65536;
  struct stat status = {};
  if (fstat(printed_, &status) != 0) return {};
  const auto size = static_cast<size_t>(status.st_size);
  std::string text = PrintedAt(0, kMost);
  if (size > kMost) {
    const size_t end = std::min(size - kMost, kMost);
    text += "\n…\n" + PrintedAt(status.st_size - static_cast<off_t>(end), end);
  }
  return text;
}

std::string Worker::PrintedAt(off_t begin, size_t most) const {
  std::string text(most, '\0');
  const ssize_t count = pread(printed_, text.data(), text.size(), begin);
  text.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
  return text;
}

std::string ErrorOrLastLine(std::string_view printed) {
  constexpr std::string_view kError = "error:";
  constexpr std::string_view kBlanks = " \t\r";
  std::string_view shown;
  ForEachLine(printed, [&](std::string_view line) {
    if (line.find_first_not_of(kBlanks) == std::string_view::npos) return true;
    shown = line;
    const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
    return std::search(line.begin(), line.end(), kError.begin(), kError.end(), same) == line.end();
  });
  shown.remove_prefix(std::min(shown.find_first_not_of(kBlanks), shown.size()));
  return std::string(shown.substr(0, shown.find_last_not_of(kBlanks) + 1));
}

}  // namespace intact::verify
