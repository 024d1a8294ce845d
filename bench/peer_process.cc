#include "bench/peer_process.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/workload.h"
#include "core/isas.h"
#include "core/result.h"
#include "core/types.h"
#include "jit/isa.h"

namespace intact::bench {
namespace {

using nlohmann::json;

constexpr std::string_view kOneDnn = "onednn", kOnnxRuntime = "onnxruntime", kFbgemm = "fbgemm";
constexpr std::array kKinds = {kOneDnn, kOnnxRuntime, kFbgemm};
constexpr int64_t kPageBytes = 4096;
constexpr const char* kProgram =
#include "bench/peer_process.inc"
    ;

/// A process of peer_process.py. It ends when this object is destroyed, or when this process ends.
class Process {
 public:
  /// `isa`: the process uses no instructions beyond it; nothing: it uses all of this CPU.
  static Result<std::shared_ptr<Process>> Start(const std::string& kind, const std::string& value,
                                                std::optional<core::Isa> isa) {
    std::array<int, 2> ends = {};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return Failed(errno);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
      posix_spawn_file_actions_adddup2(&actions, ends[1], file);
    }
    std::vector<std::string> words = {kind == kOneDnn || value.empty() ? "python3" : value, "-c", kProgram,
                                      kind, value};
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
    std::shared_ptr<Process> process(new Process(child, ends[0]));
    ASSIGN_OR_RETURN(process->greeting_, process->Answer());
    return process;
  }

