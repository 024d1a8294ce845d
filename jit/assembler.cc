#include "jit/assembler.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <utility>

namespace intact::jit {
namespace {

namespace x86 = asmjit::x86;

const char* DumpDirectory() {
  static const char* const kDirectory = std::getenv("INTACT_JIT_DUMP");
  return kDirectory;
}

// It is never destroyed: a plan, and so its code, may outlive main().
asmjit::JitRuntime& Runtime() {
  static auto* const kRuntime = new asmjit::JitRuntime;
  return *kRuntime;
}

void Free(const void* function) noexcept { Runtime().release(const_cast<void*>(function)); }

// Appends to the map that perf reads for this process: address, size and name of each function.
void WritePerfMap(const void* function, size_t size, const std::string& name) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  static std::FILE* const kFile = [] {
    return std::fopen(("/tmp/perf-" + std::to_string(getpid()) + ".map").c_str(), "a");
  }();
  if (kFile == nullptr) return;
  std::fprintf(kFile, "%zx %zx %s\n", reinterpret_cast<size_t>(function), size, name.c_str());
  std::fflush(kFile);
}

}  // namespace

void Assembler::Recorder::handleError(asmjit::Error /*error*/, const char* message,
                                      asmjit::BaseEmitter* /*origin*/) {
  if (first.empty()) first = message;
}

Assembler::Assembler(std::string name) : name_(std::move(name)) {
  holder_.init(Runtime().environment());
  holder_.setErrorHandler(&errors_);
  if (DumpDirectory() != nullptr) {
    logger_.logf("; %s\n", name_.c_str());
    holder_.setLogger(&logger_);
  }
  holder_.attach(&code_);
}

void Assembler::Begin(const RegisterFile& registers) {
  for (const Gp& saved : {x86::rbx, x86::rbp, x86::r12, x86::r13, x86::r14, x86::r15}) {
    if (!registers.Touched(saved)) continue;
    code_.push(saved);
    pushed_.push_back(saved);
  }
}

void Assembler::End() {
  code_.vzeroupper();
  std::for_each(pushed_.rbegin(), pushed_.rend(), [&](const Gp& saved) { code_.pop(saved); });
  code_.ret();
}

Result<Code> Assembler::Finish(const RegisterFile& registers) {
  const auto failed = [&](const std::string& why) {
    return Error{INTACT_CODEGEN_FAILED, "kernel " + name_ + ": " + why};
  };
  if (!registers.error().empty()) return failed(registers.error());
  for (const Gp& saved : {x86::rbx, x86::rbp, x86::r12, x86::r13, x86::r14, x86::r15}) {
    const bool is_pushed = std::find(pushed_.begin(), pushed_.end(), saved) != pushed_.end();
    if (registers.Touched(saved) && !is_pushed)
      return failed("a callee-saved register was taken after Begin()");
  }
  if (!errors_.first.empty()) return failed(errors_.first);
  void* function = nullptr;
  const asmjit::Error error = Runtime().add(&function, &holder_);
  if (error != asmjit::kErrorOk) return failed(asmjit::DebugUtils::errorAsString(error));
  Code code(function, Free);
  Publish(function, holder_.codeSize());
  return code;
}

void Assembler::Publish(const void* function, size_t size) const {
  if (DumpDirectory() != nullptr) {
    const std::string base = std::string(DumpDirectory()) + "/" + name_;
    std::ofstream(base + ".asm") << logger_.data();
    std::ofstream(base + ".bin", std::ios::binary)
        .write(static_cast<const char*>(function), static_cast<std::streamsize>(size));
  }
  static const bool kPerfMap = std::getenv("INTACT_PERF_MAP") != nullptr;
  if (kPerfMap) WritePerfMap(function, size, name_);
}

CodeUsage GetCodeUsage() {
  const asmjit::JitAllocator::Statistics statistics = Runtime().allocator()->statistics();
  return {static_cast<int64_t>(statistics.allocationCount()), static_cast<int64_t>(statistics.usedSize())};
}

}  // namespace intact::jit
