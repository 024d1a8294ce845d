#include "bench/peers/peer_process.h"

#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/cases/workload.h"
#include "core/isas.h"
#include "core/result.h"
#include "core/types.h"
#include "jit/isa.h"

namespace intact::bench {
namespace {

using nlohmann::json;

constexpr std::string_view kOneDnn = "onednn", kOnnxRuntime = "onnxruntime", kFbgemm = "fbgemm",
                           kGgml = "ggml";
constexpr std::array kKinds = {kOneDnn, kOnnxRuntime, kFbgemm, kGgml};
constexpr int64_t kPageBytes = 4096;
constexpr const char* kNoMessage = "ended without a message";
constexpr const char* kProgram =
#include "bench/peers/peer_process.inc"
    ;
constexpr const char* kGgmlTarget =
#include "bench/peers/ggml_target.inc"
    ;

/// Whether the value of the peer's option is a library, and Python is python3.
bool IsLibrary(std::string_view kind) { return kind == kOneDnn || kind == kGgml; }

template <class Value>
Result<Value> Get(const json& answer, const char* key) {
  try {
    return answer.at(key).get<Value>();
  } catch (const json::exception&) {
    return Error{INTACT_UNSUPPORTED,
                 fmt::format("answers {}; expected another value of \"{}\"", answer.dump(), key)};
  }
}

/// A process of peer_process.py. It ends when this object is destroyed, or when this process ends.
class Process {
 public:
  /// `isa`: the process uses no instructions beyond it; nothing: it uses all of this CPU.
  static Result<std::shared_ptr<Process>> Start(const std::string& kind, const std::string& value,
                                                std::optional<core::Isa> isa, Seconds limit) {
    std::array<int, 2> ends = {};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return Failed(errno);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
      posix_spawn_file_actions_adddup2(&actions, ends[1], file);
    }
    std::vector<std::string> words = {
        IsLibrary(kind) || value.empty() ? "python3" : value, "-c", kProgram, kind, value, kGgmlTarget};
    std::vector<std::string> environment = {"OMP_NUM_THREADS=1"};
    if (isa) environment.push_back(fmt::format("HELD_TO={}", core::ToString(*isa)));
    for (char** variable = environ; *variable != nullptr; ++variable) {
      const std::string_view text = *variable;
      if (!text.starts_with("HELD_TO=") && !text.starts_with("OMP_NUM_THREADS="))
        environment.emplace_back(text);
    }
    pid_t child = 0;
    const int error = posix_spawnp(&child, words[0].c_str(), &actions, nullptr, Pointers(&words).data(),
                                   Pointers(&environment).data());
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (error != 0) {
      close(ends[0]);
      return Failed(error);
    }
    std::shared_ptr<Process> process(new Process(child, ends[0], limit));
    ASSIGN_OR_RETURN(process->greeting_, process->Answer("version", limit));
    return process;
  }

  ~Process() {
    close(file_);
    if (!has_ended_) (void)End();
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// Its first answer.
  const json& greeting() const { return greeting_; }

  /// An answer that has `key`. `work`: the time that the requested runs take.
  Result<json> Ask(const json& request, const char* key, Seconds work = Seconds(0)) {
    if (!has_ended_) last_ = kNoMessage;
    const std::string line = request.dump() + "\n";
    (void)send(file_, line.data(), line.size(), MSG_NOSIGNAL);  // if this fails, there is no answer either
    return Answer(key, limit_ + work);
  }

 private:
  Process(pid_t child, int file, Seconds limit) : child_(child), file_(file), limit_(limit) {}

  /// The next line that is a JSON object with `key` or "error". If the process ends without it, the error is
  /// the signal that ended it, or its last line.
  Result<json> Answer(const char* key, Seconds limit) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    for (;;) {
      const size_t end = received_.find('\n');
      if (end != std::string::npos) {
        const std::string line = received_.substr(0, end);
        received_.erase(0, end + 1);
        json answer = json::parse(line, nullptr, false);
        if (answer.is_object() && answer.contains("error")) {
          ASSIGN_OR_RETURN(const std::string error, Get<std::string>(answer, "error"));
          return Error{INTACT_UNSUPPORTED, error};
        }
        if (answer.is_object() && answer.contains(key)) return answer;
        if (!line.empty()) last_ = line;
        continue;
      }
      const Seconds rest = limit - Seconds(Clock::now() - start);
      pollfd file = {file_, POLLIN, 0};
      const int ready =
          rest > Seconds(0) ? poll(&file, 1, static_cast<int>(1e3 * std::min(rest.count(), 1e6)) + 1) : 0;
      if (ready < 0 && errno == EINTR) continue;
      if (ready == 0) {
        kill(child_, SIGKILL);
        (void)End();
        return Error{INTACT_UNSUPPORTED, last_ = fmt::format("gave no answer in {:.0f} s", limit.count())};
      }
      std::array<char, 4096> buffer = {};
      const ssize_t count = read(file_, buffer.data(), buffer.size());
      if (count < 0 && errno == EINTR) continue;
      if (count > 0) {
        received_.append(buffer.data(), static_cast<size_t>(count));
        continue;
      }
      if (const int status = has_ended_ ? 0 : End(); WIFSIGNALED(status)) {
        last_ = fmt::format("ended by signal {}", WTERMSIG(status));
      }
      return Error{INTACT_UNSUPPORTED, last_};
    }
  }

