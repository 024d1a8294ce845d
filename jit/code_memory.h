// Executable memory that is never writable through the same mapping.
//
//   memory file ──► mapping that is written   R W –   ─┐ the same pages
//               └─► mapping that is run       R – X   ─┘
//
// Code is only appended. The space of freed code is not reused. A block is unmapped with its last function. A
// process shares pages of the file with its forked children. Neither the process nor a child changes code in
// shared pages: a child appends to its own blocks.
//
// If the process cannot create a memory file, or cannot run code from the file, each function gets its own
// pages. These pages are written first and made executable afterwards. If the process may not make pages
// executable (SELinux, seccomp), it has no executable memory.
#ifndef INTACT_JIT_CODE_MEMORY_H_
#define INTACT_JIT_CODE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/result.h"
#include "jit/function.h"

namespace intact::jit {

/// Room for one function.
class CodeSpace {
 public:
  /// Aligned to 64 bytes. Thread-safe. UNSUPPORTED: the process may have no executable memory; the message
  /// says what was refused. OUT_OF_MEMORY.
  static Result<CodeSpace> Reserve(size_t bytes);
  /// Why this process may have no executable memory; "" if it may have some, or if memory ran out before this
  /// was known. Thread-safe.
  static std::string WhyRefused();

  /// The address to write the function to.
  uint8_t* writable() const { return writable_; }
  /// The address that the function will run at.
  uint64_t address() const { return reinterpret_cast<uint64_t>(executable_); }
  /// Makes the function executable. Do not write afterwards. UNSUPPORTED: as for Reserve().
  Result<Code> Seal() &&;

 private:
  class Block;
  class Appender;
  CodeSpace(std::shared_ptr<Block> block, size_t offset, size_t bytes);

  std::shared_ptr<Block> block_;
  uint8_t* writable_;
  const uint8_t* executable_;
  size_t bytes_;
};

/// The amount of code that the process has now.
struct CodeUsage {
  int64_t functions = 0;
  int64_t bytes = 0;  // including alignment
  bool operator==(const CodeUsage&) const = default;
};
CodeUsage GetCodeUsage();

}  // namespace intact::jit
#endif  // INTACT_JIT_CODE_MEMORY_H_