  ~Process() {
    close(file_);
    while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// Its first answer.
  const json& greeting() const { return greeting_; }

  Result<json> Ask(const json& request) {
    const std::string line = request.dump() + "\n";
    (void)send(file_, line.data(), line.size(), MSG_NOSIGNAL);  // if this fails, there is no answer either
    return Answer();
  }

 private:
  Process(pid_t child, int file) : child_(child), file_(file) {}

  /// The next line that is a JSON object. If the process ends without it, its last line is the error.
  Result<json> Answer() {
    std::string last = "ended without a message";
    for (;;) {
      const size_t end = received_.find('\n');
      if (end != std::string::npos) {
        const std::string line = received_.substr(0, end);
        received_.erase(0, end + 1);
        json answer = json::parse(line, nullptr, false);
        if (answer.is_object() && answer.contains("error")) {
          return Error{INTACT_UNSUPPORTED, answer["error"].get<std::string>()};
        }
        if (answer.is_object()) return answer;
        if (!line.empty()) last = line;
        continue;
      }
      std::array<char, 4096> buffer = {};
      const ssize_t count = read(file_, buffer.data(), buffer.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return Error{INTACT_UNSUPPORTED, last};
      received_.append(buffer.data(), static_cast<size_t>(count));
    }
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
  std::string received_;
  json greeting_;
};

/// Memory that a process can map, at path().
class SharedMemory {
 public:
  static Result<std::unique_ptr<SharedMemory>> Create(int64_t bytes) {
    const int file = memfd_create("intact_bench", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, bytes) != 0) return OutOfMemory();
    void* const data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (data == MAP_FAILED) return OutOfMemory();
    return std::unique_ptr<SharedMemory>(new SharedMemory(file, static_cast<uint8_t*>(data), bytes));
  }
  ~SharedMemory() {
    munmap(data_, static_cast<size_t>(bytes_));
    close(file_);
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  uint8_t* at(int64_t offset) { return data_ + offset; }
  std::string path() const { return fmt::format("/proc/{}/fd/{}", getpid(), file_); }

 private:
  SharedMemory(int file, uint8_t* data, int64_t bytes) : file_(file), data_(data), bytes_(bytes) {}
  static Error OutOfMemory() { return {INTACT_UNSUPPORTED, std::strerror(errno)}; }

  int file_;
  uint8_t* data_;
  int64_t bytes_;
};

/// Where the operands of a contender lie in its shared memory.
struct Layout {
  int64_t a_bytes, c_bytes;
  int64_t b, scales, a, c, end;  // offsets
};

Layout LayoutOf(const Workload& workload, const Case& c) {
  Layout layout = {};
  const auto after = [](int64_t offset, int64_t bytes) {
    return offset + (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  };
  layout.a_bytes = c.shape.InputElements();
  layout.c_bytes = c.shape.Rows() * c.shape.n * core::BytesOf(c.format.c_type);
  layout.scales = after(layout.b, std::ssize(workload.b()));
  layout.a = after(layout.scales, std::ssize(workload.operation().scales) * int64_t{sizeof(float)});
  layout.c = after(layout.a, layout.a_bytes);
  layout.end = after(layout.c, layout.c_bytes);
  return layout;
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
          {"scales", workload.operation().scales.size()},
          {"offsets", {{"b", layout.b}, {"scales", layout.scales}, {"a", layout.a}, {"c", layout.c}}}};
}

class ProcessContender final : public Contender {
 public:
  static Result<std::unique_ptr<Contender>> Make(std::shared_ptr<Process> process, const Workload& workload,
                                                 const Case& c) {
    const Layout layout = LayoutOf(workload, c);
    ASSIGN_OR_RETURN(std::unique_ptr<SharedMemory> memory, SharedMemory::Create(layout.end));
    std::ranges::copy(workload.b(), memory->at(layout.b));
    const std::vector<float>& scales = workload.operation().scales;
    std::memcpy(memory->at(layout.scales), scales.data(), scales.size() * sizeof(float));
    ASSIGN_OR_RETURN(const json answer,
                     process->Ask({{"make", ToJson(workload, c, layout)}, {"memory", memory->path()}}));
    return std::unique_ptr<Contender>(
        new ProcessContender(std::move(process), answer, std::move(memory), layout));
  }

  std::string Implementation() const override { return implementation_; }

  bool Run(const uint8_t* a, uint8_t* c) override {
    if (!Measure(a, 1)) return false;
    std::copy_n(memory_->at(layout_.c), layout_.c_bytes, c);
    return true;
  }

  double Microseconds(const uint8_t* a, uint8_t* /*c*/, int64_t times) override {
    const Result<json> answer = Measure(a, times);
    if (!answer) throw std::runtime_error(answer.error().message);
    return answer->at("microseconds").get<double>();
  }

 private:
  ProcessContender(std::shared_ptr<Process> process, const json& made, std::unique_ptr<SharedMemory> memory,
                   const Layout& layout)
      : process_(std::move(process)),
        number_(made.at("contender").get<int64_t>()),
        implementation_(made.at("implementation").get<std::string>()),
        memory_(std::move(memory)),
        layout_(layout) {}

  Result<json> Measure(const uint8_t* a, int64_t times) {
    std::copy_n(a, layout_.a_bytes, memory_->at(layout_.a));
    return process_->Ask({{"contender", number_}, {"times", times}});
  }

  std::shared_ptr<Process> process_;
  int64_t number_;
  std::string implementation_;
  std::unique_ptr<SharedMemory> memory_;
  Layout layout_;
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
  ProcessPeer(std::string kind, std::string value, std::string name, std::string version)
      : kind_(std::move(kind)),
        value_(std::move(value)),
        name_(std::move(name)),
        version_(std::move(version)) {}

  std::string Name() const override { return name_; }
  std::string Version() const override { return version_; }
  /// Make() starts a process that is confined.
  std::optional<Error> Confine(core::Isa /*isa*/) const override { return std::nullopt; }

  bool Takes(const Case& c) const override {
    if (c.format.quantization != Quantization::kStatic) return false;
    if (kind_ == kOneDnn) return !c.shape.conv || !c.shape.conv->transposed;
    return !c.shape.conv && !c.shape.batch && (kind_ == kOnnxRuntime || c.format.c_type == INTACT_U8);
  }

  Result<std::unique_ptr<Contender>> Make(const Workload& workload, const Case& c) const override {
    if (!process_ || isa_ != c.isa) {
      process_.reset();
      isa_ = c.isa;
      ASSIGN_OR_RETURN(process_, Process::Start(kind_, value_, LimitOf(c.isa)));
    }
    return ProcessContender::Make(process_, workload, c);
  }

 private:
  std::string kind_, value_, name_, version_;
  mutable std::shared_ptr<Process> process_;  // of isa_
  mutable core::Isa isa_ = core::Isa::kPortable;
};

}  // namespace

Result<std::unique_ptr<Peer>> StartPeer(const std::string& option) {
  const size_t equals = option.find('=');
  const std::string kind = option.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : option.substr(equals + 1);
  if (std::ranges::find(kKinds, kind) == kKinds.end() || value.empty() != (equals == std::string::npos) ||
      (kind == kOneDnn && value.empty())) {
    return Error{INTACT_INVALID_ARGUMENT,
                 fmt::format("--peer {}: is unknown; expected {}", option, kPeerOptions)};
  }
  Result<std::shared_ptr<Process>> process = Process::Start(kind, value, std::nullopt);
  if (!process)
    return Error{INTACT_UNSUPPORTED, fmt::format("--peer {}: {}", option, process.error().message)};
  const json& greeting = (*process)->greeting();
  const std::string version = greeting.at("version").get<std::string>();
  return std::unique_ptr<Peer>(std::make_unique<ProcessPeer>(
      kind, value, kind == kOneDnn ? kind + "-" + version : kind,
      fmt::format("{}; a call takes {:.1f} us", version, greeting.at("call_microseconds").get<double>())));
}

}  // namespace intact::bench