  /// Waits a second for the end of the process, then kills it. Returns its status.
  int End() {
    constexpr timespec kPause = {0, 10'000'000};
    int status = 0;
    has_ended_ = true;
    for (int i = 0; i < 100; ++i) {
      if (waitpid(child_, &status, WNOHANG) != 0) return status;
      nanosleep(&kPause, nullptr);
    }
    kill(child_, SIGKILL);
    while (waitpid(child_, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
  }

  static Error Failed(int error) {
    return {INTACT_UNSUPPORTED, fmt::format("cannot be run: {}", std::strerror(error))};
  }
  static std::vector<char*> Pointers(std::vector<std::string>* words) {
    std::vector<char*> pointers;
    for (std::string& word : *words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    return pointers;
  }

  pid_t child_;
  int file_;
  Seconds limit_;  // for an answer without runs
  bool has_ended_ = false;
  std::string received_;
  std::string last_ = kNoMessage;  // its last line, or why it ended
  json greeting_;
};

/// Memory that a process can map, at path().
class SharedMemory {
 public:
  static Result<std::unique_ptr<SharedMemory>> Create(int64_t bytes) {
    const int file = memfd_create("intact_bench", MFD_CLOEXEC);
    if (file < 0) return Failed("memfd_create", bytes);
    std::unique_ptr<SharedMemory> memory(new SharedMemory(file, bytes));
    if (ftruncate(file, bytes) != 0) return Failed("ftruncate", bytes);
    void* const data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (data == MAP_FAILED) return Failed("mmap", bytes);
    memory->data_ = static_cast<uint8_t*>(data);
    return memory;
  }
  ~SharedMemory() {
    if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
    close(file_);
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  uint8_t* at(int64_t offset) { return data_ + offset; }
  std::string path() const { return fmt::format("/proc/{}/fd/{}", getpid(), file_); }

 private:
  SharedMemory(int file, int64_t bytes) : file_(file), bytes_(bytes) {}
  static Error Failed(const char* function, int64_t bytes) {
    return {INTACT_UNSUPPORTED,
            fmt::format("{} of {} bytes of shared memory: {}", function, bytes, std::strerror(errno))};
  }

  int file_;
  int64_t bytes_;
  uint8_t* data_ = nullptr;
};

/// Where the operands of a contender lie in its shared memory.
struct Layout {
  int64_t a_bytes, c_bytes;
  int64_t b, scales, a, c, end;  // offsets
};

Layout LayoutOf(int64_t b_bytes, int64_t scale_bytes, int64_t a_bytes, int64_t c_bytes) {
  Layout layout = {};
  const auto after = [](int64_t offset, int64_t bytes) {
    return offset + (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  };
  layout.a_bytes = a_bytes;
  layout.c_bytes = c_bytes;
  layout.scales = after(layout.b, b_bytes);
  layout.a = after(layout.scales, scale_bytes);
  layout.c = after(layout.a, layout.a_bytes);
  layout.end = after(layout.c, layout.c_bytes);
  return layout;
}

json ToJson(const Layout& layout) {
  return {{"b", layout.b}, {"scales", layout.scales}, {"a", layout.a}, {"c", layout.c}};
}

json ToJson(const Geometry& g) {
  const auto both = [](const Extents& extents) { return json{extents.height, extents.width}; };
  return {{"batch", g.batch},
          {"c_in", g.c_in},
          {"c_out", g.c_out},
          {"groups", g.groups},
          {"in", {g.height, g.width}},
          {"out", {g.OutHeight(), g.OutWidth()}},
          {"kernel", both(g.kernel)},
          {"stride", both(g.stride)},
          {"gaps", both(g.dilation - 1)},
          {"pad_begin", both(g.PadBegin())},
          {"pad_end", both(g.PadEnd())}};
}

json ToJson(const Workload& workload, const Case& c, const Layout& layout) {
  const Shape& shape = c.shape;
  return {{"m", shape.m},
          {"n", shape.n},
          {"k", shape.k},
          {"items", shape.Items()},
          {"is_batch", shape.batch.has_value()},
          {"b_by_columns", shape.batch && shape.batch->b_by_columns},
          {"conv", shape.conv ? ToJson(*shape.conv) : json()},
          {"c_type", verify::ToString(c.format.c_type)},
          {"scales", workload.scales().size() / (shape.blocks ? sizeof(uint16_t) : sizeof(float))},
          {"blocks", shape.blocks ? json{{"bits", core::TraitsOf(shape.blocks->b_type).bits},
                                         {"depth", shape.blocks->depth}}
                                  : json()},
          {"kernels", c.kernels},
          {"offsets", ToJson(layout)}};
}

class ProcessContender final : public Contender {
 public:
  static Result<std::unique_ptr<Contender>> Make(std::shared_ptr<Process> process, const Workload& workload,
                                                 const Case& c, intact_type block_scale_type) {
    const std::span<const int8_t> b = workload.b();
    const std::span<const std::byte> scales = workload.scales();
    const Layout layout =
        LayoutOf(std::ssize(b), std::ssize(scales), static_cast<int64_t>(workload.a_bytes(c.format)),
                 c.shape.Rows() * c.shape.n * core::BytesOf(c.format.c_type));
    ASSIGN_OR_RETURN(std::unique_ptr<SharedMemory> memory, SharedMemory::Create(layout.end));
    std::memcpy(memory->at(layout.b), b.data(), b.size());
    std::memcpy(memory->at(layout.scales), scales.data(), scales.size());
    ASSIGN_OR_RETURN(
        const json answer,
        process->Ask({{"make", ToJson(workload, c, layout)}, {"memory", memory->path()}}, "contender"));
    ASSIGN_OR_RETURN(const int64_t number, Get<int64_t>(answer, "contender"));
    ASSIGN_OR_RETURN(std::string implementation, Get<std::string>(answer, "implementation"));
    return std::unique_ptr<Contender>(new ProcessContender(
        std::move(process), number, std::move(implementation), std::move(memory), layout, block_scale_type));
  }

  std::string Implementation() const override { return implementation_; }

  bool Run(const uint8_t* a, uint8_t* c) override {
    std::copy_n(c, layout_.c_bytes, memory_->at(layout_.c));
    (void)Measure(a, 1, true);
    std::copy_n(memory_->at(layout_.c), layout_.c_bytes, c);
    return true;
  }

  double Microseconds(const uint8_t* a, uint8_t* /*c*/, int64_t times) override {
    return Measure(a, times, false);
  }

  intact_type BlockScaleType() const override { return block_scale_type_; }

 private:
  ProcessContender(std::shared_ptr<Process> process, int64_t number, std::string implementation,
                   std::unique_ptr<SharedMemory> memory, const Layout& layout, intact_type block_scale_type)
      : process_(std::move(process)),
        number_(number),
        implementation_(std::move(implementation)),
        memory_(std::move(memory)),
        layout_(layout),
        block_scale_type_(block_scale_type) {}

  /// `with_c`: C in shared memory is the run's too.
  double Measure(const uint8_t* a, int64_t times, bool with_c) {
    const bool new_a = !std::equal(a, a + layout_.a_bytes, memory_->at(layout_.a));
    if (new_a) std::copy_n(a, layout_.a_bytes, memory_->at(layout_.a));
    const json request = {{"contender", number_}, {"times", times}, {"new_a", new_a}, {"with_c", with_c}};
    const Result<json> answer =
        process_->Ask(request, "microseconds", Seconds(1e-6 * microseconds_ * static_cast<double>(times)));
    if (!answer) throw std::runtime_error(answer.error().message);
    const Result<double> microseconds = Get<double>(*answer, "microseconds");
    if (!microseconds) throw std::runtime_error(microseconds.error().message);
    return microseconds_ = *microseconds;
  }

  std::shared_ptr<Process> process_;
  int64_t number_;
  std::string implementation_;
  std::unique_ptr<SharedMemory> memory_;
  Layout layout_;
  intact_type block_scale_type_;
  double microseconds_ = 0;  // of the last run
};

/// `isa`; nothing if no ISA of this CPU outranks it.
std::optional<core::Isa> LimitOf(core::Isa isa) {
  const core::IsaSet hardware = jit::HardwareIsas();
  const bool is_outranked = std::ranges::any_of(core::kAllIsas, [&](core::Isa other) {
    return hardware.Has(other) && core::TraitsOf(other).rank > core::TraitsOf(isa).rank;
  });
  return is_outranked ? std::optional(isa) : std::nullopt;
}

class ProcessPeer final : public Peer {
 public:
  ProcessPeer(std::string kind, std::string value, std::string version, double call_microseconds,
              Seconds limit)
      : kind_(std::move(kind)),
        value_(std::move(value)),
        version_(std::move(version)),
        call_microseconds_(call_microseconds),
        limit_(limit) {}

  std::string Name() const override { return kind_ == kOneDnn ? kind_ + "-" + version_ : kind_; }
  std::string Version() const override { return version_; }
  double CallMicroseconds() const override { return call_microseconds_; }
  /// Make() starts a process that is confined.
  std::optional<Error> Confine(core::Isa /*isa*/) const override { return std::nullopt; }

  bool Takes(const Case& c) const override {
    if (c.shape.blocks) {
      return c.format == kByBlock &&
             (kind_ == kOnnxRuntime || (kind_ == kGgml && c.shape.blocks->depth == kGgmlDepth));
    }
    if (c.format.quantization != Quantization::kStatic || kind_ == kGgml) return false;
    if (kind_ == kOneDnn) return !c.shape.conv || !c.shape.conv->transposed;
    return !c.shape.conv && !c.shape.batch && (kind_ == kOnnxRuntime || c.format.c_type == INTACT_U8);
  }

  Result<std::unique_ptr<Contender>> Make(const Workload& workload, const Case& c) const override {
    ASSIGN_OR_RETURN(std::shared_ptr<Process> process, ProcessFor(c.isa));
    return ProcessContender::Make(std::move(process), workload, c, kind_ == kGgml ? INTACT_F16 : INTACT_F32);
  }

  std::vector<std::string> Kernels(const Case& c) const override {
    if (kind_ != kGgml) return {""};
    std::vector<std::string> kernels = {"CPU", "CPU_REPACK"};
    if (core::TraitsOf(c.isa).has_tiles) kernels.emplace_back("AMX");
    return kernels;
  }

 private:
  static constexpr int64_t kGgmlDepth = 32;  // of ggml's blocks
  Result<std::shared_ptr<Process>> ProcessFor(core::Isa isa) const {
    std::shared_ptr<Process> process = isa_ == isa ? process_.lock() : nullptr;
    if (process) return process;
    // ggml has a library for each ISA.
    const std::optional<core::Isa> limit = kind_ == kGgml ? isa : LimitOf(isa);
    ASSIGN_OR_RETURN(process, Process::Start(kind_, value_, limit, limit_));
    isa_ = isa;
    process_ = process;
    return process;
  }

  std::string kind_, value_, version_;
  double call_microseconds_;
  Seconds limit_;
  mutable std::weak_ptr<Process> process_;  // of isa_; it ends with its last contender
  mutable core::Isa isa_ = core::Isa::kPortable;
};

}  // namespace

Result<std::unique_ptr<Peer>> StartPeer(const std::string& option, Seconds limit) {
  const size_t equals = option.find('=');
  const std::string kind = option.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : option.substr(equals + 1);
  if (std::ranges::find(kKinds, kind) == kKinds.end() || value.empty() != (equals == std::string::npos) ||
      (IsLibrary(kind) && value.empty())) {
    return Error{INTACT_INVALID_ARGUMENT,
                 fmt::format("--peer {}: is unknown; expected {}", option, kPeerOptions)};
  }
  const auto start = [&]() -> Result<std::unique_ptr<Peer>> {
    ASSIGN_OR_RETURN(const std::shared_ptr<Process> process,
                     Process::Start(kind, value, std::nullopt, limit));
    const json& greeting = process->greeting();
    ASSIGN_OR_RETURN(const std::string version, Get<std::string>(greeting, "version"));
    ASSIGN_OR_RETURN(const double call_microseconds, Get<double>(greeting, "call_microseconds"));
    return std::unique_ptr<Peer>(
        std::make_unique<ProcessPeer>(kind, value, version, call_microseconds, limit));
  };
  Result<std::unique_ptr<Peer>> peer = start();
  if (!peer) return Error{INTACT_UNSUPPORTED, fmt::format("--peer {}: {}", option, peer.error().message)};
  return peer;
}

}  // namespace intact::bench
