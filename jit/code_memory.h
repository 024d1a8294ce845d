// Executable memory that is never writable through the same mapping.
//
//   memory file ──► mapping that is written   R W –   ─┐ the same pages
//               └─► mapping that is run       R – X   ─┘
//
// Code is appended and, where it was freed, nothing is written again: a block is unmapped with its last
// function. So the pages that a process shares with its forked children, the file's being shared, never
// change under any of them, and what a child appends goes to blocks of its own.
//
// Where a memory file can't be had or can't be run from, pages of their own are written first and made
// executable afterwards; where the process may do neither (SELinux, seccomp), there is no executable memory.
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
  /// Why this process may have no executable memory; "" if it may, or if memory ran out, which tells nothing.
  /// Thread-safe.
  static std::string WhyRefused();

  /// Where to write it.
  uint8_t* writable() const { return writable_; }
  /// Where it will run.
  uint64_t address() const { return reinterpret_cast<uint64_t>(executable_); }
  /// Makes what was written executable. Nothing is to be written afterwards. UNSUPPORTED as above.
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

/// All code that the process has now.
struct CodeUsage {
  int64_t functions = 0;
  int64_t bytes = 0;  // with what alignment adds
  bool operator==(const CodeUsage&) const = default;
};
CodeUsage GetCodeUsage();

}  // namespace intact::jit
#endif  // INTACT_JIT_CODE_MEMORY_H_
