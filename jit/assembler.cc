#include "jit/assembler.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <utility>

#include "core/result.h"
#include "jit/code_memory.h"

namespace intact::jit {
namespace {

namespace x86 = asmjit::x86;

// INTACT_JIT_DUMP, the folder for listings and code. Null if the variable is not set, or names no
// writable folder. The latter is reported once on stderr.
const char* DumpDirectory() {
  static const char* const kDirectory = []() -> const char* {
    const char* const directory = std::getenv("INTACT_JIT_DUMP");
    if (directory == nullptr) return nullptr;
    if (*directory != '\0' && access((std::string(directory) + "/.").c_str(), W_OK | X_OK) == 0)
      return directory;
    const int error = *directory == '\0' ? ENOENT : errno;
    std::fprintf(stderr, "intact: INTACT_JIT_DUMP=%s: %s; expected a folder to write to; nothing is dumped\n",
                 directory, std::strerror(error));
    return nullptr;
  }();
  return kDirectory;
}

// The Error for an error of asmjit.
Error FromAsmjit(const std::string& kernel, asmjit::Error error, const std::string& message) {
  if (error == asmjit::kErrorOutOfMemory) return {INTACT_OUT_OF_MEMORY, "no memory to generate a kernel"};
  return {INTACT_CODEGEN_FAILED, "kernel " + kernel + ": " + message};
}

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

void Assembler::Recorder::handleError(asmjit::Error error, const char* message,
                                      asmjit::BaseEmitter* /*origin*/) {
  if (first != asmjit::kErrorOk) return;
  first = error;
  text = message;
}

Assembler::Assembler(std::function<std::string()> name) : name_(std::move(name)) {
  holder_.setErrorHandler(&errors_);
  if (const asmjit::Error error = holder_.init(asmjit::Environment::host()); error != asmjit::kErrorOk) {
    errors_.handleError(error, asmjit::DebugUtils::errorAsString(error), nullptr);  // init() does not call it
    return;
  }
  if (DumpDirectory() != nullptr) {
    logger_.logf("; %s\n", name_().c_str());
    holder_.setLogger(&logger_);
  }
  if (const asmjit::Error error = holder_.attach(&code_); error != asmjit::kErrorOk) {
    errors_.handleError(error, asmjit::DebugUtils::errorAsString(error), nullptr);
  }
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
    return Error{INTACT_CODEGEN_FAILED, "kernel " + name_() + ": " + why};
  };
  if (!registers.error().empty()) return failed(registers.error());
  for (const Gp& saved : {x86::rbx, x86::rbp, x86::r12, x86::r13, x86::r14, x86::r15}) {
    const bool is_pushed = std::find(pushed_.begin(), pushed_.end(), saved) != pushed_.end();
    if (registers.Touched(saved) && !is_pushed)
      return failed("a callee-saved register was taken after Begin()");
  }
  if (errors_.first != asmjit::kErrorOk) return FromAsmjit(name_(), errors_.first, errors_.text);
  return Place();
}

// Code refers only to its own data, by relative addresses, so its size does not depend on its address.
Result<Code> Assembler::Place() {
  const auto failed = [&](asmjit::Error error) {
    return FromAsmjit(name_(), error, asmjit::DebugUtils::errorAsString(error));
  };
  if (const asmjit::Error error = holder_.flatten(); error != asmjit::kErrorOk) return failed(error);
  if (const asmjit::Error error = holder_.resolveUnresolvedLinks(); error != asmjit::kErrorOk) {
    return failed(error);
  }
  const size_t size = holder_.codeSize();
  ASSIGN_OR_RETURN(CodeSpace space, CodeSpace::Reserve(size));
  if (const asmjit::Error error = holder_.relocateToBase(space.address()); error != asmjit::kErrorOk) {
    return failed(error);
  }
  if (const asmjit::Error error = holder_.copyFlattenedData(space.writable(), size);
      error != asmjit::kErrorOk) {
    return failed(error);
  }
  Result<Code> code = std::move(space).Seal();
  if (code) Publish(code->get(), size);
  return code;
}

void Assembler::Publish(const void* function, size_t size) const {
  if (DumpDirectory() != nullptr) {
    const std::string base = std::string(DumpDirectory()) + "/" + name_();
    std::ofstream(base + ".asm") << logger_.data();
    std::ofstream(base + ".bin", std::ios::binary)
        .write(static_cast<const char*>(function), static_cast<std::streamsize>(size));
  }
  static const bool kPerfMap = std::getenv("INTACT_PERF_MAP") != nullptr;
  if (kPerfMap) WritePerfMap(function, size, name_());
}

}  // namespace intact::jit
